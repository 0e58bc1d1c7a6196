"""Make it fast: a kernel is judged by its values, by the work it did, and by whether it compiled.

The work is counted, never timed: see `lib.exercises.counting`. Values and work come of the kernel's
Python source; only a kernel that holds there is compiled.
"""

import contextlib
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from lib import attention
from lib.exercises.building import TOLERANCE, Building, plain
from lib.exercises.counting import counted
from lib.exercises.judging import Malformed, NotRight, Unanswered, Wrong
from lib.jit import NUMBA, source_of

LEFTOVER = 5.0  # what stands in the arrays that a kernel writes to, before it does


@dataclass(frozen=True)
class Limit:
    """How much of one kind of work a kernel may do.

    Fields
    ------
    words : str
        What is counted, such as ``"exponentials"``.
    measure : callable
        ``measure(tally)`` returns how much was done.
    needed, allowed : int
        What the result needs; what is let pass, as there is more than one good way.
    remark : str
        What a loop that does more could do instead.
    """

    words: str
    measure: Callable
    needed: int
    allowed: int
    remark: str


@dataclass(frozen=True)
class Kernel:
    """A kernel to write: it reads some arrays, and writes its result into the last one it gets.

    Fields
    ------
    values : Building
        The ladder of inputs; its parameters are the arrays that are read.
    buffers : dict
        For each array that is written to, ``buffers[name](*inputs)`` returns its shape. The result
        is the last.
    inputs : tuple of ndarray, float32
        What the work is counted on.
    sizes : str
        Their sizes, in words.
    limits : tuple of Limit
    order : callable, optional
        ``order(tally)`` returns a sentence on reads in a wrong order, or nothing.
    """

    values: Building
    buffers: dict
    inputs: tuple
    sizes: str
    limits: tuple[Limit, ...]
    order: Callable = lambda tally: ""
    counted: tuple = ()

    @property
    def name(self):
        """What the reader's kernel is called."""
        return self.values.name

    @property
    def form(self):
        """What an answer looks like."""
        parameters = ", ".join([*self.values.parameters, *self.buffers])
        return f"a function {self.name}({parameters}) under @kernel, with your loops as its body"

    def judge(self, function):
        """Judge values, work, compilation, in this order; raise `NotRight`, or say what holds."""
        source = source_of(function)
        if not isinstance(source, types.FunctionType):
            raise self.malformed(type(function).__name__)

        def compiled(*arguments):
            function(*arguments)
            return bool(function.nopython_signatures)

        of_numba = _compiles() and type(function) is type(attention._attend)
        return self.judge_parts(source, partial(counted, source), compiled if of_numba else None)

    def malformed(self, kind):
        """Return what to raise for an answer of another type, of this name."""
        return Malformed(f"the answer should be {self.form}; it is of type {kind}.")

    def judge_parts(self, source, count, compiled):
        """Judge a kernel of which each part may run elsewhere.

        Parameters
        ----------
        source : callable
            The kernel in plain Python.
        count : callable
            ``count(arguments)`` runs it on numbers that count, and returns the tally.
        compiled : callable or None
            The compiled kernel; it tells whether it was compiled. None where it is plain Python.
        """
        self._check_writes(source)
        self.values.judge(self._returning(source))
        tally = self._judge_work(count)
        self._judge_compiled(compiled)
        return (
            f"Right values, with {tally.done['multiply-adds']} multiply-adds and "
            f"{tally.done['exponentials']} exponentials on {self.sizes}."
            + ("" if NUMBA else " Numba is not here, so it was not compiled.")
        )

    def _buffers(self, inputs, value=LEFTOVER):
        return [np.full(shape(*inputs), value, np.float32) for shape in self.buffers.values()]

    def _returning(self, source):
        """Return the kernel as a function that returns what the kernel wrote."""

        def attend(*inputs):
            buffers = self._buffers(inputs)
            source(*inputs, *buffers)
            return buffers[-1]

        return attend

    def _check_writes(self, source):
        result = list(self.buffers)[-1]
        for value in (0.0, LEFTOVER):  # two, as a sum into what was there changes only one of them
            buffers = self._buffers(self.inputs, value)
            try:
                with _quiet():
                    returned = source(*(array.copy() for array in self.inputs), *buffers)
            except (Exception, SystemExit):
                return  # the ladder says which input, and what happened
            if not (buffers[-1] == value).all():
                return
        if returned is not None and returned is not ...:
            raise Wrong(
                f"{self.name} returns a result; it should write it into {result}, element by "
                "element, and return nothing."
            )
        raise Unanswered(f"{self.name} writes nothing into {result} yet.")

    def _judge_work(self, count):
        inputs = self.counted or self.inputs
        arrays = [array.copy() for array in (*inputs, *self._buffers(inputs))]
        names = [*self.values.parameters, *self.buffers]
        try:
            with _quiet():
                tally = count(dict(zip(names, arrays, strict=True)))
        except NotRight:
            raise
        except (Exception, SystemExit) as error:
            raise Malformed(
                f"{self.name} gives the right values, but its work cannot be counted: "
                f"{type(error).__name__}: {error}. Write each sum as a loop over single numbers."
            ) from None
        for limit in self.limits:
            if limit.measure(tally) > limit.allowed:
                raise Wrong(self._report(limit.remark, tally))
        if fault := self.order(tally):
            raise Wrong(self._report(fault, tally))
        return tally

    def _report(self, remark, tally):
        lines = [
            f"    {limit.words}: {limit.measure(tally)} done, {limit.needed} needed"
            for limit in self.limits
        ]
        head = f"{self.name} gives the right values, but does more than it has to. {remark}"
        return "\n".join([head, f"Counted on {self.sizes}:", *lines])

    def _judge_compiled(self, compiled):
        if not _compiles():
            return
        if compiled is None:
            raise Wrong(
                f"{self.name} gives the right values with little work, but it is plain Python. "
                f"Put @kernel on a line of its own above “def {self.name}”."
            )
        buffers = self._buffers(self.inputs)
        try:
            with _quiet():
                done = compiled(*(array.copy() for array in self.inputs), *buffers)
        except (Exception, SystemExit) as error:
            raise Wrong(
                f"{self.name} runs as plain Python, but does not compile: {_brief(error)}"
            ) from None
        expected = self.values.definition(*self.inputs)
        gap = np.abs(plain(buffers[-1]) - expected).max()
        if not done or not gap <= TOLERANCE * max(1, np.abs(expected).max()):
            raise Wrong(f"{self.name}, compiled, does not give what it gives as plain Python.")


def _compiles():
    """Tell whether `@kernel` compiles here: not without Numba, nor with NUMBA_DISABLE_JIT=1."""
    return NUMBA and not isinstance(attention._attend, types.FunctionType)


@contextlib.contextmanager
def _quiet():
    """Values and work are judged, not warnings on the way."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def _brief(error):
    """Return the lines of a compiler's message that name the fault."""
    lines = [line.strip() for line in str(error).splitlines()]
    lines = [line for line in lines if line and not line.startswith(("Failed in", "^", "File"))]
    return " ".join(lines[:3])
