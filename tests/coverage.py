"""Branch coverage of `lib` by tests that compare values: `python -m tests.coverage`.

What Numba compiles no tracer can see, so the kernels run as plain Python (NUMBA_DISABLE_JIT=1), on
tiny shapes; tests that ask for the fixture `compiled` are skipped. What writes instructions for
the compiler, in `lib/engine/simd.py`, runs when something is compiled: a second run with
compilation on counts for that file. Processes that the tests start are measured too, but for
those that are confined. Without the group `site` the files of `lib/site` count as not run. Ends
with code 2 below the share that pyproject.toml asks for.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
# What is run: whether compilation is on, and the tests.
RUNS = {
    "kernels in Python": ("1", ["tests"]),
    "vectors for the compiler": ("0", ["tests/engine/test_simd.py", "tests/test_jit.py"]),
}
# A browser and other machines: no values of `lib` are compared.
LEFT_OUT = ["tests/browser", "tests/machines"]


def run(disabled, tests, data):
    """Run tests under coverage and return the exit code of pytest."""
    environment = os.environ | {
        "NUMBA_DISABLE_JIT": disabled,
        "OPENBLAS_NUM_THREADS": "1",
        "COVERAGE_FILE": str(data),
    }
    ignored = [f"--ignore={name}" for name in LEFT_OUT]
    options = ["-q", "-n0", "-p", "no:cacheprovider", "--timeout=0", "-m", "not slow", *ignored]
    command = [sys.executable, "-m", "coverage", "run", "-m", "pytest", *options, *tests]
    return subprocess.run(command, cwd=ROOT, env=environment).returncode


def main():
    """Run what is to be run, and report; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.coverage", description=__doc__)
    parser.add_argument("tests", nargs="*", help="only these, with compilation off")
    parser.add_argument("--html", metavar="DIR", help="write pages with the lines marked")
    given = parser.parse_args()
    start, failed = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="coverage-") as folder:
        data = Path(folder, "data")
        runs = {"as asked": ("1", given.tests)} if given.tests else RUNS
        for name, (disabled, tests) in runs.items():
            print(f"--- {name}", flush=True)
            failed |= run(disabled, tests, data)
        tool = [sys.executable, "-m", "coverage"]
        environment = os.environ | {"COVERAGE_FILE": str(data)}
        subprocess.run([*tool, "combine", "--quiet"], cwd=ROOT, env=environment, check=True)
        if given.html:
            subprocess.run([*tool, "html", "--quiet", "-d", given.html], cwd=ROOT, env=environment)
        code = subprocess.run([*tool, "report"], cwd=ROOT, env=environment).returncode
    print(f"{(time.monotonic() - start) / 60:.1f} minutes")
    return code or failed


if __name__ == "__main__":
    sys.exit(main())
