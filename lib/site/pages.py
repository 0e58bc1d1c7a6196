"""Build the static site: pages by Sphinx, JupyterLite beside them, and every link followed.

A site is built beside its place and moved there when all is well. What stood there stays until
then, and is touched only if it is a site that was built here.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lib.errors import CourseError, ModelError
from lib.site import extras, launchable, links, lite
from lib.site.settings import MATHJAX_PARTS, check_installed, mathjax_folder, settings
from lib.site.sources import Course, lay_out

MARKER = ".left-context-site"
LITE, DOWNLOADS = "lite", "download"
MANY = 20  # faults that are told


@dataclass(frozen=True)
class Progress:
    """Whom the build tells how far it is.

    Parameters
    ----------
    total : callable
        ``total(steps)`` is called when the number of steps is known.
    begin : callable
        ``begin(words)`` is called when something else begins.
    advance : callable
        Called after each step.
    say : callable
        ``say(sentence)`` is called with what the builder should know.
    """

    total: Callable[[int], object] = lambda steps: None
    begin: Callable[[str], object] = lambda words: None
    advance: Callable[[], object] = lambda: None
    say: Callable[[str], object] = lambda sentence: None


def build_site(
    root: Path,
    out: Path,
    pyodide: Path | None = None,
    repository: str = "",
    progress: Progress | None = None,
    with_lite: bool = True,
) -> Path:
    """Build the site of a course.

    Parameters
    ----------
    root : Path
        The folder of the course.
    out : Path
        The folder of the site: one that does not exist, is empty, or is such a site.
    pyodide : Path, optional
        A folder with Pyodide; its public address is used if there is none.
    repository : str
        The address of the repository, for links to files that are no pages.
    progress : Progress, optional
    with_lite : bool
        Whether JupyterLite is built beside the pages. Without it no button runs a notebook.

    Returns
    -------
    Path
        The front page.

    Raises
    ------
    CourseError
        A package is missing, the folder holds something else, or the course has a fault, such as
        a link that leads nowhere.
    """
    progress = progress or Progress()
    check_installed()
    if with_lite:
        lite.check_installed("site")
    if pyodide is not None:
        lite.check_pyodide(pyodide)
    check_folder(out)
    course = Course(root, repository.rstrip("/"))
    out = out.resolve()
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as workshop:
        site = Path(workshop, "site")
        kernels = lite.make_kernels(Path(workshop, "kernels"), progress.say) if with_lite else None
        launch = _launch(course, kernels is not None) if with_lite else {}
        _build_pages(course, Path(workshop), launch, progress)
        _add_notebooks(course, site)
        extras.cut_icons(site)
        extras.add(site, extras.address_of(course.repository))
        if with_lite:
            step = _step(progress)
            lite.build_lite(site / LITE, pyodide, step, root, "../index.html", kernels)
        progress.begin("links")
        _refuse(links.faults(site, skip=(LITE,)))
        (site / MARKER).write_text("A site built by `course site`.\n", encoding="utf-8")
        _put(site, out)
    return out / "index.html"


def check_folder(out: Path) -> None:
    """Refuse to write where something stands that is not a site built here.

    Raises
    ------
    CourseError
    """
    if out.is_dir():
        if (out / MARKER).is_file() or not any(out.iterdir()):
            return
        raise CourseError(
            f"--out: {out} holds something that is not a site built by this command; "
            "name another folder, or empty that one yourself"
        )
    if out.exists() or out.is_symlink():
        raise CourseError(f"--out should be a folder; {out} is something else")


def _launch(course: Course, model: bool) -> dict[str, tuple[str, str]]:
    """Return for each page that runs in a browser where it opens there, and how far it runs."""
    return {
        path.relative_to(course.root).with_suffix("").as_posix(): (
            f"{LITE}/{launchable.address(path, course.root)}",
            word,
        )
        for path, word in launchable.launchable(course.root, model).items()
    }


def _front_buttons(launch: dict[str, tuple[str, str]]) -> dict[str, str]:
    """Return what the front page runs in the browser: words, and where they lead."""
    buttons = {}
    if any(word == launchable.MODEL for _, word in launch.values()):
        buttons["Type a sentence: the model writes on"] = f"{LITE}/{lite.SPEAKER}/index.html"
    first = next((address for page, (address, _) in launch.items() if "/01_" in page), "")
    return buttons | ({"Run chapter 1 in the browser": first} if first else {})


def _build_pages(
    course: Course, workshop: Path, launch: dict[str, tuple[str, str]], progress: Progress
) -> None:
    """Lay out the sources and let Sphinx make pages of them."""
    sources = workshop / "sources"
    static = workshop / "static" / "mathjax"
    lay_out(course, sources, _front_buttons(launch), _live(static.parent, progress))
    for part in MATHJAX_PARTS:
        _copy(mathjax_folder() / part, static / part)
    chosen = settings(launch, extras.address_of(course.repository))
    chosen["html_static_path"] = [*chosen["html_static_path"], str(static.parent)]
    _run_sphinx(sources, workshop, chosen, progress)


def _live(static: Path, progress: Progress) -> str:
    """Store what the model makes of some sentences; return the place where a page shows it."""
    from lib.engine.llama import load_model
    from lib.site import live

    try:
        found = live.numbers(load_model())
    except ModelError as error:
        progress.say(f"The front page does without the model. {error}")
        return ""
    static.mkdir(parents=True, exist_ok=True)
    (static / "live-data.js").write_text(live.script(found), encoding="utf-8")
    return live.PLACE


def _run_sphinx(sources: Path, workshop: Path, chosen: dict, progress: Progress) -> None:
    """Let Sphinx build; any warning of it is an error."""
    from sphinx.application import Sphinx
    from sphinx.errors import SphinxError
    from sphinx.util.docutils import docutils_namespace, patch_docutils

    warnings = io.StringIO()
    try:
        with patch_docutils(None), docutils_namespace():
            app = Sphinx(
                srcdir=sources, confdir=None, outdir=workshop / "site",
                doctreedir=workshop / "doctrees", buildername="html",
                confoverrides=chosen, status=None, warning=warnings,
            )  # fmt: skip
            _show(app, progress)
            app.build(force_all=True)
    except SphinxError as error:
        raise CourseError(f"Sphinx could not build the site: {error}") from None
    lines = re.sub(r"\x1b\[[\d;]*m", "", warnings.getvalue()).splitlines()
    _refuse([_readable(line, sources) for line in lines if line.strip()])


def _readable(warning: str, sources: Path) -> str:
    """Return a warning of Sphinx with places as a writer of the course knows them."""
    text = warning.replace(f"{sources}{os.sep}", "")
    # MyST-NB counts the lines of cell 7 from 70000.
    return re.sub(
        r"\.ipynb:(\d+)(\d{4}):", lambda m: f".ipynb, cell {m[1]}, line {int(m[2])}:", text
    )


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


def _show(app, progress: Progress) -> None:
    """Count each page twice: when it has been read, and when it is written."""

    def begin(_, env, names) -> None:
        beside = lite.STEPS if app.config.course_launch else 0
        progress.total(2 * len(env.found_docs) + beside)

    def read(_, name, content) -> None:
        progress.begin(f"reading {name}")
        progress.advance()

    def write(_, name, *others) -> None:
        progress.begin(f"writing {name}")
        if name in app.env.found_docs:
            progress.advance()

    app.connect("env-before-read-docs", begin)
    app.connect("source-read", read)
    app.connect("html-page-context", write)


def _step(progress: Progress) -> Callable[[str], None]:
    def step(words: str) -> None:
        progress.begin(words)
        progress.advance()

    return step


def _add_notebooks(course: Course, site: Path) -> None:
    """Put the notebooks as they are beside the pages, to be downloaded."""
    for name in (*course.chapters, *course.exercises):
        _copy(course.root / name, site / DOWNLOADS / name)


def _refuse(found: list[str]) -> None:
    if found:
        more = f"\n    and {len(found) - MANY} more" if len(found) > MANY else ""
        listed = "\n    ".join(found[:MANY])
        raise CourseError(f"the site has faults, and is not written:\n    {listed}{more}")


def _put(site: Path, out: Path) -> None:
    """Move a finished site to its place; an older one makes room."""
    if out.exists():
        shutil.rmtree(out)
    site.replace(out)
