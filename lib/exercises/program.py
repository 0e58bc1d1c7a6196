"""Put together the code that a notebook's built functions need: nothing else of it is run.

The answer cells run whole. Of the other cells, the exercise's own and the student's, only those
statements are taken which make a name that is needed: an import, a helper.
"""

from __future__ import annotations

import ast
import builtins
import functools
import re
import symtable
import warnings
from collections.abc import Iterable, Iterator

from lib.exercises.judging import NotRight
from lib.exercises.literal import bound, clean, parse


@functools.lru_cache(maxsize=2048)
def needed(source: str) -> frozenset[str]:
    """Return the global names that code uses, those in its functions included; none if it is bad.

    Parameters
    ----------
    source : str
    """
    try:
        text = re.sub(r"(?m)^from __future__.*$", "", clean(source))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            table = symtable.symtable(text, "<answer>", "exec")
        return frozenset(_globals(table, top=True))
    except (NotRight, SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()


def _globals(table: symtable.SymbolTable, top: bool = False) -> set[str]:
    own = {
        s.get_name() for s in table.get_symbols() if s.is_referenced() and (top or s.is_global())
    }
    return own.union(*(_globals(inner) for inner in table.get_children()))


def support(answers: Iterable[str], *sources: Iterable[str]) -> list[str]:
    """Return the statements which make the names that the answers need, in running order.

    Parameters
    ----------
    answers : iterable of str
        Sources of the answer cells.
    *sources : iterables of str
        Cells to look in: first the exercise's own, then the student's. A name that is found in the
        first is not looked for in the second.
    """
    answers = list(answers)
    known = set(dir(builtins)) | _bound_in(answers)
    wanted = set().union(*map(needed, answers)) - known
    taken: list[str] = []
    for cells in sources:
        statements = [pair for cell in cells for pair in _with_text(cell)]
        chosen = _closure(statements, wanted, known)
        taken += [text for _, text in chosen]
        known |= set().union(*(bound(statement) for statement, _ in chosen))
        wanted = (wanted | set().union(*(needed(text) for _, text in chosen))) - known
    return taken


def _with_text(cell: str) -> Iterator[tuple[ast.stmt, str]]:
    """Yield the statements of a cell and their source, as it is: to write a tree out may fail."""
    lines = clean(cell).split("\n")
    for statement in _statements(cell):
        first = min(
            [statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", []))]
        )
        yield statement, "\n".join(lines[first - 1 : statement.end_lineno])


def _bound_in(cells: Iterable[str]) -> set[str]:
    return set().union(*(bound(s) for cell in cells for s in _statements(cell)))


def _statements(cell: str) -> list[ast.stmt]:
    try:
        return parse(cell).body
    except NotRight:
        return []


def _closure(statements: list, wanted: set[str], known: set[str]) -> list[tuple[ast.stmt, str]]:
    """Return the statements that make what is wanted, and what those need, in their order."""
    makes = [bound(statement) - known for statement, _ in statements]
    chosen: set[int] = set()
    wanted = set(wanted)
    while more := {k for k, made in enumerate(makes) if k not in chosen and made & wanted}:
        chosen |= more
        wanted |= set().union(*(needed(statements[k][1]) for k in more))
    return [statements[k] for k in sorted(chosen)]
