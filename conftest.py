"""What every test shares: a kernel cache of its own, and the list of the chapters that were run."""

import os
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import pytest

_CACHE = "NUMBA_CACHE_DIR"


def pytest_configure(config):
    # Numba's cache knows a kernel's own file, not the files of the kernels that it calls: an old
    # cache could hide a mistake. Workers and notebook kernels inherit the variable.
    if not hasattr(config, "workerinput"):
        config.kernel_cache = os.environ[_CACHE] = tempfile.mkdtemp(prefix="left-context-")
        if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
            # Dozens of processes import the same packages. What one has compiled serves the others.
            os.environ["PYTHONPYCACHEPREFIX"] = str(Path(config.kernel_cache, "bytecode"))
        # Two processes share the cores. Threads of one that wait for those of the other would make
        # matrix products many times slower than one thread each.
        for library in ("OPENBLAS", "OMP", "MKL"):
            os.environ.setdefault(f"{library}_NUM_THREADS", "1")


def pytest_collection_modifyitems(items):
    if interpreted():  # Python warns of what compiled code passes over: 1e30 · 1e30 is ∞
        for item in items:
            item.add_marker(pytest.mark.filterwarnings("ignore::RuntimeWarning"))


def interpreted():
    """Tell whether kernels run as plain Python, by NUMBA_DISABLE_JIT=1: `.ci/weekly coverage`."""
    return os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")


@pytest.fixture(scope="session")
def compiled():
    """What needs compiled kernels asks for this."""
    if interpreted():
        pytest.skip("it asks what compiled kernels do, or so much that Python takes minutes")


def pytest_unconfigure(config):
    if cache := getattr(config, "kernel_cache", None):
        shutil.rmtree(cache, ignore_errors=True)


def pytest_terminal_summary(terminalreporter):
    cells, failed = Counter(), Counter()
    for outcome in ("passed", "failed", "error"):
        for report in terminalreporter.stats.get(outcome, []):
            path = getattr(report, "nodeid", "").split("::")[0]
            if path.endswith(".ipynb"):
                cells[path] += 1
                failed[path] += outcome != "passed"
    if cells:
        terminalreporter.section("notebooks run, cell by cell")
        for path in sorted(cells):
            verdict = f"{failed[path]} FAILED" if failed[path] else "all as stored"
            terminalreporter.write_line(f"{path}: {cells[path]} cells, {verdict}")


@pytest.fixture(scope="session")
def root():
    return Path(__file__).parent
