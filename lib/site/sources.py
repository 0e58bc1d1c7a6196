"""Lay out what Sphinx reads: the files of the course in their own folders, with small changes.

The folders are those of the course, so that the links between its pages hold as they stand. A link
to a file that is no page of the site leads to the repository, where its address is known, and is
plain text elsewhere. A link to nothing is an error.
"""

from __future__ import annotations

import posixpath
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from lib import notebooks
from lib.errors import CourseError
from lib.exercises import deriving
from lib.site import api

if TYPE_CHECKING:
    from nbformat import NotebookNode

DOCS, ASSETS, README = "docs", "assets", "README.md"
INSTALL = "docs/install.md"  # made of sections of the README
ANSWER = "answer"  # the tag of the cells that a reader fills in
OWN_NAME = "the site of this repository"  # a paragraph that leads here is of no use here
ON_THE_MACHINE = ("The command `course`", "With conda", "When something fails")
LINK = re.compile(r"(?<!!)\[(?P<text>[^\[\]]+)\]\((?P<target>[^()\s]+)\)")
HERE = "In the folder of the course:"
PREFACE = """# On a machine of your own

The course runs on Linux, macOS and Windows, without a network once it is installed.
"""


@dataclass(frozen=True)
class Course:
    """A course whose pages are laid out.

    Parameters
    ----------
    root : Path
        The folder of the course.
    repository : str
        The address of the repository, or nothing.

    Raises
    ------
    CourseError
        The address is none.
    """

    root: Path
    repository: str = ""
    pages: frozenset[str] = field(init=False)  # files that become pages, relative to the root

    def __post_init__(self) -> None:
        if self.repository and not re.fullmatch(r"https?://[^/\s]+/\S+[^/\s]", self.repository):
            raise CourseError(
                "--repository should be an address such as https://HOST/OWNER/NAME; "
                f"it is {self.repository!r}"
            )
        found = [*self.chapters, *self.exercises, *self.docs]
        object.__setattr__(self, "pages", frozenset([README, *found]))

    @property
    def chapters(self) -> list[str]:
        """The chapters, in reading order."""
        return self._names(notebooks.chapters(self.root))

    @property
    def exercises(self) -> list[str]:
        """The exercises, in reading order."""
        return self._names(notebooks.chapters(self.root, notebooks.EXERCISES))

    @property
    def docs(self) -> list[str]:
        """The other texts."""
        return self._names(sorted((self.root / DOCS).glob("*.md")))

    def _names(self, paths: Iterable[Path]) -> list[str]:
        return [path.relative_to(self.root).as_posix() for path in paths]


def lay_out(
    course: Course, folder: Path, launch: dict[str, str] | None = None, live: str = ""
) -> list[str]:
    """Write the sources of all pages.

    Parameters
    ----------
    course : Course
    folder : Path
        Where they go; it is made.
    launch : dict of str to str, optional
        The front page's buttons that run something in the browser: their words and where they
        lead.
    live : str
        What stands on the front page before any text: HTML.

    Returns
    -------
    list of str
        The names of the pages, in reading order.

    Raises
    ------
    CourseError
        A file cannot be read, has a link that leads nowhere, or lacks a section that is needed.
    """
    if (course.root / ASSETS).is_dir():
        shutil.copytree(course.root / ASSETS, folder / ASSETS)
    for name in (*course.chapters, *course.exercises):
        notebook = notebooks.read_notebook(course.root / name)
        if name in course.exercises:
            show_questions(notebook, course.root / notebooks.SOLUTIONS / Path(name).name)
        notebook = prepare(notebook, name, course)
        _write(folder / name, notebooks.dump(notebook))
    for name in course.docs:
        _write(folder / name, relink(_read(course.root / name), name, course))
    readme = _read(course.root / README)
    _write(folder / INSTALL, relink(install_page(readme), README, course, folder=DOCS))
    trees = {
        "The chapters": course.chapters,
        "The exercises": course.exercises,
        "Around the course": [INSTALL, *course.docs],
        "The code": api.lay_out(folder),
    }
    front = relink(front_page(readme, launch, course.repository), README, course)
    title, rest = front.split("\n\n", 1)
    _write(folder / "index.md", f"{title}\n\n{live}\n{rest}{_contents(trees)}")
    return ["index", *(_bare(name) for names in trees.values() for name in names)]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CourseError(f"{path} cannot be read: {error}") from None


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")


def _bare(name: str) -> str:
    return name.removesuffix(".ipynb").removesuffix(".md").removesuffix(".rst")


# --- notebooks -----------------------------------------------------------------------------------


def show_questions(notebook: NotebookNode, solution: Path) -> None:
    """Give an exercise the outputs of those cells that ask, in place: steps, tables, readings.

    An exercise is stored without outputs. Its solution has them; those that depend on an answer
    are left out.

    Parameters
    ----------
    notebook : NotebookNode
    solution : Path
        Where there is none, the exercise stays as it is.
    """
    if not solution.exists():
        return
    solved = {cell.id: cell for cell in notebooks.read_notebook(solution).cells}
    mine = [cell for cell in notebook.cells if cell.cell_type == "code"]
    answered: set[str] = set()
    for cell in mine:
        if deriving.is_answer(cell):
            given = re.findall(r"(?m)^(?:def (\w+)|(\w+) *=)", solved[cell.id].source)
            answered |= {name for pair in given for name in pair if name}
            continue
        asks = cell.id in solved and not deriving.is_check(cell)
        if asks and not answered & set(re.findall(r"\w+", cell.source)):
            cell.outputs = solved[cell.id].outputs


