"""Read a notebook, whatever was done to it on its way.

Notebooks come renamed, from editors that drop or renew the ids of cells, in older formats, or cut
short. Nothing here trusts a file: its size is limited, and it is taken cell by cell, so that one
broken cell costs no other. What cannot be read is told in words for whoever wrote it.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lib.errors import CourseError
from lib.exercises.questions import Exercise, number_in

SIZE = 64 * 2**20  # bytes of one file: figures make notebooks large, but not that large
CELLS = 5_000  # of one notebook
CODE = 400_000  # characters of code of one notebook: the longest solution has 12,000
_OF_A_TASK = re.compile(r"^\d\d-.*-(answer|check|setting|imports)$|^\d\d-imports$")


@dataclass(frozen=True)
class Cell:
    """What is kept of a cell of a notebook."""

    kind: str  # "code", "markdown", "raw"
    source: str
    ids: tuple[str, ...]  # its own, Colab's, nbgrader's
    tags: tuple[str, ...] = ()


def read_bytes(file: Path, name: str) -> bytes:
    """Return the bytes of a file that is not too large; `name` is what a message calls it."""
    try:
        if file.stat().st_size > SIZE:
            raise CourseError(
                f"{name} is larger than {SIZE // 2**20} MB. Clear its outputs and save it again."
            )
        return file.read_bytes()
    except OSError as error:
        raise CourseError(f"{name} cannot be read: {error.strerror}.") from None


def read(data: bytes, name: str, notes: list[str]) -> list[Cell]:
    """Return the cells of a notebook of any format.

    Parameters
    ----------
    data : bytes
        Of the file.
    name : str
        What the file is called in a message.
    notes : list of str
        Gets a sentence for what was mended on the way.

    Raises
    ------
    CourseError
        It cannot be read as a notebook; the sentence says what to do.
    """
    found = _parse(_text(data, name, notes), name)
    cells = found.get("cells")
    if cells is None:  # formats 1 to 3
        sheets = [sheet for sheet in _list(found, "worksheets") if isinstance(sheet, dict)]
        cells = [cell for sheet in sheets for cell in _list(sheet, "cells")]
        if not cells:
            raise CourseError(
                f"{name} is no notebook: it has no cells. Hand in the file you saved."
            )
        notes.append(f"{name} is of an old format. Open it in JupyterLab and save it.")
    if not isinstance(cells, list):
        raise CourseError(f"{name} is damaged: its cells are no list. Hand in a copy that opens.")
    kept = [cell for raw in cells[:CELLS] if (cell := _cell(raw)) is not None]
    if sum(len(cell.source) for cell in code(kept)) > CODE:
        notes.append(
            f"{name} holds far more code than the exercise asks for; scratch was left out."
        )
        kept = [c for c in kept if c.kind != "code" or any(map(_OF_A_TASK.search, c.ids))]
    if broken := len(cells) - len(kept):
        notes.append(f"{name} is damaged: {broken} of its {len(cells)} cells cannot be read.")
    return kept


def _text(data: bytes, name: str, notes: list[str]) -> str:
    if not data.strip(b" \t\r\n\0"):
        raise CourseError(f"{name} is empty. Save your notebook and hand it in again.")
    marks = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
    mark = next((mark for mark in marks if data.startswith(mark)), b"")
    try:
        text = data.removeprefix(codecs.BOM_UTF8).decode(marks.get(mark, "utf-8"))
    except UnicodeDecodeError:
        text = data.decode("utf-8", "replace")
        notes.append(f"{name} is no clean UTF-8 text; what is not was replaced by question marks.")
    if mark:
        notes.append(f"{name} begins with a byte-order mark, which JupyterLab cannot read.")
    return text


def _parse(text: str, name: str) -> dict:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError, MemoryError) as error:
        if re.search(r"^(<<<<<<<|>>>>>>>)", text, re.MULTILINE):
            raise CourseError(
                f"{name} holds the conflict markers of an unfinished git merge, <<<<<<< and "
                ">>>>>>>. Resolve the conflict, open the notebook once, and hand it in again."
            ) from None
        line = getattr(error, "lineno", 1)
        raise CourseError(
            f"{name} cannot be read as a notebook: it is cut off or damaged at line {line}. "
            "Open it in JupyterLab; if that works, save it and hand it in again."
        ) from None
    if not isinstance(found, dict):
        raise CourseError(
            f"{name} is no notebook, though it is called one. Hand in the .ipynb file."
        )
    return found


def _list(value: dict, key: str) -> list:
    return value[key] if isinstance(value.get(key), list) else []


def _cell(raw: object) -> Cell | None:
    if not isinstance(raw, dict):
        return None
    source = raw.get("source", raw.get("input"))
    if isinstance(source, list) and all(isinstance(line, str) for line in source):
        source = "".join(source)
    if not isinstance(source, str):
        return None
    kind = raw.get("cell_type")
    # Text of other systems: \r\n ends lines there, and half a pair of UTF-16 is no character.
    source = source.replace("\r\n", "\n").encode("utf-8", "replace").decode("utf-8")
    tags = (tag for tag in _list(_dict(raw, "metadata"), "tags") if isinstance(tag, str))
    return Cell(kind if isinstance(kind, str) else "", source, tuple(_ids(raw)), tuple(tags))


def _dict(value: dict, key: str) -> dict:
    return value[key] if isinstance(value.get(key), dict) else {}


def _ids(raw: dict) -> Iterator[str]:
    metadata = _dict(raw, "metadata")
    grader = _dict(metadata, "nbgrader")
    for one in (raw.get("id"), metadata.get("id"), grader.get("grade_id")):
        if isinstance(one, str):
            yield one


def code(cells: Iterable[Cell]) -> list[Cell]:
    """Return the code cells."""
    return [cell for cell in cells if cell.kind == "code"]


def identify(cells: Sequence[Cell], name: str, exercises: dict[str, Exercise]) -> str:
    """Return the number of the exercise that a notebook is of; empty if it is of none.

    What is in it counts, the ids of its cells and the names of its tasks; then what it is called.
    """
    ids = {one for cell in cells for one in cell.ids}
    text = "\n".join(cell.source for cell in cells)
    calls = re.findall(r"\bcheck\(\s*[\"'](\d\d)\.\w+[\"']", text)
    scores = {
        number: len(ids & exercise.ids) + calls.count(number)
        for number, exercise in exercises.items()
    }
    best = max(scores, key=scores.__getitem__)
    if scores[best]:
        return best
    variables = {
        number: sum(
            bool(re.search(rf"^\s*(def\s+)?{q.variable}\s*[=(]", text, re.MULTILINE))
            for q in exercise.questions
        )
        for number, exercise in exercises.items()
    }
    best = max(variables, key=variables.__getitem__)
    if variables[best] >= 2:
        return best
    return number_in(name) if number_in(name) in exercises else ""


def clean(text: str) -> str:
    """Return a text that every file may hold: bytes that are no UTF-8 become question marks."""
    raw = text.encode("utf-8", "surrogateescape" if _escaped(text) else "replace")
    return "".join(
        c if c.isprintable() or c in "\n\t" else "?" for c in raw.decode("utf-8", "replace")
    )


def _escaped(text: str) -> bool:
    return all(not 0xD800 <= ord(c) <= 0xDFFF or 0xDC80 <= ord(c) <= 0xDCFF for c in text)
