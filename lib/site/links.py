"""Read the pages as they were built: every link leads somewhere, nothing is loaded from outside."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# What a browser fetches by itself, as opposed to what it follows when asked.
LOADED = {
    "img",
    "script",
    "iframe",
    "video",
    "audio",
    "source",
    "embed",
    "track",
    "input",
    "object",
}
FETCHING = {"stylesheet", "icon", "preload", "modulepreload", "prefetch", "manifest", "shortcut"}
TEMPLATES = "_static/"  # the theme leaves some of its own here, which nobody opens
CSS_URL = re.compile(r"""url\(\s*['"]?([^'")]+)['"]?\s*\)|@import\s+['"]([^'"]+)['"]""")


@dataclass
class Page:
    """What a page refers to.

    Parameters
    ----------
    anchors : set of str
        The places in it that a link can lead to.
    references : list of (str, bool)
        Addresses; whether the browser loads them without being asked.
    """

    anchors: set[str] = field(default_factory=set)
    references: list[tuple[str, bool]] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.page.anchors |= {given[name] for name in ("id", "name") if name in given}
        loaded = tag in LOADED
        if tag == "link":
            loaded = bool(FETCHING & set(given.get("rel", "").lower().split()))
        for name in ("href", "src", "data", "poster", "xlink:href"):
            if given.get(name) and not (name == "data" and tag != "object"):
                self.page.references.append((given[name], loaded))
        for place in given.get("srcset", "").split(","):
            if place.strip():
                self.page.references.append((place.split()[0], True))
        for place in _in_css(given.get("style", "")):
            self.page.references.append((place, True))


def _in_css(text: str) -> list[str]:
    return [first or second for first, second in CSS_URL.findall(text)]


def read_page(text: str) -> Page:
    """Return what an HTML page refers to, and where in it a link can lead."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    return reader.page


def faults(site: Path, skip: tuple[str, ...] = ()) -> list[str]:
    """Return a sentence on each link of a site that leads nowhere or loads from outside.

    Parameters
    ----------
    site : Path
        The folder of the site.
    skip : tuple of str
        Folders in it whose pages are not read; links into them are.
    """
    paths = [path for path in sorted(site.rglob("*")) if path.is_file()]
    files = {path.relative_to(site).as_posix(): path for path in paths}
    pages = {}
    for name, path in files.items():
        if name.split("/")[0] in skip:
            continue
        if path.suffix == ".html" and not name.startswith(TEMPLATES):
            pages[name] = read_page(path.read_text(encoding="utf-8"))
        elif path.suffix == ".css":
            places = _in_css(path.read_text(encoding="utf-8"))
            pages[name] = Page(references=[(place, True) for place in places])
    return [
        f"{name}: {fault}"
        for name, page in pages.items()
        for address, loaded in dict.fromkeys(page.references)
        if (fault := _fault(address, loaded, name, pages, files.keys()))
    ]


def _fault(
    address: str, loaded: bool, page: str, pages: dict[str, Page], files: Collection[str]
) -> str:
    """Return what is wrong with an address on a page, or nothing."""
    parts = urlsplit(address.strip())
    if parts.scheme in ("data", "javascript", "mailto", "blob"):
        return ""
    if parts.scheme or parts.netloc:
        return f"{address} is loaded from outside" if loaded else ""
    if parts.path.startswith("/"):  # the site may stand in a folder of its host
        return f"{address} leads to the root of the host"
    place = posixpath.join(posixpath.dirname(page), unquote(parts.path))
    if place.endswith("/"):
        place += "index.html"
    target = posixpath.normpath(place) if parts.path else page
    if target not in files:
        return f"{address} leads nowhere"
    if parts.fragment and target in pages and not _has(pages[target], parts.fragment):
        return f"{address} leads to no place on that page"
    return ""


def _has(page: Page, fragment: str) -> bool:
    return fragment in page.anchors or unquote(fragment) in page.anchors
