"""Judge a reader's own notebook: `course grade` of one, with a runner that trusts it.

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
from lib.exercises.judging import MISSING
from lib.grading import collect, course, judge
from lib.grading.collect import Cell, Handed

# What keeps a cell from running, or hides that it raised.
_HIDING_TAGS = {notebooks.MAY_RAISE, "skip-execution", "nbval-skip", "nbval-raises-exception"}
_HIDING_COMMENTS = ("nbval_skip", "nbval_raises_exception")


@dataclass(frozen=True)
class Mine:
    """A reader's notebook.

    Fields
    ------
    path : Path
    exercise : lib.grading.course.Exercise
    handed : Handed
    lost : dict of str to str
        Tasks whose check would not be made in the notebook itself, and why.
    """

    path: Path
    exercise: course.Exercise
    handed: Handed
    lost: dict[str, str]


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
    exercises, handed = course.read(), Handed("")
    cells = collect.read(collect.read_bytes(path, str(path)), str(path), handed.notes)
    number = collect.identify(cells, path.name, exercises)
    if not number:
        raise CourseError(
            f"{path} cannot be judged: it holds no task of an exercise, and its name is of none."
        )
    exercise = exercises[number]
    handed.cells[number], handed.files[number] = cells, path.name
    lost = {q.task: _lost_check(q, cells) for q in exercise.questions}
    return Mine(path, exercise, handed, {task: why for task, why in lost.items() if why})


def judged(mine: Mine, timeout: float = 60) -> list[judge.Row]:
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
    rules = judge.Rules(
        unconfined=True, seconds=timeout, patience=math.inf, wait=timeout, salt=secrets.token_hex(8)
    )
    rows = judge.grade(mine.handed, {mine.exercise.number: mine.exercise}, rules)
    return [
        replace(row, verdict=MISSING, message=mine.lost[row.task]) if row.task in mine.lost else row
        for row in rows
    ]


def _lost_check(question: course.Question, cells: Sequence[Cell]) -> str:
    """Say why a check would not be made in the reader's own notebook, if that is so."""
    call = f'check("{question.task}", of="{question.variable}")'
    put_back = f"Put it back: a code cell with {call}"
    marked = [cell for cell in cells if question.check in cell.ids]
    mine = marked or [
        cell for cell in collect.code(cells) if course.is_check(cell.source, question)
    ]
    if not mine:
        return f"its check cell, {question.check}, is not in the notebook. {put_back}"
    cell = mine[0]
    if cell.kind != "code":
        return f"its check cell, {question.check}, is no code cell any more. {put_back}"
    if hiding := sorted(_HIDING_TAGS & {tag.lower() for tag in cell.tags}):
        return f"its check cell, {question.check}, carries the tag {hiding[0]}. Take the tag away."
    comments = (line.strip(" #\t").lower() for line in cell.source.splitlines() if "#" in line)
    if set(_HIDING_COMMENTS) & set(comments) or not course.is_check(cell.source, question):
        return f"its check cell, {question.check}, was changed. {put_back}"
    return ""
