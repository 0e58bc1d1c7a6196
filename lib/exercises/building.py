"""Build it yourself: the reader's function against the definition, one mechanism at a time.

The inputs form a ladder. Each rung isolates one mechanism: one token tests the values alone, equal
keys test the mean, wide vectors test the scale. The first rung that fails names the mechanism, and
shows the input, what was expected and what came. What the reader's function returns is turned into
plain numbers before anything looks at it.
"""

import copy
import dataclasses
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from lib.exercises.judging import Malformed, Unanswered, Wrong, listed

# float32 keeps seven digits. An answer in float32 passes, and the closest mistake that a rung is
# meant for, the tanh form of GELU, is still fifty times further away.
TOLERANCE = 1e-5
EMPTY_BODY = "its body is still empty, or lacks a return"


@dataclass(frozen=True)
class Given:
    """A function among the arguments, with words that say what it does."""

    words: str
    function: Callable

    def __call__(self, *arguments):
        """Do what the words say."""
        return self.function(*arguments)


def _once(call, *arguments):
    return call(*arguments)


@dataclass(frozen=True)
class Rung:
    """An input that isolates one mechanism.

    Fields
    ------
    mechanism : str
        Its name, fit to follow “fails at”.
    meaning : str
        What the input leaves over, and so what must come out: one or two sentences.
    arguments : tuple
        Arrays, numbers, lists of these, weights of a layer, or `Given` functions.
    run : callable, optional
        ``run(call, *arguments)`` calls the function and returns what is compared.
    part : str, optional
        What that is, where it is not all that the function returned.
    tolerance : float
        Relative to the largest number expected, and to 1 where all are smaller.
    """

    mechanism: str
    meaning: str
    arguments: tuple
    run: Callable = _once
    part: str = ""
    tolerance: float = TOLERANCE


@dataclass(frozen=True)
class Building:
    """A function to build.

    Fields
    ------
    name : str
        What the reader's function is called.
    parameters : tuple of str
    definition : callable
        The right function, in float64; it returns an array, or a tuple of them.
    rungs : tuple of Rung
        In the order in which the earliest cause is named first.
    results : tuple of str
        Names of what is returned, where it is more than one array.
    """

    name: str
    parameters: tuple[str, ...]
    definition: Callable
    rungs: tuple[Rung, ...]
    results: tuple[str, ...] = ()

    @property
    def form(self):
        """What an answer looks like."""
        return f"a function {self.name}({', '.join(self.parameters)}), with your code as its body"

    def judge(self, function) -> str:
        """Climb the ladder; raise `NotRight` at the first rung that fails, or say what holds."""
        self._check_is_function(function)
        for number, rung in enumerate(self.rungs):
            expected = map(np.asarray, _parts(rung.run(self.definition, *rung.arguments)))
            call = partial(self._call, function, number)
            came = _parts(rung.run(call, *copy.deepcopy(rung.arguments)))
            for k, (got, want) in enumerate(zip(came, expected, strict=True)):
                if not _close(got, want, rung.tolerance):
                    raise Wrong(
                        self._report(number, rung.arguments, *self._compare(rung, k, got, want))
                    )
        return f"It holds at {_semicolons(self.rungs)}."

    def _check_is_function(self, function):
        kind = type(function)
        if kind in (np.ndarray, list, float, int) or isinstance(function, np.generic):
            raise Malformed(
                f"the answer should be the function {self.name} itself; it is what a function "
                f"returned, of type {kind.__name__}. Hand it over by its name, without calling it."
            )
        if isinstance(function, type) or not callable(function):
            is_class = isinstance(function, type)
            what = f"the class {function.__name__}" if is_class else f"of type {kind.__name__}"
            raise Malformed(f"the answer should be {self.form}; it is {what}.")

    def _call(self, function, number, *arguments):
        """Call the reader's function on copies; return plain float64 arrays of the right shapes."""
        expected = self.definition(*arguments)
        given = copy.deepcopy(arguments)
        returned = self._run(function, number, given, arguments)
        for parameter, before, after in zip(self.parameters, arguments, given, strict=True):
            if not _same(before, after):
                fault = f"{self.name} changes its argument {parameter} in place; work on a copy"
                raise Wrong(self._report(number, arguments, head=f"{fault}. The input was:"))
        parts = [
            self._shaped(number, arguments, name, self._plain(name, part), np.shape(want))
            for name, part, want in zip(
                self.results or ("",), self._split(returned), _parts(expected), strict=True
            )
        ]
        return tuple(parts) if self.results else parts[0]

    def _run(self, function, number, given, arguments):
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")  # values are judged, not warnings on the way
                return function(*given)
        except (Exception, SystemExit) as error:
            said = f"{self.name} raises {type(error).__name__}: {error}"
            raise Wrong(self._report(number, arguments, head=f"{said}. The input was:")) from None

    def _split(self, returned):
        """Return the parts of what came; there is one where `results` is empty."""
        if returned is None or returned is ...:
            raise Unanswered(f"{self.name} returns nothing yet: {EMPTY_BODY}.")
        if not self.results:
            return [returned]
        if type(returned) not in (tuple, list) or len(returned) != len(self.results):
            raise Malformed(
                f"{self.name} should return {len(self.results)} things, {', '.join(self.results)}; "
                f"it returns {_kind(returned)}."
            )
        return list(returned)

    def _plain(self, name, value):
        try:
            return plain(value)
        except Malformed as fault:
            where = f" as {name}" if name else ""
            raise Malformed(f"{self.name} returns {fault}{where}.") from None

    def _shaped(self, number, arguments, name, array, shape):
        if array.shape != shape:
            what = name or "the result"
            line = f"{what} should have shape {shape}; it has shape {array.shape}"
            raise Wrong(self._report(number, arguments, line))
        return array

    def _compare(self, rung, k, got, want):
        what = rung.part or (self.results[k] if self.results else "")
        of = f" ({what})" if what else ""
        lines = [_line(f"expected{of} = ", want), _line(f"came{of} = ", got)]
        return [*lines, *_remarks(got, want)]

    def _report(self, number, arguments, *lines, head=""):
        """Return the message: mechanism and meaning, what held before, the input, the evidence."""
        rung = self.rungs[number]
        top = [head or f"{self.name} fails at {rung.mechanism}. {rung.meaning}"]
        if number and not head:
            top.append(f"Right so far: {_semicolons(self.rungs[:number])}.")
        given = zip(self.parameters, arguments, strict=True)
        return "\n".join([*top, *(_line(f"{name} = ", value) for name, value in given), *lines])


