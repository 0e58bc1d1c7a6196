"""Judge a reader's own notebook as one of a class is, but by a runner that trusts it.

The file is only read. What it holds is judged by its cells, not by its name or its stored outputs;
a check that was taken out or silenced counts as missing, since the notebook itself no longer fails.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lib import notebooks
from lib.errors import CourseError
from lib.exercises import questions, reading
from lib.exercises.judging import MISSING
from lib.exercises.reading import Cell
from lib.exercises.running.process import Trusted
from lib.exercises.verdicts import Row, Rules, judge_notebook

# What keeps a cell from running, or hides that it raised.
_HIDING_TAGS = {notebooks.MAY_RAISE, "skip-execution", "nbval-skip", "nbval-raises-exception"}
_HIDING_COMMENTS = ("nbval_skip", "nbval_raises_exception")


@dataclass(frozen=True)
class Mine:
    """A reader's notebook."""

    path: Path
    exercise: questions.Exercise
    cells: list[Cell]
    lost: dict[str, str]  # tasks whose check would not be made in the notebook itself, and why


def read(path: Path) -> Mine:
    """Read a reader's notebook, whatever it is called and whichever editor saved it.

    Raises
    ------
    CourseError
        It cannot be read, or is of no exercise.
    """
    if path.is_dir():
        raise CourseError(f"{path} is a folder, not a notebook.")
    if not path.exists():
        raise CourseError(f"There is no notebook {path}: the file does not exist.")
    exercises = questions.read()
    cells = reading.read(reading.read_bytes(path, str(path)), str(path), [])
    number = reading.identify(cells, path.name, exercises)
    if not number:
        raise CourseError(
            f"{path} cannot be judged: it holds no task of an exercise, and its name is of none."
        )
    exercise = exercises[number]
    lost = {q.task: _lost_check(q, cells) for q in exercise.questions}
    return Mine(path, exercise, cells, {task: why for task, why in lost.items() if why})


def judged(mine: Mine, timeout: float = 60) -> list[Row]:
    """Return the verdicts, one for each task in the order of the exercise.

    Parameters
    ----------
    mine : Mine
    timeout : float
        Seconds that an answer may take.

    Raises
    ------
    CourseError
        If `timeout` is not positive.
    """
    notebooks.check_timeout(timeout)
    rules = Rules(
        Trusted(), seconds=timeout, patience=math.inf, wait=timeout, salt=secrets.token_hex(8)
    )
    rows = judge_notebook("", mine.exercise, mine.cells, rules)
    return [
        replace(row, verdict=MISSING, message=mine.lost[row.task]) if row.task in mine.lost else row
        for row in rows
    ]


def _lost_check(question: questions.Question, cells: Sequence[Cell]) -> str:
    """Say why a check would not be made in the reader's own notebook, if that is so."""
    call = f'check("{question.task}", of="{question.variable}")'
    put_back = f"Put it back: a code cell with {call}"
    marked = [cell for cell in cells if question.check in cell.ids]
    mine = marked or [
        cell for cell in reading.code(cells) if questions.is_check(cell.source, question)
    ]
    if not mine:
        return f"its check cell, {question.check}, is not in the notebook. {put_back}"
    cell = mine[0]
    if cell.kind != "code":
        return f"its check cell, {question.check}, is no code cell any more. {put_back}"
    if hiding := sorted(_HIDING_TAGS & {tag.lower() for tag in cell.tags}):
        return f"its check cell, {question.check}, carries the tag {hiding[0]}. Take the tag away."
    comments = (line.strip(" #\t").lower() for line in cell.source.splitlines() if "#" in line)
    if set(_HIDING_COMMENTS) & set(comments) or not questions.is_check(cell.source, question):
        return f"its check cell, {question.check}, was changed. {put_back}"
    return ""
