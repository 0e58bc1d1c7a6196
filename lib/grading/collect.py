"""Find what a class hands in: notebooks in whatever folders, under whatever names, or none at all.

Only regular files are read, so many of each student. Of several notebooks for one exercise the
one that counts is chosen; where that cannot be told, it is said in words for the student.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lib.errors import CourseError
from lib.exercises import answers
from lib.exercises.judging import MALFORMED
from lib.exercises.questions import Exercise, number_in
from lib.exercises.reading import Cell, clean, code, identify, read, read_bytes

FILES = 500  # of one student
_LEFT_ALONE = {".ipynb_checkpoints", "__MACOSX", "__pycache__", ".git"}


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
    found = [answers.find(question, exercise, cells) for question in exercise.questions]
    settings = [cell for cell in code(cells) if exercise.settings & set(cell.ids)]
    return [
        *(answers.shape(one.source) or one.message * (one.word == MALFORMED) for one in found),
        sorted(answers.shape(cell.source) for cell in settings),
    ]
