"""What a site has beside its pages: a picture for links to it, a page for lost readers, a sitemap.

By hand, as each is a few lines, where `sphinx-sitemap` and `sphinxext-opengraph` would be packages.
"""

from __future__ import annotations

import re
from pathlib import Path
from xml.sax.saxutils import escape

from lib.lab.figures.overview import way_of_a_text
from lib.lab.widgets import png

SOCIAL = "social.png"
ICONS = Path("_static", "scripts", "fontawesome.js")
# An icon as Font Awesome writes it: its name, sizes, other names, number, and one path or two.
ICON = re.compile(
    r'"?([\w-]+)"?:\[\d+,\d+,\[([^\]]*)\],"[0-9a-f]+",(?:"[^"]*"|\["[^"]*","[^"]*"\])\],?'
)
LOST = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<link rel="icon" href="data:,">
<title>Page not found · Left Context</title>
<style>
:root { color-scheme: light dark; font: 1.1rem/1.5 system-ui, sans-serif; }
main { margin: 15vh auto; max-width: 32rem; padding: 0 1.5rem; }
</style>
</head>
<body>
<main>
<h1>There is no such page</h1>
<p>It may have moved. <a href="{home}">The front page</a> lists all chapters and exercises.</p>
</main>
</body>
</html>
"""


def address_of(repository: str) -> str:
    """Return where GitHub Pages shows the site of a repository; nothing for other hosts."""
    found = re.fullmatch(r"https://github\.com/([^/]+)/([^/]+)", repository)
    if not found:
        return ""
    host, name = f"{found[1].lower()}.github.io", found[2]
    return f"https://{host}/" if name.lower() == host else f"https://{host}/{name}/"


def social(address: str) -> dict[str, str]:
    """Return what a page says of the picture that a link to it shows; it needs a whole address."""
    if not address:
        return {}
    return {
        "property=og:image": address + SOCIAL,
        "property=og:image:alt": way_of_a_text().in_words(),
        "name=twitter:card": "summary_large_image",
    }


def add(site: Path, address: str) -> None:
    """Write the picture, the page for lost readers, and the sitemap if the address is known."""
    (site / SOCIAL).write_bytes(png(way_of_a_text()))
    # It is shown in whatever folder was asked for, so that only a whole address surely holds.
    (site / "404.html").write_text(
        LOST.replace("{home}", address or "index.html"), encoding="utf-8"
    )
    if address:
        names = (path.relative_to(site).as_posix() for path in sorted(site.rglob("*.html")))
        left_out = ("_", "lite/", "404.", "search.")
        entries = (
            f"<url><loc>{escape(address + name.removesuffix('index.html'))}</loc></url>\n"
            for name in names
            if not name.startswith(left_out)
        )
        space = "http://www.sitemaps.org/schemas/sitemap/0.9"
        text = f'<?xml version="1.0" encoding="utf-8"?>\n<urlset xmlns="{space}">\n'
        text += f"{''.join(entries)}</urlset>\n"
        (site / "sitemap.xml").write_text(text, encoding="utf-8")


def cut_icons(site: Path) -> None:
    """Leave in the theme's script of icons, of 1.5 MB, those that the pages use."""
    script = site / ICONS
    others = [p for p in site.rglob("*") if p.suffix in (".html", ".js") and p != script]
    used = {
        name
        for path in others
        for name in re.findall(r"\bfa-([a-z0-9-]+)", path.read_text(encoding="utf-8"))
    }

    def keep(icon: re.Match) -> str:
        names = {icon[1], *re.findall(r'"([^"]*)"', icon[2])}
        return icon[0] if names & used else ""

    text = ICON.sub(keep, script.read_text(encoding="utf-8"))
    script.write_text(text, encoding="utf-8")
    script.with_name(f"{script.name}.map").unlink(missing_ok=True)
