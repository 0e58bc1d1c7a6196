"""Find the answer to each task among the cells of a notebook.

The cell that carries the answer's mark holds the answer of record. Where the mark was lost, or the
marked cell was left as handed out, a cell that gives the variable a value is taken instead, if
there is one alone. Where two answers stand beside each other, neither is guessed to be meant.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from lib import notebooks
from lib.exercises import judging
from lib.exercises.judging import MALFORMED, MISSING, UNANSWERED, NotRight
from lib.exercises.literal import bound, parse
from lib.exercises.questions import Exercise, Question, is_check
from lib.exercises.reading import Cell, code

# What keeps a cell from running, or hides that it raised.
_HIDING_TAGS = {notebooks.MAY_RAISE, "skip-execution", "nbval-skip", "nbval-raises-exception"}
_HIDING_COMMENTS = ("nbval_skip", "nbval_raises_exception")


@dataclass(frozen=True)
class Found:
    """What was found of one answer.

    Fields
    ------
    source : str
        Of the answer; empty if there is none.
    word, message : str
        The verdict, where there is no answer to judge.
    note : str
        What the student should know though the answer is judged.
    """

    source: str = ""
    word: str = ""
    message: str = ""
    note: str = ""


def find(question: Question, exercise: Exercise, cells: Sequence[Cell]) -> Found:
    """Return the answer to a question.

    Parameters
    ----------
    question : Question
    exercise : Exercise
    cells : sequence of Cell
        Of the student's notebook.
    """
    marked = [cell for cell in code(cells) if question.answer in cell.ids]
    mine = _without_stubs(marked, question)
    note = lost_check(question, cells)  # the answer is judged all the same
    note = note[:1].upper() + note[1:]
    if mine:
        found = _of_marked(question, mine, cells)
        if found is not None:
            return Found(found.source, found.word, found.message, found.note or note)
    free = [
        cell
        for cell in _without_stubs(code(cells), question)
        if _binds(cell.source, question.variable) and not _taken(cell, exercise, question)
    ]
    different = _different(free)
    if len(different) == 1:
        head = [cell.source for cell in mine if cell not in free]  # the first half of a split cell
        source = "\n".join([*head, different[0]])
        return Found(source, note=f"The answer was found outside of its cell, {question.answer}.")
    if different:
        return Found(word=MALFORMED, message=_several(question, len(different)))
    return _nothing(question, cells, bool(marked), mine)


def _of_marked(question: Question, mine: list[Cell], cells: Sequence[Cell]) -> Found | None:
    """Return the answer in the marked cells; None if they give the variable no value."""
    binding = [cell for cell in mine if _binds(cell.source, question.variable)]
    different = _different(binding)
    if len(different) > 1:
        return None  # none is guessed: all cells are asked
    whole = _joined(mine[0], question, cells)
    if whole and not (binding and _complete(binding[0], question, cells)):
        return Found(whole, note=f"Its answer cell, {question.answer}, was split; it was joined.")
    if different:
        parts = [cell.source for cell in mine if cell not in binding]
        return Found("\n".join([*parts, different[0]]))
    if any(not _parses(cell.source) for cell in mine):
        return Found(mine[0].source)  # the judge says what is wrong with it
    return None


def _complete(cell: Cell, question: Question, cells: Sequence[Cell]) -> bool:
    """Tell whether the cell after this one is no torn-off rest of it."""
    rest = _next(cell, cells)
    return rest is None or _parses(rest.source) or not _parses(f"{cell.source}\n{rest.source}")


def _joined(first: Cell, question: Question, cells: Sequence[Cell]) -> str:
    """Return a cell with the next ones, if only together they are an answer; else nothing."""
    text, cell, whole = first.source, first, _parses(first.source)
    for _ in range(8):
        cell = _next(cell, cells)
        if cell is None or (whole and _parses(cell.source)):
            return ""
        text = f"{text}\n{cell.source}"
        if _binds(text, question.variable) and not _goes_on(cell, cells):
            return text
    return ""


def _goes_on(cell: Cell, cells: Sequence[Cell]) -> bool:
    rest = _next(cell, cells)
    return rest is not None and not _parses(rest.source)


def _next(cell: Cell, cells: Sequence[Cell]) -> Cell | None:
    """Return the code cell right after this one, unless it is marked as something else."""
    places = [k for k, other in enumerate(cells) if other is cell]
    after = cells[places[0] + 1] if places and places[0] + 1 < len(cells) else None
    if after is None or after.kind != "code":
        return None
    marks = {one for one in after.ids if one.endswith(("-check", "-answer", "-setting"))}
    return after if marks <= set(cell.ids) else None


def _taken(cell: Cell, exercise: Exercise, question: Question) -> bool:
    """Tell whether a cell is marked as one that the exercise itself has."""
    return bool(set(cell.ids) & exercise.ids - {question.answer})


def _without_stubs(cells: Sequence[Cell], question: Question) -> list[Cell]:
    stub = shape(question.stub)
    return [cell for cell in cells if cell.source.strip() and shape(cell.source) != stub]


def _different(cells: Sequence[Cell]) -> list[str]:
    """Return the sources of the cells that differ in more than comments and blanks."""
    return list({shape(cell.source): cell.source for cell in cells}.values())


def shape(source: str) -> str:
    """Return code as a text in which comments and blanks make no difference; empty if it is."""
    if not source.strip():
        return ""
    try:
        return ast.dump(parse(source))
    except (NotRight, RecursionError, ValueError):  # a number of thousands of digits is not written
        return source.strip()


def _parses(source: str) -> bool:
    """Tell whether a cell is whole; one that begins with an indent may be torn off another."""
    if source.lstrip("\n")[:1].isspace() and source.strip():
        return False
    try:
        parse(source)
        return True
    except NotRight:
        return False


def _binds(source: str, variable: str) -> bool:
    try:
        return any(variable in bound(statement) for statement in parse(source).body)
    except NotRight:
        return False


def _several(question: Question, count: int) -> str:
    return (
        f"{count} cells give `{question.variable}` different values, and it cannot be told which "
        f"of them is meant. Keep one: its answer cell, {question.answer}."
    )


def _nothing(question: Question, cells: Sequence[Cell], marked: bool, mine: list[Cell]) -> Found:
    variable = question.variable
    if alike := _lookalike(variable, cells):
        return Found(word=MALFORMED, message=alike)
    if mine:
        return Found(word=MALFORMED, message=f"Its answer cell should give `{variable}` a value.")
    if marked or any(shape(c.source) == shape(question.stub) for c in code(cells)):
        return Found(word=UNANSWERED)
    if any(question.answer in cell.ids for cell in cells):
        said = (
            f"its answer cell, {question.answer}, is no code cell any more. Turn it back into one."
        )
    else:
        said = (
            f"its answer cell, {question.answer}, is not in the notebook, and no other cell gives "
            f"`{variable}` a value. Take the exercise as handed out and copy your answer into it."
        )
    return Found(word=MISSING, message=said)


def _lookalike(variable: str, cells: Sequence[Cell]) -> str:
    """Say which name of a notebook looks like the variable and is another, if there is one."""
    names = {name for c in code(cells) if _parses(c.source) for s in parse(c.source).body
             for name in bound(s)}  # fmt: skip
    for name in sorted(names - {variable}):
        other = [one for one, mine in zip(name, variable, strict=False) if one != mine]
        if len(name) == len(variable) and not any(map(str.isascii, other)):
            return (
                f"`{name}` looks like `{variable}` and is another name: its {other[0]!r} is a "
                f"{judging.letter_name(other[0])}. Type the name anew."
            )
    return ""


def lost_check(question: Question, cells: Sequence[Cell]) -> str:
    """Say why a check would not be made in the reader's own notebook, if that is so."""
    call = f'check("{question.task}", of="{question.variable}")'
    put_back = f"Put it back: a code cell with {call}"
    marked = [cell for cell in cells if question.check in cell.ids]
    mine = marked or [cell for cell in code(cells) if is_check(cell.source, question)]
    if not mine:
        return f"its check cell, {question.check}, is not in the notebook. {put_back}"
    cell = mine[0]
    if cell.kind != "code":
        return f"its check cell, {question.check}, is no code cell any more. {put_back}"
    if hiding := sorted(_HIDING_TAGS & {tag.lower() for tag in cell.tags}):
        return f"its check cell, {question.check}, carries the tag {hiding[0]}. Take the tag away."
    comments = (line.strip(" #\t").lower() for line in cell.source.splitlines() if "#" in line)
    if set(_HIDING_COMMENTS) & set(comments) or not is_check(cell.source, question):
        return f"its check cell, {question.check}, was changed. {put_back}"
    return ""
