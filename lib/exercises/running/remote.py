"""Ask the process of an answer: a function in there is called as if it were here.

What comes back is plain arrays and numbers, checked by `wire`. Functions among the arguments stay
here and are run when the process asks for that; numbers that count stay here too, so that the work
of a kernel is counted where nobody can reach the count.
"""

from __future__ import annotations

import math
import operator
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, is_dataclass
from functools import partial
from typing import Any

import numpy as np

from lib.exercises import counting
from lib.exercises.building import Given
from lib.exercises.running import process as processes
from lib.exercises.running import wire
from lib.layer import LayerWeights

ASKED = 200_000  # times that a process may ask for something, for one task
GIVEN = 4_096  # numbers that a function of the judge's may be given at once
ELEMENTS = 5 * 10**5  # of all arrays that count, for one task
START = 60.0  # seconds that a process may take to start
WAIT = 4  # seconds by the clock for each one of processor time


class Gone(BaseException):
    """The process is no more. No `Exception`, so that nothing on the way takes it for an answer."""


class Session:
    """A process, and what it may know of the judge's objects.

    Reading and writing are done in threads: something that has left the process may hold its pipes
    for ever, and neither can be given up. Waiting for them can.

    Parameters
    ----------
    process : Process
    wait : float
        Seconds by the clock that an answer may take; `WAIT` times those of processor time if 0.
    """

    def __init__(self, process, wait: float = 0.0) -> None:
        self._process, self._wait = process, wait
        self._seconds = self._begun = self._used_before = 0.0
        self._next_look = math.inf  # when to see whether the time is over
        self._given: list[Given] = []
        self.counter: Counter | None = None
        self._asked = 0
        self._frames: queue.Queue = queue.Queue(maxsize=8)
        self._outgoing: queue.SimpleQueue = queue.SimpleQueue()
        for work in (self._read, self._write):
            threading.Thread(target=work, daemon=True).start()

    def _read(self) -> None:
        try:
            while True:
                self._frames.put(wire.frame(self._process.stdout))
        except (EOFError, OSError, ValueError, wire.WireError) as error:
            with suppress(queue.Full):
                self._frames.put(error, timeout=60)
        self._process.stdout.close()

    def _write(self) -> None:
        with suppress(OSError, ValueError):  # the process has ended, which reading shows
            while (body := self._outgoing.get()) is not None:
                wire.write(self._process.stdin, body)
        with suppress(OSError):
            self._process.stdin.close()

    def close(self) -> None:
        """End the process and all that it started."""
        self._outgoing.put(None)
        processes.end(self._process)

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Give what follows so many seconds of processor time, and `WAIT` times that by the clock.

        Then the process is ended, and `Gone` is raised. A busy machine takes nobody's time away.
        """
        self._asked, self._given = 0, []
        self._seconds, self._begun = seconds, time.monotonic()
        self._used_before = self._used() if seconds < START else 0.0
        self._next_look = self._begun + seconds
        try:
            yield
        finally:
            self._next_look = math.inf

    def _end_if_late(self) -> None:
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + 1
        late = now - self._begun >= (self._wait or WAIT * self._seconds)
        if late or self._used() - self._used_before >= 0.9 * self._seconds:
            processes.kill(self._process)
            raise Gone(f"it took longer than {self._seconds:g} s")

    def _used(self) -> float:
        """Return the seconds of processor time that the process has had so far."""
        import psutil  # which a browser lacks: there this module is imported and not used

        try:
            root = psutil.Process(self._process.pid)
            times = [one.cpu_times() for one in [root, *root.children(recursive=True)]]
        except psutil.Error:
            return 0.0
        return sum(t.user + t.system for t in times)

    def request(self, do: str, **arguments: object) -> dict:
        """Ask for something and return the answer; answer what is asked meanwhile.

        Raises
        ------
        Gone
            The process ended, was ended, or sent what is no answer.
        """
        try:
            self._send({"do": do, "with": arguments})
            while "ask" in (message := self._receive()):
                self._send(self._reply(message))
            return message
        except (EOFError, OSError, ValueError):
            raise Gone("its process ended before it had returned") from None
        except wire.WireError as error:
            processes.kill(self._process)
            raise Gone(f"it sent something that is no answer: {error}") from None

    def _send(self, message: dict) -> None:
        self._outgoing.put(wire.encode(message, self._sent))

    def _receive(self) -> dict:
        while True:
            self._end_if_late()
            with suppress(queue.Empty):
                came = self._frames.get(timeout=0.25)
                if isinstance(came, Exception):
                    raise came
                return wire.message_of(came, self._received)

    def wait_until_ready(self) -> dict:
        """Wait for the process's first word."""
        try:
            return self._receive()
        except (EOFError, OSError, ValueError, wire.WireError):
            raise Gone("its process did not start") from None

    def _reply(self, message: dict) -> dict:
        self._asked += 1
        if self._asked > ASKED:
            raise wire.WireError(f"more than {ASKED} questions")
        what, operands = message["ask"], message.get("operands", [])
        try:
            with np.errstate(all="ignore"):
                if what == "given":
                    key, *arguments = operands
                    if sum(np.size(one) for one in arguments) > GIVEN:
                        raise ValueError("so large arrays are not needed")
                    return {"value": self._given[key].function(*arguments)}
                if self.counter is None:
                    raise LookupError("nothing is counted")
                self.counter.listen(message.get("told", []))
                return {"value": self.counter.do(what, operands)}
        except Exception as error:
            return {"raised": [type(error).__name__, str(error)[:500]]}

    def _sent(self, value: object) -> tuple[str, object] | None:
        if isinstance(value, Given):
            if value not in self._given:
                self._given.append(value)
            return "Given", self._given.index(value)
        if isinstance(value, LayerWeights):
            return "Weights", dict(vars(value))
        return self.counter.sent(value) if self.counter else None

    def _received(self, tag: str, value: Any) -> object:
        if tag == "Given":
            return self._given[value]
        if tag == "slice":
            return slice(*value)
        if tag == "Weights":
            return value  # a dict
        if tag in ("Number", "Array"):
            return Key(value)
        raise wire.WireError(f"a {tag}")


