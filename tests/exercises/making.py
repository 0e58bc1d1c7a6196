"""Make submissions: a solved notebook, and what becomes of it on the way to the teacher."""

import functools
import json
from pathlib import Path

from lib import notebooks
from lib.exercises import deriving

ROOT = Path(__file__).parents[2]


@functools.cache
def _text(number, folder):
    (path,) = (ROOT / folder).glob(f"{number}_*.ipynb")
    if folder == notebooks.EXERCISES:
        path = ROOT / notebooks.SOLUTIONS / path.name
        return notebooks.dump(deriving.derive(notebooks.read_notebook(path)))
    return path.read_text(encoding="utf-8")


def solved(number):
    """Return a solved notebook as JSON reads it, without its outputs."""
    found = _read(_text(number, notebooks.SOLUTIONS))
    for cell in found["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = []
    return found


def _read(text):
    found = json.loads(text)
    for cell in found["cells"]:
        cell["source"] = "".join(cell["source"])
    return found


def handed_out(number):
    """Return a notebook as it is handed out."""
    return _read(_text(number, notebooks.EXERCISES))


def cell(notebook, task, kind="answer"):
    """Return a cell of a task: its answer or its check."""
    name = f"{task.replace('.', '-')}-{kind}"
    return next(c for c in notebook["cells"] if c.get("id") == name)


def answered(number, **answers):
    """Return a solved notebook with other answers: ``one_query="attention_order = …"``."""
    notebook = solved(number)
    for word, source in answers.items():
        cell(notebook, f"{number}.{word}")["source"] = source
    return notebook


def put(path, notebook):
    """Write a notebook, and make the folders that it lies in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(notebook, ensure_ascii=False), encoding="utf-8")
    return path


def new_cell(source, kind="code", **more):
    """Return a cell."""
    code = {"outputs": [], "execution_count": None} if kind == "code" else {}
    return {"cell_type": kind, "metadata": {}, "source": source, **code, **more}
