"""Every known answer that is a function, judged from outside of the process that it runs in.

The verdicts and the messages are those of `course check`, which judges in the same process.
"""

import re
from dataclasses import replace

import pytest

from lib.exercises import hidden, questions, verdicts, work
from lib.exercises.judging import tasks_of
from lib.exercises.running import remote
from lib.grading import confine
from tests.exercises.caught import answer_files
from tests.exercises.making import ROOT

FILES = answer_files()
# What only the compiler says; its messages are the same, and it takes seconds for each.
COMPILED = re.compile("compile|plain Python")


MODULE = """
import sys, types
for name in ("tests", "tests.exercises", "tests.exercises.wrong", "tests.exercises.wrong.t04"):
    sys.modules[name] = types.ModuleType(name)
exec({!r}, sys.modules[name].__dict__)
sys.modules["tests.exercises.wrong"].t04 = sys.modules[name]
"""


def source(number):
    return (ROOT / "tests/exercises/wrong" / f"t{number}.py").read_text(encoding="utf-8")


@pytest.fixture(params=["04", "05", "06", "07", "08", "09"])
def process(request, monkeypatch):
    if not confine.available():
        pytest.skip("nothing here confines a process")
    monkeypatch.setattr(work, "NUMBA", False)
    run = verdicts._Process(verdicts.Rules(confine.Confined(), seconds=30), False, {})
    run.session.wait_until_ready()
    # In there nothing of the tests can be seen, so the answers are told as text.
    assert run.session.request("cell", source=MODULE.format(source("04"))) == {}
    assert run.session.request("cell", source=source(request.param)) == {}
    yield request.param, run
    run.close()


def verdict(process, task, expression):
    (question,) = (
        q for q in questions.read(ROOT, [task[:2]])[task[:2]].questions if q.task == task
    )
    question = replace(question, variable="its_answer")  # kernels call each other by their names
    process.programs = {task: [expression]}
    process.session.request("cell", source=f"its_answer = {expression}")
    with process.session.within(30):
        return verdicts.verdict_of(lambda: process._judge(question, "", {}))


def test_they_get_the_verdict_and_the_message_of_course_check(process, monkeypatch):
    number, run = process
    # Without the model: what all its heads are given is tested with the whole exercise.
    monkeypatch.setattr(verdicts, "judge_function", verdicts.Building.judge)
    wrong = []
    for task in tasks_of(number):
        if not questions.owner(task) or not hasattr(questions.owner(task), "name"):
            continue
        answers = FILES[number]
        right = [f"RIGHT[{task!r}]"]
        right += [
            f"ALSO_RIGHT[{task!r}][{k}]"
            for k in range(len(getattr(answers, "ALSO_RIGHT", {}).get(task, [])))
        ]
        for expression in right:
            word, message = verdict(run, task, expression)
            if word != verdicts.RIGHT:
                wrong.append((task, expression, word, message))
        for k, (label, _, pattern) in enumerate(answers.WRONG[task]):
            if COMPILED.search(pattern) or "real model" in pattern:
                continue
            word, message = verdict(run, task, f"WRONG[{task!r}][{k}][1]")
            if word == verdicts.RIGHT or not re.search(pattern, f"{word}: {message}"):
                wrong.append((task, label, word, message))
    assert wrong == []


def test_for_every_function_there_are_inputs_of_its_own():
    for number in ("04", "05", "06", "07", "08", "09"):
        for task in tasks_of(number):
            owner = questions.owner(task)
            if isinstance(owner, verdicts.Building):
                more, again = hidden.building(owner, 1), hidden.building(owner, 1)
                other = hidden.building(owner, 2)
            elif isinstance(owner, verdicts.Kernel):
                more, again = hidden.kernel(owner, 1).values, hidden.kernel(owner, 1).values
                other = hidden.kernel(owner, 2).values
            else:
                continue
            assert more.rungs[-1].mechanism == hidden.MECHANISM
            assert repr(more.rungs[-1].arguments[0]) == repr(again.rungs[-1].arguments[0])
            assert repr(more.rungs[-1].arguments) != repr(other.rungs[-1].arguments)


BY_HEART = """
import numpy as np
KNOWN = {TABLE}
def scores(q, K):
    key = repr((np.asarray(q).tolist(), np.asarray(K).tolist()))
    return np.array(KNOWN.get(key, [0.0] * len(K)))
"""


def test_results_known_by_heart_do_not_help():
    if not confine.available():
        pytest.skip("nothing here confines a process")
    owner = questions.owner("04.scores")
    table = {
        repr((rung.arguments[0].tolist(), rung.arguments[1].tolist())): owner.definition(
            *rung.arguments
        ).tolist()
        for rung in owner.rungs
    }
    run = verdicts._Process(verdicts.Rules(confine.Confined(), seconds=30), False, {})
    try:
        run.session.wait_until_ready()
        run.session.request("cell", source=BY_HEART.replace("{TABLE}", repr(table)))
        owner.judge(remote.Function(run.session, "scores"))  # it passes what everybody can read
        word, message = verdict(run, "04.scores", "scores")
    finally:
        run.close()
    assert word == verdicts.WRONG
    assert f"fails at {hidden.MECHANISM}" in message


LAZY = """
import numpy as np
def attend_one(q, K, V, weights, out):
    try:
        s = K @ q / np.sqrt(len(q))
        p = np.exp(s - s.max())
        out[:] = p / p.sum() @ V
    except Exception:
        pass
"""


def test_work_that_is_not_done_where_it_is_counted_does_not_pass():
    if not confine.available():
        pytest.skip("nothing here confines a process")
    run = verdicts._Process(verdicts.Rules(confine.Confined(), seconds=30), False, {})
    try:
        run.session.wait_until_ready()
        run.session.request("cell", source=LAZY)
        word, message = verdict(run, "07.attend", "attend_one")
    finally:
        run.close()
    assert "other values when its work is counted" in message
    assert word == verdicts.WRONG
