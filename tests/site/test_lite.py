"""What `course lite` takes, makes and says; its pages are opened in test_lite_in_chromium.py."""

import json
import re
import shutil
import threading
import urllib.error
import urllib.request
import zipfile
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from lib import cli, notebooks
from lib.errors import CourseError
from lib.exercises import checking
from lib.lab import installed
from lib.site import copies, launchable, lite, wheels


def folder_with_pyodide(folder):
    """Make a folder that looks complete: a package each, of which matplotlib needs one more."""
    folder.mkdir()
    entries = {name: {"file_name": f"{name}.whl", "depends": []} for name in lite.PACKAGES}
    entries["matplotlib"]["depends"] = ["Python_Dateutil"]
    entries["python-dateutil"] = {"file_name": "dateutil.whl", "depends": ["numpy"]}
    for name in (*lite.PYODIDE_FILES, *(entry["file_name"] for entry in entries.values())):
        (folder / name).write_text("", encoding="utf-8")
    (folder / lite.LOCK).write_text(json.dumps({"packages": entries}), encoding="utf-8")
    return folder


class TestPyodideFolder:
    def test_a_complete_one_is_taken(self, tmp_path):
        lite.check_pyodide(folder_with_pyodide(tmp_path / "pyodide"))

    @pytest.mark.parametrize("name", [*lite.PYODIDE_FILES, lite.LOCK, "numpy.whl", "dateutil.whl"])
    def test_what_it_lacks_is_named(self, tmp_path, name):
        folder = folder_with_pyodide(tmp_path / "pyodide")
        (folder / name).unlink()
        with pytest.raises(CourseError, match=name):
            lite.check_pyodide(folder)

    def test_a_package_that_is_not_in_the_list_is_named(self, tmp_path):
        folder = folder_with_pyodide(tmp_path / "pyodide")
        text = (folder / lite.LOCK).read_text(encoding="utf-8")
        (folder / lite.LOCK).write_text(text.replace("python-dateutil", "x"), encoding="utf-8")
        with pytest.raises(CourseError, match="lacks the package python-dateutil"):
            lite.check_pyodide(folder)

    @pytest.mark.parametrize("text", ["", "[]", '{"packages": []}', '{"packages": {"numpy": 1}}'])
    def test_a_damaged_list_is_said(self, tmp_path, text):
        folder = folder_with_pyodide(tmp_path / "pyodide")
        (folder / lite.LOCK).write_text(text, encoding="utf-8")
        with pytest.raises(CourseError, match=r"damaged|lacks the package"):
            lite.check_pyodide(folder)


class TestOut:
    def test_a_folder_with_something_else_is_left_alone(self, tmp_path):
        (tmp_path / "thesis.txt").write_text("years", encoding="utf-8")
        with pytest.raises(CourseError, match="holds something else"):
            lite.check_out(tmp_path)
        with pytest.raises(CourseError, match="holds something else"):
            lite.check_out(tmp_path / "thesis.txt")

    def test_a_new_an_empty_and_an_earlier_one_are_taken(self, tmp_path):
        lite.check_out(tmp_path / "new")
        lite.check_out(tmp_path)
        (tmp_path / lite.MARKER).write_text("{}", encoding="utf-8")
        lite.check_out(tmp_path)


