"""The exercises as handed out: what a submission is compared with.

`handed_out.json` beside this file holds what has to be known of them, so that a class whose teacher
keeps the solutions away can be judged too. `course build` writes it from the solutions.
"""

from __future__ import annotations

import ast
import functools
import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from lib import notebooks
from lib.errors import CourseError
from lib.exercises import deriving, judging
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
    solution: str = ""  # and as it is in the solution, where that is known

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


def owner(task: str) -> Any:
    """Return what judges a task: an `Ordering`, a `Building`, …; None where a function does."""
    return getattr(judging.find(task).judge, "__self__", None)


HANDED_OUT = Path(__file__).with_name("handed_out.json")


def read(root: Path | None = None, numbers: Iterable[str] = ()) -> dict[str, Exercise]:
    """Return the exercises by their numbers.

    Parameters
    ----------
    root : Path, optional
        The folder of the course. Where its solutions can be read, `Question.solution` is filled.
    numbers : iterable of str
        Such as ``"01"``; all that there are if there is none.

    Raises
    ------
    CourseError
        There is no such exercise.
    """
    found = _handed_out()
    wanted = sorted({number.zfill(2) for number in numbers}) or sorted(found)
    if unknown := [number for number in wanted if number not in found]:
        raise CourseError(f"there is no exercise {unknown[0]}; there are {', '.join(found)}")
    return {number: _with_solutions(found[number], root) for number in wanted}


@functools.cache
def _handed_out() -> dict[str, Exercise]:
    kept = json.loads(HANDED_OUT.read_text(encoding="utf-8"))
    return {
        one["number"]: Exercise(
            **one
            | {key: frozenset(one[key]) for key in ("ids", "settings")}
            | {"cells": tuple(one["cells"])}
            | {"questions": tuple(Question(**q) for q in one["questions"])}
        )
        for one in kept
    }


def _with_solutions(exercise: Exercise, root: Path | None) -> Exercise:
    path = root and root / notebooks.SOLUTIONS / exercise.file
    try:
        cells = {cell.id: cell for cell in notebooks.read_notebook(path).cells} if path else {}
    except (CourseError, OSError):
        cells = {}  # kept away from those who judge here
    return replace(
        exercise,
        questions=tuple(
            replace(q, solution=_solved(cells[q.answer].source)) if q.answer in cells else q
            for q in exercise.questions
        ),
    )


def write_handed_out(root: Path) -> bool:
    """Write down what has to be known of the exercises; tell whether something changed."""
    paths = notebooks.chapters(root, notebooks.SOLUTIONS)
    made = [asdict(_exercise(path)) for path in paths if path.name[:2] in judging.MODULES]
    for one in made:
        one |= {key: sorted(one[key]) for key in ("ids", "settings")}
    text = json.dumps(made, ensure_ascii=False, indent=1) + "\n"
    if HANDED_OUT.exists() and HANDED_OUT.read_text(encoding="utf-8") == text:
        return False
    notebooks.replace(HANDED_OUT, text)
    _handed_out.cache_clear()
    return True


def _exercise(path: Path) -> Exercise:
    cells = deriving.derive(notebooks.read_notebook(path), path.name).cells
    code = [k for k, cell in enumerate(cells) if cell.cell_type == "code"]
    checks = [k for k in code if deriving.is_check(cells[k])]
    answers = [k for k in code if deriving.is_answer(cells[k])]
    own = [k for k in code if k < max(answers, default=0) and k not in {*checks, *answers}]
    return Exercise(
        number=path.name[:2],
        file=path.name,
        ids=frozenset(cell.id for cell in cells),
        questions=tuple(_question(cells, k) for k in checks),
        cells=tuple(cells[k].source for k in own),
        settings=frozenset(cells[k].id for k in own if deriving.is_setting(cells[k])),
    )


def _question(cells, check: int) -> Question:
    name, variable = check_arguments(cells[check].source)
    answer = max(k for k in range(check) if deriving.is_answer(cells[k]))
    return Question(
        task=name,
        title=judging.find(name).title,
        variable=variable,
        points=float(cells[check].metadata["nbgrader"].get("points", 1)),
        answer=cells[answer].id,
        check=cells[check].id,
        stub=cells[answer].source,
    )


def _solved(source: str) -> str:
    """Return a solved answer cell without its marks."""
    marks = (deriving.BEGIN, deriving.END)
    lines = (line for line in source.split("\n") if line.strip() not in marks)
    return "\n".join(line for line in lines if not line.strip().startswith(deriving.STUB))


def check_arguments(source: str) -> tuple[str, str]:
    """Return the task and the variable that a check cell names.

    It is ``check("01.word", of="variable")``, or as it was before ``check("01.word", variable)``,
    below the import of `check` or without it.

    Raises
    ------
    CourseError
        If the cell is anything else.
    """
    last: Any
    try:
        *before, last = ast.parse(source).body
        call = last.value
        fine = call.func.id == "check" and len(call.args) + len(call.keywords) == 2
        fine &= all(ast.unparse(s) == "from lib.exercises import check" for s in before)
        name = call.args[0].value
        if call.keywords:
            variable, fine = call.keywords[0].value.value, fine and call.keywords[0].arg == "of"
        else:
            variable = call.args[1].id
        if fine and re.fullmatch(r"\d\d\.\w+", name) and variable.isidentifier():
            return name, variable
    except (SyntaxError, ValueError, RecursionError, AttributeError, IndexError, TypeError):
        pass
    raise CourseError(
        f'a check cell should be `check("01.word", of="variable")`; it is {source!r}.'
    )


def is_check(source: str, question: Question) -> bool:
    """Tell whether a cell is the check of a question, in the old form or the new."""
    try:
        return check_arguments(source) == (question.task, question.variable)
    except CourseError:
        return False


def number_in(name: str) -> str:
    """Return the number at the beginning of a file's name, ``"01"``; empty if there is none."""
    found = re.match(r"\d\d(?=_)", name)
    return found[0] if found else ""
