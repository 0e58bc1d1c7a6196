"""The known answers to every task: right ones pass, each wrong one gets its own message."""

import re

import pytest

from lib.errors import CourseError
from lib.exercises import Malformed, check
from lib.exercises.judging import listed, quoted, tasks_of, written
from tests.exercises.caught import answer_files, verdict

FILES = answer_files()
MIN_MISTAKES = 8  # that an author must think of, for each task
RIGHT = [
    (task, answer)
    for answers in FILES.values()
    for task, first in answers.RIGHT.items()
    for answer in (first, *getattr(answers, "ALSO_RIGHT", {}).get(task, []))
]
WRONG = [
    pytest.param(task, answer, pattern, id=f"{task} {label}")
    for number, answers in FILES.items()
    if number != "02"  # whose own tests ask more of the same messages
    for task, wrong in answers.WRONG.items()
    for label, answer, pattern in wrong
]


@pytest.mark.parametrize(("task", "answer"), RIGHT, ids=[task for task, _ in RIGHT])
def test_a_right_answer_prints_one_line(task, answer, capsys):
    check(task, answer)
    assert re.fullmatch(rf"{re.escape(task)}: right\..*\n", capsys.readouterr().out)


@pytest.mark.parametrize(("task", "answer", "pattern"), WRONG)
def test_a_wrong_answer_gets_the_message_meant_for_it(task, answer, pattern, capsys, request):
    if request.node.name.endswith("not compiled]"):
        request.getfixturevalue("compiled")
    message = verdict(task, answer)
    assert message, "it passes"
    assert re.search(pattern, message), message
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("number", FILES)
def test_for_every_task_a_right_answer_and_eight_wrong_ones_are_known(number):
    assert set(FILES[number].RIGHT) == set(FILES[number].WRONG) == set(tasks_of(number))
    assert min(map(len, FILES[number].WRONG.values())) >= MIN_MISTAKES


@pytest.mark.parametrize("name", ["01.nothing", "99.one_query", "01", "", 1.5, None])
def test_a_task_that_is_none_is_named(name):
    with pytest.raises(CourseError, match=f"name should be the name of a task; it is {name!r}"):
        check(name, "A")


def test_words_in_a_list():
    assert listed(["a"]) == "a"
    assert listed(iter("abc")) == "a, b and c"
    assert quoted(["a", "b"]) == '"a" and "b"'


@pytest.mark.parametrize("module", ["ipywidgets", "ipywidgets.widgets.widget", "anywidget"])
def test_a_widget_is_no_answer(module):
    base = type("Widget", (), {"__module__": module})
    with pytest.raises(Malformed, match=r"the answer is a widget\. A widget helps to find"):
        check("01.one_query", type("Mine", (base,), {})())


def test_what_has_widget_in_its_name_is_judged_as_anything_else():
    with pytest.raises(Malformed, match="it is of type Mine"):
        check("01.one_query", type("Mine", (), {"__module__": "my_ipywidgets.ipywidgets"})())


@pytest.mark.parametrize(
    ("task", "answer", "name"),
    [
        ("01.one_query", "B А C", "Its 'А' is a cyrillic capital letter a."),
        ("01.one_query", ["B", "Α"], "Its 'Α' is a greek capital letter alpha."),
        ("07.bound", "М A M A M A", "Its 'М' is a cyrillic capital letter em."),
    ],
)
def test_a_letter_that_only_looks_right_is_named(task, answer, name):
    with pytest.raises(Malformed, match=f"{re.escape(name)}$"):
        check(task, answer)


def test_letters_of_a_sentence_and_of_latin_are_not_named():
    answer = {"seed": 2026, "component": 1, "evidence": "é", "because": "внимание"}
    with pytest.raises(Malformed) as caught:
        check("03.scenario", answer)
    assert "Its '" not in str(caught.value)


def test_sets_are_written_in_one_order_and_all_else_as_python_writes_it():
    letters = set("XQKVABCD")
    assert written(letters) == "{" + ", ".join(map(repr, sorted(letters))) + "}"
    assert written({"a": [letters, 1.5]}) == f"{{'a': [{written(letters)}, 1.5]}}"
    for plain in (set(), {}, [], (), (1,), (1, "a"), [None, True], {"a": ("b",)}, "x", 7):
        assert written(plain) == repr(plain)
