"""Finding, reading, running and building notebooks, on small ones made here."""

import copy
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import (
    new_code_cell,
    new_markdown_cell,
    new_notebook,
    new_output,
)

from lib import notebooks
from lib.errors import CourseError

VARYING = ["nbval-ignore-output"]


def write(path, *cells):
    """Write a notebook; a cell is its source, or its source and its tags."""
    made = [new_markdown_cell("# Title", id="title")]
    for number, cell in enumerate(cells):
        source, tags = cell if isinstance(cell, tuple) else (cell, None)
        metadata = {"tags": tags} if tags else {}
        made.append(new_code_cell(source, id=f"cell-{number}", metadata=metadata))
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(new_notebook(cells=made), path)
    return path


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


GOOD_CELLS = (
    "import os, sys, time, helper\nprint('one', flush=True)",
    "(sys.executable, os.path.basename(os.getcwd()))",
    "",
    "print('a', flush=True); time.sleep(0.4); print('b')",
    ("time.perf_counter_ns()", VARYING),
    "display({'application/vnd.jupyter.widget-view+json': {'model_id': 'x'}, 'text/plain': 'w'},"
    " raw=True)",
    ("helper.fail(3)", ["raises-exception"]),
    "import warnings; warnings.warn('careful')",
)


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """Return a course of one chapter that was built once, and what the building gave."""
    root = tmp_path_factory.mktemp("course")
    chapter = write(root / "notebooks" / "00_start_here.ipynb", *GOOD_CELLS)
    helper = root / "notebooks" / "helper.py"
    helper.write_text("def fail(n):\n    raise ValueError(f'no {n}')\n", encoding="utf-8")
    steps = []
    built = notebooks.build(chapter, after_cell=lambda: steps.append(1))
    return {"chapter": chapter, "built": built, "steps": len(steps), "bytes": chapter.read_bytes()}


@pytest.fixture
def chapter(course):
    """Return the built chapter, and put it back afterwards."""
    yield course["chapter"]
    course["chapter"].write_bytes(course["bytes"])


@pytest.fixture
def canned(course, monkeypatch):
    """Let `execute` return the run that the course was built from, without a kernel."""
    monkeypatch.setattr(notebooks, "execute", lambda *_, **__: course["built"].run)


def edit(path, change):
    notebook = nbformat.read(path, as_version=4)
    change(notebook)
    nbformat.write(notebook, path)


# --- finding -------------------------------------------------------------------------------------


@pytest.fixture
def three(tmp_path):
    for name in ("00_start_here", "01_single_head_attention", "01_second", "12_last"):
        write(tmp_path / "notebooks" / f"{name}.ipynb")
    write(tmp_path / "notebooks" / "Untitled.ipynb")  # a reader's own
    return tmp_path


def test_the_course_is_found_from_below_and_its_chapters_come_in_order(three):
    below = three / "exercises" / "deeper"
    below.mkdir(parents=True)
    (below / "notebooks").mkdir()  # a folder of that name without chapters is not it
    assert notebooks.find_root(below) == three
    assert [path.stem for path in notebooks.locate([], three)] == [
        "00_start_here",
        "01_second",
        "01_single_head_attention",
        "12_last",
    ]


def test_no_course_is_one_clear_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(notebooks, "__file__", str(tmp_path / "lib" / "notebooks.py"))
    with pytest.raises(CourseError, match="The chapters are not here"):
        notebooks.find_root(tmp_path)


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("0", "00_start_here"),
        ("00", "00_start_here"),
        ("12", "12_last"),
        ("01_si", "01_single_head_attention"),
        ("01_second", "01_second"),
        ("01_second.ipynb", "01_second"),
    ],
)
def test_short_names(three, name, stem):
    assert notebooks.locate([name], three) == [three / "notebooks" / f"{stem}.ipynb"]


def test_names_are_looked_for_in_one_folder_after_the_other(three):
    one = write(three / "solutions" / "01_ordering.ipynb")
    two = write(three / "solutions" / "02_roles.ipynb")
    folders = ("notebooks", "solutions")
    assert notebooks.locate(["02", "01_ord", "12"], three, folders) == [
        two,
        one,
        three / "notebooks" / "12_last.ipynb",
    ]
    assert notebooks.locate([], three, folders)[-2:] == [one, two]
    assert notebooks.locate(["1"], three, ["solutions"]) == [one]
    with pytest.raises(CourseError, match="the solutions are 01_ordering, 02_roles"):
        notebooks.locate(["3"], three, ["solutions"])


