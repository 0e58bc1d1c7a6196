"""The count of wrong answers that are caught can itself fail."""

import io
import types

import pytest
from rich.console import Console

from lib.exercises import judging
from tests.exercises import caught

RIGHT = "B A C E F D"


def answers(right, *wrong):
    return types.SimpleNamespace(RIGHT=right, WRONG={"01.one_query": list(wrong)} if wrong else {})


def test_an_answer_is_caught_by_the_message_meant_for_it():
    one = caught.count(
        "01.one_query",
        answers(
            {"01.one_query": RIGHT},
            ("caught", "D", "Not right yet: .* needs the weights"),
            ("no such message", "D", "needs the scores"),
            ("right after all", RIGHT, ""),
            ("open", ..., "Not answered yet"),
        ),
    )
    assert (one.known, one.caught) == (4, 2)
    assert [fault.partition(":")[0] for fault in one.faults] == [
        "01.one_query, no such message",
        "01.one_query, right after all",
    ]


@pytest.mark.parametrize(
    ("known", "fault"),
    [
        (answers({}, ("w", "D", "")), "no right answer is known"),
        (answers({"01.one_query": "D"}, ("w", "D", "")), "the right answer: Not right yet"),
        (answers({"01.one_query": RIGHT}), "no wrong answer is known"),
    ],
)
def test_a_task_without_answers_is_a_fault(known, fault):
    (said,) = caught.count("01.one_query", known).faults
    assert fault in said


def test_the_table_and_the_code_tell(monkeypatch):
    # Fewer than one in a hundred missed must not read as 100 %.
    wrong = [("w", "D", "")] * 1999 + [("missed", RIGHT, "")]
    files = {"01": answers(dict.fromkeys(judging.tasks_of("01"), RIGHT), *wrong)}
    monkeypatch.setattr(caught, "answer_files", lambda: files)
    monkeypatch.setattr(caught, "verdict", lambda task, answer: "no" if answer == "D" else "")
    text = io.StringIO()
    assert caught.main(Console(file=text, width=100)) == 1
    assert "99.9 %" in text.getvalue()
    assert "100 %" not in text.getvalue()
    assert "01.one_query, missed: it passes" in text.getvalue()
    assert "01.one_layer: no wrong answer is known" in text.getvalue()


def test_nothing_counted_is_no_success(monkeypatch):
    monkeypatch.setattr(caught, "answer_files", dict)
    assert caught.main(Console(file=io.StringIO())) == 1


def test_the_answers_to_the_first_exercise_are_all_caught():
    counts = caught.count_all({"01": caught.answer_files()["01"]})
    assert sum(one.known for one in counts) > 40
    assert all(one.known == one.caught and not one.faults for one in counts)
    assert caught.share(counts) == "100 %"
