"""The notebooks as they open in a browser: what cannot run there says so in a line.

Cells with the tag `needs-installation`, and where the site has no model beside it also those with
`needs-model`, begin with ``%%installed`` in the copy, and a cell above
teaches IPython that word. What such a cell gave where the course is installed stands below it as
text, so that running it there wipes nothing. Everything else is as in the course.
"""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from lib import notebooks
from lib.errors import CourseError
from lib.lab.installed import MARK, load_ipython_extension

if TYPE_CHECKING:
    from nbformat import NotebookNode

TAG, MODEL_TAG = "needs-installation", "needs-model"
OPENING = (
    f"# Cells that begin with {MARK} need the course on your own machine; here they say so.\n"
    "# To get this notebook back as it was: delete it in the list of files, and load the page.\n"
    f"%load_ext {load_ipython_extension.__module__}"
)
KEPT = "*What the cell above gives where the course is installed:*"


def needs_installation(cell: NotebookNode, model: bool = False) -> bool:
    """Tell whether a cell needs more than a browser has: with the real model beside the site."""
    needs = {TAG} if model else {TAG, MODEL_TAG}
    return cell.cell_type == "code" and not needs.isdisjoint(cell.metadata.get("tags", []))


def for_browser(notebook: NotebookNode, model: bool = False) -> NotebookNode:
    """Return the copy of a notebook for the browser.

    Parameters
    ----------
    notebook : NotebookNode
        A chapter or an exercise; it is not changed.
    model : bool
        Whether the site has the real model beside it, and kernels that run it.

    Raises
    ------
    CourseError
        The tag stands on a cell that is graded: its words must stay what they are.
    """
    import nbformat

    made = copy.deepcopy(notebook)
    marked = [cell for cell in made.cells if needs_installation(cell, model)]
    for cell in marked:
        if "nbgrader" in cell.metadata:
            raise CourseError(f"cell {cell.id} is graded, so it should not have the tag {TAG}")
        cell.source = f"{MARK}\n{cell.source}"
        if cell.outputs:
            made.cells.insert(made.cells.index(cell) + 1, _kept(cell))
            cell.outputs = []
    if marked:
        first = next(k for k, cell in enumerate(made.cells) if cell.cell_type == "code")
        opening = nbformat.v4.new_code_cell(OPENING, id="in-the-browser")
        made.cells.insert(first, opening)
    return made


def _kept(cell: NotebookNode) -> NotebookNode:
    """Return a text cell that shows the stored outputs of a cell."""
    import nbformat

    parts, pictures = [KEPT], {}
    for k, output in enumerate(cell.outputs):
        data = output.get("data", {})
        text = output.get("text") or data.get("text/plain", "")
        if "image/png" in data:
            name = f"{cell.id}-{k}.png"
            pictures[name] = {"image/png": data["image/png"].replace("\n", "")}
            alt = output.metadata.get("image/png", {}).get("alt", "").translate(_NO_BRACKETS)
            parts.append(f"![{alt}](attachment:{name})")
        elif kind := next((k for k in ("text/markdown", "text/html") if k in data), None):
            parts.append(data[kind])
        elif text:
            fence = "~" * (3 + max(map(len, re.findall("~+", text)), default=0))
            parts.append(f"{fence}\n{text.rstrip()}\n{fence}")
    made = nbformat.v4.new_markdown_cell("\n\n".join(parts), id=f"{cell.id}-kept"[:64])
    if pictures:
        made.attachments = pictures
    return made


_NO_BRACKETS = str.maketrans("[]", "()")


def copy_all(paths: list[Path], root: Path, folder: Path, model: bool = False) -> None:
    """Write the copies of notebooks into a folder, each at its place in the course.

    Raises
    ------
    CourseError
        As for `for_browser`, or a notebook cannot be read.
    """
    for path in paths:
        target = folder / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        made = for_browser(notebooks.read_notebook(path), model)
        # Each source as one string: JupyterLite takes lists of lines for something else.
        target.write_text(json.dumps(made, ensure_ascii=False), encoding="utf-8", newline="\n")