def test_without_jupyterlite_one_sentence_says_what_to_do(monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert cli.main(["lite"]) == cli.WRONG_INPUT
    said = capsys.readouterr()
    assert said.err == (
        "course: jupyterlite_core is not installed; `uv run --group site course lite` does it.\n"
    )
    assert said.out == ""


class TestCommand:
    @pytest.fixture
    def built(self, monkeypatch):
        """What was built, with everything slow left out."""
        built = []

        def build(out, pyodide, progress, kernels):
            assert kernels is None
            built.append((out, pyodide))
            for k in range(lite.STEPS):
                progress(f"step {k}")

        def interrupted(server):
            raise KeyboardInterrupt

        monkeypatch.setattr(lite, "check_installed", lambda: None)
        monkeypatch.setattr(lite, "public_address", lambda: "http://127.0.0.1:1/pyodide.mjs")
        monkeypatch.setattr(lite, "make_kernels", lambda folder, say: None)
        monkeypatch.setattr(lite, "build_lite", build)
        monkeypatch.setattr("http.server.ThreadingHTTPServer.serve_forever", interrupted)
        return built

    def test_it_builds_serves_and_says_where(self, built, tmp_path, capsys):
        code = cli.main(["lite", "--out", str(tmp_path), "--pyodide", "py", "--port", "0"])
        assert code == cli.INTERRUPTED
        assert built == [(tmp_path, Path("py"))]
        said = capsys.readouterr()
        assert re.search(
            r"Open http://127.0.0.1:\d+/tree/index.html\?path=notebooks; Ctrl", said.out
        )
        assert said.err == ""

    def test_pyodide_out_of_reach_is_said_and_it_builds_all_the_same(self, built, tmp_path, capsys):
        assert cli.main(["lite", "--out", str(tmp_path), "--no-serve"]) == 0
        assert built == [(tmp_path, None)]
        said = capsys.readouterr()
        assert said.err.startswith(
            "course: Pyodide, the Python of the browser, cannot be reached from here ("
        )
        assert "--pyodide DIR." in said.err
        assert "Open" not in said.out

    def test_a_taken_port_is_said_before_anything_is_built(self, built, tmp_path, capsys):
        with lite.server(tmp_path) as taken:
            port = str(taken.server_port)
            code = cli.main(["lite", "--out", str(tmp_path), "--pyodide", "py", "--port", port])
        assert code == cli.WRONG_INPUT
        assert built == []
        assert f"{port} is not to be had" in capsys.readouterr().err


class TestCopies:
    def test_a_marked_cell_is_marked_and_the_mark_taught_first(self):
        cells = [new_markdown_cell("a"), new_code_cell("b = 1"), new_code_cell("c = load()")]
        cells[2].metadata["tags"] = [copies.TAG, notebooks.VARYING]
        notebook = new_notebook(cells=cells)
        before = notebooks.dump(notebook)
        made = copies.for_browser(notebook)
        assert [cell.source for cell in made.cells] == [
            "a",
            copies.OPENING,
            "b = 1",
            "%%installed\nc = load()",
        ]
        assert [cell.id for cell in made.cells][2:] == [cells[1].id, cells[2].id]
        assert notebooks.dump(notebook) == before
        nbformat.validate(made)

    def test_without_marked_cells_nothing_changes(self):
        notebook = new_notebook(cells=[new_code_cell("b = 1")])
        assert copies.for_browser(notebook) == notebook

    def test_a_graded_cell_is_not_marked(self):
        cell = new_code_cell("x = ...", metadata={"tags": [copies.TAG], "nbgrader": {}}, id="x-1")
        with pytest.raises(CourseError, match="x-1 is graded"):
            copies.for_browser(new_notebook(cells=[cell]))

    def test_the_course_has_marked_cells_where_it_says_so(self, root):
        for path, word in launchable.launchable(root).items():
            cells = notebooks.read_notebook(path).cells
            whole = not any(copies.needs_installation(cell, model=True) for cell in cells)
            alone = not any(map(copies.needs_installation, cells))
            extent = launchable.ALL if alone else launchable.MODEL if whole else launchable.PART
            if "00_" in path.name:  # it says by itself what is missing
                extent = launchable.MODEL
            assert word == extent, path

    def test_a_cell_that_needs_the_model_runs_where_the_site_has_it(self):
        cells = [new_code_cell("load()", metadata={"tags": [copies.MODEL_TAG]})]
        notebook = new_notebook(cells=cells)
        assert copies.for_browser(notebook, model=True) == notebook
        assert copies.for_browser(notebook).cells[1].source == "%%installed\nload()"


class TestMark:
    def lines(self, text, monkeypatch, platform):
        shell = SimpleNamespace(input_transformers_cleanup=[])
        installed.load_ipython_extension(shell)
        installed.load_ipython_extension(shell)
        (transform,) = shell.input_transformers_cleanup
        monkeypatch.setattr(installed, "BROWSER", platform == "emscripten")
        return "".join(transform(text.splitlines(keepends=True)))

    def test_a_marked_cell_is_not_run_in_a_browser(self, monkeypatch, capsys):
        exec(self.lines("%%installed\n1 / 0\n", monkeypatch, "emscripten"))
        assert capsys.readouterr().out == installed.SENTENCE + "\n"

    def test_a_marked_cell_is_run_elsewhere(self, monkeypatch):
        assert self.lines("%%installed\n1 / 0\n", monkeypatch, "linux") == "1 / 0\n"

    @pytest.mark.parametrize("text", ["", "a\n", "a\n%%installed\n"])
    @pytest.mark.parametrize("platform", ["emscripten", "linux"])
    def test_other_cells_are_what_they_are(self, monkeypatch, platform, text):
        assert self.lines(text, monkeypatch, platform) == text


class TestLaunchable:
    def put(self, path, metadata):
        path.write_text(json.dumps({"metadata": metadata}), encoding="utf-8")
        return path

    @pytest.mark.parametrize("word", ["all", "model", "part", "none"])
    def test_the_word_in_the_metadata(self, tmp_path, word):
        path = self.put(tmp_path / "a.ipynb", {"left_context": {"browser": word}})
        assert launchable.extent(path) == word

    def test_no_word_is_none(self, tmp_path):
        assert launchable.extent(self.put(tmp_path / "a.ipynb", {})) == "none"

    def test_another_word_and_no_notebook_are_refused(self, tmp_path):
        path = self.put(tmp_path / "a.ipynb", {"left_context": {"browser": "some"}})
        with pytest.raises(CourseError, match=r"a.ipynb: .* it is 'some'"):
            launchable.extent(path)
        path.write_text("{", encoding="utf-8")
        with pytest.raises(CourseError, match=r"a.ipynb cannot be read"):
            launchable.extent(path)

    def test_chapters_and_exercises_in_reading_order(self, root):
        words = launchable.launchable(root)
        names = [launchable.address(path, root) for path in words]
        assert names[1] == "notebooks/index.html?path=notebooks/01_single_head_attention.ipynb"
        chapters = len(notebooks.chapters(root))
        assert names[chapters] == "notebooks/index.html?path=exercises/01_ordering.ipynb"
        assert [path.name[:2] for path, word in words.items() if word == "all"] == [
            *("01", "02", "03"),
            *("01", "04", "05", "07", "09"),
        ]


def test_what_needs_an_installation_keeps_its_stored_outputs_below_it(root):
    """Running the cell in a browser puts a sentence in the place of its own outputs."""
    shipped = notebooks.read_notebook(root / "notebooks" / "07_a_real_model.ipynb")
    made = copies.for_browser(shipped)
    ids = [cell.id for cell in made.cells]
    marked = [c for c in shipped.cells if copies.needs_installation(c) and c.outputs]
    assert len(marked) > 40
    for cell in marked:
        at = ids.index(cell.id)
        assert made.cells[at].outputs == []
        below = made.cells[at + 1]
        assert below.cell_type == "markdown"
        assert below.source.startswith(copies.KEPT)
        for k, output in enumerate(cell.outputs):
            data = output.get("data", {})
            if "image/png" in data:
                held = below.attachments[f"{cell.id}-{k}.png"]["image/png"]
                assert held == data["image/png"].replace("\n", "")
                assert f"](attachment:{cell.id}-{k}.png)" in below.source
            else:
                text = data.get("text/markdown") or data.get("text/html") or output.get("text")
                assert (text or data["text/plain"]).rstrip() in below.source


def test_a_download_out_of_the_browser_is_known_by_its_name(root, tmp_path):
    names = []
    for name in ("01_ordering.ipynb", "exercises_01_ordering.ipynb"):
        shutil.copy(root / "exercises" / "01_ordering.ipynb", tmp_path / name)
        read = checking.read(tmp_path / name)
        names.append([question.task for question in read.exercise.questions])
    assert names[0] == names[1]
    assert names[0][0] == "01.one_query"


def test_wheels_hold_the_course_and_no_compiled_code(tmp_path):
    packed = wheels.pack_all(tmp_path / "one")
    assert [wheel.name.split("-")[0] for wheel in packed] == [
        *(name.replace("-", "_") for name in wheels.NEEDED),
        "left_context",
    ]
    for wheel in packed:
        with zipfile.ZipFile(wheel) as opened:
            names = opened.namelist()
            assert not [name for name in names if name.endswith((".so", ".pyd", ".pyc"))]
            (about,) = (name for name in names if name.endswith(".dist-info/METADATA"))
            assert b"Version: " + wheel.name.split("-")[1].encode() in opened.read(about)
    assert {"lib/attention.py", "lib/lab/static/order_list.js"} <= set(names)
    assert not [name for name in names if name.startswith(("lib/site/", "lib/grading/"))]
    again = wheels.pack_all(tmp_path / "two")
    assert wheels.digest(packed) == wheels.digest(again) != wheels.digest(packed[1:])


def test_a_package_that_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(wheels, "NEEDED", ("no-such-package",))
    with pytest.raises(CourseError, match="no-such-package is not installed"):
        wheels.pack_all(tmp_path)


def test_the_server_gives_scripts_and_webassembly_their_types(tmp_path):
    for name in ("a.mjs", "b.wasm", "c.json"):
        (tmp_path / name).write_text("{}", encoding="utf-8")
    with lite.server(tmp_path) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        home = f"http://127.0.0.1:{server.server_port}"
        types = {}
        for name in ("a.mjs", "b.wasm", "c.json"):
            with urllib.request.urlopen(f"{home}/{name}", timeout=10) as answer:
                types[name] = answer.headers["Content-Type"], answer.headers["Cache-Control"]
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(f"{home}/d.js", timeout=10)
        error.value.close()
        with pytest.raises(CourseError, match=f"{server.server_port} is not to be had"):
            lite.server(tmp_path, server.server_port)
        assert lite.out_of_reach(f"{home}/a.mjs") == ""
        server.shutdown()
    assert lite.out_of_reach(f"{home}/a.mjs") != ""
    assert types == {
        "a.mjs": ("text/javascript", "no-cache"),
        "b.wasm": ("application/wasm", "no-cache"),
        "c.json": ("application/json", "no-cache"),
    }
