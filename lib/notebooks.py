"""Find the notebooks of the course, run them, and store their outputs.

A notebook is run in memory by `execute`, which never writes. `build` runs a copy and stores it in
a form that depends on the notebook and the code alone, so that building twice gives the same bytes.
nbclient and nbformat are imported where they are used: `course --help` need not wait for them.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import os
import re
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lib.errors import CourseError

if TYPE_CHECKING:
    from nbformat import NotebookNode

FOLDER, SOLUTIONS, EXERCISES = "notebooks", "solutions", "exercises"
CHAPTER = "[0-9][0-9]_*.ipynb"
MAY_RAISE = "raises-exception"  # the tag of cells that may end with an error
VARYING = "nbval-ignore-output"  # the tag of cells whose output depends on time or machine
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"

# What a Python kernel says of itself, without the version number that differs between readers.
KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
LANGUAGE_INFO = {
    "codemirror_mode": {"name": "ipython", "version": 3},
    "file_extension": ".py",
    "mimetype": "text/x-python",
    "name": "python",
    "nbconvert_exporter": "python",
    "pygments_lexer": "ipython3",
}


# --- finding -------------------------------------------------------------------------------------


def find_root(start: Path | None = None) -> Path:
    """Return the folder of the course: the one whose `notebooks/` holds chapters.

    Parameters
    ----------
    start : Path, optional
        Where the search begins, the current folder by default. It goes upward from there, then
        to the folder that holds `lib`.

    Raises
    ------
    CourseError
        If no such folder is found.
    """
    start = Path.cwd() if start is None else Path(start).resolve()
    for folder in [start, *start.parents, Path(__file__).resolve().parent.parent]:
        if any((folder / FOLDER).glob(CHAPTER)):
            return folder
    raise CourseError(
        f"The chapters are not here: neither {start} nor a folder above it holds a "
        f"`{FOLDER}` folder with chapters; change to the folder of the course and try again."
    )


def chapters(root: Path, folder: str = FOLDER) -> list[Path]:
    """Return the chapters of the course, or the notebooks of another folder, in reading order."""
    return sorted((root / folder).glob(CHAPTER))


def locate(
    names: Iterable[str], start: Path | None = None, folders: Sequence[str] = (FOLDER,)
) -> list[Path]:
    """Turn the names that a reader types into paths; no name at all means every notebook.

    Parameters
    ----------
    names : iterable of str
        Paths, or notebooks by the beginning of their name: `01`, `1`, `01_single_head_attention`.
    start : Path, optional
        Where the search for the course begins (see `find_root`).
    folders : sequence of str
        The folders of the course to look in. A name is looked for in one after the other.

    Raises
    ------
    CourseError
        If a name fits no notebook, or more than one.
    """
    names = list(names)
    if not names:
        root = find_root(start)
        return [path for folder in folders for path in chapters(root, folder)]
    return [_locate_one(name, start, folders) for name in names]


def _locate_one(name: str, start: Path | None, folders: Sequence[str]) -> Path:
    path = Path(name)
    if path.is_file():
        return path
    if path.suffix == ".ipynb" and path.name != name:
        raise CourseError(f"There is no notebook {name}: the file does not exist.")
    root = find_root(start)
    beginning = f"{int(name):02d}_" if name.isdecimal() else path.stem
    for folder in folders:
        known = chapters(root, folder)
        fitting = [c for c in known if c.stem == beginning] or [
            c for c in known if beginning and c.stem.startswith(beginning)
        ]
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            raise CourseError(f"{name!r} fits several: {_stems(fitting)}; type more of one.")
    kind = "chapters" if folders[0] == FOLDER else folders[0]
    known = chapters(root, folders[0])
    raise CourseError(f"There is no notebook {name!r}; the {kind} are {_stems(known)}.")


def _stems(paths: list[Path]) -> str:
    return ", ".join(p.stem for p in paths)


# --- reading -------------------------------------------------------------------------------------


def read_notebook(path: Path) -> NotebookNode:
    """Read a notebook of format 4.

    Raises
    ------
    CourseError
        If the file is missing, empty, not text, not JSON, not a notebook, of another format, or
        has two cells with one id: one sentence says which.
    """
    import nbformat
    from nbformat.validator import iter_validate

    data = _parse(path, _read_text(path))
    if not isinstance(data, dict) or "nbformat" not in data:
        raise CourseError(f"{path} is JSON, but not a notebook: it names no notebook format.")
    if data["nbformat"] != 4:
        raise CourseError(
            f"{path} is a notebook of format {data['nbformat']}, where format 4 is expected; "
            "open it in JupyterLab and save it."
        )
    if (error := next(iter(iter_validate(data)), None)) is not None:
        place = "/".join(str(step) for step in error.absolute_path) or "its top level"
        raise CourseError(f"{path} is not a valid notebook: the fault is at {place}.")
    notebook = nbformat.v4.to_notebook_json(data)
    if data.get("nbformat_minor", 0) < 5:
        notebook = nbformat.v4.upgrade(notebook)
    ids = [cell["id"] for cell in notebook.cells]
    if doubled := sorted({i for i in ids if ids.count(i) > 1}):
        raise CourseError(f"{path} has two cells with the id {doubled[0]!r}; each needs its own.")
    return notebook


def _read_text(path: Path) -> str:
    if path.is_dir():
        raise CourseError(f"{path} is a folder, not a notebook.")
    try:
        # utf-8-sig: some editors on Windows put a byte-order mark before the text.
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise CourseError(f"There is no notebook {path}: the file does not exist.") from None
    except UnicodeDecodeError:
        raise CourseError(f"{path} is not a notebook: it is not UTF-8 text.") from None
    except OSError as error:
        raise CourseError(f"{path} cannot be read: {error.strerror}.") from None
    if not text.strip():
        raise CourseError(f"{path} is empty, so it is not a notebook.")
    return text


def _parse(path: Path, text: str) -> object:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        if re.search(r"^(<<<<<<<|>>>>>>>) ", text, re.MULTILINE):
            raise CourseError(
                f"{path} holds the conflict markers of an unfinished git merge; resolve it first."
            ) from None
        line = getattr(error, "lineno", 1)
        raise CourseError(f"{path} is not a notebook: broken JSON at line {line}.") from None


# --- running -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Failure:
    """The cell at which a run stopped."""

    cell: int  # the number in the prompt, [1] for the first code cell; 0: no cell was reached
    source: str  # its first line
    error: str  # what Python said, in one line


# From 3.13 on, Python has a name of its own, and a private one, for code that breaks off.
_PUBLIC = {"_IncompleteInputError": "SyntaxError"}


@dataclass(frozen=True)
class Run:
    """One execution of one notebook."""

    notebook: NotebookNode  # with its fresh outputs
    cells: int  # code cells that ran to their end
    total: int  # code cells there are
    seconds: float
    failure: Failure | None


def runnable(notebook: NotebookNode) -> list[int]:
    """Return the indices of the cells that a run executes: code, not blank, not skipped by tag."""
    return [
        index
        for index, cell in enumerate(notebook.cells)
        if cell.cell_type == "code"
        and cell.source.strip()
        and "skip-execution" not in cell.metadata.get("tags", [])
    ]


def check_timeout(timeout: float) -> None:
    """Raise `CourseError` unless a cell's time limit is a positive number of seconds."""
    if not 0 < timeout < math.inf:
        raise CourseError(f"timeout must be a positive number of seconds, got {timeout}.")