def prepare(notebook: NotebookNode, name: str, course: Course) -> NotebookNode:
    """Make a notebook ready for the site, in place: links, answer cells, views of widgets.

    Parameters
    ----------
    notebook : NotebookNode
    name : str
        Its file, relative to the root of the course.
    course : Course
    """
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = relink(cell.source, name, course)
        elif cell.cell_type == "code":
            if cell.metadata.get("nbgrader", {}).get("solution"):
                cell.metadata["tags"] = [*cell.metadata.get("tags", []), ANSWER]
            cell.outputs = [output for output in cell.outputs if _shows_without_kernel(output)]
            if alts := [alt for output in cell.outputs if (alt := _alt(output))]:
                cell.metadata["mystnb"] = {"image": {"alt": " ".join(alts)}}
    notebook.metadata.pop("widgets", None)
    return notebook


def _shows_without_kernel(output: NotebookNode) -> bool:
    """Take the view of a widget out of an output, in place; tell whether something is left."""
    view = output.get("data", {}).pop(notebooks.WIDGET_VIEW, None)
    return not view or not set(output.data) <= {"text/plain"}


def _alt(output: NotebookNode) -> str:
    """Return what a figure shows in words, as it is stored with it."""
    return output.get("metadata", {}).get("image/png", {}).get("alt", "")


# --- links ---------------------------------------------------------------------------------------


def relink(text: str, name: str, course: Course, folder: str | None = None) -> str:
    """Return Markdown whose links hold on the site.

    Parameters
    ----------
    text : str
        Markdown.
    name : str
        The file in which it stands, relative to the root of the course.
    course : Course
    folder : str, optional
        That of the page, where it is not that of the file.

    Raises
    ------
    CourseError
        A link leads to a file that does not exist.
    """
    here = posixpath.dirname(name)

    def mend(link: re.Match) -> str:
        target, _, anchor = link["target"].partition("#")
        if not target or re.match(r"[a-z][a-z0-9+.-]*:", target):
            return link[0]
        file = posixpath.normpath(posixpath.join(here, target))
        if file.startswith("..") or not (course.root / file).exists():
            raise CourseError(f"{name}: the link to {link['target']} leads nowhere")
        place = _place(file, here if folder is None else folder, course)
        anchor = f"#{anchor}" if anchor else ""
        return f"[{link['text']}]({place}{anchor})" if place else link["text"]

    return LINK.sub(mend, text)


def _place(file: str, here: str, course: Course) -> str:
    """Return where a link to a file of the course leads on a page in `here`; perhaps nowhere."""
    if file in course.pages:
        return posixpath.relpath("index.md" if file == README else file, here or ".")
    kind = "tree" if (course.root / file).is_dir() else "blob"
    return f"{course.repository}/{kind}/HEAD/{file}" if course.repository else ""


# --- the README ----------------------------------------------------------------------------------


WAYS = "Ways through the course"  # the section of the README that the front page takes


def front_page(readme: str, launch: dict | None = None, repository: str = "") -> str:
    """Return the front page: what the README shows first, without what leads to the site.

    Parameters
    ----------
    readme : str
    launch, repository
        As for `lay_out` and `Course`.

    Raises
    ------
    CourseError
        The README lacks what the page is made of.
    """
    parts = sections(readme)
    paragraphs = [p for p in parts[""].split("\n\n") if OWN_NAME not in " ".join(p.split())]
    pictures = [k for k, paragraph in enumerate(paragraphs) if paragraph.startswith("![")]
    if not pictures:
        raise CourseError("README.md: the site needs a picture before the first section")
    opening, commands = paragraphs[: pictures[0] + 1], paragraphs[pictures[0] + 1 :]
    return "\n\n".join(
        [
            *opening,
            _buttons(launch, repository),
            _section(parts, WAYS),
            "## On a machine of your own",
            f"In a copy of [the repository]({repository}):" if repository else HERE,
            *commands,
            "",
        ]
    )


def _buttons(launch: dict[str, str] | None, repository: str) -> str:
    places = {
        "Begin with chapter 0": "notebooks/00_start_here.html",
        **(launch or {}),
        "The repository": repository,
    }
    buttons = (
        f'<a class="course-button" href="{place}">{text}</a>'
        for text, place in places.items()
        if place
    )
    return f'<p class="course-buttons">{"".join(buttons)}</p>'


def install_page(readme: str) -> str:
    """Return the page on an installation, from sections of the README.

    Raises
    ------
    CourseError
        The README lacks one of them.
    """
    parts = sections(readme)
    for title in ON_THE_MACHINE:
        if title not in parts:
            raise CourseError(f"README.md: the site needs a section “{title}”")
    return PREFACE + "".join(f"\n## {title}\n\n{parts[title]}\n" for title in ON_THE_MACHINE)


def sections(text: str) -> dict[str, str]:
    """Return the sections of Markdown by their titles; what comes before the first has none."""
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    # An indented line is code, so that blank lines go and blanks stay.
    return {"": parts[0].strip("\n")} | {
        title.strip(): body.strip("\n")
        for title, body in zip(parts[1::2], parts[2::2], strict=True)
    }


def _section(parts: dict[str, str], title: str) -> str:
    if not parts.get(title, "").strip():
        raise CourseError(f"README.md: the site needs a section “{title}”")
    return f"## {title}\n\n{parts[title].strip()}"


def _contents(trees: dict[str, list[str]]) -> str:
    """Return the table of contents of the site, as the theme's side bar shows it."""
    lines = []
    for caption, names in trees.items():
        if names:
            lines += ["", "```{toctree}", ":hidden:", f":caption: {caption}", ""]
            lines += [*(_bare(name) for name in names), "```"]
    return "\n".join([*lines, ""])
