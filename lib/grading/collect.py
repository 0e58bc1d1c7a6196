"""Find and read what a class hands in, whatever was done to it on the way.

Notebooks come renamed, in other folders, from editors that drop or renew the ids of cells, in
older formats, cut short, or not at all. Nothing here trusts a file: its size is limited, only
regular files are read, and a notebook is taken cell by cell, so that one broken cell costs no
other. What cannot be read is told in words for the student.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from lib.errors import CourseError
from lib.exercises.judging import MALFORMED
from lib.grading.course import Exercise, number_in

SIZE = 64 * 2**20  # bytes of one file: figures make notebooks large, but not that large
FILES = 500  # of one student
CELLS = 5_000  # of one notebook
CODE = 400_000  # characters of code of one notebook: the longest solution has 12,000
_OF_A_TASK = re.compile(r"^\d\d-.*-(answer|check|setting|imports)$|^\d\d-imports$")
_LEFT_ALONE = {".ipynb_checkpoints", "__MACOSX", "__pycache__", ".git"}


@dataclass(frozen=True)
class Cell:
    """What is kept of a cell of a notebook."""

    kind: str  # "code", "markdown", "raw"
    source: str
    ids: tuple[str, ...]  # its own, Colab's, nbgrader's
    tags: tuple[str, ...] = ()


@dataclass
class Handed:
    """What one student handed in.

    Fields
    ------
    student : str
    cells : dict of str to list of Cell
        By the number of the exercise.
    files : dict of str to str
        For each exercise, the file that counts.
    notes : list of str
        What could not be read or matched, in words for the student.
    troubles : dict of str to str
        Exercises that were handed in but cannot be judged, and why.
    digest : str
        Of all bytes that were handed in.
    """

    student: str
    cells: dict[str, list[Cell]] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    troubles: dict[str, str] = field(default_factory=dict)
    digest: str = ""

    def as_dict(self) -> dict:
        """Return it as plain dicts and lists, fit to travel."""
        return asdict(self)


# --- Students ------------------------------------------------------------------------------------


def students(folder: Path) -> dict[str, Path]:
    """Return the entries of a folder of submissions by the names of the students, sorted.

    Raises
    ------
    CourseError
        It is no folder, or there is nothing in it.
    """
    if not folder.is_dir():
        raise CourseError(f"SUBMISSIONS should be a folder, one folder or file a student: {folder}")
    entries = sorted(p for p in folder.iterdir() if not _is_left_alone(p))
    found: dict[str, Path] = {}
    for path in entries:
        short = clean(path.stem if path.is_file() and path.suffix == ".ipynb" else path.name)
        name, more = short, 2
        while name in found:  # anna/ and anna.ipynb
            name, more = f"{short} ({more})", more + 1
        found[name] = path
    if not found:
        raise CourseError(f"SUBMISSIONS is empty: nothing was handed in at {folder}")
    return found


def clean(text: str) -> str:
    """Return a text that every file may hold: bytes that are no UTF-8 become question marks."""
    raw = text.encode("utf-8", "surrogateescape" if _escaped(text) else "replace")
    return "".join(
        c if c.isprintable() or c in "\n\t" else "?" for c in raw.decode("utf-8", "replace")
    )


def _escaped(text: str) -> bool:
    return all(not 0xD800 <= ord(c) <= 0xDFFF or 0xDC80 <= ord(c) <= 0xDCFF for c in text)


def _is_left_alone(path: Path) -> bool:
    return path.name in _LEFT_ALONE or path.name.startswith(".")


def collect(student: str, path: Path, exercises: dict[str, Exercise]) -> Handed:
    """Read all that one student handed in.

    Parameters
    ----------
    student : str
    path : Path
        A folder, or one file.
    exercises : dict of str to Exercise
    """
    handed, digest = Handed(student), hashlib.sha256()
    candidates: dict[str, list[tuple[str, list[Cell]]]] = {}
    for file in _files(path, handed.notes):
        name = clean(file.relative_to(path).as_posix() if file != path else file.name)
        if file.suffix.lower() != ".ipynb":
            handed.notes.append(f"{name} is no notebook, so it was not looked at.")
            continue
        try:
            data = read_bytes(file, name)
            digest.update(name.encode() + b"\0" + hashlib.sha256(data).digest())
            cells = read(data, name, handed.notes)
        except CourseError as error:
            digest.update(str(error).encode())
            _note_trouble(handed, name, str(error), exercises)
            continue
        number = identify(cells, file.name, exercises)
        if number:
            candidates.setdefault(number, []).append((name, cells))
        else:
            handed.notes.append(f"{name} belongs to none of the exercises that are graded.")
    for number, found in sorted(candidates.items()):
        _choose(handed, exercises[number], found)
    if not candidates and not handed.troubles:
        handed.notes.append("No notebook of an exercise was found. Hand in the .ipynb file itself.")
    handed.digest = digest.hexdigest()
    return handed


def _files(path: Path, notes: list[str]) -> list[Path]:
    """Return the regular files of a student; links and the like are not followed."""
    if path.is_symlink():
        notes.append("A link was handed in instead of a file; hand in the file itself.")
        return []
    if not path.is_dir():
        if path.is_file():
            return [path]
        notes.append(f"{clean(path.name)} is no file with content, so it was not looked at.")
        return []
    found = []
    for place, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not _is_left_alone(Path(name)))
        for name in sorted(names):
            file = Path(place, name)
            if file.is_symlink():
                notes.append(f"{clean(name)} is a link, which leads to no file of yours.")
            elif file.is_file() and not _is_left_alone(file):
                found.append(file)
            elif not file.is_file():
                notes.append(f"{clean(name)} is no file with content, so it was not looked at.")
    if len(found) > FILES:
        notes.append(f"There are {len(found)} files; only the first {FILES} were looked at.")
    return found[:FILES]


def _note_trouble(handed: Handed, name: str, why: str, exercises: dict[str, Exercise]) -> None:
    number = number_in(Path(name).name)
    if number in exercises:
        handed.troubles.setdefault(number, why)
    handed.notes.append(why)


def _choose(handed: Handed, exercise: Exercise, found: list[tuple[str, list[Cell]]]) -> None:
    """Take the notebook that counts, of several for one exercise."""
    if len(found) > 1:
        worked = [pair for pair in found if any(_answers(pair[1], exercise)[:-1])]
        if worked and len(worked) < len(found):
            names = ", ".join(name for name, cells in found if (name, cells) not in worked)
            handed.notes.append(f"{names} is as it was handed out, so it does not count.")
            found = worked
    if len(found) > 1:
        answers = [_answers(cells, exercise) for _, cells in found]
        named = [pair for pair in found if Path(pair[0]).name == exercise.file]
        if all(other == answers[0] for other in answers):
            found = found[:1]
        elif len(named) == 1:
            others = ", ".join(name for name, _ in found if name != named[0][0])
            handed.notes.append(
                f"There are {len(found)} notebooks of exercise {exercise.number}. The one that is "
                f"called as it was handed out counts, {named[0][0]}; not {others}."
            )
            found = named
        else:
            names = ", ".join(name for name, _ in found)
            handed.troubles[exercise.number] = (
                f"There are {len(found)} notebooks of exercise {exercise.number}, and they differ: "
                f"{names}. Hand in one."
            )
            return
    handed.files[exercise.number], handed.cells[exercise.number] = found[0]
    handed.troubles.pop(exercise.number, None)


def _answers(cells: Sequence[Cell], exercise: Exercise) -> list[object]:
    """Return what counts of a notebook: its answers, empty where open, and last its settings.

    They are found and compared as for a verdict: lost ids, comments and blanks are no difference.
    """
    from lib.grading import answers  # which reads cells itself

    found = [answers.find(question, exercise, cells) for question in exercise.questions]
    settings = [cell for cell in code(cells) if exercise.settings & set(cell.ids)]
    return [
        *(answers.shape(one.source) or one.message * (one.word == MALFORMED) for one in found),
        sorted(answers.shape(cell.source) for cell in settings),
    ]


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


# --- One notebook --------------------------------------------------------------------------------


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
        sheets = found.get("worksheets")
        sheets = sheets if isinstance(sheets, list) else []
        cells = [c for sheet in sheets if isinstance(sheet, dict) for c in _list(sheet, "cells")]
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
    return Cell(kind if isinstance(kind, str) else "", source, tuple(_ids(raw)), tuple(_tags(raw)))


def _ids(raw: dict) -> Iterator[str]:
    metadata = raw.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    grader = metadata.get("nbgrader")
    grader = grader if isinstance(grader, dict) else {}
    for one in (raw.get("id"), metadata.get("id"), grader.get("grade_id")):
        if isinstance(one, str):
            yield one


def _tags(raw: dict) -> Iterator[str]:
    metadata = raw.get("metadata")
    tags = metadata.get("tags") if isinstance(metadata, dict) else None
    yield from (tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else ()


def code(cells: Iterable[Cell]) -> list[Cell]:
    """Return the code cells."""
    return [cell for cell in cells if cell.kind == "code"]
