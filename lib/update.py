"""Bring the course up to date by git, and keep what a reader wrote.

What was changed here is put aside, the newest version fetched, and the changes laid on top. A file
that both sides changed stays as it is in the course, and the reader's own lies beside it; one
that the course has given up stays the reader's.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from lib.errors import CourseError

ZIP = (
    "this folder is no clone of the course, so there is nothing to fetch from: download the course "
    "again, unpack it beside this one, and copy your exercises over"
)


def update(root: Path) -> tuple[str, list[Path]]:
    """Fetch the newest course.

    Parameters
    ----------
    root : Path
        The folder of the course.

    Returns
    -------
    tuple of str and list of Path
        What git said of the fetching; and files with the reader's own version of what the course
        has changed too.

    Raises
    ------
    CourseError
        It is no clone, git is missing or fails, or the course here and there have grown apart.
        Everything is then as it was.
    """
    top = _git(root, "rev-parse", "--show-toplevel", wrong=ZIP)
    if Path(top).resolve() != root.resolve():
        raise CourseError(ZIP)
    if _git(root, "diff", "--name-only", "--diff-filter=U"):
        raise CourseError("files here hold an unfinished merge; finish that first: git status")
    before = _stashes(root)
    _git(root, "stash", "push", "--message", "course update")
    kept = _stashes(root) > before  # nothing was changed: nothing was put aside
    try:
        said = _git(root, "pull", "--ff-only")
    except CourseError:
        if kept:
            _git(root, "stash", "pop")
        raise
    return said, _lay_on_top(root) if kept else []


def _lay_on_top(root: Path) -> list[Path]:
    """Lay the changes that were put aside on top; where they clash, put them beside."""
    done = subprocess.run(["git", "stash", "pop"], cwd=root, capture_output=True)
    if done.returncode == 0:
        return []
    clashes = _git(root, "diff", "--name-only", "-z", "--diff-filter=U").split("\0")[:-1]
    if not clashes:
        raise CourseError("git could not put back what you wrote; it keeps it: git stash pop")
    beside = []
    for name in clashes:
        path, mine = root / name, _content(root, "stash@{0}", name)
        course_has_it = _content(root, "HEAD", name) is not None
        if mine is not None:
            beside.append(_free(path) if course_has_it else path)
            beside[-1].write_bytes(mine)
        if course_has_it:
            _git(root, "checkout", "HEAD", "--", name)
    _git(root, "reset", "--quiet")  # what did not clash is a change like any other
    return beside  # git keeps what was put aside as well: `git stash list`


def _free(path: Path) -> Path:
    """Return a name beside a file that is not taken: name-mine.ipynb, name-mine-2.ipynb."""
    names = (f"{path.stem}-mine{k}{path.suffix}" for k in ["", *(f"-{n}" for n in range(2, 1000))])
    return next(one for name in names if not (one := path.with_name(name)).exists())


def _stashes(root: Path) -> int:
    return len(_git(root, "stash", "list").splitlines())


def _content(root: Path, commit: str, name: str) -> bytes | None:
    """Return what a commit holds under a name; None where the file is not in it."""
    done = subprocess.run(["git", "show", f"{commit}:{name}"], cwd=root, capture_output=True)
    return None if done.returncode else done.stdout


def _git(root: Path, *words: str, wrong: str = "") -> str:
    try:
        done = subprocess.run(
            ["git", *words], cwd=root, capture_output=True, text=True, encoding="utf-8"
        )
    except OSError:
        raise CourseError("git is not installed, and updating needs it") from None
    if done.returncode:
        raise CourseError(wrong or f"git {words[0]}: {' '.join(done.stderr.split())}")
    return done.stdout.strip()
