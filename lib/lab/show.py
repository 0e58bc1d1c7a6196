"""Small things that the chapters print: the source of a function, a table, a time."""

import ast
import difflib
import inspect
import textwrap
import time

import numpy as np
from IPython.display import Markdown

from lib.jit import NUMBA, source_of

LINES_AT_ONCE = 30  # of a source; a longer one is folded


def source(*functions):
    """Show the source of functions and kernels, as they are in the library and as they run.

    Of a long source the heads are shown: the names, what they are given, and what they do.
    """
    texts = [
        textwrap.dedent(inspect.getsource(source_of(function))).rstrip() for function in functions
    ]
    whole = "```python\n" + "\n\n".join(texts) + "\n```"
    count = whole.count("\n") - 1
    if count <= LINES_AT_ONCE:
        return Markdown(whole)
    heads = "```python\n" + "\n\n".join(map(_head, texts)) + "\n```"
    summary = f"<summary>The whole source: {count} lines</summary>"
    return Markdown(f"{heads}\n\n<details>\n{summary}\n\n{whole}\n\n</details>")


def _head(text):
    """Return a function as far as the first sentence of its docstring."""
    function = ast.parse(text).body[0]
    lines = text.splitlines()[: function.body[0].lineno - 1]
    said = (ast.get_docstring(function) or "").split("\n\n")[0]
    return "\n".join(
        [
            *lines,
            *([f'    """{said.replace(chr(10), f"{chr(10)}    ")}"""'] * bool(said)),
            "    ...",
        ]
    )


def diff(before, after):
    """Show what makes one function of another: lines that go (−) and lines that come (+).

    Docstrings are left out; what stays is shown whole, so that the reader sees where it happens.
    """
    old, new = _code(before), _code(after)
    lines = list(difflib.unified_diff(old, new, n=len(old), lineterm=""))
    return Markdown("```diff\n" + "\n".join(lines[3:]) + "\n```")  # the first three are a head


def table(header, rows):
    """Show a table: ``header`` is a list of names, ``rows`` a list of lists.

    Floats are shown with three decimals; format them beforehand to have them otherwise.
    """
    lines = [list(map(str, header)), ["---"] * len(header)]
    lines += [[_cell(value) for value in row] for row in rows]
    return Markdown("\n".join("| " + " | ".join(line) + " |" for line in lines))


def rounded(values, digits=3):
    """Return the values as float64, rounded, and without a zero that has a minus sign."""
    return np.round(np.asarray(values, np.float64), digits) + 0.0


def say_if_not_compiled():
    """Say what a measurement is worth where Numba is missing; where it is there, say nothing."""
    if not NUMBA:
        print("Numba is not here: this times NumPy, and plain loops of Python.")


def median_seconds(call, repeats=20):
    """Return the median time of ``call()`` in seconds, after one call to compile and warm up."""
    call()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds))


def _code(function):
    """Return the lines of a function without its docstring."""
    text = textwrap.dedent(inspect.getsource(source_of(function)))
    lines, first = text.rstrip().split("\n"), ast.parse(text).body[0].body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        del lines[first.lineno - 1 : first.end_lineno]
    return lines


def _cell(value):
    if isinstance(value, (float, np.floating)):
        return f"{value:.3f}".replace("-", "−")
    return str(value).replace("|", "\\|")
