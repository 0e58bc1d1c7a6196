"""The judge's own decisions: what counts as what, and who is blamed for a process that ended."""

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest

from lib import reference
from lib.errors import CourseError, ModelError
from lib.exercises import Malformed, Unanswered, Wrong, judging, questions, verdicts
from lib.exercises import t06_build_the_stack as t06
from lib.exercises.diagnosis import NotJudged
from lib.exercises.judging import MALFORMED, RIGHT, UNANSWERED, WRONG
from lib.exercises.reading import Cell
from lib.exercises.running import remote
from lib.exercises.running.process import Trusted
from lib.grading import confine
from tests.exercises.making import ROOT

# --- Words -------------------------------------------------------------------------------------


def raising(error):
    def judged():
        raise error

    return judged


@pytest.mark.parametrize(("error", "word", "message"), [
    (Wrong("so"), WRONG, "so"),
    (Unanswered("so"), UNANSWERED, "so"),
    (Malformed("so"), MALFORMED, "so"),
    (NotJudged("so"), verdicts.NOT_JUDGED, "so"),
    (ModelError("no model"), verdicts.NOT_JUDGED, "no model"),
    (CourseError("so"), WRONG, "The answer could not be judged: CourseError: so"),
    (ZeroDivisionError("so"), WRONG, "The answer could not be judged: ZeroDivisionError: so"),
    (RecursionError("so"), WRONG, "The answer could not be judged: RecursionError: so"),
])  # fmt: skip
def test_a_judgement_that_raises_is_never_right(error, word, message):
    assert verdicts.verdict_of(raising(error)) == (word, message)


def test_one_that_does_not_raise_is_right():
    assert verdicts.verdict_of(lambda: "said") == (RIGHT, "")


def test_what_is_not_the_answer_s_fault_is_no_verdict():
    with pytest.raises(remote.Gone):
        verdicts.verdict_of(raising(remote.Gone("it ended")))


# --- Attention in the heads of the real model ----------------------------------------------------


class Attention:
    """A function of a reader, as the judge sees it: off by so much, in the heads of a list."""

    def __init__(self, off=0.0, where=()):
        self.off, self.where, self.asked = off, where, []

    def __call__(self, Q, K, V):
        return reference.attend_causal(Q, K, V)

    def many(self, calls):
        self.asked.append(len(calls))
        for k, call in enumerate(calls, sum(self.asked[:-1])):
            yield self(*call) + self.off * (k in self.where)


def calls(count, size=1.0):
    """Return so many heads whose values, and so their outputs, are all of one size."""
    rng = np.random.default_rng(0)
    arrays = [(rng.normal(size=(2, 4)), rng.normal(size=(3, 4)), np.full((3, 2), size))
              for _ in range(count)]  # fmt: skip
    return [(*three, reference.attend_causal(*three)) for three in arrays]


@pytest.fixture
def five_heads(monkeypatch):
    monkeypatch.setattr(verdicts, "heads", lambda: calls(5))
    monkeypatch.setattr(verdicts, "CALLS_AT_ONCE", 2)


@pytest.mark.parametrize(("off", "size", "fits"), [
    (0, 1, True), (0.9e-4, 1, True), (1.1e-4, 1, False), (0.9e-4, 0.01, True),
    (1.1e-4, 0.01, False), (0.9e-2, 100, True), (1.1e-2, 100, False), (np.nan, 1, False),
])  # fmt: skip
def test_a_head_fits_to_within_a_ten_thousandth_of_its_largest_number(off, size, fits):
    assert verdicts._fits(Attention(off, (1,)), calls(3, size)) is fits


@pytest.mark.parametrize("returned", [np.zeros((2, 3)), "text", None])
def test_a_head_of_another_shape_or_kind_does_not_fit(returned):
    function = SimpleNamespace(many=lambda calls: [returned for _ in calls])
    assert verdicts._fits(function, calls(2)) is False


def test_right_attention_is_asked_for_all_heads_and_the_model_need_not_run(five_heads, monkeypatch):
    monkeypatch.setattr(t06.InTheModelToo, "judge", None)
    attention = Attention()
    verdicts.judge_function(t06.REAL, attention)
    assert attention.asked == [2, 2, 1]