def execute(
    notebook: NotebookNode,
    folder: Path,
    timeout: float = 60,
    after_cell: Callable[[], object] = lambda: None,
) -> Run:
    """Run a copy of a notebook in a fresh kernel, up to its end or its first failing cell.

    Parameters
    ----------
    notebook : NotebookNode
        What `read_notebook` returned; it is not changed.
    folder : Path
        The kernel's working folder.
    timeout : float
        Seconds that one cell may take.
    after_cell : callable
        Called after each cell, to move a progress bar.

    Returns
    -------
    Run
        A failing cell is part of the result, not an exception.

    Raises
    ------
    CourseError
        If `timeout` is not positive.
    """
    check_timeout(timeout)
    notebook = copy.deepcopy(notebook)
    client = _client(notebook, timeout)
    indices, begun, done, failure = runnable(notebook), time.perf_counter(), 0, None
    try:
        with warnings.catch_warnings():
            # Windows: zmq says that it adds a thread to the event loop, which is what we want.
            warnings.filterwarnings("ignore", message="Proactor event loop")
            # The blocking interface on purpose: the asynchronous one takes Ctrl-C for itself.
            with client.setup_kernel(cwd=str(folder)):
                for number, index in enumerate(indices, start=1):
                    if error := _run_cell(client, index, number, timeout):
                        failure = Failure(number, _first_line(notebook.cells[index].source), error)
                        break
                    done = number
                    after_cell()
    except (RuntimeError, TimeoutError, OSError) as error:
        failure = failure or Failure(0, "", f"the kernel did not start: {_first_line(str(error))}")
    return Run(notebook, done, len(indices), time.perf_counter() - begun, failure)


