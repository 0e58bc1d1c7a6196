"""What the pages have beyond the theme: the buttons that run a notebook and that hand it out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from docutils.nodes import document
    from sphinx.application import Sphinx

DOWNLOADS = "download"  # the folder of the notebooks as they are, beside the pages
AFTER_THE_THEME = 900
ABOUT = "Nothing is installed; some 40 MB are fetched once, and your work stays in this browser"
EXTENTS = {
    "all": "All of it runs there.",
    "model": "All of it runs there; the real model, 98 MB, is fetched when a cell first needs it.",
    "part": "Cells that need more than a browser has say so there, above what they gave.",
}
# `Cache` and `lib.layer.LayerWeights`, but neither `d` nor `H`.
CLASS = re.compile(r"(\w+\.)*[A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9]*")


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the buttons to Sphinx; it calls this by name."""
    app.add_config_value("course_launch", {}, "html", dict)
    app.connect("doctree-read", keep_letters)
    app.connect("html-page-context", add_buttons, priority=AFTER_THE_THEME)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def keep_letters(app: Sphinx, tree: document) -> None:
    """Let the letters of a shape be letters: Sphinx takes `(n, d)` for the names of classes."""
    from sphinx.addnodes import pending_xref

    for link in list(tree.findall(pending_xref)):
        if link.get("reftype") == "class" and not CLASS.fullmatch(link["reftarget"]):
            link.replace_self(link.children)


def add_buttons(app: Sphinx, page: str, template: str, context: dict, doctree: object) -> None:
    """Put the buttons of a notebook above it."""
    if not page.startswith(("notebooks/", "exercises/")):
        return
    buttons = [
        {
            "type": "link",
            "url": f"{context['pathto'](DOWNLOADS, 1)}/{page}.ipynb",
            "text": "Notebook",
            "tooltip": "Download this notebook",
            "icon": "fas fa-download",
            "label": "download-notebook",
        }
    ]
    if page in app.config.course_launch:
        buttons.insert(
            0,
            {
                "type": "link",
                "url": context["pathto"](app.config.course_launch[page][0], 1),
                "text": "Run in the browser",
                "tooltip": f"{EXTENTS[app.config.course_launch[page][1]]} {ABOUT}",
                "icon": "fas fa-play",
                "label": "launch",
            },
        )
    context["header_buttons"] = [*buttons, *context.get("header_buttons", [])]
