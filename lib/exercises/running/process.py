"""The process in which the code of an answer runs: how it starts, what it may use, how it ends.

A reader's own code runs as the reader's; `lib.grading.confine` has a runner for code that nobody
trusts. Limits on memory, time, files and processes are set by the process itself before it runs a
line of an answer (`worker`).
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

LIB = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Limits:
    """What one process may use.

    Fields
    ------
    memory : int
        Bytes of its addresses. NumPy takes a quarter of this, Numba's compiler half.
    seconds : int
        Of processor time, over all tasks of a notebook.
    file_bytes : int
        Of one file that it writes.
    processes : bool
        Whether it may start others.
    """

    memory: int = 2 * 2**30
    seconds: int = 60
    file_bytes: int = 2**20
    processes: bool = False


class Process(subprocess.Popen):
    """A worker; its stdin and stdout carry the frames of `wire`."""

    home = ""  # a folder of its own, taken away when it ends

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
        super().__init__(
            command, stdin=pipe, stdout=pipe, stderr=nowhere, env=environment,
            cwd=str(worker_files()), start_new_session=True, bufsize=0,
        )  # fmt: skip


class Runner(Protocol):
    """Starts processes for answers."""

    @property
    def name(self) -> str:
        """What it is called; empty where it does not work on this machine."""
        ...

    def start(self, limits: Limits, numba: bool) -> Process:
        """Start a worker.

        Parameters
        ----------
        limits : Limits
        numba : bool
            Whether the code needs Numba. Without it the course's functions run their definitions,
            which are as right and need not be compiled.
        """
        ...


@dataclass(frozen=True)
class Trusted:
    """Runs code as that of the user, without a confinement."""

    name = "unconfined"

    def start(self, limits: Limits, numba: bool) -> Process:
        """Start a worker (see `Runner`)."""
        home = tempfile.mkdtemp(prefix="grading-")
        own = {"HOME": home, "TMPDIR": home, "NUMBA_CACHE_DIR": str(Path(home, "numba"))}
        variables = {**os.environ, **environment(), **own, "PATH": os.environ.get("PATH", "")}
        arguments = worker_arguments(worker_files(), limits, numba, home)
        process = Process([sys.executable, *arguments], variables)
        process.home = home
        return process


def worker_arguments(place: Path, limits: Limits, numba: bool, home: str) -> list[str]:
    """Return what Python is told to run, where the worker's files and its home lie there."""
    settings = asdict(limits) | {"numba": numba, "course": str(LIB.parent), "folder": home}
    return ["-s", "-B", str(place / "worker.py"), json.dumps(settings)]


def environment() -> dict[str, str]:
    """Return the variables that a worker needs, and all that a confined one has."""
    compiled = {"PYTHONPYCACHEPREFIX": sys.pycache_prefix} if sys.pycache_prefix else {}
    return {
        "HOME": "/tmp/home",
        "TMPDIR": "/tmp",
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "PYTHONUTF8": "1",
        "PYTHONSAFEPATH": "1",
        "MPLBACKEND": "Agg",
        "NUMBA_CACHE_DIR": "/tmp/home/numba",
        **{f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "OMP", "MKL", "NUMBA")},
        **compiled,
    }


@functools.cache
def worker_files() -> Path:
    """Return a folder that holds the worker's files and nothing else; everybody may read them."""
    folder = Path(tempfile.mkdtemp(prefix="grading-worker-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    here = Path(__file__).parent
    for path in (here / "worker.py", here / "wire.py", here.parent / "twins.py"):
        Path(shutil.copy(path, folder)).chmod(0o644)
    folder.chmod(0o755)
    return folder


def kill(process: subprocess.Popen) -> None:
    """End a worker and whatever it started."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, 9)
    process.kill()


def end(process: Process) -> None:
    """End a worker, wait for it, and take away what it left; `remote` closes its pipes."""
    kill(process)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(10)
    if process.home:
        shutil.rmtree(process.home, ignore_errors=True)
