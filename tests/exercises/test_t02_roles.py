"""Exercise 02: what is right is measured, and what is wrong is refuted by an experiment."""

import contextlib
import io
import re

import numpy as np
import pytest

from lib.exercises import Malformed, NotRight, Unanswered, Wrong, check, roles
from lib.exercises import t02_roles as t02
from lib.exercises.judging import tasks_of
from lib.lab import experiments as lab
from tests.exercises.wrong.t02 import RIGHT, WRONG

TASKS = tasks_of("02")
CASES = [(name, *case) for name, cases in WRONG.items() for case in cases]
CELL = "\nRun it yourself, in a cell of your own:\n\n"


def run_cell(source):
    """Run lines of a message in a namespace of their own and return the numbers they print."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, "<cell>", "exec"), {"__name__": "__main__"})
    return [float(x) for x in re.findall(r"-?\d+\.?\d*(?:e-?\d+)?", printed.getvalue())]


def shown(text):
    """Return the measured numbers of a message: with two decimals, or before “multiply-adds”."""
    numbers = re.findall(r"\d+\.\d\d|[\d,]+(?= multiply-adds)", text)
    return [float(x.replace(",", "")) for x in numbers]


@pytest.mark.parametrize("name", TASKS)
def test_the_right_answer_prints_one_line(name, capsys):
    check(name, RIGHT[name])
    assert re.fullmatch(rf"{name}: right\. [A-Z][^\n]+\.\n", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("name", "label", "answer", "message"), CASES, ids=[f"{c[0]} {c[1]}" for c in CASES]
)
def test_wrong_answers_get_the_message_meant_for_them(name, label, answer, message, capsys):
    with pytest.raises(NotRight) as refusal:
        check(name, answer)
    text = f"{refusal.value.heading}: {refusal.value}"
    assert re.search(message, text), text
    assert capsys.readouterr().out == ""
    assert (refusal.type is Wrong) == (CELL in text)


def refusals():
    """Return one wrong answer for each experiment of the exercise: task and answer."""
    for letter, statement in t02.STATEMENTS.lettered.items():
        if statement.calls:
            yield "02.roles", letter
    for letter, role in RIGHT["02.sorting"].items():
        other = "neither" if role != "neither" else "both"
        yield "02.sorting", {**RIGHT["02.sorting"], letter: other}
    for letter in RIGHT["02.jobs"]:
        yield "02.jobs", {**RIGHT["02.jobs"], letter: "both"}
    for name in (
        "without",
        "one_step",
        "intermediates",
        "changes",
        "depths",
        "window",
        "hops",
        "lengths",
    ):
        right = RIGHT[f"02.{name}"]
        for part, value in right.items():
            yield f"02.{name}", {**right, part: another(value)}


def another(value):
    """Return a wrong prediction of the same kind."""
    if type(value) is bool:
        return not value
    if type(value) is int:
        return value + (1 if value < 3 else -1)
    if type(value) is str:
        return "the"
    return value[1:] if value else ["X"]


@pytest.mark.parametrize(("name", "answer"), list(refusals()))
def test_the_lines_of_a_message_run_alone_and_print_its_numbers(name, answer):
    with pytest.raises(Wrong) as refusal:
        check(name, answer)
    said, _, source = str(refusal.value).partition(CELL)
    printed = run_cell(source)
    assert shown(said)
    for number in shown(said):  # rounded to two decimals: off by half of the last one at most
        assert np.isclose(printed, number, rtol=0, atol=0.0051).any(), (number, printed)


# --- How a prediction is read and refuted ---

MOVING = roles.Moving((1, 2, 3), "output", (1, 3))
NUMBERS = roles.Factor("one", "two")
LAYERS = roles.FirstLayer(3, "it")
WORD = roles.NextWord(("the", "saw"))


@pytest.mark.parametrize(("kind", "value", "found", "fault"), [
    (MOVING, {2}, {1: 0, 2: 1, 3: 0}, ""),
    (MOVING, {2}, {1: 0, 2: 0, 3: 1}, "you name output 2, which moved by 0.00."),
    (MOVING, set(), {1: 0, 2: 0, 3: 1}, "you leave out output 3, which moved by 1.00."),
    (roles.YesNo("it"), True, 1.5, ""),
    (roles.YesNo("it"), False, 1.5, "you say that it stays as it is. It moved by 1.50."),
    (roles.YesNo("it"), True, 0, "you say that it moves. It moved by 0.00."),
    (WORD, " Saw", {"the": 0.25, "saw": 0.75}, ""),
    (WORD, "the", {"the": 0.25, "saw": 0.75}, "you say that “the” comes next. Its probability is "
                                              "0.25; that of another word is 0.75."),
    (LAYERS, 2, (0, 1, 1), ""),
    (LAYERS, 0, (0, 0, 0), ""),
    (LAYERS, 1, (0, 1, 2), "you say 1. After 1 layer it has moved by 0.00."),
    (LAYERS, 3, (0, 1, 2), "you say 3. After 2 layers it has moved by 1.00."),
    (LAYERS, 0, (0, 1, 2), "you say never. After 3 layers it has moved by 2.00."),
    (NUMBERS, 4.0, (1000, 3600), ""),
    (NUMBERS, 2, (1000, 3600), "you say that it grows by the factor 2. Counted were 1,000 "
                               "multiply-adds for one and 3,600 for two."),
])  # fmt: skip
def test_what_was_measured_refutes_a_prediction(kind, value, found, fault):
    assert kind.refute(kind.read(value), found) == fault


@pytest.mark.parametrize(("kind", "value", "words"), [
    (MOVING, 1, "such as [1, 3], or [] where nothing moves; it is 1."),
    (MOVING, [4], "it should hold some of 1, 2, 3; it holds 4."),
    (MOVING, [True], "a list, tuple or set of whole numbers"),
    (NUMBERS, 0, "above 0 and below 1000, such as 3; it is 0."),
    (NUMBERS, 1000, "above 0 and below 1000, such as 3; it is 1000."),
    (NUMBERS, True, "it is True."),
    (LAYERS, 4, "from 1 to 3, or 0 for never; it is 4."),
    (LAYERS, -1, "from 1 to 3, or 0 for never; it is -1."),
    (LAYERS, "2", "it is '2'."),
])  # fmt: skip
def test_what_is_no_prediction_is_malformed(kind, value, words):
    with pytest.raises(Malformed, match=re.escape(words)):
        kind.read(value)


def test_the_limits_of_a_factor():
    assert [NUMBERS.read(value) for value in (1, 0.5, 999.5)] == [1, 0.5, 999.5]


# --- What is right, derived a second time and by hand ---


def test_roles_are_measured_and_every_one_of_the_four_occurs():
    measured = {
        letter: roles.ROLES[tuple(bool(p.holds(call.result())) for call in p.calls)]
        for letter, p in t02.PROPERTIES.lettered.items()
    }
    assert measured == RIGHT["02.sorting"]
    assert set(measured.values()) == set(roles.ROLES.values())


def test_only_a_product_of_features_is_there_together_and_not_alone():
    # What the experiment of the jobs measures, on functions of one vector that are known.
    both, either = lab.X[1:2], lab.X[5:6]

    def product(X):
        return X.sum(axis=1, keepdims=True) ** 2

    linear = lab.nonlinearity(lambda X: X @ lab.W.W_Q + 1, both, either)
    assert linear < roles.MOVES < 1 < lab.nonlinearity(product, both, either)


def test_the_toy_without_a_step_says_what_it_writes():
    for text, layers in ((t02.BIRD, lab.toy.WITHOUT_ATTENTION), (t02.DOG, lab.toy.WITHOUT_FFN)):
        without = "attention" if layers is lab.toy.WITHOUT_ATTENTION else "FFN"
        found = lab.toy_says(text, without)
        word = lab.toy.write(text, [layers], limit=len(text.split()) + 1).split()[-1]
        assert max(found, key=found.get) == word


def test_no_reading_is_near_the_border():
    # What moves is far above MOVES, and is not shown as 0.00; what does not is far below it.
    readings = []
    for p in (*t02.PROPERTIES.properties, *t02.JOBS.properties):
        if p.holds in (t02.there, t02.not_there):
            readings += [call.result() for call in p.calls]
    for prediction in (t02.ONE_STEP, t02.INTERMEDIATES, t02.CHANGES, t02.DEPTHS, t02.WINDOW,
                       t02.HOPS):  # fmt: skip
        for call in prediction.parts.values():
            found = call.result()
            readings += (
                list(found.values()) if type(found) is dict else np.atleast_1d(found).tolist()
            )
    far = np.array(readings)
    assert len(far) > 100
    assert ((far > 0.01) | (far < roles.MOVES / 1000)).all(), np.sort(far)
    assert (far > 0.01).sum() > 40


def test_one_statement_is_right_and_it_is_not_the_first_nor_the_longest():
    right = [s for s in t02.STATEMENTS.statements if not s.calls]
    (letter,) = [k for k, s in t02.STATEMENTS.lettered.items() if s is right[0]]
    assert len(right) == 1
    assert letter == RIGHT["02.roles"] != "A"
    assert len(right[0].text) < max(len(s.text) for s in t02.STATEMENTS.statements)


def test_the_stack_gives_its_pointers_by_hand():
    # Gus → Eve → Cid → Bob: what stands in Eve's vector is read in layer 1, and so on.
    way = {}
    person = lab.POINTS_TO[lab.NAMES.index("Gus")]
    for depth in (1, 2, 3):
        way[lab.NAMES[person]] = depth
        person = lab.POINTS_TO[person]
    assert {name: way.get(name, 0) for name in RIGHT["02.hops"]} == RIGHT["02.hops"]


# --- How answers are read ---


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("nothing", [..., None])
def test_an_open_answer_is_told_the_form(name, nothing):
    with pytest.raises(Unanswered, match=re.escape(TASKS[name].form)):
        check(name, nothing)


@pytest.mark.parametrize("name", [name for name in TASKS if name != "02.roles"])
def test_the_stub_of_the_notebook_is_an_open_answer(name):
    with pytest.raises(Unanswered, match="still open"):
        check(name, dict.fromkeys(RIGHT[name], ...))
    some = dict(list(RIGHT[name].items())[:1])
    with pytest.raises(Unanswered, match=f'still open: "{list(RIGHT[name])[1]}"'):
        check(name, some)


@pytest.mark.parametrize("form", [list, tuple, set])
def test_positions_may_be_written_in_three_ways(form):
    check("02.window", {key: form(reversed(value)) for key, value in RIGHT["02.window"].items()})


def test_letters_and_roles_may_be_written_in_capitals_and_factors_as_floats():
    check("02.roles", " e ")
    check("02.sorting", {key: value.upper() for key, value in RIGHT["02.sorting"].items()})
    check("02.lengths", {key: float(value) for key, value in RIGHT["02.lengths"].items()})


@pytest.mark.parametrize("answer", [[], "x", 3, np.zeros(2), object(), {1: 2}, {"Bob": 3, 4: 1}])
@pytest.mark.parametrize("name", [name for name in TASKS if name != "02.roles"])
def test_what_is_no_dict_of_the_right_keys_is_malformed(name, answer):
    with pytest.raises(Malformed, match="the answer (should be a dict|has a place for)"):
        check(name, answer)


def test_an_answer_is_not_changed():
    answer = {key: list(value) for key, value in RIGHT["02.window"].items()}
    check("02.window", answer)
    assert answer == RIGHT["02.window"]


def test_of_a_set_the_first_unknown_label_is_named_whatever_its_order():
    moving = roles.Moving(("A", "B"), "letter", ("A",))
    unknown = {"foo", "bar", "baz", "qux", "quux"}
    with pytest.raises(Malformed, match="it holds 'bar'"):
        moving.read(unknown)
    with pytest.raises(Malformed, match="it holds 'foo'"):
        moving.read(["foo", "bar"])
