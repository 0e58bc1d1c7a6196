"""The course in a real browser, with nothing but that browser: JupyterLite and Pyodide.

    COURSE_PYODIDE=FOLDER uv run --group site pytest -m slow tests/site

Every request beyond this machine is refused. Skipped where Pyodide, JupyterLite, Playwright or
Chromium is not found.
"""

import socket
from dataclasses import replace

import pytest

from lib import cli, notebooks
from lib.exercises import deriving
from lib.grading import batch
from lib.site import lite
from tests.browser.jupyter import drag
from tests.browser.test_in_jupyterlab import above, assert_redrawn, browser, row, rows
from tests.exercises.wrong.t01 import RIGHT
from tests.site.lite_page import LitePage, served

__all__ = ["browser"]  # the fixture

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def address(built):
    with served(built) as address:
        yield address


@pytest.fixture(scope="module")
def context(browser):
    context = browser.new_context(viewport={"width": 1200, "height": 1000}, accept_downloads=True)
    yield context
    context.close()


@pytest.fixture(scope="module")
def ordering(context, address):
    return LitePage(context.new_page(), address, "exercises/01_ordering.ipynb")


def test_every_cell_of_a_chapter_runs_and_its_picture_follows_the_slider(context, address):
    opened = LitePage(context.new_page(), address, "notebooks/01_single_head_attention.ipynb")
    ran = opened.run_each()
    assert len(ran) == 33
    assert [cell["id"] for cell in ran if cell["error"]] == []
    (timed,) = (cell["text"] for cell in ran if cell["id"] == "01-measure")
    assert timed == "Numba is not here: this times NumPy, and plain loops of Python.\n"
    explorer = opened.output("01-explorer").locator(".jupyter-widgets.widget-vbox").first
    explorer.scroll_into_view_if_needed()
    handle = explorer.get_by_role("slider").first
    handle.focus()
    assert_redrawn(opened, explorer, lambda: handle.press("ArrowRight"))
    opened.page.close()


def test_answers_are_judged_wrong_then_right(ordering):
    opened = ordering
    for cell in ("01-imports", "01-one_query-answer", "01-one_query-check"):
        opened.run(cell)
    said = opened.output("01-one_query-check")
    said.get_by_text("Not answered yet: 01.one_query.").wait_for()
    for answer, begins in (
        ("D F E C A B", "Not right yet: your step 1 is D"),
        (RIGHT["01.one_query"], "01.one_query: right."),
    ):
        opened.write("01-one_query-answer", f'attention_order = "{answer}"')
        opened.run("01-one_query-answer")
        opened.run("01-one_query-check")
        said.get_by_text(begins).wait_for()
        assert "Traceback" not in said.inner_text()
        assert opened.failed("01-one_query-check") == begins.startswith("Not")


class Listed:
    """The ordering list, as `tests.browser` knows it."""

    def __init__(self, opened, cell):
        self.opened, self.cell, self.page = opened, cell, opened.page

    def output(self, _):
        return self.opened.output(self.cell)


def test_the_ordering_list_is_dragged(ordering):
    (cell,) = (name for name in ordering.places if name.endswith("one_layer-widget"))
    ordering.run("01-imports")
    ordering.run(cell)
    listed = Listed(ordering, cell)
    row(listed, "C").wait_for()
    grip = row(listed, "C").locator(".ol-grip")
    grip.scroll_into_view_if_needed()
    box = grip.bounding_box()
    start = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    drag(ordering.page, start, above(listed, "A"))
    shown = [item.get_attribute("data-letter") for item in rows(listed)]
    assert shown[:3] == ["C", "A", "B"]
    line = ordering.output(cell).get_by_text('layer_order = "C A B')
    line.first.wait_for()


