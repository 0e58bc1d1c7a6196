"""Which cells of a notebook make the answer, case by case."""

from dataclasses import replace

import pytest

from lib.exercises.answers import Found, find
from lib.exercises.judging import MALFORMED, MISSING, UNANSWERED
from lib.exercises.questions import Exercise, Question
from lib.exercises.reading import Cell

QUESTION = Question(
    task="09.x", title="", variable="x", points=1.0, answer="09-x-answer", check="09-x-check",
    stub="x = ...", solution="x = 1",
)  # fmt: skip
EXERCISE = Exercise("09", "09_x.ipynb", frozenset({"09-x-answer", "09-x-check", "start"}),
                    (QUESTION,), (), frozenset())  # fmt: skip
CHECK = Cell("code", 'check("09.x", x)', ("09-x-check",))
PUT_BACK = 'Put it back: a code cell with check("09.x", of="x")'
OUTSIDE = "The answer was found outside of its cell, 09-x-answer."
JOINED = "Its answer cell, 09-x-answer, was split; it was joined."


def code(source, *ids):
    return Cell("code", source, ids)


def answer(source):
    return code(source, "09-x-answer")


def found(*cells, check=CHECK):
    return find(QUESTION, EXERCISE, [*cells, *([check] if check else [])])


def test_the_marked_cell_is_the_answer_and_gets_no_note():
    assert found(code("import math", "start"), answer("x = 5"), code("y = 1")) == Found("x = 5")


def test_what_stands_beside_it_under_the_same_mark_belongs_to_it():
    assert found(answer("def f(): return 7"), answer("x = f()")) == Found(
        "def f(): return 7\nx = f()"
    )


@pytest.mark.parametrize(("cells", "source"), [
    (["x = (", "5", ")"], "x = (\n5\n)"),
    (["x = [", "1,", "2,", "3]"], "x = [\n1,\n2,\n3]"),
    (["def f():", "    return 1", "x = f()"], "def f():\n    return 1\nx = f()"),
    (["x = f(", "2)"], "x = f(\n2)"),
])  # fmt: skip
def test_a_torn_answer_is_joined(cells, source):
    first, *rest = cells
    assert found(answer(first), *map(code, rest)) == Found(source, note=JOINED)


def test_a_torn_off_rest_is_taken_where_the_first_part_could_stand_alone():
    # "def x(): pass" binds x, and "    return 2" is no cell of its own.
    source = "def x():\n    y = 1\n    return y"
    head, _, last = source.rpartition("\n")
    assert found(answer(head), code(last)) == Found(source, note=JOINED)


def test_a_cell_that_is_no_rest_is_left_alone():
    assert found(answer("x = 5"), code("    oops")) == Found("x = 5")
    assert found(answer("x = 5"), code("y = 1")) == Found("x = 5")
    assert found(answer("x = 5"), Cell("markdown", "    text", ())) == Found("x = 5")


def test_marks_of_other_cells_end_a_torn_answer():
    whole = found(answer("x = ("), code("5)", "09-y-answer"))
    assert whole.source == "x = ("  # the judge says that it is no Python
    assert whole.note == ""


def test_a_torn_answer_has_nine_parts_at_most():
    parts = ["x = [", *["1,"] * 6, "]"]
    assert found(*map(answer, parts[:1]), *map(code, parts[1:])).source == "\n".join(parts)
    parts = ["x = [", *["1,"] * 7, "]"]
    assert found(*map(answer, parts[:1]), *map(code, parts[1:])).source == "\n".join(parts)
    parts = ["x = [", *["1,"] * 8, "]"]
    assert found(*map(answer, parts[:1]), *map(code, parts[1:])).source == "x = ["


def test_the_last_cell_of_a_notebook_may_be_torn_too():
    assert found(CHECK, answer("x = ("), code("5)"), check=None) == Found("x = (\n5)", note=JOINED)
    assert found(CHECK, answer("x = ("), check=None) == Found("x = (")


def test_an_answer_elsewhere_is_taken_with_what_was_marked():
    assert found(answer("y = 2"), code("x = y + 1")) == Found("y = 2\nx = y + 1", note=OUTSIDE)
    assert found(answer("x = ..."), code("x = 3")) == Found("x = 3", note=OUTSIDE)
    assert found(code("x = 3")) == Found("x = 3", note=OUTSIDE)


def test_the_exercise_s_own_cells_are_no_answers():
    assert found(code("x = 3", "start")).word == MISSING


@pytest.mark.parametrize("cells", [
    [answer("x = 1"), answer("x = 2")],
    [code("x = 1"), code("x = 2")],
])  # fmt: skip
def test_of_two_different_ones_none_is_guessed(cells):
    got = found(*cells)
    assert (got.source, got.word) == ("", MALFORMED)
    assert got.message.startswith("2 cells give `x` different values")
    assert found(cells[0], cells[0]).source == "x = 1"
    assert found(cells[0], Cell("code", "x = 1  # again", cells[0].ids)).word == ""


@pytest.mark.parametrize(("cells", "word"), [
    ([answer("x = ...")], UNANSWERED),
    ([answer("  ")], UNANSWERED),
    ([code("x = ...  # mine")], UNANSWERED),
    ([answer("y = 1")], MALFORMED),
    ([code("y = 1")], MISSING),
    ([Cell("markdown", "x = 1", ("09-x-answer",))], MISSING),
])  # fmt: skip
def test_where_there_is_none_it_is_said_why(cells, word):
    got = found(*cells)
    assert (got.source, got.word) == ("", word)
    assert bool(got.message) == (word != UNANSWERED)


@pytest.mark.parametrize(("check", "note"), [
    (CHECK, ""),
    (None, f"Its check cell, 09-x-check, is not in the notebook. {PUT_BACK}"),
    (code('check("09.x", x)'), ""),  # its mark was lost, and it is there
    (code('check("09.y", y)'), f"Its check cell, 09-x-check, is not in the notebook. {PUT_BACK}"),
    (Cell("markdown", "", ("09-x-check",)),
     f"Its check cell, 09-x-check, is no code cell any more. {PUT_BACK}"),
    (code('print(x)', "09-x-check"), f"Its check cell, 09-x-check, was changed. {PUT_BACK}"),
])  # fmt: skip
def test_a_check_out_of_the_way_is_noted(check, note):
    assert found(answer("x = 5"), check=check) == Found("x = 5", note=note)


@pytest.mark.parametrize(
    ("name", "letter", "called"),
    [
        ("аnswer", "а", "cyrillic small letter a"),
        ("ɑnswer", "ɑ", "latin small letter alpha"),
        ("answеr", "е", "cyrillic small letter ie"),
        ("αnswer", "α", "greek small letter alpha"),
    ],
)
def test_a_name_that_only_looks_like_the_variable_is_told(name, letter, called):
    question = replace(QUESTION, variable="answer", stub="answer = ...")
    got = find(question, EXERCISE, [answer(f"{name} = 1"), CHECK])
    assert (got.word, got.source) == (MALFORMED, "")
    assert got.message == (
        f"`{name}` looks like `answer` and is another name: its {letter!r} is a {called}. "
        "Type the name anew."
    )


@pytest.mark.parametrize("name", ["Answer", "answerе", "ansver", "а"])
def test_other_names_do_not_look_like_it(name):
    question = replace(QUESTION, variable="answer", stub="answer = ...")
    got = find(question, EXERCISE, [answer(f"{name} = 1"), CHECK])
    assert got.message == "Its answer cell should give `answer` a value."
