"""Cells that need what a browser lacks: the real model, compiled code.

In the copies of the chapters that `course lite` makes, such cells begin with ``%%installed``. After

    %load_ext lib.lab.installed

they run where the course is installed, and say in a line that they need that where it is not.
"""

import functools

from lib.errors import ModelError
from lib.wasm import BROWSER

MARK = "%%installed"
HOW = "the course on your own machine, `pip install uv && uv run course lab`"
SENTENCE = f"Not run in a browser: this cell needs {HOW}."


class NoModel(ModelError):
    """The real model is not there. A notebook shows the message alone, without a traceback."""

    def _render_traceback_(self):  # IPython asks for this
        return [f"The real model is needed here: {self}"]


def is_browser():
    """Tell whether this Python runs in a browser, where nothing can be compiled or installed."""
    return BROWSER


@functools.cache
def real_model():
    """Return the real model, read once a process.

    Raises
    ------
    NoModel
        It is missing or damaged; the message says how to get it.
    """
    from lib.engine.llama import load_model

    try:
        return load_model()
    except ModelError as mistake:
        raise NoModel(str(mistake)) from None


def load_ipython_extension(shell):
    """Teach IPython the mark; ``%load_ext`` calls this."""
    if _read_mark not in shell.input_transformers_cleanup:
        shell.input_transformers_cleanup.append(_read_mark)


def _read_mark(lines):
    """Take the mark off a cell, or put the sentence in the cell's place."""
    if not lines or lines[0].strip() != MARK:
        return lines
    return [f"print({SENTENCE!r})\n"] if is_browser() else lines[1:]