def test_a_download_is_graded_as_its_twin_from_jupyterlab(ordering, root, tmp_path):
    answers = {
        "one_query": f'attention_order = "{RIGHT["01.one_query"]}"',
        "one_layer": 'layer_order = "H G A D C F I E"',  # wrong; the others are not answered
    }
    shipped = root / "exercises" / "01_ordering.ipynb"
    twin = deriving.derive(notebooks.read_notebook(root / "solutions" / shipped.name))
    for word, source in answers.items():
        ordering.write(f"01-{word}-answer", source)
        ordering.run(f"01-{word}-answer")
        next(c for c in twin.cells if c.id == f"01-{word}-answer").source = source
    ordering.run("01-one_query-check")
    ordering.save()
    for name in ("browser", "lab"):
        (tmp_path / "class" / name).mkdir(parents=True)
    downloaded = ordering.download(tmp_path / "class" / "browser")
    assert downloaded.name == f"exercises_{shipped.name}"
    ran = notebooks.execute(twin, tmp_path).notebook
    (tmp_path / "class" / "lab" / shipped.name).write_text(notebooks.dump(ran), encoding="utf-8")
    graded = batch.grade(tmp_path / "class", tmp_path / "results", root)
    one, other = ([replace(r, student="") for r in graded.rows[k]] for k in ("browser", "lab"))
    assert one == other
    assert [row.points for row in one] == [1, 0, 0, 0, 0]
    assert one[1].message.startswith("your step 1 is H")
    assert graded.handed["browser"].notes == graded.handed["lab"].notes == []


def test_the_work_is_kept_when_the_page_is_opened_again(ordering, address):
    ordering.save()
    ordering.page.close()
    again = LitePage(ordering.page.context.new_page(), address, ordering.path)
    source = again.page.evaluate(
        "index => window.jupyterapp.shell.currentWidget.content.widgets[index].model"
        ".sharedModel.source",
        again.places.index("01-one_query-answer"),
    )
    assert RIGHT["01.one_query"] in source


def test_a_page_says_it_when_python_is_out_of_reach(browser, root, tmp_path, monkeypatch, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:  # closed again: nobody answers there
        nowhere = f"http://127.0.0.1:{taken.getsockname()[1]}/pyodide.mjs"
    monkeypatch.setattr(lite, "public_address", lambda: nowhere)
    monkeypatch.chdir(root)
    out = tmp_path / "lite"
    assert cli.main(["lite", "--out", str(out), "--no-serve"]) == 0
    assert "cannot be reached from here" in capsys.readouterr().err
    with served(out) as address:
        page = browser.new_page()
        page.goto(f"{address}/notebooks/index.html?path=notebooks/00_start_here.ipynb")
        banner = page.locator("#python-out-of-reach")
        banner.wait_for(timeout=60_000)
        assert banner.inner_text() == (
            f"Python could not be fetched from {nowhere.split('/')[2]}, so no cell can run here. "
            + lite.REMEDY["network"]
        )
        page.screenshot(path=tmp_path / "out-of-reach.png")
        page.close()


@pytest.fixture(scope="module")
def speaker(pyodide, root, tmp_path_factory, context):
    """Return the page in which the model writes, of a site with the model beside it."""
    kernels = lite.make_kernels(tmp_path_factory.mktemp("kernels"), pytest.skip)
    folder = tmp_path_factory.mktemp("speaks") / "lite"
    lite.build_lite(folder, pyodide, root=root, kernels=kernels)
    with served(folder) as address:
        page = context.new_page()
        page.goto(f"{address}/{lite.SPEAKER}/index.html")
        yield page


def written(page, prompt, seconds=120):
    """Let the page write on a prompt; return its text and what it says."""
    page.get_by_label("Begin a text:").fill(prompt)
    page.get_by_role("button", name="Write on").click()
    done = "!document.getElementById('write').disabled"
    page.wait_for_function(done, timeout=1000 * seconds)
    return page.locator("#text").inner_text(), page.get_by_role("status").inner_text()


def test_a_visitor_s_sentence_is_written_on_by_the_real_model(speaker):
    text, said = written(speaker, "The capital of France is")
    assert text.startswith("The capital of France is Paris")
    assert "a second in this page" in said
    assert written(speaker, "")[1] == "It did not work: type a few words first"
    assert written(speaker, "The opposite of hot is")[0].startswith("The opposite of hot is cold")


def test_writing_stops_when_it_is_told_to(speaker):
    speaker.get_by_label("Begin a text:").fill("Once upon a time")
    speaker.get_by_role("button", name="Write on").click()
    speaker.wait_for_function("document.getElementById('text').textContent.length > 40")
    speaker.get_by_role("button", name="Stop").click()
    speaker.wait_for_function("!document.getElementById('write').disabled")
    assert int(speaker.get_by_role("status").inner_text().split()[0]) < 120
