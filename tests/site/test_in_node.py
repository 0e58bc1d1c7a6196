"""The course under Pyodide in Node: the real interpreter of a browser, without the browser."""

import subprocess
from pathlib import Path

import pytest

from lib.lab.installed import SENTENCE
from lib.site import wheels

HERE = Path(__file__).parent


@pytest.mark.slow
def test_the_course_runs_under_pyodide(pyodide, node, tmp_path):
    packed = wheels.pack_all(tmp_path)
    command = [node, HERE / "in_node.mjs", pyodide, HERE / "in_pyodide.py", *packed]
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, encoding="utf-8", timeout=400
    )
    assert done.returncode == 0, done.stderr[-2000:]
    core, drawn, refused, right, skipped, timed = done.stdout.splitlines()
    assert (core, drawn, skipped) == ("core", "widgets", SENTENCE)
    assert refused.startswith("Wrong: ")
    assert "step" in refused
    assert right.startswith("04.attend: right.")
    assert timed.startswith("Numba is not here")
