"""Contestants and their turns.

A contestant is a child process that waits on its standard input: one line is one turn, answered
with one line of JSON. Only the one whose turn it is works; two engines never share a process.
"""

from __future__ import annotations

import json
import os
import queue
import shlex
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

Answer = dict[str, Any]
PAUSE = 0.05  # seconds between turns, so that the threads of the last one have gone to sleep
_THREAD_VARIABLES = ("OMP", "OPENBLAS", "MKL", "NUMBA", "VECLIB")


class Lost(Exception):
    """A contestant gives no answer.

    The message says why, in a clause without paths; `detail` is what the contestant said itself.
    """

    def __init__(self, reason: str, detail: str = ""):
        super().__init__(reason)
        self.detail = detail


class Contestant(Protocol):
    """Who can be given a turn."""

    name: str

    def ask(self, case: Sequence[str], timeout: float, watch: bool = False) -> Answer:
        """Give one turn and return the answer.

        Parameters
        ----------
        case : sequence of str
            What to do, and its arguments.
        timeout : float
            Seconds until the contestant counts as hanging.
        watch : bool
            Whether to add the largest resident memory seen during the turn, as ``bytes``.

        Raises
        ------
        Lost
            The contestant died, hung, or answered with an error. It is closed then.
        """

    def close(self) -> None:
        """End it."""


class Fixed:
    """A number that needs no process, such as the size of a file."""

    def __init__(self, name: str, answer: Answer):
        self.name, self._answer = name, answer

    def ask(self, case: Sequence[str], timeout: float, watch: bool = False) -> Answer:
        """Return the answer that was given."""
        return dict(self._answer)

    def close(self) -> None:
        """Nothing runs."""


class Process:
    """A contestant that stays: it loads and warms up once, then waits for its turns.

    Parameters
    ----------
    name : str
        What it is called in words to the reader.
    command : sequence of str
        The script, and its Python.
    threads : int
        How many threads it may use; the libraries that ask the environment are told too.
    """

    def __init__(self, name: str, command: Sequence[str], threads: int):
        self.name = name
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed in `close`
        try:
            self._process = _start(name, command, threads, self._errors, stdin=subprocess.PIPE)
        except Lost:
            self._errors.close()
            raise
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        """Pass on what the child prints: a pipe on Windows can't be read with a time limit."""
        with self._process.stdout as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put(None)

    def ask(self, case: Sequence[str], timeout: float, watch: bool = False) -> Answer:
        """Give one turn and return the answer; see `Contestant`."""
        try:
            self._process.stdin.write(shlex.join(case) + "\n")
            self._process.stdin.flush()
            if watch:
                with _Watch(self._process.pid) as seen:
                    answer = self._answer(timeout)
                return answer | {"bytes": seen.peak}
            return self._answer(timeout)
        except OSError:
            raise self._died() from None
        except Lost:
            self.close()
            raise

    def _answer(self, timeout: float) -> Answer:
        end = time.monotonic() + timeout
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                raise Lost(f"{self.name} gave no answer within {timeout:g} s") from None
            if line is None:
                raise self._died()
            answer = _parse(line)
            if answer is None:  # a library had something to say
                continue
            if "error" in answer:
                raise Lost(f"{self.name} answered with an error", str(answer["error"]))
            return answer

    def _died(self) -> Lost:
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            code = None
        lost = Lost(f"{self.name} {_ended(code)}", _last_line(self._errors))
        self.close()
        return lost

    def close(self) -> None:
        """End the process, at once if it does not end by itself."""
        _end(self._process)
        self._errors.close()


