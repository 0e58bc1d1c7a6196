"""The course in a real browser: the ordering list, and a chapter whose picture follows a slider.

Skipped where Playwright for Python or Chromium is not found.
"""

import shutil

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from lib.notebooks import KERNELSPEC
from tests.browser.jupyter import CHROMIUM_OPTIONS, Lab, Page, centre, contrast, drag

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

# One file, so that one worker runs it: a server and a browser take longer to start than a test.
# Both take turns with whatever else the machine does, so a test may wait long before it is slow.
pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="Playwright for Python is not installed: no browser tests"
    )
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is on the path: no browser tests")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=found, args=CHROMIUM_OPTIONS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def lab(browser, tmp_path_factory):
    lab = Lab(tmp_path_factory.mktemp("lab"))
    lab.start()
    yield lab
    lab.stop()


@pytest.fixture(scope="module")
def context(browser):
    context = browser.new_context(viewport={"width": 1200, "height": 1000}, reduced_motion="reduce")
    yield context
    context.close()


# --- The ordering list ---------------------------------------------------------------------------

CELL = """\
from lib.exercises.t01_ordering import ONE_QUERY
from lib.lab.ordering import order_widget

order = order_widget(ONE_QUERY, "attention_order")
order
"""


@pytest.fixture(scope="module")
def opened(lab, context):
    cells = [new_code_cell(CELL, id="list"), new_code_cell("1", id="one")]
    notebook = new_notebook(cells=cells, metadata={"kernelspec": dict(KERNELSPEC)})
    lab.put(notebook, "ordering.ipynb")
    return Page(context.new_page(), lab, "ordering.ipynb")


@pytest.fixture
def listed(opened):
    """The page with the list as it is at first."""
    opened.run_all()
    opened.output("list").get_by_text('"A B C D E F G H"').wait_for()
    return opened


def row(listed, letter):
    return listed.output("list").locator(f'.ol-item[data-letter="{letter}"]')


def above(listed, letter):
    """Return a point just above the middle of a row."""
    x, y = centre(row(listed, letter))
    return x, y - 5


def assert_order(listed, letters):
    """The same order on the page, in the line to paste, and in the kernel."""
    line = f'attention_order = "{letters}"'
    listed.output("list").get_by_text(line, exact=True).wait_for()
    shown = [item.get_attribute("data-letter") for item in rows(listed)]
    out = [item.get_attribute("data-letter") for item in rows(listed, ".ol-out")]
    assert [letter for letter in shown if letter not in out] == letters.split()
    listed.wait_for_value("order.literal", repr(line))


def rows(listed, kind=""):
    return listed.output("list").locator(f".ol-item{kind}").all()


def test_a_row_is_dragged_by_the_pointer(listed):
    drag(listed.page, centre(row(listed, "C").locator(".ol-grip")), above(listed, "A"))
    assert_order(listed, "C A B D E F G H")
    start = centre(row(listed, "C").locator(".ol-text"))
    drag(listed.page, start, (start[0] + 30, above(listed, "E")[1] + 10))
    assert_order(listed, "A B D E C F G H")


def test_a_row_dragged_below_the_line_is_left_out(listed):
    start = centre(row(listed, "H").locator(".ol-grip"))
    x, y = centre(listed.output("list").locator(".ol-line"))
    drag(listed.page, start, (x, y + 20))
    assert_order(listed, "A B C D E F G")
    assert "left out" in row(listed, "H").locator(".ol-main").get_attribute("aria-label")


def test_escape_cancels_a_drag(listed):
    x, y = centre(row(listed, "A").locator(".ol-grip"))
    listed.page.mouse.move(x, y)
    listed.page.mouse.down()
    listed.page.mouse.move(x, y + 120, steps=8)
    assert rows(listed)[0].get_attribute("data-letter") != "A"
    listed.page.keyboard.press("Escape")
    listed.page.mouse.up()
    assert_order(listed, "A B C D E F G H")


def test_a_row_is_moved_by_the_keyboard(listed):
    page, live = listed.page, listed.output("list").locator(".ol-live")

    def press(key, said):
        page.keyboard.press(key)
        live.get_by_text(said).wait_for(state="attached")

    row(listed, "C").locator(".ol-main").focus()
    press("Space", "C lifted, position 3 of 8")
    press("ArrowUp", "C moved, position 2 of 8")
    press("ArrowUp", "C moved, position 1 of 8")
    press("ArrowUp", "C stays, position 1 of 8")
    focused = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert focused.startswith("C: ")
    assert focused.endswith("position 1 of 8")
    assert listed.value("order.literal").count("A B C D") == 1  # nothing is sent before the drop
    press("Space", "C dropped, position 1 of 8")
    assert_order(listed, "C A B D E F G H")
    press("Space", "C lifted")
    press("End", "C moved, left out")
    press("Escape", "Cancelled. C is back: position 1 of 8")
    press("Space", "C lifted")
    press("End", "C moved, left out")
    press("Space", "C dropped, left out")
    assert_order(listed, "A B D E F G H")