def _client(notebook: NotebookNode, timeout: float):
    from nbclient import NotebookClient

    client = NotebookClient(
        notebook,
        kernel_name="python3",
        kernel_manager_class=_manager_class(),
        timeout=math.ceil(timeout),  # nbclient counts whole seconds
        # Recent kernels warn of an unencrypted line, which here never leaves the machine.
        extra_arguments=["--log-level=ERROR"],
    )
    client.log.disabled = True  # what it logs, we report
    return client


def _run_cell(client, index: int, number: int, timeout: float) -> str:
    """Run the cell at this index, with this number in its prompt; return what went wrong."""
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    cell = client.nb.cells[index]
    try:
        client.execute_cell(cell, index, execution_count=number)
        return ""
    except CellExecutionError as error:
        name, text = error.ename, error.evalue
        if name in (None, "", "NoneType"):  # it was raised while a result was shown
            shown = [out for out in cell.outputs if out.output_type == "error"]
            last = shown[-1] if shown else {"ename": "Error", "evalue": _last_words(cell)}
            name, text = last["ename"], last["evalue"]
        return f"{_PUBLIC.get(name, name)}: {_first_line(text)}"
    except BaseException as error:
        client.shutdown_kernel = "immediate"  # a busy kernel would not hear a polite word
        if isinstance(error, CellTimeoutError):
            return f"the cell took longer than {timeout:g} s"
        if isinstance(error, DeadKernelError):
            return "the kernel died while it ran the cell"
        raise


def _last_words(cell: NotebookNode) -> str:
    """Return the last line that a cell wrote to stderr: what a traceback ends with."""
    text = "".join(out.text for out in cell.outputs if out.get("name") == "stderr")
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "unknown")


def _manager_class() -> type:
    """Return a kernel manager that starts the Python which runs this very code.

    The kernel that is registered as `python3` may belong to another environment.
    """
    from ipykernel.kernelspec import get_kernel_dict
    from jupyter_client.kernelspec import KernelSpec
    from jupyter_client.manager import AsyncKernelManager

    class ThisInterpreter(AsyncKernelManager):
        @property
        def kernel_spec(self) -> KernelSpec:
            return KernelSpec(**get_kernel_dict())  # its argv begins with sys.executable

    return ThisInterpreter


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


# --- building ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Build:
    """What building one notebook came to."""

    run: Run
    changed: bool  # the stored file differs (or would, with `check`) from what was there


def build(
    path: Path,
    timeout: float = 60,
    check: bool = False,
    after_cell: Callable[[], object] = lambda: None,
    anew: bool = False,
) -> Build:
    """Run a notebook and store it with its outputs, unless nothing changed or a cell failed.

    The outputs of cells tagged `nbval-ignore-output` differ at each run. They alone are no reason
    to write: as long as the code is what the file was last built from, they stay as they are.

    Parameters
    ----------
    path : Path
        The notebook; replaced in one step, so that it is never half written.
    timeout, after_cell
        As in `execute`.
    check : bool
        Compare only, write nothing.
    anew : bool
        Store the outputs of those cells as well, whatever the file was built from.

    Raises
    ------
    CourseError
        If the file cannot be read as a notebook or cannot be written.
    """
    stored = read_notebook(path)
    run = execute(stored, path.resolve().parent, timeout, after_cell)
    if run.failure is not None:
        return Build(run, changed=False)
    fresh = tidy(run.notebook, _home_of(path))
    text = path.read_text(encoding="utf-8")
    if dump(fresh if anew else _with_varying_outputs_of(stored, fresh)) == text:
        return Build(run, changed=False)
    if not check:
        replace(path, dump(fresh))
    return Build(run, changed=True)


def keep_shipped_metadata(model: dict, **_: object) -> None:
    """Save a notebook with the kernel and language that it was shipped with.

    JupyterLab writes the reader's version of Python into each notebook that it opens, so that git
    would find it changed. `course lab` has this called before each save.
    """
    content = model.get("content")
    metadata = content.get("metadata", {}) if isinstance(content, dict) else {}
    if metadata.get("kernelspec", {}).get("name") == KERNELSPEC["name"]:
        metadata.update(kernelspec=dict(KERNELSPEC), language_info=dict(LANGUAGE_INFO))