class Start:
    """A contestant that is started anew for each turn, and timed until its first letter."""

    def __init__(self, name: str, command: Sequence[str], threads: int):
        self.name, self._command, self._threads = name, command, threads

    def ask(self, case: Sequence[str], timeout: float, watch: bool = False) -> Answer:
        """Start the process with the case as its arguments; answer the seconds to its first byte.

        Parameters and errors are those of `Contestant`.
        """
        command = [*self._command, *case]
        with tempfile.TemporaryFile() as errors:
            start = time.perf_counter()
            process = _start(self.name, command, self._threads, errors, text=False)
            hung = threading.Event()
            limit = threading.Timer(timeout, lambda: (hung.set(), process.kill()))
            limit.start()
            try:
                first = process.stdout.read(1)
                seconds = time.perf_counter() - start
                process.stdout.read()
                code = process.wait()
            finally:
                limit.cancel()
                _end(process)
            if hung.is_set():
                raise Lost(f"{self.name} did not end within {timeout:g} s")
            if code or not first:
                raise Lost(f"{self.name} {_ended(code)}", _last_line(errors))
        return {"seconds": seconds}

    def close(self) -> None:
        """Nothing runs between turns."""


def alternate(
    ours: Contestant,
    peer: Contestant,
    cases: tuple[Sequence[str], Sequence[str]],
    rounds: int,
    timeout: float,
    *,
    warm: bool = True,
    watch: bool = False,
    after_turn=lambda: None,
) -> list[tuple[Answer, Answer]]:
    """Give turns to two contestants: ours, peer, ours, peer, and so on.

    Parameters
    ----------
    ours, peer : Contestant
    cases : pair of sequences of str
        What each is asked.
    rounds : int
        Pairs of answers.
    timeout : float
        Seconds for one turn.
    warm : bool
        Whether each gets one turn before that does not count: to load, compile, fill caches.
    watch : bool
        Whether to watch the memory.
    after_turn : callable
        Called after each turn.

    Returns
    -------
    list of pairs
        One for each round.

    Raises
    ------
    Lost
        If one of the two gives no answer.
    """
    pairs = []
    for round_ in range(-warm, rounds):
        pair = []
        for contestant, case in zip((ours, peer), cases, strict=True):
            pair.append(contestant.ask(case, timeout, watch))
            time.sleep(PAUSE)
            after_turn()
        if round_ >= 0:
            pairs.append(tuple(pair))
    return pairs


def environment(threads: int, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a contestant: this one's, with its number of threads."""
    base = os.environ if base is None else base
    counts = {f"{library}_NUM_THREADS": str(threads) for library in _THREAD_VARIABLES}
    return {**base, **counts, "PYTHONUTF8": "1", "PYTHONUNBUFFERED": "1"}


class _Watch:
    """Look at the resident memory of a process and its children every few milliseconds."""

    def __init__(self, pid: int):
        import psutil

        self.peak = 0
        self._process, self._gone = psutil.Process(pid), psutil.Error
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        while True:
            try:  # a virtual environment's Python may be a child of its own launcher
                family = [self._process, *self._process.children(recursive=True)]
                self.peak = max(self.peak, sum(p.memory_info().rss for p in family))
            except self._gone:
                pass
            if self._done.wait(0.005):
                return

    def __enter__(self) -> _Watch:
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._done.set()
        self._thread.join()


def _start(name, command, threads, errors, *, stdin=subprocess.DEVNULL, text=True):
    words = {"text": True, "encoding": "utf-8", "errors": "replace"} if text else {}
    try:
        return subprocess.Popen(
            list(command),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment(threads),
            **words,
        )
    except OSError as error:
        raise Lost(f"{name} could not be started: {error.strerror}") from None


def _end(process: subprocess.Popen) -> None:
    if process.stdin:
        try:
            process.stdin.close()  # the end of its input: it leaves the loop by itself
            process.wait(timeout=2)
        except (OSError, subprocess.TimeoutExpired):
            pass
    if process.poll() is None:
        process.kill()
        process.wait()
    if process.stdout and not process.stdin:
        process.stdout.close()


def _parse(line: str) -> Answer | None:
    try:
        answer = json.loads(line)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def _ended(code: int | None) -> str:
    if code is None:
        return "closed its output and went on"
    if code < 0:
        return f"was ended by signal {-code}"
    return f"ended with code {code}"


def _last_line(errors) -> str:
    """Return the last line that names an error, as the end of a traceback does."""
    errors.seek(0)
    lines = errors.read().decode("utf-8", "replace").split("\n")
    said = [line.strip() for line in lines if "Error" in line and not line.startswith(" ")]
    return said[-1] if said else ""
