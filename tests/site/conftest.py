"""A folder with Pyodide for the tests that need one, and JupyterLite built with it."""

import os
import shutil
from pathlib import Path

import pytest

from tests.site.lite_page import expose

PLACE = "COURSE_PYODIDE"


@pytest.fixture(scope="session")
def pyodide():
    """Return the folder that `tests.site.make_pyodide` made, named in COURSE_PYODIDE."""
    folder = os.environ.get(PLACE)
    if not folder:
        pytest.skip(
            f"{PLACE} names no folder that python -m tests.site.make_pyodide made: no Pyodide"
        )
    return Path(folder)


@pytest.fixture(scope="session")
def node():
    """Return the program Node."""
    if (found := shutil.which("node")) is None:
        pytest.skip("node is not on the path: Pyodide is not run by itself")
    return found


@pytest.fixture(scope="session")
def built(pyodide, root, tmp_path_factory):
    """Return a folder with JupyterLite, whose pages the tests can drive."""
    pytest.importorskip("jupyterlite_core", reason="the group `site` is not installed")
    from lib.site.lite import build_lite

    folder = build_lite(tmp_path_factory.mktemp("site") / "lite", pyodide, root=root)
    expose(folder)
    return folder
