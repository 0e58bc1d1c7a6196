"""Exercise 01: every order that the needs allow is right, and every other one is refuted."""

import itertools
import re

import pytest

from lib.exercises import NotRight, Unanswered, Wrong, check
from lib.exercises import t01_ordering as t01
from tests.exercises.wrong.t01 import RIGHT

ORDERINGS = {
    "01.one_query": t01.ONE_QUERY,
    "01.one_layer": t01.ONE_LAYER,
    "01.next_token": t01.TO_THE_NEXT_TOKEN,
    "01.decoding_step": t01.DECODING_STEP,
}
EACH = pytest.mark.parametrize("name", ORDERINGS)


@EACH
def test_the_right_answer_prints_one_line(name, capsys):
    check(name, RIGHT[name])
    steps = len(RIGHT[name].split())
    assert capsys.readouterr().out == (
        f"{name}: right. All {steps} steps ran, each on what the steps before it had made.\n"
    )


@EACH
def test_every_order_that_the_graph_allows_is_right(name):
    orders = list(ORDERINGS[name].orders())
    assert RIGHT[name].replace(" ", "") in orders
    assert len(set(orders)) == len(orders)
    for order in orders:
        ORDERINGS[name].judge(order)


@EACH
def test_the_orders_are_all_permutations_that_respect_the_needs(name):
    ordering = ORDERINGS[name]
    letters = "".join(letter for letter, step in ordering.lettered.items() if not step.decoy)
    made_at = {ordering.lettered[letter].makes: letter for letter in letters}

    def respects(order):
        place = {letter: k for k, letter in enumerate(order)}
        return all(
            place[made_at[need]] < place[letter]
            for letter in letters
            for need in ordering.lettered[letter].needs
            if need in made_at
        )

    allowed = {"".join(p) for p in itertools.permutations(letters) if respects(p)}
    assert set(ordering.orders()) == allowed


@EACH
def test_every_swap_that_breaks_an_order_is_refuted_at_the_first_step_without_input(name):
    ordering = ORDERINGS[name]
    orders = set(ordering.orders())
    broken = 0
    for order in orders:
        for i, j in itertools.combinations(range(len(order)), 2):
            swapped = list(order)
            swapped[i], swapped[j] = swapped[j], swapped[i]
            if "".join(swapped) in orders:
                continue
            broken += 1
            with pytest.raises(Wrong, match="no step before it has made that") as refuted:
                ordering.judge("".join(swapped))
            place = int(re.match(r"your step (\d+)", str(refuted.value)).group(1))
            assert i < place <= j + 1
    assert broken > 10


@EACH
def test_a_step_left_out_or_a_decoy_added_is_refuted(name):
    ordering = ORDERINGS[name]
    decoys = [letter for letter, step in ordering.lettered.items() if step.decoy]
    assert len(decoys) >= 2
    for order in itertools.islice(ordering.orders(), 50):
        for k in range(len(order)):
            with pytest.raises(Wrong):
                ordering.judge(order[:k] + order[k + 1 :])
        for decoy, k in itertools.product(decoys, range(len(order) + 1)):
            with pytest.raises(Wrong):
                ordering.judge(order[:k] + decoy + order[k:])


@EACH
@pytest.mark.parametrize("nothing", [..., None])
def test_an_open_answer_is_told_the_form(name, nothing):
    with pytest.raises(Unanswered, match=re.escape('such as "A B C"')):
        check(name, nothing)


@pytest.mark.parametrize("form", [list, tuple, " → ".join, ", ".join, "".join, str.lower])
def test_an_order_may_be_written_in_many_ways(form):
    letters = RIGHT["01.one_query"].split()
    answer = form("".join(letters)) if form is str.lower else form(letters)
    check("01.one_query", answer)


def test_the_message_is_shown_without_a_traceback():
    try:
        check("01.one_query", ...)
    except NotRight as refusal:
        (line,) = refusal._render_traceback_()
    assert line.startswith("Not answered yet: 01.one_query")


def test_no_step_and_no_letter_gives_an_answer_away():
    for name, ordering in ORDERINGS.items():
        in_order = "".join(sorted(set(RIGHT[name]) - {" "}))
        assert RIGHT[name].replace(" ", "") != in_order  # the letters are shuffled
        assert ordering.example.replace(" ", "") != RIGHT[name].replace(" ", "")[:3]
