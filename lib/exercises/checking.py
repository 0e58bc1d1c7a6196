"""Judge the reader's notebooks, without trusting what is stored in them.

The answers are taken out of the reader's file by the ids of their cells, and put into the exercise
as shipped, which is made afresh from the solution. That runs in a kernel of its own; the file is
only read. A kernel can be tampered with by what runs in it, so just before each check the judging
code is loaded anew and NumPy's functions are put back, and an answer is right only if its check
ended without an error and said a word that did not exist before. This stops forged outputs and
patched checkers. It is no prison: an answer that sets out to deceive can read the memory that it
runs in.
"""

from __future__ import annotations

import ast
import codecs
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from lib import notebooks
from lib.errors import CourseError
from lib.exercises import deriving, judging

if TYPE_CHECKING:
    from nbformat import NotebookNode

RIGHT, MISSING = "right", "missing"
WRONG, UNANSWERED, MALFORMED = "not right yet", "not answered", "not in form"
_WORDS = {"Wrong": WRONG, "Unanswered": UNANSWERED, "Malformed": MALFORMED}

# What keeps a cell from running, or hides that it raised.
_HIDING_TAGS = {notebooks.MAY_RAISE, "skip-execution", "nbval-skip", "nbval-raises-exception"}
_HIDING_COMMENT = re.compile(r"^\s*#+\s*NBVAL_(SKIP|RAISES_EXCEPTION)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Verdict:
    """What the check of one task came to."""

    task: str  # "01.one_query"
    title: str
    word: str  # RIGHT, WRONG, UNANSWERED, MALFORMED or MISSING
    message: str = ""  # why, unless it is right


@dataclass
class _Question:
    """One task in the exercise as shipped."""

    name: str
    title: str
    variable: str  # that its check hands over
    check: int  # index of its check cell
    answer: int  # index of its answer cell
    lost: str = ""  # why it cannot be judged


@dataclass
class Exercise:
    """A reader's notebook, taken apart."""

    path: Path
    shipped: NotebookNode
    answers: dict[int, str]  # by index in `shipped`: what the reader wrote there
    questions: list[_Question] = field(default_factory=list)


# --- reading -------------------------------------------------------------------------------------


def read(path: Path, root: Path) -> Exercise:
    """Take the answers out of a reader's notebook.

    Parameters
    ----------
    path : Path
        Its name begins with the number of the exercise; the rest may have been changed.
    root : Path
        The folder of the course, with the solutions from which the exercises are made.

    Raises
    ------
    CourseError
        If it cannot be read as a notebook or belongs to no exercise, or there is no solution.
    """
    shipped = _shipped(path, root)
    try:
        marked = path.read_bytes().startswith(codecs.BOM_UTF8)
    except OSError:
        marked = False  # the next line finds better words
    theirs = notebooks.read_notebook(path)
    if marked:
        raise CourseError(
            f"{path} begins with a byte-order mark, which JupyterLab cannot read; "
            "save it as UTF-8 without one."
        )
    found = _by_id(theirs)
    exercise = Exercise(path, shipped, {})
    for index, cell in enumerate(shipped.cells):
        if (deriving.is_answer(cell) or deriving.is_setting(cell)) and cell.id in found:
            mine = found[cell.id]
            exercise.answers[index] = mine.source if mine.cell_type == "code" else cell.source
        if deriving.is_check(cell):
            question = _question(shipped, index)
            question.lost = _lost_answer(shipped.cells[question.answer], found)
            question.lost = _lost_check(cell, found) or question.lost
            exercise.questions.append(question)
    return exercise


def _shipped(path: Path, root: Path) -> NotebookNode:
    # A download out of the browser has its folder before its name: exercises_01_ordering.ipynb.
    number = re.match(r"(?:exercises_)?(\d\d)_", path.name)
    fitting = number and sorted((root / notebooks.SOLUTIONS).glob(f"{number[1]}_*.ipynb"))
    if not fitting:
        raise CourseError(
            f"{path} cannot be judged: the folder {notebooks.SOLUTIONS} holds no notebook of its "
            "number, and the exercise as shipped is made from that."
        )
    return deriving.derive(notebooks.read_notebook(fitting[0]), fitting[0].name)


def _by_id(notebook: NotebookNode) -> dict[str, NotebookNode]:
    """Return the cells by their ids; where an editor changed those, by nbgrader's."""
    found = {}
    for cell in notebook.cells:
        grader = cell.metadata.get("nbgrader")
        if isinstance(grader, dict) and isinstance(grader.get("grade_id"), str):
            found[grader["grade_id"]] = cell
    return found | {cell.id: cell for cell in notebook.cells}


def _question(shipped: NotebookNode, index: int) -> _Question:
    name, variable = check_arguments(shipped.cells[index].source)
    answer = max(k for k in range(index) if deriving.is_answer(shipped.cells[k]))
    return _Question(name, judging.find(name).title, variable, index, answer)


def check_arguments(source: str) -> tuple[str, str]:
    """Return the task and the variable that a check cell names: ``check("01.word", variable)``.

    Raises
    ------
    CourseError
        If the cell is anything but such a call.
    """
    match = re.fullmatch(r'check\("(\d\d\.\w+)", (\w+)\)', source.strip())
    if match is None:
        raise CourseError(f'a check cell should be `check("01.word", variable)`; it is {source!r}.')
    return match[1], match[2]


def _lost_answer(cell: NotebookNode, found: dict[str, NotebookNode]) -> str:
    if cell.id not in found:
        return (
            f"its answer cell, {cell.id}, is not in the notebook. Cells are found by their ids: "
            "take the exercise as shipped and copy your answer into it."
        )
    if found[cell.id].cell_type != "code":
        return f"its answer cell, {cell.id}, is no code cell any more. Turn it back into one."
    return ""


def _lost_check(cell: NotebookNode, found: dict[str, NotebookNode]) -> str:
    """Say why a check would not be made in the reader's own notebook, if that is so."""
    put_back = f"Put it back: a code cell with {cell.source}"
    if cell.id not in found:
        return f"its check cell, {cell.id}, is not in the notebook. {put_back}"
    mine = found[cell.id]
    if mine.cell_type != "code":
        return f"its check cell, {cell.id}, is no code cell any more. {put_back}"
    tags = mine.metadata.get("tags", [])
    if hiding := sorted(_HIDING_TAGS & {str(tag).lower() for tag in tags}):
        return f"its check cell, {cell.id}, carries the tag {hiding[0]}. Take the tag away."
    if _HIDING_COMMENT.search(mine.source) or not _same_code(mine.source, cell.source):
        return f"its check cell, {cell.id}, was changed. {put_back}"
    return ""


def _same_code(one: str, other: str) -> bool:
    try:
        return ast.dump(ast.parse(one)) == ast.dump(ast.parse(other))
    except (SyntaxError, ValueError, RecursionError):
        return False


# --- judging -------------------------------------------------------------------------------------


def judge(
    exercise: Exercise, timeout: float = 60, after_task: Callable[[], object] = lambda: None
) -> list[Verdict]:
    """Run the reader's answers in the exercise as shipped, and judge each.

    An answer that hangs or kills the kernel is put aside, and the others run without it.

    Parameters
    ----------
    exercise : Exercise
    timeout : float
        Seconds that an answer or a check may take; the exercise's own cells get a minute at least.
    after_task : callable
        Called after each verdict, to move a progress bar.

    Returns
    -------
    list of Verdict
        One for each task, in the order of the exercise.

    Raises
    ------
    CourseError
        If `timeout` is not positive.
    """
    notebooks.check_timeout(timeout)
    verdicts: dict[str, Verdict] = {}

    def give(question: _Question, word: str, message: str = "") -> None:
        verdicts[question.name] = Verdict(question.name, question.title, word, message)
        after_task()

    for question in exercise.questions:
        if question.lost:
            give(question, MISSING, question.lost)
    answers = dict(exercise.answers)
    while open_ := [q for q in exercise.questions if q.name not in verdicts]:
        run = _Run(exercise, answers, open_, give)
        at, what = run.through(timeout)
        blamed = [q for q in open_ if at in (q.answer, q.check)]
        for question in blamed or [q for q in open_ if q.name not in verdicts]:
            give(question, WRONG, what)
            answers.pop(question.answer, None)
    return [verdicts[question.name] for question in exercise.questions]


class _Run:
    """One run of the exercise with the reader's answers, in one kernel."""

    def __init__(self, exercise, answers, questions, give) -> None:
        import nbformat

        self._folder = exercise.path.resolve().parent
        self._give = give
        self._answer_of = {q.answer: q for q in questions}
        self._check_of = {q.check: q for q in questions}
        self._failed: dict[int, str] = {}  # what an answer cell raised
        self._guard = f"_{secrets.token_hex(8)}"
        self._cells = [
            nbformat.v4.new_code_cell(answers.get(index, cell.source))
            if cell.cell_type == "code"
            else cell
            for index, cell in enumerate(exercise.shipped.cells)
        ]
        self._theirs = {*answers, *self._check_of}
        self._checked = {k for k, c in enumerate(exercise.shipped.cells) if deriving.is_check(c)}

    def through(self, timeout: float) -> tuple[int, str]:
        """Run all cells; return where the kernel gave up, and how: −1 if it did not."""
        import nbformat

        guard = nbformat.v4.new_code_cell(_GUARD.replace("GUARD", self._guard))
        notebook = nbformat.v4.new_notebook(cells=[guard, *self._cells])
        patience = max(timeout, 60)
        try:
            with notebooks.kernel(notebook, self._folder, patience) as run_in_kernel:
                if (fault := run_in_kernel(0, 1)) is not None:
                    return -1, f"The course could not be loaded: {fault}."

                def run_cell(k: int) -> notebooks.Fault | None:
                    return run_in_kernel(k + 1, k + 2, timeout if k in self._theirs else patience)

                for index in (k - 1 for k in notebooks.runnable(notebook)[1:]):
                    fault = self._run(index, run_cell)
                    if fault is not None and fault.fatal:
                        return index, self._gave_up(index, fault)
        except (RuntimeError, TimeoutError, OSError) as error:
            return -1, f"The kernel did not start: {error}"
        return -1, "Its check cell did not run."

    def _run(self, index, run_cell) -> notebooks.Fault | None:
        if index in self._checked:
            question = self._check_of.get(index)
            return question and self._check(question, run_cell)
        fault = run_cell(index)
        if fault is not None and index in self._answer_of:
            self._failed[index] = _of_answer(fault)
        return fault

    def _check(self, question, run_cell) -> notebooks.Fault | None:
        if question.answer in self._failed:
            self._give(question, MALFORMED, self._failed[question.answer])
            return None
        nonce = secrets.token_hex(16)
        cell = self._cells[question.check]
        cell.source = f"{self._guard}({nonce!r}); {cell.source}"
        fault = run_cell(question.check)
        if fault is None:
            printed = "".join(out.get("text", "") for out in cell.outputs)
            if nonce in printed:
                self._give(question, RIGHT)
            else:
                self._give(question, WRONG, "Its check was kept from running to its end.")
        elif not fault.fatal:
            word, message = _of_check(fault, question)
            drawn = self._cells[question.answer].outputs
            if any(notebooks.WIDGET_VIEW in out.get("data", {}) for out in drawn):
                message = f"{message}\n{judging.WIDGET}"
            self._give(question, word, message)
        return fault

    def _gave_up(self, index: int, fault: notebooks.Fault) -> str:
        if index in self._answer_of:
            return f"Its answer cell did not end: {fault.text}."
        if index in self._check_of:
            return f"Its check did not end, so your code did not return: {fault.text}."
        return f"A cell of the exercise itself did not end: {fault.text}."


def _of_answer(fault: notebooks.Fault) -> str:
    message = f"Its answer cell does not run: {fault}."
    if fault.name == "NameError":
        message += " Everything that an answer needs must stand in an answer cell."
    return message


def _of_check(fault: notebooks.Fault, question: _Question) -> tuple[str, str]:
    if fault.name in _WORDS:
        return _WORDS[fault.name], fault.text
    if fault.name == "NameError" and repr(question.variable) in fault.text:
        return MALFORMED, f"Its answer cell should give `{question.variable}` a value."
    return WRONG, f"Its check ended with {fault.name}: {fault.text}"


# The first cell of every run. GUARD(word) puts the judge back into its place, and lets the check
# say the word after it has judged. What is kept are functions: state may change as it likes.
_GUARD = """
def GUARD():
    import builtins, importlib, sys
    import numpy, lib.exercises.judging

    tools = ("builtins", "math", "numpy", "random", "re", "copy", "dataclasses", "importlib")
    tools = [m for n, m in sys.modules.items() if n.partition(".")[0] in tools]
    kept = [(vars(m), {k: v for k, v in vars(m).items() if callable(v)}) for m in tools]
    lists = [(x, list(x)) for x in (sys.path, sys.meta_path, sys.path_hooks)]
    load, say, out, shell = importlib.import_module, print, sys.stdout, get_ipython()

    def restore(word):
        for now, before in kept:
            now.update(before)
        for now, before in lists:
            now[:] = before
        for name in [name for name in sys.modules if name.partition(".")[0] == "lib"]:
            del sys.modules[name]
        judging = load("lib.exercises.judging")

        def check(name, answer):
            judging.check(name, answer)
            say(word, file=out)

        shell.user_ns["check"] = check

    return restore

GUARD = GUARD()
"""
