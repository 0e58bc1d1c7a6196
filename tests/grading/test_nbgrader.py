"""The exercises in nbgrader: generate, autograde, and the scores of three students.

nbgrader is no dependency of the course; without it this is skipped.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.exercises.making import ROOT, answered, put, solved

pytest.importorskip("nbgrader", reason="nbgrader is not installed")

HALF = {"one_query": 'attention_order = "D F E C A B"', "one_layer": "layer_order = ..."}
NONE = HALF | {"next_token": "stack_order = 7", "decoding_step": "raise SystemExit"}


@pytest.mark.timeout(600)
def test_three_students_get_what_they_earned(tmp_path):
    course = tmp_path / "course"
    (course / "source" / "first").mkdir(parents=True)
    shutil.copy(ROOT / "solutions" / "01_ordering.ipynb", course / "source" / "first")
    config = f"c = get_config()\nc.CourseDirectory.root = {str(course)!r}\n"
    (course / "nbgrader_config.py").write_text(config, encoding="utf-8")

    # It calls alembic by its name, and the kernel that it finds should be this environment's.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}

    def nbgrader(*arguments):
        command = [sys.executable, "-m", "nbgrader", *arguments]
        done = subprocess.run(
            command, cwd=course, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]

    nbgrader("generate_assignment", "first", "--create")
    released = (course / "release" / "first" / "01_ordering.ipynb").read_text(encoding="utf-8")
    assert "BEGIN SOLUTION" not in released
    assert "B A C E F D" not in released
    for name, notebook in {
        "right": solved("01"),
        "half": answered("01", **HALF),
        "wrong": answered("01", **NONE),
    }.items():
        put(course / "submitted" / name / "first" / "01_ordering.ipynb", notebook)
    nbgrader("autograde", "first")

    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as gradebook:
        scores = {
            name: gradebook.find_submission("first", name).score
            for name in ("right", "half", "wrong")
        }
    assert scores == {"right": 5, "half": 3, "wrong": 0}