def test_a_path_is_taken_as_it_is(three, tmp_path):
    own = write(tmp_path / "own.ipynb")
    assert notebooks.locate([str(own)], three) == [own]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("01", "fits several: 01_second, 01_single_head_attention"),
        ("7", "no notebook '7'; the chapters are 00_start_here, "),
        ("nowhere/00_start_here.ipynb", "the file does not exist"),
        ("", "no notebook ''"),
    ],
)
def test_names_that_fit_nothing_or_too_much(three, name, message):
    with pytest.raises(CourseError, match=message):
        notebooks.locate([name], three)


# --- reading -------------------------------------------------------------------------------------

CELL = {"cell_type": "markdown", "id": "a", "metadata": {}, "source": "x"}
SOUND = {"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}

BROKEN = {
    "empty": (b"", "is empty"),
    "blank": (b" \n", "is empty"),
    "not text": (b"\x89PNG\xff\xfe", "not UTF-8 text"),
    "bad JSON": (b'{\n"cells": [', "broken JSON at line 2"),
    "conflict": (b"{\n<<<<<<< ours\n}\n>>>>>>> theirs\n", "conflict markers"),
    "a list": (b"[1, 2]", "JSON, but not a notebook"),
    "an object": (b'{"cells": []}', "JSON, but not a notebook"),
    "format 3": (b'{"nbformat": 3, "worksheets": []}', "format 3, where format 4 is expected"),
    "no cells": (b'{"nbformat": 4, "nbformat_minor": 5}', "not a valid notebook"),
    "bad cell": (
        json.dumps({**SOUND, "cells": [{**CELL, "cell_type": "poem"}]}).encode(),
        "the fault is at cells/0",
    ),
    "doubled id": (
        json.dumps({**SOUND, "cells": [CELL, CELL]}).encode(),
        "two cells with the id 'a'",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_is_not_a_notebook_is_refused_in_words(tmp_path, kind):
    data, message = BROKEN[kind]
    path = tmp_path / "broken.ipynb"
    path.write_bytes(data)
    with pytest.raises(CourseError, match=message) as caught:
        notebooks.read_notebook(path)
    assert "broken.ipynb" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_and_folder(tmp_path):
    with pytest.raises(CourseError, match="does not exist"):
        notebooks.read_notebook(tmp_path / "none.ipynb")
    with pytest.raises(CourseError, match="is a folder"):
        notebooks.read_notebook(tmp_path)


def test_a_byte_order_mark_and_lines_of_source_are_read(tmp_path):
    path = tmp_path / "marked.ipynb"
    cell = {**CELL, "source": ["one\n", "two′"]}
    path.write_text(json.dumps({**SOUND, "cells": [cell]}), encoding="utf-8-sig")
    assert notebooks.read_notebook(path).cells[0].source == "one\ntwo′"


# --- running -------------------------------------------------------------------------------------


def test_a_run_uses_this_python_in_the_folder_of_the_notebook(course):
    run = course["built"].run
    assert run.failure is None
    assert (run.cells, run.total, course["steps"]) == (7, 7, 7)  # the blank cell is not run
    assert run.notebook.cells[2].outputs[0].data["text/plain"] == repr(
        (sys.executable, "notebooks")
    )


@pytest.mark.parametrize(
    ("source", "timeout", "error"),
    [
        ("raise ValueError('[red] no\\nmore')", 60, "ValueError: [red] no"),
        ("import time\nwhile True: time.sleep(0.1)", 1, "the cell took longer than 1 s"),
        ("import os; os._exit(3)", 60, "the kernel died while it ran the cell"),
    ],
)
def test_a_run_stops_at_the_first_failing_cell_and_tells_which(tmp_path, source, timeout, error):
    path = write(tmp_path / "fails.ipynb", "x = 1", source, "y = 2")
    before = contents(tmp_path)
    run = notebooks.execute(notebooks.read_notebook(path), tmp_path, timeout)
    assert run.failure == notebooks.Failure(2, source.splitlines()[0], error)
    assert (run.cells, run.total) == (1, 3)
    assert contents(tmp_path) == before


def test_no_cell_is_passed_over_after_one_that_may_raise(tmp_path):
    """A kernel that stops at an error throws away what comes before it has noticed its own stop."""
    turns = 12
    path = write(tmp_path / "any.ipynb", "x = 0", *["1 / 0", "x += 1"] * turns, "x", "1 / 0")
    notebook = notebooks.read_notebook(path)
    for cell in notebook.cells[2:-1:2]:
        cell.metadata["tags"] = [notebooks.MAY_RAISE]
    run = notebooks.execute(notebook, tmp_path)
    assert run.notebook.cells[-2].outputs[0].data["text/plain"] == str(turns)
    assert run.failure.error == "ZeroDivisionError: division by zero"
    assert run.cells == run.total - 1


def test_a_kernel_that_does_not_start_is_a_failure(tmp_path, monkeypatch):
    import ipykernel.kernelspec

    broken = {"argv": [sys.executable, "-c", "raise SystemExit(1)"], "display_name": "x"}
    monkeypatch.setattr(ipykernel.kernelspec, "get_kernel_dict", lambda: broken)
    path = write(tmp_path / "any.ipynb", "1")
    run = notebooks.execute(notebooks.read_notebook(path), tmp_path)
    assert run.failure.cell == 0
    assert run.failure.error.startswith("the kernel did not start: ")


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf")])
def test_a_timeout_must_be_positive(timeout):
    with pytest.raises(CourseError, match="timeout must be a positive number of seconds, got"):
        notebooks.execute(new_notebook(), Path(), timeout)


# --- building ------------------------------------------------------------------------------------


def test_what_is_stored_depends_on_the_chapter_alone(course):
    assert course["built"].changed
    stored = nbformat.read(course["chapter"], as_version=4)
    assert [cell.id for cell in stored.cells] == ["title", *(f"cell-{n}" for n in range(8))]
    code = stored.cells[1:]
    assert [cell.execution_count for cell in code] == [1, 2, None, 3, 4, 5, 6, 7]
    assert code[1].outputs[0].execution_count == 2
    assert [out.text for out in code[3].outputs] == ["a\nb\n"]  # two pieces, merged
    assert code[5].outputs == []  # a widget's view
    traceback = "\n".join(code[6].outputs[0].traceback)
    assert "helper.py" in traceback
    assert str(course["chapter"].parent.parent) not in course["bytes"].decode()
    assert code[7].outputs[0].text.startswith("<cell>:1: UserWarning: careful")
    assert "version" not in stored.metadata.language_info
    assert course["bytes"].startswith(b'{\n "cells": [\n  {\n')
    assert course["bytes"].endswith(b"}\n")


def test_building_twice_gives_the_same_bytes(chapter, course):
    before = contents(chapter.parent)
    again = notebooks.build(chapter)
    # The clock's output did differ: without the tag the file would have changed.
    assert again.run.notebook.cells[5].outputs != course["built"].run.notebook.cells[5].outputs
    assert not again.changed
    assert contents(chapter.parent) == before


def test_varying_outputs_alone_are_no_reason_to_write(chapter, canned):
    edit(chapter, lambda nb: nb.cells[5].outputs[0].data.update({"text/plain": "17"}))
    before = chapter.read_bytes()
    assert not notebooks.build(chapter).changed
    assert chapter.read_bytes() == before


CHANGES = {
    "an unmarked output": lambda nb: nb.cells[1].outputs[0].update(text="two\n"),
    "a lost output": lambda nb: nb.cells[1].update(outputs=[]),
    "a lost varying output": lambda nb: nb.cells[5].update(outputs=[]),
    "prompt numbers": lambda nb: nb.cells[1].update(execution_count=57),
    "timing": lambda nb: nb.cells[1].metadata.update(execution={"iopub.status.busy": "now"}),
    "widget state": lambda nb: nb.metadata.update(widgets={"state": {}}),
    "a Python version": lambda nb: nb.metadata.language_info.update(version="3.11.7"),
    "another kernel": lambda nb: nb.metadata.kernelspec.update(name="mine"),
    "other code before": lambda nb: nb.metadata.left_context.update(built_from="0" * 64),
}


@pytest.mark.parametrize("what", CHANGES)
def test_any_other_change_is_mended(chapter, course, canned, what):
    edit(chapter, CHANGES[what])
    before = contents(chapter.parent)
    assert notebooks.build(chapter, check=True).changed
    assert contents(chapter.parent) == before  # a check writes nothing
    assert notebooks.build(chapter).changed
    assert chapter.read_bytes() == course["bytes"]
    assert set(contents(chapter.parent)) == set(before)  # and no temporary file is left


def test_varying_outputs_are_stored_anew_if_asked(chapter, course, canned):
    edit(chapter, lambda nb: nb.cells[5].outputs[0].data.update({"text/plain": "17"}))
    before = chapter.read_bytes()
    assert notebooks.build(chapter, check=True, anew=True).changed
    assert chapter.read_bytes() == before
    assert notebooks.build(chapter, anew=True).changed
    assert chapter.read_bytes() == course["bytes"]


def test_changed_code_takes_fresh_varying_outputs(tmp_path, monkeypatch):
    times = iter("789")

    def execute(notebook, *_):
        shown = new_output("stream", name="stdout", text=next(times))
        executed = copy.deepcopy(notebook)
        executed.cells[1].outputs = [shown]
        return notebooks.Run(executed, 1, 1, 0.0, None)

    monkeypatch.setattr(notebooks, "execute", execute)
    path = write(tmp_path / "clock.ipynb", ("print(time())", VARYING))

    def built():
        changed = notebooks.build(path).changed
        return changed, nbformat.read(path, as_version=4).cells[1].outputs[0].text

    assert built() == (True, "7")
    assert built() == (False, "7")
    edit(path, lambda nb: nb.cells[1].update(source="print(time() + 1)"))
    assert built() == (True, "9")


def test_a_failing_chapter_keeps_its_file(chapter, course, monkeypatch):
    run = replace(course["built"].run, failure=notebooks.Failure(3, "x", "E: y"))
    monkeypatch.setattr(notebooks, "execute", lambda *_: run)
    edit(chapter, CHANGES["prompt numbers"])
    before = contents(chapter.parent)
    assert notebooks.build(chapter) == notebooks.Build(run, changed=False)
    assert contents(chapter.parent) == before


def test_a_file_that_cannot_be_written_stays_whole(chapter, canned, monkeypatch):
    edit(chapter, CHANGES["prompt numbers"])
    before = contents(chapter.parent)

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(notebooks.Path, "replace", refuse)
    with pytest.raises(CourseError, match="cannot be written: Permission denied"):
        notebooks.build(chapter)
    assert contents(chapter.parent) == before


def test_prose_may_change_without_touching_varying_outputs(chapter, canned, course):
    kept = nbformat.read(chapter, as_version=4).cells[5].outputs
    edit(chapter, lambda nb: nb.cells[0].update(source="# A better title"))
    run = course["built"].run
    run.notebook.cells[0].source, old = "# A better title", run.notebook.cells[0].source
    try:
        assert not notebooks.build(chapter).changed
    finally:
        run.notebook.cells[0].source = old
    assert nbformat.read(chapter, as_version=4).cells[5].outputs == kept


@pytest.mark.parametrize("form", ["{root}{sep}lib{sep}x.py", "~{sep}left{sep}lib{sep}x.py"])
def test_paths_are_named_relative_to_the_course(tmp_path, monkeypatch, form):
    root = tmp_path / "left"
    monkeypatch.setattr(notebooks.Path, "home", classmethod(lambda cls: tmp_path))
    text = "in " + form.format(root=root, sep=os.sep) + ":3"
    cell = new_code_cell("f()", outputs=[new_output("stream", name="stderr", text=text)])
    tidied = notebooks.tidy(new_notebook(cells=[cell]), root)
    assert tidied.cells[0].outputs[0].text == f"in lib{os.sep}x.py:3"
    assert cell.outputs[0].text == text  # the argument is not changed


@pytest.mark.parametrize("how", ["_repr_png_", "_repr_html_", "__repr__"])
def test_a_fault_while_a_result_is_shown_is_named(tmp_path, how):
    code = f"class Picture:\n    def {how}(self):\n        raise ValueError('no tex')"
    notebook = new_notebook(cells=[new_code_cell(code), new_code_cell("Picture()")])
    failure = notebooks.execute(notebook, tmp_path).failure
    assert (failure.cell, failure.error) == (2, "ValueError: no tex")


@pytest.mark.parametrize("folder", ["notebooks", "exercises"])
def test_opening_and_saving_in_jupyterlab_changes_no_byte(root, tmp_path, folder):
    """JupyterLab writes the version of the reader's Python into what it opens."""
    from jupyter_server.services.contents.filemanager import FileContentsManager

    path = sorted((root / folder).glob("*.ipynb"))[1]
    copy = tmp_path / path.name
    copy.write_bytes(path.read_bytes())
    manager = FileContentsManager(
        root_dir=str(tmp_path), pre_save_hook="lib.notebooks.keep_shipped_metadata"
    )
    model = manager.get(path.name)
    model["content"]["metadata"]["language_info"]["version"] = "3.99"
    model["content"]["metadata"]["kernelspec"]["display_name"] = "Python 3 (ipykernel)"
    manager.save(model, path.name)
    assert copy.read_bytes() == path.read_bytes()
