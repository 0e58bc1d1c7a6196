"""Make an exercise from its solution: answers and outputs taken out, everything else kept.

In a solution the answer stands between two markers, and above it the line that the reader finds
in its place::

    ### BEGIN SOLUTION
    #: attention_order = ...
    attention_order = "..."
    ### END SOLUTION

The markers are those of nbgrader. No kernel is needed.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING

from lib import notebooks
from lib.errors import CourseError

if TYPE_CHECKING:
    from nbformat import NotebookNode

BEGIN, END, STUB = "### BEGIN SOLUTION", "### END SOLUTION", "#:"


def is_answer(cell: NotebookNode) -> bool:
    """Tell whether the reader's answer belongs into this cell."""
    return bool(cell.metadata.get("nbgrader", {}).get("solution"))


def is_check(cell: NotebookNode) -> bool:
    """Tell whether this cell judges an answer."""
    return bool(cell.metadata.get("nbgrader", {}).get("grade"))


def is_setting(cell: NotebookNode) -> bool:
    """Tell whether the reader may change this cell, though it answers nothing: a seed, say."""
    return cell.id.endswith("-setting")


def solution_of(exercise: Path) -> Path:
    """Return where the solution of an exercise lies."""
    return exercise.resolve().parent.parent / notebooks.SOLUTIONS / exercise.name


def exercise_of(solution: Path) -> Path:
    """Return where the exercise lies that is made from a solution."""
    return solution.resolve().parent.parent / notebooks.EXERCISES / solution.name


def derive(solution: NotebookNode, name: str = "the solution") -> NotebookNode:
    """Return the exercise that belongs to a solution.

    Parameters
    ----------
    solution : NotebookNode
        With or without outputs; it is not changed.
    name : str
        What it is called in an error.

    Raises
    ------
    CourseError
        If the answers are not marked as they should be: the sentence names the cell.
    """
    import nbformat

    metadata = {
        "kernelspec": dict(notebooks.KERNELSPEC),
        "language_info": dict(notebooks.LANGUAGE_INFO),
    }
    if browser := solution.metadata.get("left_context", {}).get("browser"):
        metadata["left_context"] = {"browser": browser}  # how far it runs there
    exercise = nbformat.v4.new_notebook(metadata=metadata)
    exercise.cells = [_open(copy.deepcopy(cell), name) for cell in solution.cells]
    return exercise


def _open(cell: NotebookNode, name: str) -> NotebookNode:
    """Take the answer and the outputs out of a cell (in place)."""
    place = f"{name}, cell {cell.id}"
    if cell.cell_type != "code":
        return cell
    opened = without_solution(cell.source, place)
    if is_answer(cell) and opened == cell.source:
        raise CourseError(f"{place}: an answer cell needs a line {BEGIN!r} and a line {END!r}.")
    if not is_answer(cell) and opened != cell.source:
        raise CourseError(f"{place}: it holds a solution, but is not marked as an answer cell.")
    cell.source, cell.outputs, cell.execution_count = opened, [], None
    for timing in ("execution", "ExecuteTime"):
        cell.metadata.pop(timing, None)
    # The exercise ships without outputs, so nbval has none to compare with. What counts is whether
    # a check raises, and no tag of this kind hides that.
    tags = cell.metadata.get("tags", [])
    cell.metadata["tags"] = tags if notebooks.VARYING in tags else [*tags, notebooks.VARYING]
    return cell


def without_solution(source: str, place: str) -> str:
    """Return the source of a cell with each marked answer replaced by its ``#:`` lines.

    Parameters
    ----------
    source : str
    place : str
        What the cell is called in an error.

    Raises
    ------
    CourseError
        If a marker has no partner, or stands within another pair, or an answer has no ``#:`` line.
    """
    kept, stub, inside = [], [], False
    for line in source.split("\n"):
        word = line.strip()
        if word == BEGIN:
            if inside:
                raise CourseError(f"{place}: {BEGIN!r} stands within another one.")
            inside, stub = True, []
        elif word == END:
            if not inside:
                raise CourseError(f"{place}: {END!r} has no {BEGIN!r} before it.")
            if not stub:
                raise CourseError(f"{place}: no line between the markers begins with {STUB!r}.")
            inside = False
            kept += stub
        elif not inside:
            kept.append(line)
        elif word.startswith(STUB):
            before, _, after = line.partition(STUB)
            stub.append((before + after.removeprefix(" ")).rstrip())
    if inside:
        raise CourseError(f"{place}: {BEGIN!r} has no {END!r} after it.")
    return "\n".join(kept)


def store(solution: Path, check: bool = False) -> bool:
    """Write the exercise that belongs to a solution; tell whether its file changed, or would.

    Parameters
    ----------
    solution : Path
    check : bool
        Compare only, write nothing.

    Raises
    ------
    CourseError
        If the solution cannot be read or is not marked as it should be, or if the exercise cannot
        be written, or has been worked in: a reader's answers are never overwritten.
    """
    text = notebooks.dump(derive(notebooks.read_notebook(solution), solution.name))
    path = exercise_of(solution)
    if path.exists():
        if path.read_bytes() == text.encode("utf-8"):
            return False
        if not check and _worked_in(path):
            raise CourseError(
                f"{path} has been worked in, so it was not overwritten; "
                "move it out of the way to get it as shipped."
            )
    if not check:
        path.parent.mkdir(exist_ok=True)
        notebooks.replace(path, text)
    return True


def _worked_in(path: Path) -> bool:
    cells = notebooks.read_notebook(path).cells
    return any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