def plain(value):
    """Return what a function returned as a float64 array of type ndarray, without trusting it.

    Real numbers, arrays of them, and lists or tuples of these, nested as one likes.

    Raises
    ------
    Malformed
        Anything else, in words that fit between “returns” and a full stop.
    """
    if type(value) in (list, tuple):
        rows = [plain(item) for item in value]
        if len({row.shape for row in rows}) > 1:
            raise Malformed("a list whose rows differ in length")
        return np.array(rows, np.float64)
    if type(value) in (float, int):
        return np.array(value, np.float64)
    if type(value) is not np.ndarray and type(value) not in np.sctypeDict.values():
        raise Malformed(_kind(value))
    array = np.array(value)
    if array.dtype.kind == "c":
        raise Malformed("complex numbers, where real ones are expected")
    if array.dtype.kind not in "fiu":
        raise Malformed(f"an array of dtype {array.dtype}, where float64 or float32 is expected")
    if array.dtype == np.float16:
        raise Malformed("float16, which keeps only three digits")
    return array.astype(np.float64)


def numbers(seed, *shape):
    """Return signed numbers of two decimals: short to print, and without any symmetry."""
    return np.random.default_rng(seed).normal(size=shape).round(2)


def _kind(value):
    kind = type(value).__name__
    if isinstance(value, np.ndarray):
        return f"an array of the class {kind}, where a plain ndarray is expected"
    if value is None:
        return "None in one place"
    if hasattr(type(value), "__next__"):
        return f"a {kind}, which holds no numbers yet; make a list or an array of it"
    if type(value) in (list, tuple):
        return f"a {kind} of {len(value)}"
    return f"something of type {kind}, where an array or a list of numbers is expected"


def _parts(value):
    return value if type(value) is tuple else (value,)


def _close(got, want, tolerance):
    if "U" in (got.dtype.kind, want.dtype.kind):  # text
        return np.array_equal(got, want)
    size = max(1.0, np.abs(want).max(initial=0.0))
    return got.shape == want.shape and bool((np.abs(got - want) <= tolerance * size).all())


def _same(before, after):
    """Tell whether an argument is as it was: arrays, lists of them, records that hold them."""
    if isinstance(before, np.ndarray):
        return np.array_equal(before, after)
    if isinstance(before, list):
        return len(before) == len(after) and all(map(_same, before, after))
    if isinstance(before, dict):
        return list(before) == list(after) and all(_same(before[key], after[key]) for key in before)
    if isinstance(before, str):
        return before == after
    if dataclasses.is_dataclass(before) and not isinstance(before, Given):
        return all(_same(value, vars(after)[name]) for name, value in vars(before).items())
    return True  # numbers, text and functions cannot be changed in place


