"""The static site: what its sources become, which faults stop it, and one small site built.

The whole site, in Chromium, is `test_pages_whole`.
"""

import json
import re
import shutil
import warnings
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from lib import cli, notebooks
from lib.errors import CourseError
from lib.site import api, extension, extras, links, pages, settings, sources

README = """\
# A course

What it is about.

![A picture.](assets/stack.svg)

Read it on the site of this
repository.

Open the course:

    course lab

## Ways through the course

In an hour: [zero](notebooks/00_start_here.ipynb).

## The chapters

Not on the front page.

| chapter | minutes |
|---|---|
| [Start](notebooks/00_start_here.ipynb) | 5 |

## The command `course`

See [the teachers' page](docs/teachers.md#grade) and the [licence](LICENSE).

## With conda

    conda activate

## The exercises, and how answers are checked

| exercise | minutes |
|---|---|
| [One](exercises/01_one.ipynb) | 7 |

## When something fails

[Solutions](solutions) help; so does [the README](README.md).
"""
PICTURE = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20"><path d="M0 0h9v9z"/></svg>'
)
PIXEL = (  # one pixel, as a PNG file
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"
    "AAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def cell(source, name, outputs=(), **metadata):
    made = new_code_cell(source, id=name, metadata=metadata, execution_count=None)
    made.outputs = list(outputs)
    return made


def write(path, *cells, **metadata):
    path.parent.mkdir(parents=True, exist_ok=True)
    kernel = {"kernelspec": notebooks.KERNELSPEC, "language_info": notebooks.LANGUAGE_INFO}
    nbformat.write(new_notebook(cells=list(cells), metadata=kernel | metadata), path)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Return a course of one chapter and one exercise."""
    root = tmp_path_factory.mktemp("course")
    for name, text in {
        "README.md": README,
        "LICENSE": "MIT",
        "docs/teachers.md": "# For teachers\n\n## Grade\n\nWith one command.\n",
        "assets/stack.svg": PICTURE,
        "solutions/empty": "",
    }.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    title = "# 0 · Start\n\n$e^{s_j}$ and [one](../exercises/01_one.ipynb), [licence](../LICENSE)."
    figure = new_output("display_data", {"image/png": PIXEL, "text/plain": "<Figure>"})
    view = new_output("display_data", {notebooks.WIDGET_VIEW: {"model_id": "7"}})
    table = new_output("display_data", {"text/markdown": "| shape |\n|---|\n| $(n, d)$ |"})
    write(
        root / "notebooks" / "00_start_here.ipynb",
        new_markdown_cell(title, id="title"),
        cell("draw()", "figure", [figure]),
        cell("explore()", "widget", [view]),
        cell("table()", "table", [table]),
        left_context={"browser": "all"},
    )
    write(
        root / "exercises" / "01_one.ipynb",
        new_markdown_cell(
            "# Exercise 1\n\n<details>\n<summary>Hint</summary>\n\n*Think.*\n\n</details>"
        ),
        cell("answer = ...", "01-answer", nbgrader={"solution": True}),
        cell("check()", "01-check", nbgrader={"solution": False}),
    )
    return root


# --- sources -------------------------------------------------------------------------------------


def test_a_link_to_a_page_stays_and_one_to_a_file_becomes_text(root):
    course = sources.Course(root)
    text = "[a](../exercises/01_one.ipynb), [b](../LICENSE), [c](https://x.org), ![d](../p.png)"
    found = sources.relink(text, "notebooks/00_start_here.ipynb", course)
    assert found == "[a](../exercises/01_one.ipynb), b, [c](https://x.org), ![d](../p.png)"


def test_a_link_to_a_file_leads_to_the_repository_if_there_is_one(root):
    course = sources.Course(root, "https://host.example/owner/name")
    found = sources.relink(
        "[a](LICENSE#x) [b](solutions) [c](docs/teachers.md)", "README.md", course
    )
    blob = "https://host.example/owner/name/blob/HEAD/LICENSE#x"
    tree = "https://host.example/owner/name/tree/HEAD/solutions"
    assert found == f"[a]({blob}) [b]({tree}) [c](docs/teachers.md)"


def test_a_link_is_seen_from_the_folder_of_its_page(root):
    text = "[a](docs/teachers.md#grade) [b](README.md)"
    found = sources.relink(text, "README.md", sources.Course(root), folder="docs")
    assert found == "[a](teachers.md#grade) [b](../index.md)"


@pytest.mark.parametrize("target", ["missing.ipynb", "../LICENSE", "docs/teacher.md"])
def test_a_link_that_leads_nowhere_is_an_error(root, target):
    with pytest.raises(CourseError, match=rf"^README.md: the link to {target} leads nowhere$"):
        sources.relink(f"see [this]({target})", "README.md", sources.Course(root))


@pytest.mark.parametrize("address", ["host.example/a/b", "https://host.example", "https://h/a b"])
def test_a_repository_has_an_address(root, address):
    with pytest.raises(CourseError, match="--repository should be an address"):
        sources.Course(root, address)


def test_the_front_page_takes_its_parts_from_the_readme():
    page = sources.front_page(README, {"Run it": "lite/lab/index.html?path=x"})
    order = ["What it is about", "stack.svg", "00_start", "lite/lab", "In an hour", "course lab"]
    places = [page.index(part) for part in order]
    assert places == sorted(places)
    for absent in ("the site of this", "Not on the front page", "conda", "The repository"):
        assert absent not in page
    assert "Run it" not in sources.front_page(README)
    assert "copy of [the repository](https://h/o/n)" in sources.front_page(
        README, {}, "https://h/o/n"
    )


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("![A", "[A", "a picture before the first section"),
        ("## Ways through", "## Ways around", "a section “Ways through the course”"),
        ("In an hour: [zero](notebooks/00_start_here.ipynb).", "", "a section “Ways through"),
        ("## With conda", "## Conda", "a section “With conda”"),
    ],
)
def test_a_readme_without_what_the_site_takes_is_an_error(old, new, words):
    readme = README.replace(old, new)
    with pytest.raises(CourseError, match=f"^README.md: the site needs {words}"):
        sources.install_page(readme) + sources.front_page(readme)


# --- links of built pages ------------------------------------------------------------------------


@pytest.fixture
def faults(tmp_path):
    """Return a function that writes the files of a site and returns the faults that are found."""

    def find(files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return links.faults(tmp_path, skip=("lite",))

    return find


def test_a_sound_page_has_no_fault(faults):
    page = """<a href="a/b.html#here">b</a> <a href="#top" id="top">top</a> <a href="a/">folder</a>
      <a href="https://x.org">away</a> <img src="data:image/png;base64,AA">
      <a href="lite/x.html?p=1">lite</a> <a href="a/b.html#caf%C3%A9">é</a>
      <link rel="canonical" href="https://x.org/">"""
    found = faults(
        {
            "index.html": page,
            "a/b.html": '<p id="here"></p><p id="café"></p><a href="../index.html#top">back</a>',
            "a/index.html": "",
            "lite/x.html": '<a href="nowhere">not read</a>',
        }
    )
    assert found == []


@pytest.mark.parametrize(
    ("page", "fault"),
    [
        ('<a href="b.html">', "b.html leads nowhere"),
        ('<a href="index.html#there">', "index.html#there leads to no place on that page"),
        ('<a href="../index.html">', "../index.html leads nowhere"),
        ('<a href="/index.html">', "/index.html leads to the root of the host"),
        ('<img src="f.png">', "f.png leads nowhere"),
        ('<img src="data:," srcset="g.png 2x">', "g.png leads nowhere"),
        ('<script src="https://x.org/a.js">', "https://x.org/a.js is loaded from outside"),
        ('<script src="//x.org/a.js">', "//x.org/a.js is loaded from outside"),
        ('<link rel="stylesheet" href="http://x.org/a">', "http://x.org/a is loaded from outside"),
        ('<iframe src="https://x.org">', "https://x.org is loaded from outside"),
        ('<p style="background: url(b.png)">', "b.png leads nowhere"),
    ],
)
def test_a_fault_of_a_page_is_told(faults, page, fault):
    assert faults({"index.html": page}) == [f"index.html: {fault}"]


def test_a_style_sheet_loads_nothing_from_outside(faults):
    sheet = '@import "https://x.org/f"; a {background: url("b.png")} p {background: url(c.png)}'
    assert faults({"_static/a.css": sheet, "_static/c.png": ""}) == [
        "_static/a.css: https://x.org/f is loaded from outside",
        "_static/a.css: b.png leads nowhere",
    ]


# --- the folder ----------------------------------------------------------------------------------


def test_a_folder_with_something_else_is_left_alone(tmp_path, root):
    (tmp_path / "thesis.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(
        CourseError, match="holds something that is not a site built by this command"
    ):
        pages.check_folder(tmp_path)
    with pytest.raises(CourseError, match="should be a folder"):
        pages.check_folder(tmp_path / "thesis.txt")
    (tmp_path / pages.MARKER).touch()
    pages.check_folder(tmp_path)
    pages.check_folder(tmp_path / "new")


def test_the_command_says_what_is_wrong(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(settings, "find_spec", lambda name: None if name == "myst_nb" else name)
    assert cli.main(["site", "--out", str(tmp_path / "site")]) == cli.WRONG_INPUT
    said = capsys.readouterr().err
    assert said == (
        "course: the site is built by packages that are not installed (myst_nb); "
        "start it with: uv run --group site course site.\n"
    )
    assert not (tmp_path / "site").exists()


# --- the pages of the code -----------------------------------------------------------------------


def test_the_pages_of_the_code_leave_the_tasks_out():
    names = {floor.name: [path.stem for path in api.modules(floor)] for floor in api.FLOORS}
    assert names["engine"][:4] == ["gguf", "tokenizer", "cache", "llama"]
    assert {"fast", "kernels", "simd"} < set(names["engine"])
    assert {"judging", "deriving", "twins"} < set(names["exercises"])
    assert not [name for name in names["exercises"] if name.startswith("t0")]
    everything = [path for floor in api.FLOORS for path in api.modules(floor)]
    assert len(everything) == len(set(everything))


def test_a_floor_with_a_module_that_is_not_there_is_an_error():
    floor = api.Floor("core", "The core", "Words.", ("norm.py", "gone.py"))
    with pytest.raises(CourseError, match="the page of the core names gone.py: no such module"):
        api.modules(floor)


@pytest.mark.parametrize("letter", ["d", "H", "n", "ndarray", "d_ff", "(n", "H_kv"])
def test_letters_of_a_shape_are_no_classes(letter):
    assert not extension.CLASS.fullmatch(letter)
    assert extension.CLASS.fullmatch("lib.layer.LayerWeights")
    assert extension.CLASS.fullmatch("Cache")


# --- a small site --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small():
    """Build with one module of the code, so that it takes seconds."""
    try:
        settings.check_installed()
    except CourseError as error:
        pytest.skip(str(error))
    floor = api.Floor("core", "The core", "Words.", ("norm.py", "errors.py"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "FLOORS", (floor,))
        yield


REPOSITORY, ADDRESS = "https://github.com/Owner/name", "https://owner.github.io/name/"


def build(root, out, progress=None):
    with warnings.catch_warnings():
        # Sphinx's own extensions use what Sphinx will remove one day.
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        return pages.build_site(root, out, None, REPOSITORY, progress, with_lite=False)


@pytest.fixture(scope="module")
def site(small, root, tmp_path_factory):
    out = tmp_path_factory.mktemp("built") / "site"
    steps = []
    progress = pages.Progress(steps.append, steps.append, lambda: steps.append("advance"))
    assert build(root, out, progress) == out / "index.html"
    # Front page, installation, teachers, chapter, exercise, floor and two modules: read, written.
    assert steps[0] == 2 * 8
    assert steps.count("advance") == 2 * 8
    return out


def text_of(site, page):
    return (site / page).read_text(encoding="utf-8")


def test_the_pages_are_built_and_every_link_leads_somewhere(site):
    assert links.faults(site) == []
    assert {path.relative_to(site).as_posix() for path in site.rglob("*.html")} >= {
        "index.html",
        "notebooks/00_start_here.html",
        "exercises/01_one.html",
        "docs/teachers.html",
        "docs/install.html",
        "api/core.html",
        "api/lib.norm.html",
        "_modules/lib/norm.html",
        "search.html",
    }
    assert not (site / "solutions").exists()


def test_a_chapter_shows_figures_tables_and_no_widget(site, root):
    page = text_of(site, "notebooks/00_start_here.html")
    assert "<img" in page
    assert 'href="../exercises/01_one.html"' in page
    assert f'href="{REPOSITORY}/blob/HEAD/LICENSE"' in page
    assert "model_id" not in page
    assert r"\(e^{s_j}\)" in page  # for MathJax
    assert r"\((n, d)\)" in page  # in a table of an output
    assert "Run in the browser" not in page
    name = "notebooks/00_start_here.ipynb"
    assert (site / "download" / name).read_bytes() == (root / name).read_bytes()


def test_an_exercise_marks_the_cell_to_fill_in(site):
    page = text_of(site, "exercises/01_one.html")
    assert page.count("tag_answer") == 1
    assert "<details>" in page
    assert "<em>Think.</em>" in page


def test_docstrings_become_pages_with_links(site):
    page = text_of(site, "api/lib.norm.html")
    assert 'id="lib.norm.rms_norm"' in page
    assert 'href="lib.errors.html#lib.errors.CourseError"' in page
    assert "_rms_norm" in text_of(site, "_modules/lib/norm.html")  # the kernel, in the source


def test_indented_lines_of_the_readme_are_code(site):
    for page, code in {"index.html": "course lab", "docs/install.html": "conda activate"}.items():
        blocks = re.findall(r"<pre>(.*?)</pre>", text_of(site, page), re.DOTALL)
        assert code in [re.sub("<[^>]*>", "", block).strip() for block in blocks]


def test_search_knows_what_the_pages_say(site):
    index = text_of(site, "searchindex.js")
    assert "notebooks/00_start_here" in index
    assert "teacher" in index


def test_mathematics_needs_no_network(site):
    page = text_of(site, "notebooks/00_start_here.html")
    assert f"_static/mathjax/{settings.MATHJAX}" in page
    fonts = site / "_static" / "mathjax" / "output" / "chtml" / "fonts"
    assert len(list(fonts.rglob("*.woff"))) > 20


def test_a_lost_reader_finds_the_front_page_from_any_folder(site):
    page = text_of(site, "404.html")
    assert f'<a href="{ADDRESS}">' in page
    # Nothing is seen from the folder that was asked for.
    assert not re.findall(r'(?:src|href)="(?!https:|data:)', page)


def test_the_sitemap_lists_the_pages_that_a_reader_opens(site):
    listed = re.findall(r"<loc>(.*?)</loc>", text_of(site, "sitemap.xml"))
    assert {ADDRESS, f"{ADDRESS}notebooks/00_start_here.html"} <= set(listed)
    for place in listed:
        assert (site / (place.removeprefix(ADDRESS) or "index.html")).is_file()
    assert not [p for p in listed if re.search("404|search|_modules|_static", p)]


def test_a_link_to_a_page_shows_the_figure_of_the_course_with_its_words(site):
    page = text_of(site, "notebooks/00_start_here.html")
    assert f'content="{ADDRESS}{extras.SOCIAL}" property="og:image"' in page
    (words,) = re.findall(r'<meta content="([^"]*)" property="og:image:alt"', page)
    assert words == extras.way_of_a_text().in_words()
    picture = (site / extras.SOCIAL).read_bytes()
    width, height = (int.from_bytes(picture[k : k + 4], "big") for k in (16, 20))
    assert (width, height) > (1000, 600)


def test_the_script_of_icons_holds_those_that_are_used(site):
    script = text_of(site, extras.ICONS)
    kept = {icon[1] for icon in extras.ICON.finditer(script)}
    assert {"magnifying-glass", "download", "moon", "sun", "bars", "arrow-up"} <= kept
    assert "dragon" not in kept
    assert len(script) < 150_000


@pytest.mark.parametrize(
    ("repository", "address"),
    [
        (REPOSITORY, ADDRESS),
        ("https://github.com/Owner/owner.github.io", "https://owner.github.io/"),
        ("https://host.example/owner/name", ""),
        ("", ""),
    ],
)
def test_where_the_site_will_be(repository, address):
    assert extras.address_of(repository) == address
    assert bool(extras.social(address)) == bool(address)


def test_a_fault_in_a_notebook_is_told_with_its_cell(tmp_path):
    warning = f"{tmp_path / 'notebooks' / '01_x.ipynb'}:120003: WARNING: bad"
    told = pages._readable(warning, tmp_path).replace("\\", "/")
    assert told == "notebooks/01_x.ipynb, cell 12, line 3: WARNING: bad"


def test_a_fault_stops_the_build_and_keeps_the_old_site(site, root, tmp_path):
    course = tmp_path / "course"
    shutil.copytree(root, course)
    (course / "docs" / "teachers.md").write_text(
        "# For teachers\n\n[up](#gone)\n", encoding="utf-8"
    )
    before = text_of(site, "docs/teachers.html")
    with pytest.raises(CourseError, match=r"(?s)the site has faults, and is not written:.*gone"):
        build(course, site)
    assert text_of(site, "docs/teachers.html") == before
    assert [path.name for path in site.parent.iterdir()] == ["site"]


@pytest.mark.parametrize("number", ["01", "02", "03"])
def test_an_exercise_on_the_site_shows_its_questions_and_no_answer(number):
    root = Path(__file__).parents[2]
    (path,) = (root / "exercises").glob(f"{number}_*.ipynb")
    notebook = notebooks.read_notebook(path)
    assert not any(cell.get("outputs") for cell in notebook.cells)
    sources.show_questions(notebook, root / "solutions" / path.name)
    shown = [cell for cell in notebook.cells if cell.get("outputs")]
    if number == "02":  # its texts are Markdown
        lists = [cell.source for cell in notebook.cells if cell.id == "02-roles-statements"]
        assert lists[0].count("**") == 14
    else:
        assert len(shown) > 3
    assert not [c for c in shown if "-answer" in c.id or "-check" in c.id]
    text = json.dumps([c.outputs for c in shown], ensure_ascii=False)
    assert ": right." not in text
    if number == "01":
        assert "Divide each score by" in text or "divide" in text.lower()


def test_what_stands_beside_the_view_of_a_widget_is_shown():
    view = {notebooks.WIDGET_VIEW: {"model_id": "7"}, "text/plain": "OrderList()"}
    outputs = [
        new_output("display_data", dict(view)),
        new_output("display_data", view | {"text/html": "<ul><li>A</li></ul>"}),
    ]
    notebook = new_notebook(cells=[new_code_cell("order", outputs=outputs)])
    (shown,) = sources.prepare(notebook, "exercises/01.ipynb", None).cells[0].outputs
    assert set(shown.data) == {"text/plain", "text/html"}


def test_words_of_a_stored_figure_are_those_of_the_page():
    picture = new_output("display_data", {"image/png": "iVBORw0KGgo="})
    picture.metadata = {"image/png": {"alt": "it rises"}}
    notebook = new_notebook(cells=[new_code_cell("draw()", outputs=[picture])])
    made = sources.prepare(notebook, "notebooks/00.ipynb", None)
    assert made.cells[0].metadata["mystnb"] == {"image": {"alt": "it rises"}}
