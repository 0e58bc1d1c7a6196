"""The pages of the code: one for each module, from its docstrings, floor by floor of `lib`."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from lib.errors import CourseError

LIB = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Floor:
    """Modules that belong together.

    Parameters
    ----------
    name : str
        A word: the page is called by it.
    title : str
    words : str
        What the floor is for, in reStructuredText.
    modules : tuple of str
        Files relative to `lib/`, in the order in which data flows; a `*` stands for all others.
    """

    name: str
    title: str
    words: str
    modules: tuple[str, ...]


FLOORS = (
    Floor(
        "core",
        "The core",
        "What the chapters derive, and what carries the real model: float32, compiled by Numba, "
        "each kernel short enough to print in a notebook. `lib.reference` holds the definitions.",
        (
            "reference.py",
            "attention.py",
            "ffn.py",
            "norm.py",
            "rope.py",
            "layer.py",
            "stack.py",
            "arguments.py",
            "errors.py",
            "jit.py",
        ),
    ),
    Floor(
        "engine",
        "The engine",
        "The same stack on a real model file: plainly in `lib.engine.llama`, "
        "at full speed in `lib.engine.fast`.",
        ("engine/gguf.py", "engine/tokenizer.py", "engine/cache.py", "engine/llama.py", "engine/*"),
    ),
    Floor(
        "lab",
        "The laboratory",
        "What the chapters show: the running example, instruments, faults, figures, widgets.",
        ("lab/toy.py", "lab/example.py", "lab/*", "lab/figures/base.py", "lab/figures/*"),
    ),
    Floor(
        "exercises",
        "The exercises",
        "How an answer is judged. The tasks themselves are left out: they hold the answers.",
        ("exercises/judging.py", "exercises/*"),
    ),
)


def lay_out(folder: Path) -> list[str]:
    """Write the pages of the code.

    Parameters
    ----------
    folder : Path
        That of the sources.

    Returns
    -------
    list of str
        The files that the table of contents shows: one for each floor.

    Raises
    ------
    CourseError
        A module that a floor names does not exist, or says nothing about itself.
    """
    place = folder / "api"
    place.mkdir(parents=True)
    written = []
    for floor in FLOORS:
        files = modules(floor)
        names = [_name(file) for file in files]
        for name in names:
            (place / f"{name}.rst").write_text(_module_page(name), encoding="utf-8")
        summaries = [_summary(file) for file in files]
        page = _floor_page(floor, names, summaries)
        (place / f"{floor.name}.rst").write_text(page, encoding="utf-8")
        written.append(f"api/{floor.name}.rst")
    return written


def modules(floor: Floor) -> list[Path]:
    """Return the files of a floor in order; the tasks of the exercises are not among them."""
    found: list[Path] = []
    for pattern in floor.modules:
        paths = sorted(LIB.glob(f"{pattern}.py" if pattern.endswith("*") else pattern))
        if not paths:
            raise CourseError(f"the page of {floor.title.lower()} names {pattern}: no such module")
        found += [path for path in paths if path not in found and not _hidden(path)]
    return found


def _hidden(path: Path) -> bool:
    return path.name.startswith("_") or (path.name[0] == "t" and path.name[1:3].isdigit())


def _name(file: Path) -> str:
    return ".".join(file.relative_to(LIB.parent).with_suffix("").parts)


def _summary(file: Path) -> str:
    """Return the first sentence of a module's docstring, without importing it."""
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
    if not text:
        raise CourseError(f"{file} has no docstring; its page needs one")
    return text.split("\n\n")[0].replace("\n", " ")


def _floor_page(floor: Floor, names: list[str], summaries: list[str]) -> str:
    table = [".. list-table::", "   :widths: 30 70", ""]
    for name, summary in zip(names, summaries, strict=True):
        table += [f"   * - :doc:`{name} <{name}>`", f"     - {summary}"]
    tree = [".. toctree::", "   :hidden:", "", *(f"   {name}" for name in names)]
    return "\n".join([_title(floor.title), floor.words, "", *table, "", *tree, ""])


def _module_page(name: str) -> str:
    return "\n".join([_title(name), f".. automodule:: {name}", "   :members:", ""])


def _title(text: str) -> str:
    return f"{text}\n{'=' * len(text)}\n"
