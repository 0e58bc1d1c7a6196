"""The whole site as `course site` builds it, and every page of it in Chromium.

Slow: `uv run --group site pytest -m slow tests/site/test_pages_whole.py`.
"""

import functools
import re
import warnings

import pytest

from lib import cli
from lib.errors import CourseError
from lib.notebooks import chapters
from lib.site import api, launchable, lite, pages, settings
from tests.browser.jupyter import contrast
from tests.browser.test_in_jupyterlab import browser
from tests.site.lite_page import served

__all__ = ["browser"]  # the fixture
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

WIDE, TELEPHONE = {"width": 1400, "height": 900}, {"width": 390, "height": 844}
TYPESET = "() => !window.MathJax || MathJax.startup.promise.then(() => true)"
# What reaches beyond the edge of the page without a box around it that scrolls.
STATE = """() => ({
  width: document.documentElement.clientWidth,
  reach: document.documentElement.scrollWidth,
  formulas: document.querySelectorAll("mjx-container").length,
  unread: document.querySelectorAll("mjx-merror").length,
  bare: document.querySelectorAll(".math:not(:has(mjx-container))").length,
  pictures: document.images.length,
  broken: [...document.images].filter(i => i.loading !== "lazy" && !i.naturalWidth).length,
})"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    try:
        settings.check_installed()
        lite.check_installed()
    except CourseError as error:
        pytest.skip(str(error))
    out = tmp_path_factory.mktemp("built") / "site"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Sphinx's own extensions use what will be removed
        assert cli.main(["site", "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def address(site):
    with served(site) as address:
        yield address


@pytest.fixture
def opened(browser, address):
    """Return a function that opens pages in one window; no page may complain on the console."""
    said, contexts = [], []

    def note(message):
        if message.type in ("error", "warning"):
            said.append((message.location.get("url"), message.text))

    @functools.cache
    def window(width, height):
        contexts.append(browser.new_context(viewport={"width": width, "height": height}))
        page = contexts[-1].new_page()
        page.on("console", note)
        page.on("pageerror", lambda error: said.append((page.url, str(error))))
        return page

    def go(name, size):
        page = window(**size)
        page.goto(f"{address}/{name}")
        page.wait_for_function(TYPESET)
        return page

    yield go
    for context in contexts:
        context.close()
    assert said == []


def names(site):
    found = (path.relative_to(site).as_posix() for path in sorted(site.rglob("*.html")))
    return [name for name in found if not name.startswith(("_static/", "lite/"))]


def test_every_chapter_exercise_and_module_has_a_page(site, root):
    pages_of = {f"{folder}/{path.stem}.html" for folder in ("notebooks", "exercises")
                for path in chapters(root, folder)}  # fmt: skip
    modules = {f"api/{api._name(path)}.html" for floor in api.FLOORS for path in api.modules(floor)}
    assert pages_of | modules | {"index.html", "docs/teachers.html"} <= set(names(site))
    for name in names(site):
        text = (site / name).read_text(encoding="utf-8")
        assert not re.findall(r'href="[^"]*solutions[^"]*"', text), name
    assert not list(site.glob("_modules/lib/exercises/t0*"))  # the tasks hold the answers


def test_what_runs_in_a_browser_has_a_button_that_opens_it(site, root):
    extents = launchable.launchable(root)
    for path in (*chapters(root), *chapters(root, "exercises")):
        name = path.relative_to(root).with_suffix("").as_posix()
        page = (site / f"{name}.html").read_text(encoding="utf-8")
        button = f'href="../{pages.LITE}/{launchable.address(path, root)}"'
        assert (button in page) == (path in extents), name
        if path in extents:
            assert (site / pages.LITE / "files" / f"{name}.ipynb").is_file()


@pytest.mark.parametrize("size", [WIDE, TELEPHONE], ids=["wide", "telephone"])
def test_every_page_shows_its_mathematics_and_pictures(site, opened, size):
    formulas = pictures = 0
    for name in names(site):
        state = opened(name, size).evaluate(STATE)
        assert state["reach"] <= state["width"], name  # it does not scroll sideways
        assert (state["unread"], state["bare"], state["broken"]) == (0, 0, 0), name
        formulas, pictures = formulas + state["formulas"], pictures + state["pictures"]
    assert formulas > 500
    assert pictures > 100


def test_search_finds_the_left_context(opened):
    page = opened("index.html", WIDE)
    page.keyboard.press("Control+K")
    page.keyboard.type("left context")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search.html?q=left+context*")
    page.locator("#search-results li a[href*='01_single_head_attention']").first.wait_for()


def test_dark_mode_holds_and_can_be_read(opened):
    page = opened("index.html", WIDE)
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.get_by_role("button", name="Color mode").click()
    page.get_by_role("button", name="Dark").click()
    for name in ("notebooks/01_single_head_attention.html", "api/core.html", "index.html"):
        page = opened(name, WIDE)
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        ink, ground = page.evaluate(
            "[getComputedStyle(document.querySelector('.bd-article p')).color,"
            " getComputedStyle(document.body).backgroundColor]"
        )
        assert contrast(ink, ground) >= 7


def test_the_button_opens_the_notebook_in_jupyterlite(opened):
    page = opened("notebooks/01_single_head_attention.html", WIDE)
    with page.context.expect_page() as popup:
        page.get_by_role("link", name="Run in the browser").click()
    lab = popup.value
    title = lab.locator(".jp-Notebook .jp-Cell h1").first
    title.wait_for(timeout=120_000)
    assert title.inner_text().startswith("1 · Single-head attention")
