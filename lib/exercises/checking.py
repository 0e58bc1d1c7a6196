"""Judge a reader's own notebook as one of a class is, but by a runner that trusts it.

The file is only read. What it holds is judged by its cells, not by its name or its stored outputs;
a check that was taken out or silenced counts as missing, since the notebook itself no longer fails.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass, replace
from pathlib import Path

from lib import notebooks
from lib.errors import CourseError
from lib.exercises import answers, questions, reading
from lib.exercises.judging import MISSING
from lib.exercises.reading import Cell
from lib.exercises.running.process import Trusted
from lib.exercises.verdicts import Notebook, Row, Rules, judge_notebook


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
    lost = {q.task: answers.lost_check(q, cells) for q in exercise.questions}
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


def program(mine: Mine, question: questions.Question) -> list[str]:
    """Return the code that is run for an answer: what it needs, then its cell."""
    return Notebook("", mine.exercise, mine.cells, Rules(Trusted())).program(question)