def test_where_a_head_differs_the_model_runs_and_says_where(five_heads, monkeypatch):
    ran = []
    monkeypatch.setattr(t06.InTheModelToo, "judge", lambda self, function: ran.append(function))
    for head in range(5):
        attention = Attention(0.1, (head,))
        with pytest.raises(Wrong, match="my_attention differs from the definition in a head"):
            verdicts.judge_function(t06.REAL, attention)
        assert ran.pop() is attention


def test_attention_that_fails_on_the_ladder_is_not_tried_in_the_model(five_heads):
    attention = Attention()
    with pytest.raises(Wrong, match="fails at"):
        verdicts.judge_function(t06.REAL, lambda Q, K, V: attention(Q, K, V) + 1)
    assert attention.asked == []


# --- A process that ends before all are judged ---------------------------------------------------

EXERCISE = questions.read(ROOT, ["06"])["06"]
TASKS = [question.task for question in EXERCISE.questions]
RULES = verdicts.Rules(Trusted(), seconds=10, patience=25)


@pytest.fixture
def runs(monkeypatch):
    """Play what processes do: each gives some verdicts, and then ends or not."""
    script, seen = [], []

    class Process:
        def __init__(self, rules, numba, programs, limits):
            seen.append((numba, limits.seconds))

        def judge(self, left, give):
            right, why = script.pop(0)
            for question in left:
                if question.task in right:
                    give(question, RIGHT, "")
            return why

        def close(self):
            seen.append("closed")

    monkeypatch.setattr(verdicts, "_Process", Process)

    def grade(*steps, source="def f(): return 1", others=()):
        script[:], seen[:] = steps, []
        cells = [Cell("code", f"{source}\n{q.variable} = 1", (q.answer,))
                 for q in EXERCISE.questions]  # fmt: skip
        cells = [*map(others_cell, others), *cells]
        rows = verdicts.judge_notebook("Ann", EXERCISE, cells, RULES)
        assert [row.task for row in rows] == TASKS
        assert script == []
        assert seen[1::2] == ["closed"] * (len(seen) // 2)
        return [row.verdict for row in rows], [row.message for row in rows], seen[::2]

    return grade


def others_cell(source):
    return Cell("code", source, ())


def test_where_nothing_ends_early_one_process_is_enough(runs):
    words, messages, started = runs((TASKS, ""))
    assert words == [RIGHT] * 5
    assert [message for message in messages if "check cell" not in message] == []
    assert started == [(False, 60)]  # ten seconds for each answer, and as many to start


def test_who_ends_the_process_is_wrong_and_the_others_go_on_without_it(runs):
    words, messages, started = runs((TASKS[:1], "Its answer cell did not end: x."), (TASKS[2:], ""))
    assert words == [RIGHT, WRONG, RIGHT, RIGHT, RIGHT]
    assert messages[1].startswith("Its answer cell did not end: x.")
    assert len(started) == 2


def test_where_nobody_can_be_blamed_all_that_are_left_are_wrong(runs):
    words, messages, started = runs((TASKS[:2], f"{verdicts.NO_START}: x."))
    assert words == [RIGHT, RIGHT, WRONG, WRONG, WRONG]
    assert all(message.startswith(verdicts.NO_START) for message in messages[2:])
    assert len(started) == 1


def test_hanging_is_ended_when_its_time_is_spent(runs):
    # Ten seconds each of 25: after three, none are left.
    words, messages, started = runs(*[((), "Your code did not return: x.")] * 3)
    assert words == [WRONG] * 5
    assert all(m.startswith("Your code did not return: x.") for m in messages[:3])
    assert all(m.startswith("Other answers of this notebook hung too often.") for m in messages[3:])
    assert len(started) == 3


@pytest.mark.parametrize(("source", "numba"), [
    ("import numba", True), ("from lib.jit import kernel", True), ("import math", False),
])  # fmt: skip
def test_the_compiler_is_there_for_who_asks_for_it(runs, source, numba):
    _, _, started = runs((TASKS, ""), source=source)
    assert started[0][0] is numba


class Session:
    """A confined process as the judge sees it; what it does to each cell and name is given."""

    def __init__(self, does):
        self.does, self.asked, self.limits = does, [], []

    @contextlib.contextmanager
    def within(self, seconds):
        self.limits.append(seconds)
        yield

    def wait_until_ready(self):
        self.asked.append("start")
        self.do("start")

    def request(self, what, source="", name=""):
        source = source or what * (what == "reset")
        self.asked.append(source or name)
        return self.do(source or name)

    def do(self, which):
        done = self.does.get(which, {"value": None})
        if isinstance(done, BaseException):
            raise done
        return done


def process(monkeypatch, does, programs):
    monkeypatch.setattr(verdicts.remote, "Session", lambda *_: Session(does))
    monkeypatch.setattr(Trusted, "start", lambda *_: None)
    return verdicts._Process(RULES, False, programs)


def judged(monkeypatch, does):
    """Judge the first two tasks, whose cells are called one and two."""
    programs = {TASKS[0]: ["import math", "one"], TASKS[1]: ["two"]}
    run = process(monkeypatch, does, programs)
    given = {}
    ended = run.judge(EXERCISE.questions[:2], lambda q, *said: given.update({q.task: said}))
    return ended, given, run


FIRST, SECOND = (question.variable for question in EXERCISE.questions[:2])
GONE = remote.Gone("the process ended")


def test_each_answer_runs_with_what_it_needs_and_is_looked_at_before_the_next(monkeypatch):
    ended, given, run = judged(monkeypatch, {})
    asked = ["start", "reset", "import math", "one", FIRST, "reset", "two", SECOND]
    assert run.session.asked == asked
    assert run.session.limits == [remote.START, 10, 10, 10, 10]
    assert ended == ""
    for task in TASKS[:2]:
        word, message = given[task]
        assert word == UNANSWERED
        assert message.startswith("The form is a function ")


def test_what_a_cell_raised_is_told_with_a_verdict_that_is_not_right(monkeypatch):
    raised = {"raised": ["NameError", "no name"]}
    ended, given, _ = judged(monkeypatch, {"one": raised, FIRST: {"missing": True}})
    assert ended == ""
    assert given[TASKS[0]] == (MALFORMED, "Its answer cell does not run: NameError: no name.")
    monkeypatch.setattr(verdicts, "verdict_of", lambda _: (RIGHT, ""))
    assert judged(monkeypatch, {"one": raised})[1][TASKS[0]] == (RIGHT, "")


@pytest.mark.parametrize(("where", "what", "given"), [
    ("start", verdicts.NO_START, 0),
    ("import math", "Its answer cell did not end", 0),
    ("one", "Its answer cell did not end", 0),
    ("two", "Its answer cell did not end", 1),
    (FIRST, "Your code did not return", 0),
    (SECOND, "Your code did not return", 1),
])  # fmt: skip
def test_what_was_at_work_is_told(monkeypatch, where, what, given):
    ended, verdicts, _ = judged(monkeypatch, {where: GONE})
    assert ended == f"{what}: the process ended."
    assert len(verdicts) == given


# --- Literals ------------------------------------------------------------------------------------


def test_a_set_is_told_in_one_order():
    letters = set("XQKVABCD")
    assert verdicts.about({"row 0": letters})["value"] == f"{{'row 0': {judging.written(letters)}}}"


def test_a_long_value_is_kept_in_part():
    exercise = questions.read(ROOT, ["01"])["01"]
    (question, *_) = exercise.questions
    answer = Cell("code", f"{question.variable} = {'A ' * 400!r}", (question.answer,))
    row = verdicts.judge_notebook("Ann", exercise, [answer], RULES)[0]
    assert row.value == repr("A " * 400)[:500]
    assert len(row.value) == 500
    assert (row.verdict, row.points, row.possible) == (MALFORMED, 0, question.points)


def test_where_nothing_confines_a_function_it_is_said(monkeypatch):
    monkeypatch.setattr(confine, "available", lambda: "")
    cells = [Cell("code", f"def {q.variable}(): pass", (q.answer,)) for q in EXERCISE.questions]
    rules = verdicts.Rules(confine.Confined())
    rows = verdicts.judge_notebook("Ann", EXERCISE, cells, rules)
    assert {row.verdict for row in rows} == {verdicts.NOT_JUDGED}
    assert all("Install bubblewrap" in row.message for row in rows)