def tidy(notebook: NotebookNode, root: Path) -> NotebookNode:
    """Return a copy without what depends on time, machine or the kernel's Python version.

    Parameters
    ----------
    notebook : NotebookNode
        An executed notebook.
    root : Path
        The folder that tracebacks and warnings shall name files relative to.
    """
    tidied = copy.deepcopy(notebook)
    tidied.metadata.pop("widgets", None)
    tidied.metadata.update(kernelspec=dict(KERNELSPEC), language_info=dict(LANGUAGE_INFO))
    tidied.metadata.setdefault("left_context", {})["built_from"] = _digest(tidied)
    numbers = {index: number for number, index in enumerate(runnable(tidied), start=1)}
    for index, cell in enumerate(tidied.cells):
        for timing in ("execution", "ExecuteTime"):
            cell.metadata.pop(timing, None)
        if cell.cell_type == "code":
            cell.execution_count = numbers.get(index)
            cell.outputs = _tidy_outputs(cell, root) if index in numbers else []
    return tidied


def _tidy_outputs(cell: NotebookNode, root: Path) -> list[NotebookNode]:
    merged: list[NotebookNode] = []
    for output in cell.outputs:
        # A stored view has no model behind it: readers would see "model not found". What stands
        # beside it for those without a kernel is kept.
        if output.get("data", {}).pop(WIDGET_VIEW, None) and set(output.data) <= {"text/plain"}:
            continue
        if output.output_type == "stream" and merged and merged[-1].get("name") == output.name:
            merged[-1].text += output.text  # where a stream is cut depends on timing
        else:
            merged.append(output)
    for output in merged:
        _hide_paths(output, root)
        if output.output_type == "execute_result":
            output.execution_count = cell.execution_count
    return merged


def _hide_paths(output: NotebookNode, root: Path) -> None:
    """Name files relative to the course in text, warnings and tracebacks (in place)."""
    if output.output_type == "stream":
        output.text = _relative(output.text, root)
    elif output.output_type == "error":
        output.evalue = _relative(output.evalue, root)
        output.traceback = [_relative(line, root) for line in output.traceback]
    else:
        for kind, value in output.data.items():
            if kind.startswith("text/") and isinstance(value, str):
                output.data[kind] = _relative(value, root)


def _relative(text: str, root: Path) -> str:
    # Code of a cell has a file name with the kernel's process number in it.
    # Looked for where a word begins: a picture within a text is one word of a hundred kilobytes.
    text = re.sub(r"(?<![^\s\"'])[^\s\"']*ipykernel_\d+[/\\]\d+\.py", "<cell>", text)
    text = text.replace(str(root) + os.sep, "")
    if root.is_relative_to(Path.home()):  # IPython writes the home folder as ~
        text = text.replace(str(Path("~") / root.relative_to(Path.home())) + os.sep, "")
    return text


def _home_of(path: Path) -> Path:
    try:
        return find_root(path.resolve().parent)
    except CourseError:
        return path.resolve().parent


def _digest(notebook: NotebookNode) -> str:
    """Return the SHA-256 of the code: prose may be mended without running anything anew."""
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    return hashlib.sha256(json.dumps(sources).encode("utf-8")).hexdigest()


def _with_varying_outputs_of(stored: NotebookNode, fresh: NotebookNode) -> NotebookNode:
    """Return `fresh` with the stored outputs of varying cells, if the code is the same."""
    if stored.metadata.get("left_context", {}).get("built_from") != _digest(fresh):
        return fresh
    kept = copy.deepcopy(fresh)
    for old, new in zip(stored.cells, kept.cells, strict=True):
        varying = VARYING in new.metadata.get("tags", [])
        if varying and new.cell_type == "code" and bool(old.outputs) == bool(new.outputs):
            new.outputs = old.outputs
    return kept


def dump(notebook: NotebookNode) -> str:
    """Return a notebook as it is stored: the text of its file."""
    import nbformat

    return nbformat.writes(notebook, version=nbformat.NO_CONVERT).rstrip("\n") + "\n"


def replace(path: Path, text: str) -> None:
    """Write a file in one step, so that it is never half written.

    Raises
    ------
    CourseError
        If it cannot be written; what was there is still whole.
    """
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".tmp")
    except OSError as error:
        raise CourseError(f"{path} cannot be written: {error.strerror}.") from None
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        if path.exists():
            shutil.copymode(path, temporary)
        else:
            Path(temporary).chmod(0o644)  # a temporary file is its owner's alone
        Path(temporary).replace(path)
    except OSError as error:
        raise CourseError(f"{path} cannot be written: {error.strerror}.") from None
    finally:
        Path(temporary).unlink(missing_ok=True)
