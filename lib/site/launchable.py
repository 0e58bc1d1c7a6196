"""How far each notebook runs in a browser, where there is no Numba, and no model unless fetched.

A notebook says it in its own metadata: ``{"left_context": {"browser": "part"}}``.
"""

from __future__ import annotations

import json
from pathlib import Path

from lib import notebooks
from lib.errors import CourseError

ALL, MODEL, PART, NONE = "all", "model", "part", "none"


def extent(path: Path) -> str:
    """Return how far a notebook runs in a browser.

    Parameters
    ----------
    path : Path
        A chapter or an exercise.

    Returns
    -------
    str
        ``"all"``: every cell does its work. ``"model"``: every cell does, where the real model
        lies beside the site. ``"part"``: every cell runs, and those that need an installation say
        so in a line. ``"none"``: it is not offered there; so are notebooks that
        say nothing.

    Raises
    ------
    CourseError
        The notebook cannot be read, or says another word.
    """
    try:
        metadata = json.loads(path.read_text(encoding="utf-8"))["metadata"]
        word = metadata.get("left_context", {}).get("browser", NONE)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise CourseError(f"{path} cannot be read as a notebook") from None
    if word not in (ALL, MODEL, PART, NONE):
        raise CourseError(
            f"{path.name}: left_context.browser in its metadata should be one of "
            f"{ALL!r}, {MODEL!r}, {PART!r} and {NONE!r}; it is {word!r}"
        )
    return word


def launchable(root: Path, model: bool = True) -> dict[Path, str]:
    """Return the notebooks that run in a browser, and how far each does.

    Parameters
    ----------
    root : Path
        The folder of the course.
    model : bool
        Whether the real model lies beside the site.

    Returns
    -------
    dict of Path to str
        Chapters, then exercises, in reading order; ``"all"``, ``"model"`` or ``"part"`` for each.

    Raises
    ------
    CourseError
        As for `extent`.
    """
    folders = (notebooks.FOLDER, notebooks.EXERCISES)
    paths = [path for folder in folders for path in notebooks.chapters(root, folder)]
    extents = {path: extent(path) for path in paths}
    without = {} if model else {MODEL: PART}
    return {path: without.get(word, word) for path, word in extents.items() if word != NONE}


def address(path: Path, root: Path) -> str:
    """Return where the notebook opens, relative to the folder of JupyterLite.

    Parameters
    ----------
    path, root : Path
        One of `launchable`, and the folder of the course.
    """
    return f"notebooks/index.html?path={path.relative_to(root).as_posix()}"
