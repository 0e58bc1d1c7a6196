"""Exercise 01: every order that the needs allow is right, and every other one is refuted."""

import itertools
import re

import numpy as np
import pytest

from lib import reference
from lib.exercises import NotRight, Unanswered, Wrong, check
from lib.exercises import t01_ordering as t01
from lib.exercises.ordering import Ordering, Step
from lib.lab import toy
from tests.exercises.wrong.t01 import RIGHT

ORDERINGS = {
    "01.one_query": t01.ONE_QUERY,
    "01.one_layer": t01.ONE_LAYER,
    "01.pre_norm": t01.PRE_NORM,
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


# --- What the steps compute, against the definitions ---

FLOAT32 = {"rtol": 1e-5, "atol": 1e-6}  # the weights are, and so are some of the steps
W, X = t01.W, t01.X
q, K, V = (t01.ONE_QUERY.given[name] for name in "qKV")
x, K_old, V_old = (t01.DECODING_STEP.given[name] for name in ("x", "K_old", "V_old"))
M = X[-1] + reference.attend(X[-1] @ W.W_Q, X @ W.W_K, X @ W.W_V) @ W.W_O
IDS = [0, 1, 2, 0, 3]  # the dog saw the bird
OUTPUTS = [reference.stack(toy.EMBEDDING[IDS], [t01.FIRST, t01.SECOND][:k]) for k in (1, 2)]


def hidden(h):
    return np.maximum(h @ W.W_1 + W.b_1, 0)


def leaves(hidden):
    return M + hidden @ W.W_2 + W.b_2


def token(row):
    return (row @ toy.W_HEAD).argmax()


def with_step(ordering, part):
    """Run the right steps, but the one whose text has this part in the place of its like."""
    (other,) = [step for step in ordering.steps if part in step.text]
    given = dict(ordering.given)
    for step in ordering.steps:
        if not step.decoy:
            run = other if other.decoy and step.makes == other.makes else step
            given[step.makes] = run.run(*(given[name] for name in run.needs))
    return given[ordering.goals[0]]


@pytest.mark.parametrize(
    ("ordering", "part", "right"),
    [
        (t01.ONE_QUERY, "dot product of the query", reference.attend(q, K, V)),
        (t01.ONE_QUERY, "Add up the keys", reference.attention_weights(q, K) @ K),
        (t01.ONE_QUERY, "by d.", reference.softmax(K @ q / 16) @ V),
        (t01.ONE_LAYER, "weighted by α", reference.residual_layer(X, W)[-1]),
        (t01.ONE_LAYER, "that entered the layer by W_1", leaves(hidden(X[-1]))),
        (t01.PRE_NORM, "Normalise the vectors", reference.layer(X, W)[-1]),
        (t01.TO_THE_NEXT_TOKEN, "Run layer 1", token(OUTPUTS[1][-1])),
        (t01.DECODING_STEP, "by W_Q", reference.attend(
            x @ W.W_Q, np.vstack([K_old, x @ W.W_K]), np.vstack([V_old, x @ W.W_V]))),
        (t01.DECODING_STEP, "value as the output", x @ W.W_V),
    ],
)  # fmt: skip
def test_the_steps_compute_what_they_say(ordering, part, right):
    np.testing.assert_allclose(with_step(ordering, part), right, **FLOAT32)


def test_decoys_that_follow_other_steps_compute_what_they_say():
    run = {step.text: step.run for o in ORDERINGS.values() for step in o.steps if step.decoy}
    own, every = hidden(M), hidden(X).sum(axis=0)
    mixed = run["Add the hidden vectors of all positions to that of the current token."]
    np.testing.assert_allclose(mixed(own, X), own + every, **FLOAT32)
    mean = run["Take the mean of the outputs of all layers, last row, and apply the final norm."]
    right = reference.layer_norm((OUTPUTS[0][-1] + OUTPUTS[1][-1]) / 2, W.gain_1, W.bias_1)
    np.testing.assert_allclose(mean(*OUTPUTS), right, **FLOAT32)
    first = run["Take the first token's row of the output of layer 2, and apply the final norm."]
    right = reference.layer_norm(OUTPUTS[1][0], W.gain_1, W.bias_1)
    np.testing.assert_allclose(first(OUTPUTS[1]), right, **FLOAT32)
    lost = run["Put the new key in the place of the last one in the cache."]
    np.testing.assert_array_equal(lost(K_old, x), [*K_old[:-1], x])


def test_decoys_of_the_pre_norm_layer_compute_what_they_say():
    run = {step.text: step.run for step in t01.PRE_NORM.steps if step.decoy}
    added, left, attention, hidden_of = (run[text] for text in sorted(run))
    np.testing.assert_allclose(attention(X), M - X[-1], **FLOAT32)
    np.testing.assert_allclose(hidden_of(M), hidden(M), **FLOAT32)
    np.testing.assert_array_equal(added(M, X), X[-1] + M)
    np.testing.assert_array_equal(left(M, M), 2 * M)


def test_a_message_shows_what_came_and_what_should():
    with pytest.raises(Wrong) as refused:
        t01.ONE_LAYER.judge("E I F C D A B H")
    assert str(refused.value).endswith(
        "never sees the left context. With your steps the vector that leaves the layer names "
        "“saw” as the next word; by the definition it names “fly” as the next word."
    )
    assert toy.WORDS[token(leaves(hidden(X[-1])))] == "saw"
    with pytest.raises(Wrong) as refused:
        t01.ONE_QUERY.judge("B A C E F G")
    found = reference.attention_weights(q, K) @ K
    assert f"animal {found[toy.COLUMNS.index('animal')]:.2f}, action 0.93" in str(refused.value)


def test_a_step_that_nothing_needs_must_be_there_too():
    two = Ordering(
        given={"a": np.ones(2)},
        words={"b": "the double", "c": "the triple"},
        goals=("b",),
        steps=(
            Step("Double.", ("a",), "b", lambda a: 2 * a),
            Step("Triple.", ("a",), "c", lambda a: 3 * a),
            Step("Halve.", ("a",), "h", lambda a: a / 2, decoy="Nothing is halved."),
        ),
        seed=0,
    )
    letter = {step.text: letter for letter, step in two.lettered.items()}
    with pytest.raises(Wrong, match="none of them has made the triple"):
        two.judge(letter["Double."])
    assert two.judge(letter["Triple."] + letter["Double."]).startswith("All 2 steps ran")
