"""The notebooks as they open in a browser: what cannot run there says so in a line.

Cells with the tag `needs-installation` begin with ``%%installed`` in the copy, and a cell above
teaches IPython that word. Everything else is as in the course, stored outputs included.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING

from lib import notebooks
from lib.errors import CourseError
from lib.lab.installed import MARK, load_ipython_extension

if TYPE_CHECKING:
    from nbformat import NotebookNode

TAG = "needs-installation"
OPENING = (
    f"# Cells that begin with {MARK} need the course on your own machine; here they say so.\n"
    f"%load_ext {load_ipython_extension.__module__}"
)


def needs_installation(cell: NotebookNode) -> bool:
    """Tell whether a cell needs the real model or compiled code."""
    return cell.cell_type == "code" and TAG in cell.metadata.get("tags", [])


def for_browser(notebook: NotebookNode) -> NotebookNode:
    """Return the copy of a notebook for the browser.

    Parameters
    ----------
    notebook : NotebookNode
        A chapter or an exercise; it is not changed.

    Raises
    ------
    CourseError
        The tag stands on a cell that is graded: its words must stay what they are.
    """
    import nbformat

    made = copy.deepcopy(notebook)
    marked = [cell for cell in made.cells if needs_installation(cell)]
    for cell in marked:
        if "nbgrader" in cell.metadata:
            raise CourseError(f"cell {cell.id} is graded, so it should not have the tag {TAG}")
        cell.source = f"{MARK}\n{cell.source}"
    if marked:
        first = next(k for k, cell in enumerate(made.cells) if cell.cell_type == "code")
        opening = nbformat.v4.new_code_cell(OPENING, id="in-the-browser")
        made.cells.insert(first, opening)
    return made


def copy_all(paths: list[Path], root: Path, folder: Path) -> None:
    """Write the copies of notebooks into a folder, each at its place in the course.

    Raises
    ------
    CourseError
        As for `for_browser`, or a notebook cannot be read.
    """
    for path in paths:
        target = folder / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        made = for_browser(notebooks.read_notebook(path))
        # Each source as one string: JupyterLite takes lists of lines for something else.
        target.write_text(json.dumps(made, ensure_ascii=False), encoding="utf-8", newline="\n")
