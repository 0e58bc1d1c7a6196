"""What this installation has and what it lacks, as data: for `course doctor` and chapter 00.

Each check is a function that returns one `Finding`. None of them stops at what is missing, and
none needs the package that it looks for.
"""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

from lib.errors import CourseError

OK, NOTE, MISSING = "ok", "note", "missing"
OLDEST_PYTHON = (3, 11)
MODEL_BYTES = 1_000_000_000  # weights as float32 (0.54 GB), their file, and the interpreter
GB = 1e9

# Packages that the chapters import, beside those with a row of their own.
PACKAGES = (
    "matplotlib",
    "ipywidgets",
    "anywidget",
    "ipykernel",
    "nbclient",
    "gguf",
    "tokenizers",
    "jinja2",
)

# Features that decide how fast a kernel can be, by the names that LLVM gives them.
FEATURES = {
    "avx2": "AVX2",
    "fma": "FMA",
    "f16c": "F16C",
    "avx512f": "AVX-512",
    "avx512vnni": "AVX-512 VNNI",
    "avxvnni": "AVX-VNNI",
    "neon": "NEON",
    "dotprod": "DOTPROD",
    "i8mm": "I8MM",
}


@dataclass(frozen=True)
class Finding:
    """One line of the examination."""

    name: str
    status: str  # "ok", "note": the course runs, but …, or "missing": it can't run
    value: str  # what was found, without paths, so that it may stand in a stored output
    advice: str = ""  # what to do, or what follows
    place: str = ""  # the path of what was found


def examine() -> list[Finding]:
    """Examine the installation.

    Returns
    -------
    list of Finding
        In a fixed order, one for each check.
    """
    checks: tuple[Callable[[], Finding], ...] = (
        _python,
        _numpy,
        _numba,
        _threads,
        _kernel_cache,
        _processor,
        _memory,
        _packages,
        _jupyterlab,
        _kernel,
        _notebooks,
        _model,
    )
    return [check() for check in checks]


def can_run(findings: Iterable[Finding]) -> bool:
    """Tell whether the course runs: nothing that it needs is missing."""
    return all(finding.status != MISSING for finding in findings)


def report(findings: Iterable[Finding] | None = None) -> str:
    """Return the findings as a table in Markdown, without paths.

    Parameters
    ----------
    findings : iterable of Finding, optional
        What `examine` returned; examined anew by default.
    """
    rows = ["| what | status | found | what to do |", "|---|---|---|---|"]
    for finding in examine() if findings is None else findings:
        cells = (finding.name, finding.status, finding.value, finding.advice)
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)


def _in_browser() -> bool:
    return sys.platform == "emscripten"


