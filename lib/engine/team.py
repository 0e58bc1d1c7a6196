"""Threads that walk through one kernel together.

Numba's own parallel loops start and end a team for each loop, 200 times a token, and one of its
two portable layers ends the process when two Python threads use it. Here plain Python threads
call the same compiled function, which lets go of Python's lock, and meet inside it.
"""

import math
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from lib.errors import CourseError
from lib.wasm import BROWSER


class Team:
    """A number of threads, the caller's among them.

    Parameters
    ----------
    threads : int, optional
        By default one for each processor that this process may use, at most 8.

    Raises
    ------
    CourseError
        If the number is not a whole number of at least 1.
    """

    def __init__(self, threads: int | None = None):
        if threads is None or BROWSER:
            threads = 1 if BROWSER else min(usable_processors(), 8)
        if type(threads) is not int or threads < 1:
            raise CourseError(f"threads should be a whole number of at least 1; it is {threads!r}")
        self.threads = threads
        self.turn = threading.RLock()  # held by the Python thread that is using the engine
        self._process = None
        self._pool: Any = None

    def run(self, kernel: Callable, counters: int, *arguments) -> None:
        """Call `kernel(thread, threads, sync, *arguments)` on all threads at once.

        `sync` is an int64 array of `counters` zeros. A second Python thread that calls waits
        until the first is done; one that also writes what the kernel reads holds `turn` for it.
        """
        with self.turn:
            self._start()
            sync = np.zeros(counters, np.int64)
            try:
                others = [
                    self._pool.submit(kernel, thread, self.threads, sync, *arguments)
                    for thread in range(1, self.threads)
                ]
                kernel(0, self.threads, sync, *arguments)
                for other in others:
                    other.result()
            except BaseException:  # an interrupt, perhaps while others were started
                sync[0] = np.iinfo(np.int64).max // 2  # nobody waits for this thread
                self._pool.shutdown()
                self._process = None
                raise

    def _start(self):
        """Start the other threads; in a forked process anew, since threads don't survive a fork."""
        if self._process != os.getpid():
            self._process = os.getpid()
            self._pool = Pool(max(1, self.threads - 1), "engine")


class Alone:
    """In the place of a pool of threads where none can be started, in a browser."""

    def __init__(self, *_):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def map(self, function, things):
        """Call the function for one thing after the other."""
        return map(function, things)


Pool = Alone if BROWSER else ThreadPoolExecutor


def usable_processors() -> int:
    """Return the number of processors that this process may run on.

    A container may have a share of the machine's processors: its quota counts too.
    """
    try:
        allowed = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS and Windows don't say
        allowed = os.cpu_count() or 1
    return max(1, math.ceil(min(allowed, _quota())))


def _quota(root: Path = Path("/sys/fs/cgroup"), mine: Path = Path("/proc/self/cgroup")) -> float:
    """Return the processors' worth of time that Linux's control groups allow, or infinity.

    The kernel's documents cgroup-v2 (cpu.max) and sched-bwc (cpu.cfs_quota_us). A group has no
    more than those above it.
    """
    try:
        lines = mine.read_text(encoding="utf-8").splitlines()
    except OSError:
        return math.inf
    quota = math.inf
    for _, controllers, path in (line.split(":", 2) for line in lines if line.count(":") >= 2):
        if controllers and "cpu" not in controllers.split(","):
            continue
        tops = [root / controllers, root / "cpu"] if controllers else [root, root / "unified"]
        below = [part for part in Path(path).parts if part not in ("/", "..")]
        for top in tops:  # in a container its own group may be seen as the top
            for depth in range(len(below) + 1):
                quota = min(quota, _quota_of(top.joinpath(*below[:depth])))
    return quota


def _quota_of(group: Path) -> float:
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            words = " ".join((group / name).read_text(encoding="utf-8") for name in names).split()
            return int(words[0]) / int(words[1]) if int(words[0]) > 0 else math.inf
        except (OSError, ValueError, IndexError, ZeroDivisionError):
            continue  # not there, or "max"
    return math.inf
