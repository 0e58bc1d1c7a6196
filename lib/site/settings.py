"""What Sphinx is told: the extensions, the theme, and what of MyST the notebooks use."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from lib.errors import CourseError
from lib.site.extras import social

STATIC = Path(__file__).resolve().parent / "static" / "pages"
MATHJAX = "tex-chtml-full.js"  # all of TeX in one file: nothing is loaded later but fonts
MATHJAX_PARTS = (MATHJAX, "output/chtml/fonts", "a11y", "sre")
NEEDED = ("sphinx", "myst_nb", "sphinx_book_theme", "sphinx-mathjax-offline")


def check_installed() -> None:
    """Refuse to begin where the packages are missing that build the site.

    Raises
    ------
    CourseError
    """
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise CourseError(
            f"the site is built by packages that are not installed ({', '.join(missing)}); "
            "start it with: uv run --group site course site"
        )


DESCRIPTION = (
    "A course on how a transformer runs, in Jupyter notebooks whose code is real: from attention "
    "on six tokens to a language model of 135 million parameters."
)


def mathjax_folder() -> Path:
    """Return the folder of MathJax in the package that carries it."""
    return Path(find_spec("sphinx-mathjax-offline").origin).parent / "static" / "mathjax"


def settings(launch: dict[str, tuple[str, str]], address: str = "") -> dict[str, object]:
    """Return the configuration of Sphinx.

    Parameters
    ----------
    launch : dict of str to tuple of str
        For each page that runs in a browser where it opens, relative to the site, and how far it
        runs there: ``"all"`` or ``"part"``.
    address : str
        Where the site will be, if that is known.
    """
    own = {"course_launch": launch, "html_baseurl": address}
    return _reading(social(address)) | _docstrings() | _looks() | own


def _reading(about_the_picture: dict[str, str]) -> dict[str, object]:
    return {
        "extensions": [
            "myst_nb",
            "sphinx.ext.autodoc",
            "sphinx.ext.napoleon",
            "sphinx.ext.viewcode",
            "sphinx.ext.mathjax",
            "sphinx_copybutton",
            "lib.site.extension",
        ],
        "project": "Left Context",
        "author": "",
        "copyright": "",
        "language": "en",
        "smartquotes_action": "D",  # dashes, and no other sign
        "nb_execution_mode": "off",  # the outputs are those that the tests have compared
        "nb_render_markdown_format": "myst",  # tables and mathematics in outputs
        "myst_enable_extensions": ["dollarmath", "amsmath"],
        "myst_heading_anchors": 4,
        "myst_html_meta": {
            "description": DESCRIPTION,
            "property=og:description": DESCRIPTION,
            "property=og:title": "Left Context",
            "property=og:type": "website",
            **about_the_picture,
        },
    }


def _docstrings() -> dict[str, object]:
    return {
        "default_role": "py:obj",  # `attend` in a docstring leads to it, and is code elsewhere
        "add_module_names": False,
        "autodoc_member_order": "bysource",
        "autodoc_typehints": "signature",
        "napoleon_google_docstring": False,
        "napoleon_use_rtype": False,
        "napoleon_use_ivar": True,
        "napoleon_custom_sections": [("Fields", "params_style")],  # those of a plain record
    }


def _looks() -> dict[str, object]:
    options = {
        "navbar_persistent": [],  # or a second search box stands there
        "navbar_end": [],
        "use_download_button": False,  # `lib.site.extension` offers the notebook itself
        "use_fullscreen_button": False,
        "show_navbar_depth": 1,
        "max_navbar_depth": 2,  # pages alone: their sections stand in the margin
        "show_toc_level": 2,
        "pygments_light_style": "github-light-high-contrast",
        "pygments_dark_style": "github-dark-high-contrast",
    }
    return {
        "html_theme": "sphinx_book_theme",
        "html_theme_options": options,
        "html_title": "Left Context",
        "html_favicon": str(STATIC / "favicon.svg"),
        "html_static_path": [str(STATIC)],
        "html_context": {"default_mode": "auto"},  # light or dark as the reader's system
        "html_css_files": ["course.css"],
        "html_js_files": ["spelling.js"],
        "html_use_index": False,  # search does what an index would
        "html_domain_indices": False,
        "html_copy_source": False,
        "html_show_sourcelink": False,
        "html_show_sphinx": False,
        "html_show_copyright": False,
        "mathjax_path": f"mathjax/{MATHJAX}",
        "mathjax3_config": {"options": {"menuOptions": {"settings": {"zoom": "DoubleClick"}}}},
    }