def test_keys_in_the_list_are_no_commands_of_the_notebook(listed):
    row(listed, "B").locator(".ol-main").focus()
    listed.page.keyboard.type("ddxab")
    assert listed.page.locator(".jp-Notebook .jp-Cell").count() == 2
    listed.page.keyboard.press("ArrowDown")  # not lifted: the arrows walk along the rows
    assert listed.page.evaluate("document.activeElement.ariaLabel").startswith("C: ")
    listed.page.keyboard.press("End")
    assert listed.page.evaluate("document.activeElement.ariaLabel").startswith("H: ")
    assert_order(listed, "A B C D E F G H")


def test_buttons_move_a_row_and_copy_the_line(listed):
    up = listed.output("list").get_by_role("button", name="Move C up")
    up.click()
    up.press("Enter")
    assert up.get_attribute("aria-disabled") == "true"
    up.press("Enter")
    listed.output("list").get_by_role("button", name="Move H down").click()
    assert_order(listed, "C A B D E F G")
    listed.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    listed.output("list").get_by_role("button", name="Copy").click()
    listed.output("list").get_by_role("button", name="Copied").wait_for()
    copied = listed.page.evaluate("navigator.clipboard.readText()")
    assert copied == 'attention_order = "C A B D E F G"'


COLOURS = """node => {
  const style = getComputedStyle(node);
  const ground = getComputedStyle(node.closest(".ol-item")).backgroundColor;
  return [style.color, ground];
}"""


def test_the_list_follows_the_theme(listed, tmp_path):
    grounds = {}
    listed.output("list").get_by_role("button", name="Move H down").click()
    for theme in ("JupyterLab Dark", "JupyterLab Light"):
        listed.theme(theme)
        for letter in "AH":  # in the order, and left out
            ink, ground = row(listed, letter).locator(".ol-text").evaluate(COLOURS)
            assert contrast(ink, ground) >= 4.5, (theme, letter)
        grounds[theme] = ground
        listed.output("list").screenshot(path=tmp_path / f"{theme}.png")
    assert contrast(*grounds.values()) > 7


# --- Chapters ------------------------------------------------------------------------------------

EXPLORER = ".jupyter-widgets.widget-vbox"


def run(lab, context, path, last=None):
    """Run a chapter, or its cells up to one, and return the page and the widget with a picture."""
    notebook = nbformat.read(path, as_version=4)
    if last is not None:
        ids = [cell.id for cell in notebook.cells]
        del notebook.cells[ids.index(last) + 1 :]
    lab.put(notebook, path.name)
    page = Page(context.new_page(), lab, path.name)
    page.run_all()
    explorer = page.page.locator(EXPLORER, has=page.page.locator("img")).first
    explorer.scroll_into_view_if_needed()
    return page, explorer


def assert_redrawn(page, explorer, act):
    picture = explorer.locator("img").first
    before = picture.get_attribute("src")
    act()
    page.page.wait_for_function(  # another picture may come as another element
        "([box, before]) => box.querySelector('img').src !== before",
        arg=[explorer.element_handle(), before],
    )
    assert picture.evaluate("image => image.complete && image.naturalWidth > 100")


@pytest.mark.slow
def test_a_chapter_runs_and_its_picture_follows_the_slider(lab, context, root):
    path = root / "notebooks" / "01_single_head_attention.ipynb"
    page, explorer = run(lab, context, path)
    handle = explorer.get_by_role("slider").first
    handle.focus()
    assert_redrawn(page, explorer, lambda: handle.press("ArrowRight"))


@pytest.mark.slow
def test_the_stepper_of_a_layer_steps_and_plays(lab, context, root, tmp_path):
    path = root / "notebooks" / "03_one_layer.ipynb"
    page, stepper = run(lab, context, path, last="03-stepper")
    handle = stepper.get_by_role("slider").first
    handle.focus()
    assert_redrawn(page, stepper, lambda: handle.press("ArrowRight"))
    page.wait_for_value("step.value", "1")
    assert_redrawn(page, stepper, stepper.get_by_role("button").first.click)  # it plays
    assert int(page.value("step.value")) > 1
    stepper.screenshot(path=tmp_path / "stepper.png")