def _version(package: str) -> str | None:
    """Return the version of an installed package without importing it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _python() -> Finding:
    version = platform.python_version()
    if sys.version_info[:2] >= OLDEST_PYTHON:
        return Finding("Python", OK, version, place=sys.executable)
    oldest = ".".join(map(str, OLDEST_PYTHON))
    advice = f"install Python {oldest} or later; `uv run course lab` does so by itself"
    return Finding("Python", MISSING, version, advice, sys.executable)


def _numpy() -> Finding:
    return _package("NumPy", MISSING)


def _package(name: str, status: str) -> Finding:
    """Look for a package; `status` is what it means that it is missing."""
    if version := _version(name.lower()):
        return Finding(name, OK, version)
    return Finding(name, status, "not installed", _install([name.lower()]))


def _numba() -> Finding:
    from lib import jit

    version = _version("numba")
    if jit.NUMBA and not jit.COMPILES:
        advice = "loops run as plain Python, very slowly; unset NUMBA_DISABLE_JIT"
        return Finding("Numba", NOTE, f"{version}, with its compiler (JIT) switched off", advice)
    if jit.NUMBA:
        return Finding("Numba", OK, version or "installed")
    slower = "the course runs its NumPy definitions, slower"
    if _in_browser():
        return Finding("Numba", NOTE, "not in a browser", slower)
    if version is None:
        return Finding("Numba", NOTE, "not installed", f"{slower}; `pip install numba` mends it")
    pair = f"{version} does not load beside NumPy {_version('numpy')}"
    return Finding("Numba", NOTE, pair, f"{slower}; `pip install -U numba` may mend it")


def _threads() -> Finding:
    from lib import jit

    if not jit.NUMBA:
        cores = os.cpu_count() or 1
        return Finding("Threads", OK, f"{cores} processor cores; Numba's threads are not in use")
    count = f"{jit.numba.get_num_threads()} threads"
    if (layer := _threading_layer(jit.numba.config)) is None:
        advice = "parallel kernels can't run; unset NUMBA_THREADING_LAYER"
        return Finding("Threads", NOTE, f"{count}, no threading layer", advice)
    return Finding("Threads", OK, f"{count}, layer {layer}")


def _threading_layer(config: object) -> str | None:
    """Return the layer that Numba's first parallel kernel will take: its first that loads.

    Numba itself knows only after such a kernel has run; importing a pool starts no thread.
    """
    pools = {"tbb": "tbbpool", "omp": "omppool", "workqueue": "workqueue"}
    asked = config.THREADING_LAYER
    for layer in [asked] if asked in pools else config.THREADING_LAYER_PRIORITY:
        try:
            importlib.import_module(f"numba.np.ufunc.{pools[layer]}")
            return layer
        except ImportError:
            continue
    return None


def _kernel_cache() -> Finding:
    from lib import jit

    name = "Kernel cache"
    if not jit.NUMBA:
        return Finding(name, OK, "not needed without Numba")
    try:
        importlib.import_module("lib.stack")  # decorating a kernel is what looks for the cache
        importlib.import_module("lib.attention")
    except ImportError as error:
        return Finding(name, NOTE, f"not examined: {error}")
    if jit.cache_is_writable():
        return Finding(name, OK, "writable")
    advice = (
        "kernels are compiled anew at each start, which takes some seconds; "
        "set NUMBA_CACHE_DIR to a folder that can be written"
    )
    return Finding(name, NOTE, "not writable", advice)


def _processor() -> Finding:
    machine = platform.machine() or "unknown"
    try:
        from llvmlite import binding
    except (ImportError, OSError):
        return Finding("Processor", OK, f"{machine}; its features show once Numba is installed")
    found = binding.get_host_cpu_features()
    features = [label for name, label in FEATURES.items() if found.get(name)]
    value = f"{machine} ({binding.get_host_cpu_name()}): {', '.join(features) or 'no vectors'}"
    return Finding("Processor", OK, value)


def _memory() -> Finding:
    try:
        import psutil

        memory = psutil.virtual_memory()
    except (ImportError, OSError):
        return Finding("Memory", OK, "unknown, for want of psutil")
    value = f"{memory.available / GB:.1f} of {memory.total / GB:.1f} GB free"
    if memory.available >= MODEL_BYTES:
        return Finding("Memory", OK, value)
    advice = f"the real model wants about {MODEL_BYTES / GB:.0f} GB; close other programs first"
    return Finding("Memory", NOTE, value, advice)


def _packages() -> Finding:
    absent = [package for package in PACKAGES if util.find_spec(package) is None]
    if not absent:
        return Finding("Packages", OK, ", ".join(PACKAGES))
    status = NOTE if _in_browser() else MISSING
    return Finding("Packages", status, f"{', '.join(absent)} not installed", _install(absent))


def _install(packages: Iterable[str]) -> str:
    return f"`pip install {' '.join(packages)}`"


def _jupyterlab() -> Finding:
    return _package("JupyterLab", NOTE if _in_browser() else MISSING)


def _kernel() -> Finding:
    """Find the Python that JupyterLab starts for a notebook: the kernel called `python3`."""
    name = "Kernel"
    try:
        from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

        spec = KernelSpecManager().get_kernel_spec("python3")
    except (ImportError, OSError, ValueError) as error:
        return Finding(name, NOTE, f"not examined: {error}")
    except NoSuchKernel:
        return Finding(name, OK, "this Python")  # JupyterLab then offers its own
    started = shutil.which(spec.argv[0]) or spec.argv[0]
    if spec.argv[0] == "python" or Path(started).resolve() == Path(sys.executable).resolve():
        return Finding(name, OK, "this Python")
    advice = (
        "notebooks would run there, and it may lack the course; "
        "`jupyter kernelspec remove python3` takes it away"
    )
    return Finding(
        name, NOTE, "python3 is another Python", advice, f"{spec.argv[0]}, by {spec.resource_dir}"
    )


def _notebooks() -> Finding:
    from lib import notebooks

    try:
        root = notebooks.find_root()
    except CourseError:
        advice = "change to the folder of the course, the one that holds `notebooks`"
        return Finding("Chapters", MISSING, "not found", advice)
    return Finding("Chapters", OK, "found", place=str(root / notebooks.FOLDER))


def _model() -> Finding:

    try:
        from lib.engine import gguf

        path: Path = gguf.find_model()
    except CourseError as error:
        status = NOTE if _in_browser() else MISSING
        return Finding("Model", status, "not found", str(error))
    except ImportError as error:
        return Finding("Model", NOTE, f"not examined: {error}")
    size = f"{path.stat().st_size / 1e6:.0f} MB"
    return Finding("Model", OK, f"{path.name}, {size}", place=str(path))
