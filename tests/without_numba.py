"""The core and the judging as they run in a browser: on a Python that has no Numba.

    python -m tests.without_numba [PYTEST ARGUMENTS]

As a plugin of pytest (`-p tests.without_numba`) this module hides Numba before anything imports it.
"""

import re
import subprocess
import sys
from pathlib import Path

HIDDEN = ("numba", "llvmlite")
# The core, and all known answers to the exercises.
TESTS = (
    *(f"tests/test_{name}.py" for name in ("attention", "ffn", "norm", "rope", "layer", "stack")),
    "tests/exercises/test_answers.py",
)


def pytest_configure():
    """Hide Numba; pytest calls this before it collects."""
    for name in HIDDEN:
        sys.modules[name] = None


def pytest_collection_modifyitems(config, items):
    """Leave out what a browser lacks too: the real model, and whether a kernel compiled."""
    left_out = [item for item in items if re.search(r"\[0[36]\.real_|not compiled\]$", item.name)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def run(*arguments):
    """Run the tests in a fresh Python without Numba, and return what became of the process."""
    options = ["-q", "-p", "tests.without_numba", "-p", "no:cacheprovider", "-p", "no:nbval"]
    command = [sys.executable, "-m", "pytest", *options, "-o", "addopts=", *TESTS, *arguments]
    root = Path(__file__).parent.parent
    return subprocess.run(command, cwd=root, capture_output=True, text=True, encoding="utf-8")


if __name__ == "__main__":
    done = run(*sys.argv[1:])
    print(done.stdout, done.stderr, sep="\n", end="")
    sys.exit(done.returncode)