def _remarks(got, want):
    """Say what the eye may miss in two arrays of numbers, if there is anything."""
    if np.isnan(got).any():
        yield "NaN comes of infinity divided by infinity, or of zero divided by zero."
    elif np.isinf(got).any():
        yield "Infinity comes of a number that outgrew its float, or of a division by zero."
    elif _close(got, want, 2e-3):
        gap = float(np.abs(got - want).max())
        yield f"The largest difference is {gap:.1e}: more than rounding explains."
    elif want.size < 2:
        return
    elif (ratio := _ratio(got, want)) is not None:
        yield f"Every number is {ratio:.3g} times what it should be."
    elif np.ptp(got - want) < 1e-6:
        yield f"Every number is off by {float((got - want).mean()):.3g}."
    elif np.allclose(np.sort(got, axis=None), np.sort(want, axis=None), rtol=0, atol=1e-6):
        yield "The numbers are right, but they are not in their places."
    elif want.ndim == 2 and len(want) > 1:
        wrong = [i for i in range(len(want)) if not _close(got[i], want[i], TOLERANCE)]
        if len(wrong) < len(want):
            rows = listed(map(str, wrong))
            yield f"Only row {rows} differs." if len(wrong) == 1 else f"Only rows {rows} differ."
    elif want.ndim == 1 and want.size > 24:  # the middle of it is not shown
        k = int((np.abs(got - want) > TOLERANCE).argmax())
        yield f"The first that differs is number {k}: {want[k]:.3f} expected, {got[k]:.3f} came."


def _ratio(got, want):
    """Return the factor between two arrays, if one number other than 0 explains them."""
    there = want != 0
    if got[~there].any() or there.sum() < 2 or not got.any():
        return None
    ratios = got[there] / want[there]
    return float(ratios.mean()) if np.ptp(ratios) < 1e-4 else None


def _line(label, value):
    """Return one indented line, or several, that show an argument or a result."""
    label = f"    {label}"
    if isinstance(value, np.ndarray):
        text = _array(value, label)
        wide = value.size > 24 or 0 in value.shape
        return f"{label}{text}" + (f"  shape {value.shape}" if wide else "")
    if isinstance(value, str) or (isinstance(value, list) and value and type(value[0]) is str):
        return f"{label}{brief(value)}"
    if isinstance(value, dict):
        inner = (f"{key}: {_size(part)}" for key, part in value.items())
        return f"{label}{{{', '.join(inner)}}}"
    if isinstance(value, list):
        lines = [_array(np.asarray(v), label + "[") for v in value]
        return f"{label}[{', '.join(lines)}]"
    if isinstance(value, Given):
        return f"{label}{value.words}"
    if dataclasses.is_dataclass(value):
        return f"{label}{_weights(value)}"
    return f"{label}{value}"


def brief(value):
    """Return a text, or a list of texts, as Python writes it; the middle of a long list left out.

    A list whose first 256 are the characters of bytes is told by what follows them.
    """
    if isinstance(value, list) and len(value) > 40:
        rest = "" if len(value) == 256 else f", then {value[256:]!r}"
        return f"{len(value)} texts, first those of the 256 bytes{rest}"
    return repr(value)


def _size(value):
    """Return a number as it is, and of an array its shape and whether it is zero."""
    if not isinstance(value, np.ndarray):
        return f"{value}"
    return f"{value.shape}" + ("" if value.any() else " of zeros")


def _array(value, label):
    rounded = np.round(np.asarray(value, np.float64), 3) + 0.0  # no zero with a minus sign
    return np.array2string(
        rounded, separator=", ", threshold=24, edgeitems=2, max_line_width=96, prefix=label,
        suppress_small=True,
    )  # fmt: skip


def _weights(w):
    """Describe the weights of a layer: the sizes, and what has been taken out."""
    d, d_ff = w.W_1.shape
    zero = [
        name for name, value in vars(w).items() if isinstance(value, np.ndarray) and not value.any()
    ]
    return f"a layer with d = {d}, d_ff = {d_ff}" + (f"; zero: {', '.join(zero)}" if zero else "")


def _semicolons(rungs):
    return "; ".join(dict.fromkeys(rung.mechanism for rung in rungs))
