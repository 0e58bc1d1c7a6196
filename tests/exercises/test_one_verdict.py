"""One answer gets one verdict: from the notebook's own check, from `course check`, from `grade`."""

import textwrap

import numpy as np
import pytest

from lib.exercises import judging, questions, verdicts
from lib.exercises.judging import MALFORMED, RIGHT, UNANSWERED, WRONG, NotRight
from lib.exercises.reading import Cell
from lib.exercises.running.process import Trusted
from lib.grading import confine
from tests.exercises.wrong import t01, t02, t03

WORDS = {"Wrong": WRONG, "Unanswered": UNANSWERED, "Malformed": MALFORMED}
EXERCISES = questions.read()
CELLS = {
    number: [Cell("code", source, ()) for source in exercise.cells]
    for number, exercise in EXERCISES.items()
}
TRUSTED = verdicts.Rules(Trusted(), seconds=30)


def graded(number, sources, rules):
    """Return the verdicts on a notebook whose answer cells hold these sources, by task."""
    cells = list(CELLS[number])
    for question in EXERCISES[number].questions:
        before, answer = sources.get(question.task, ("", question.stub))
        cells += [Cell("code", before, ())] if before else []
        cells += [Cell("code", answer, (question.answer,))]
        cells += [Cell("code", f'check("{question.task}", of="x")', (question.check,))]
    rows = verdicts.judge_notebook("Ann", EXERCISES[number], cells, rules)
    return {row.task: row.verdict for row in rows}


def in_the_notebook(task, value):
    try:
        judging.check(task, value)
        return RIGHT
    except NotRight as refusal:
        return WORDS[type(refusal).__name__]


def literals():
    """Yield every known answer that is a literal: right ones, and all known wrong ones."""
    for module in (t01, t02, t03):
        for task, value in module.RIGHT.items():
            yield task, value
        for task, wrongs in module.WRONG.items():
            for one in wrongs:
                yield task, one[1]


def plain(value):
    """Tell whether a value is what its text says, subclasses that look alike left out."""
    if type(value) in (list, tuple):
        return all(map(plain, value))
    if type(value) is dict:
        return all(map(plain, [*value, *value.values()]))
    if type(value) is int:
        return abs(value) < 10**100  # Python writes none of thousands of digits
    return type(value) in (str, bool) or (type(value) is float and np.isfinite(value))


LITERALS = [
    (task, value) for task, value in literals() if plain(value) and not task.startswith("03.real")
]


@pytest.mark.parametrize("number", ["01", "02", "03"])
def test_every_known_literal_gets_one_verdict(number, capsys):
    variables = {q.task: q.variable for q in EXERCISES[number].questions}
    mine = [(task, value) for task, value in LITERALS if task.startswith(number)]
    assert len(mine) > 15
    for task, value in mine:
        source = f"{variables[task]} = {value!r}"
        found = graded(number, {task: ("", source)}, TRUSTED)[task]
        assert found == in_the_notebook(task, value), (task, value)


# Right answers, as people write them: what stands above the answer cell, and the cell.
STYLES = {
    "a comprehension": ("", """
        def attend(q, K, V):
            s = np.array([sum(a * b for a, b in zip(q, k)) for k in K]) / len(q) ** 0.5
            w = np.exp(s - s.max())
            return w / w.sum() @ V
        """),
    "variables": ("", """
        root = 0.5
        def attend(q, K, V):
            s = K @ q / len(q) ** root
            w = np.exp(s - s.max())
            return w / w.sum() @ V
        """),
    "a helper cell": ("def my_softmax(s):\n    w = np.exp(s - s.max())\n    return w / w.sum()", """
        def attend(q, K, V):
            return my_softmax(K @ q / np.sqrt(len(q))) @ V
        """),
    "an import in another cell": ("import math as m", """
        def attend(q, K, V):
            w = np.exp(K @ q / m.sqrt(len(q)) - max(K @ q / m.sqrt(len(q))))
            return w / w.sum() @ V
        """),
    "decorated": ("import functools", """
        def passing(f):
            @functools.wraps(f)
            def g(*a):
                return f(*a)
            return g
        @passing
        def attend(q, K, V):
            w = np.exp(K @ q / np.sqrt(len(q)) - max(K @ q / np.sqrt(len(q))))
            return w / w.sum() @ V
        """),
    "a lambda": ("", """
        weigh = lambda s: np.exp(s - s.max()) / np.exp(s - s.max()).sum()
        attend = lambda q, K, V: weigh(K @ q / np.sqrt(len(q))) @ V
        """),
    "float64": ("", """
        def attend(q, K, V):
            s = np.float64(K) @ np.float64(q) / np.sqrt(np.float64(len(q)))
            w = np.exp(s - s.max())
            return np.float64(w / w.sum() @ V)
        """),
    "Fortran order": ("", """
        def attend(q, K, V):
            s = np.asfortranarray(K) @ q / np.sqrt(len(q))
            w = np.exp(s - s.max())
            return np.asfortranarray((w / w.sum())[None] @ V)[0]
        """),
    "a list": ("", """
        def attend(q, K, V):
            s = K @ q / np.sqrt(len(q))
            w = np.exp(s - s.max())
            return list(w / w.sum() @ V)
        """),
    "in place": ("", """
        def attend(q, K, V):
            s = K @ q
            s /= np.sqrt(len(q))
            s -= s.max()
            np.exp(s, out=s)
            s /= s.sum()
            return s @ V
        """),
}  # fmt: skip


@pytest.mark.parametrize("confined", [False, True], ids=["check", "grade"])
@pytest.mark.parametrize("style", STYLES)
def test_right_functions_in_every_style_are_right_everywhere(style, confined, capsys):
    if confined and not confine.available():
        pytest.skip("nothing here confines a process")
    before, source = STYLES[style][0], textwrap.dedent(STYLES[style][1])
    rules = verdicts.Rules(confine.Confined(), seconds=30) if confined else TRUSTED
    assert graded("04", {"04.attend": (before, source)}, rules)["04.attend"] == RIGHT
    names = {"np": np}
    exec(f"{before}\n{source}", names)
    assert in_the_notebook("04.attend", names["attend"]) == RIGHT


COSTLY = {
    "a huge number": f"z = 0x{'f' * 20_000}",
    "blank lines": "%time\n" + "\n" * 40_000 + "x =",
    "much scratch": "\n".join(["y = 1"] * 9_000),
    "no-break space": 'f"{1\u00a0+ 1}"',
}


@pytest.mark.parametrize("what", COSTLY)
def test_one_costly_cell_costs_no_other_answer(what, capsys):
    right = textwrap.dedent(STYLES["a list"][1])
    sources = {"04.attend": ("", right), "04.softmax": ("", f"{COSTLY[what]}\nsoftmax = 1")}
    found = graded("04", sources, TRUSTED)
    assert found["04.attend"] == RIGHT
    assert found["04.softmax"] != RIGHT