# --- Functions -----------------------------------------------------------------------------------


class Function:
    """A function of the submission. Calling it calls it there, on copies.

    Parameters
    ----------
    session : Session
    name : str
    plainly : bool
        Call the Python source of a kernel, not what was compiled.
    """

    def __init__(self, session: Session, name: str, do: str = "call", plainly: bool = False):
        self._session, self._name = session, name
        self._do, self._more = do, {"plainly": plainly} if do == "call" else {}

    def __call__(self, *arguments: object) -> object:
        """Call it; arrays that it changed in place are changed here too."""
        reply = self._session.request(
            self._do, name=self._name, arguments=list(arguments), **self._more
        )
        if "raised" in reply:
            raise error_of(reply)
        for mine, theirs in zip(arguments, reply.get("after", arguments), strict=False):
            put_back(mine, theirs)
        return stand_in(reply.get("value"))

    def many(self, arguments: list[tuple]) -> list[object]:
        """Call it once for each tuple of arguments, and return all that came."""
        sets = [list(one) for one in arguments]
        reply = self._session.request("calls", name=self._name, arguments=sets)
        if "raised" in reply:
            raise error_of(reply)
        values = reply.get("value")
        if type(values) is not list or len(values) != len(arguments):
            raise Gone("it sent something that is no answer")
        return [stand_in(value) for value in values]


def error_of(reply: dict) -> Exception:
    """Return the exception that a reply tells of: of a class of the same name."""
    name, text = words_of(reply)
    return type(name, (Exception,), {})(text)


def words_of(reply: dict) -> tuple[str, str]:
    """Return the name and the text of the exception that a reply tells of."""
    told = reply.get("raised")
    told = [str(part)[:1000] for part in told] if isinstance(told, list) else []
    name, text = (*told, "", "")[:2]
    return name if name.isidentifier() else "Error", text


def put_back(mine: object, theirs: Any) -> None:
    """Change the arrays among the arguments as the process did."""
    if isinstance(mine, np.ndarray) and mine is not theirs:
        same = isinstance(theirs, np.ndarray) and theirs.shape == mine.shape
        mine[...] = theirs if same and theirs.dtype.kind in "biuf" else np.nan
    elif isinstance(mine, list) and isinstance(theirs, list):
        for one, other in zip(mine, theirs, strict=False):
            put_back(one, other)
        if len(mine) != len(theirs):
            mine[:] = theirs
    elif is_dataclass(mine) and isinstance(theirs, dict):
        for name, value in vars(mine).items():
            put_back(value, theirs.get(name))


