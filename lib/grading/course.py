"""The exercises as handed out: what a submission is compared with."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from lib import notebooks
from lib.errors import CourseError
from lib.exercises import checking, deriving, judging
from lib.exercises.building import Building
from lib.exercises.work import Kernel


@dataclass(frozen=True)
class Question:
    """One task, and the cells that belong to it."""

    task: str  # "01.one_query"
    title: str
    variable: str
    points: float
    answer: str  # id of the answer cell
    check: str  # id of the check cell
    stub: str  # source of the answer cell, as handed out
    solution: str  # and as it is in the solution

    @property
    def is_built(self) -> bool:
        """Whether the answer is a function."""
        return isinstance(owner(self.task), Building | Kernel)


@dataclass(frozen=True)
class Exercise:
    """One notebook as handed out."""

    number: str  # "01"
    file: str  # "01_ordering.ipynb"
    ids: frozenset[str]  # of all its cells
    questions: tuple[Question, ...]
    cells: tuple[str, ...]  # sources of its own code cells before the last answer
    settings: frozenset[str]  # ids of the cells that a student may change


def owner(task: str) -> object:
    """Return what judges a task: an `Ordering`, a `Building`, …; None where a function does."""
    return getattr(judging.find(task).judge, "__self__", None)


def read(root: Path, numbers: Iterable[str] = ()) -> dict[str, Exercise]:
    """Return the exercises by their numbers.

    Parameters
    ----------
    root : Path
        The folder of the course, with the solutions that the exercises are made from.
    numbers : iterable of str
        Such as ``"01"``; all that there are if there is none.

    Raises
    ------
    CourseError
        There is no such exercise, or no exercise at all.
    """
    found = {path.name[:2]: path for path in notebooks.chapters(root, notebooks.SOLUTIONS)}
    found = {number: path for number, path in found.items() if number in judging.MODULES}
    if not found:
        raise CourseError(
            f"the exercises cannot be graded: {root} holds no folder {notebooks.SOLUTIONS}, and "
            "what was handed out is made from that"
        )
    wanted = sorted({number.zfill(2) for number in numbers}) or sorted(found)
    if unknown := [number for number in wanted if number not in found]:
        raise CourseError(f"there is no exercise {unknown[0]}; there are {', '.join(found)}")
    return {number: _exercise(found[number]) for number in wanted}


@functools.cache
def _exercise(path: Path) -> Exercise:
    solved = notebooks.read_notebook(path)
    cells = deriving.derive(solved, path.name).cells
    code = [k for k, cell in enumerate(cells) if cell.cell_type == "code"]
    checks = [k for k in code if deriving.is_check(cells[k])]
    answers = [k for k in code if deriving.is_answer(cells[k])]
    own = [k for k in code if k < max(answers, default=0) and k not in {*checks, *answers}]
    return Exercise(
        number=path.name[:2],
        file=path.name,
        ids=frozenset(cell.id for cell in cells),
        questions=tuple(_question(cells, solved.cells, k) for k in checks),
        cells=tuple(cells[k].source for k in own),
        settings=frozenset(cells[k].id for k in own if deriving.is_setting(cells[k])),
    )


def _question(cells, solved, check: int) -> Question:
    name, variable = checking.check_arguments(cells[check].source)
    answer = max(k for k in range(check) if deriving.is_answer(cells[k]))
    kept = [
        line
        for line in solved[answer].source.split("\n")
        if line.strip() not in (deriving.BEGIN, deriving.END)
        and not line.strip().startswith(deriving.STUB)
    ]
    return Question(
        task=name,
        title=judging.find(name).title,
        variable=variable,
        points=float(cells[check].metadata["nbgrader"].get("points", 1)),
        answer=cells[answer].id,
        check=cells[check].id,
        stub=cells[answer].source,
        solution="\n".join(kept),
    )


def number_in(name: str) -> str:
    """Return the number at the beginning of a file's name, ``"01"``; empty if there is none."""
    found = re.match(r"\d\d(?=_)", name)
    return found[0] if found else ""