def stand_in(value: object) -> object:
    """Return a value with an object of a class of the same name for each that did not pass."""
    if isinstance(value, list | tuple):
        return type(value)(stand_in(item) for item in value)
    if not isinstance(value, wire.Foreign):
        return value
    if value.kind == "dtype":
        return np.empty(0, object)
    name = value.name if value.name.isidentifier() else "object"
    if value.kind == "array":
        return np.empty(0).view(type(name, (np.ndarray,), {}))
    made = type(name, (), {"__next__": None} if value.kind == "iterator" else {})
    return made if value.kind == "class" else made()


# --- Counting ------------------------------------------------------------------------------------

_ARITHMETIC = {
    name: getattr(operator, name)
    for name in ("add", "sub", "mul", "truediv", "pow", "neg", "abs", "lt", "le", "gt", "ge", "eq",
                 "ne")
} | {"bool": bool}  # fmt: skip


@dataclass(frozen=True)
class Key:
    """What the process knows of a number or an array."""

    key: int


class Counter:
    """The numbers and arrays of a kernel whose work is counted; the process knows their keys alone.

    Parameters
    ----------
    tally : lib.exercises.counting.Tally
    """

    def __init__(self, tally: counting.Tally) -> None:
        self.tally, self._known, self._elements = tally, {}, 0
        self._things: dict[str, Callable] = {
            "nothing": lambda: None,
            "number": partial(counting.number, tally),
            "apply": partial(counting.apply, tally),
            "new": self._new,
            "transpose": lambda array: array.T,
            "get": lambda array, key: array[_place(key)],
            "set": lambda array, key, value: operator.setitem(array, _place(key), value),
        }

    def listen(self, told: list) -> None:
        """Do what the process has told, and keep each result under its key."""
        for what, key, *operands in told:
            if len(self._known) > ASKED:
                raise RuntimeError(f"it does more than {ASKED} things with numbers")
            self._known[key] = self.do(what, operands)

    def do(self, what: str, operands: list) -> object:
        """Do one thing that a kernel does with numbers and arrays, told by their keys."""
        operands = [self._known[x.key] if type(x) is Key else x for x in operands]
        if what in self._things:
            return self._things[what](*operands)
        if what not in _ARITHMETIC:
            raise ValueError(f"nothing is called {what}")
        kinds = (counting.Number, int, float, bool)
        if not all(type(x) in kinds or isinstance(x, np.number) for x in operands):
            raise TypeError("arithmetic on whole arrays hides a loop; write it out")
        # As floats: whole numbers of Python's may grow without end.
        return _ARITHMETIC[what](*(float(x) if type(x) is int else x for x in operands))

    def _new(self, shape: tuple, value: object) -> counting.Array:
        self._elements += math.prod(map(int, shape))
        if not 0 <= self._elements <= ELEMENTS:
            raise ValueError("so large an array is not needed")
        return counting.new(self.tally, shape, value)

    def sent(self, value: object) -> tuple[str, object] | None:
        """Return a tag, a key and a shape in place of an array."""
        if type(value) is counting.Array:
            key = len(self._known)
            self._known[key] = value
            return "Array", [key, *value.shape]
        return None


def _place(key: object) -> object:
    """Return the key of a place in an array: whole numbers, slices and what combines these."""
    for one in key if isinstance(key, tuple) else (key,):
        if not (type(one) in (int, slice) or one is ... or isinstance(one, np.integer)):
            raise IndexError("an element is asked for by whole numbers and slices")
    return key


def count(session: Session, name: str, right: Callable, arguments: dict) -> counting.Tally:
    """Run a kernel on numbers that are kept here, and return the tally.

    Parameters
    ----------
    session : Session
    name : str
        Of the kernel.
    right : callable
        ``right(values)`` is given what the kernel has written into its last argument, flat, and
        raises where that is not what it should be.
    arguments : dict
        As in `lib.exercises.counting.counted`.
    """
    tally = counting.Tally()
    given = [counting.counting(key, value, tally) for key, value in arguments.items()]
    session.counter = Counter(tally)
    try:
        reply = session.request("count", name=name, arguments=given)
        if "raised" in reply:
            raise error_of(reply)
        with np.errstate(all="ignore"):
            session.counter.listen(reply.get("told", []))
    finally:
        session.counter = None
    right(given[-1].values)
    return tally
