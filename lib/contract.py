"""The contract of a public function of the core, in one line above it.

    @operation("(d),(n,d),(n,d_v)->(d_v)", reference.attend)
    def attend(q, K, V): …

The body trusts its arrays; other bodies call it as ``attend.trusted``. What a caller gives is
checked here, once, and the result is searched for NaN and infinity, once. Arrays that are float32
already are not searched before: what is wrong in them shows in the result, or the body sees to it.
"""

import functools
import inspect
import re
from operator import attrgetter
from typing import Any

import numpy as np

from lib.arguments import (
    all_finite,
    as_float32,
    as_weight,
    check_result,
    fit,
    numbers,
    refuse_infinite,
)
from lib.jit import NUMBA, kernel

FLOAT32 = np.dtype(np.float32)
FORM = attrgetter("__class__", "dtype", "flags.c_contiguous", "shape")
REMEMBERED_FORMS = 1024  # combinations of shapes that an operation need not compare again


def operation(
    signature, definition=None, *, weights=(), prepare=None, quiet=False, again=None
) -> Any:
    """Let a function check what it is given and what it returns.

    Parameters
    ----------
    signature : str
        The shapes of the first parameters and of the result, in the notation of NumPy's
        generalised ufuncs: a name is one size wherever it appears, ``m?`` is an axis that may be
        missing, ``…`` any number of axes. ``{d}`` is a record that has the size d.
    definition : callable, optional
        Answers where a result leaves float32, and where Numba is missing. Without a definition,
        a result that leaves float32 is an error.
    weights : tuple of str
        Arguments that may be large: they keep their strides.
    prepare : callable, optional
        Takes all arguments, the arrays checked; checks the others; returns all.
    quiet : bool
        The body has products of NumPy, which would warn of infinities that the result shows.
    again : tuple, optional
        A last argument, and another in its place. A call with the first whose result is not finite
        is repeated with the second, which checks every step and so finds the one to blame.

    Raises
    ------
    CourseError
        The function raises it, and it names the argument, what was expected and what came.
    """
    given = re.findall(r"\(.*?\)|{.*?}", signature.split("->")[0])
    inputs: list[Any] = [_axes(text) for text in given]

    def decorate(body):
        parameters = inspect.signature(body)
        names = list(parameters.parameters)
        defaults = tuple(p.default for p in parameters.parameters.values())
        looks = [FORM if type(axes) is tuple else attrgetter(axes) for axes in inputs]
        arrays_alone = set(looks) == {FORM} and len(looks) == len(names)
        kept = [name in weights for name in names[: len(inputs)]]
        run = np.errstate(over="ignore", invalid="ignore")(body) if quiet else body
        ready = functools.lru_cache(REMEMBERED_FORMS)(functools.partial(_ready, inputs, kept))

        latest = ()  # the forms of the last call that could be taken as they were

        def arranged(values, named):
            rest, others = names[len(values) :], defaults[len(values) :]
            others = [named.get(name, other) for name, other in zip(rest, others, strict=True)]
            missing = any(other is inspect.Parameter.empty for other in others)
            if missing or len(values) > len(names) or not named.keys() <= set(rest):
                body(*values, **named)  # Python says what is missing or too much
            return *values, *others

        @functools.wraps(body)
        def checked(*values, **named):
            nonlocal latest
            if named or len(values) != len(defaults):
                values = arranged(values, named)
            try:
                forms = (*(map(FORM, values) if arrays_alone else _look(looks, values)),)
            except AttributeError:  # a list, a number
                forms = None
            if forms != latest:
                if forms and ready(*forms):
                    latest = forms
                else:
                    values = _converted(inputs, kept, names, values)
            if prepare:
                values = prepare(*values)
            out = None
            if NUMBA or definition is None:
                out = run(*values)
                row = out if out.ndim == 1 else out.ravel()
                if out.dtype is FLOAT32 and (_finite(row) if NUMBA else all_finite(row)):
                    return out
            arrays = {name: X for name, X in zip(names, values) if type(X) is np.ndarray}  # noqa: B905
            refuse_infinite(**arrays)
            if again and values[-1] is again[0]:
                out = run(*values[:-1], again[1])
            return check_result(out if definition is None else definition(*values))

        # Without Numba a definition stands in for the body, and checks come before it.
        public: Any = checked
        public.trusted = body if NUMBA or definition is None else checked
        return public

    return decorate


@kernel
def _finite(row):
    """Tell whether every number of a float32 row is finite: the sum in float64 is, if they are."""
    total = 0.0
    for c in range(len(row)):
        total += row[c]
    return np.isfinite(total)


def _look(looks, values):
    return [look(value) for look, value in zip(looks, values)]  # noqa: B905, others may follow


def _axes(text):
    """Return the axes of one parameter as a tuple, or the name of a record's attribute."""
    return text[1:-1] if text[0] == "{" else tuple(text[1:-1].split(","))


def _axes_of(axes, ndim):
    """Return the axes without those that may be missing and are."""
    given = ndim == len(axes)
    return tuple(axis.rstrip("?") for axis in axes if given or not axis.endswith("?"))


def _ready(inputs, kept, *forms):
    """Tell whether a body can take arrays of these forms as they are."""
    sizes = {axes: form for axes, form in zip(inputs, forms, strict=True) if type(axes) is str}
    for axes, keep, form in zip(inputs, kept, forms, strict=True):
        if type(axes) is str:
            continue
        kind, dtype, contiguous, shape = form
        if kind is not np.ndarray or dtype != FLOAT32 or not (contiguous or keep):
            return False
        if not shape or 0 in shape:
            return False
        axes = _axes_of(axes, len(shape))
        found = fit(shape, [sizes.get(axis, axis) for axis in axes])
        if not found:
            return False
        sizes |= dict(zip(axes, found, strict=True))
    return True


def _converted(inputs, kept, names, values):
    """Return the values with arrays of float32, or raise a CourseError that names the first bad."""
    values = list(values)
    pairs = list(zip(inputs, values, strict=False))
    sizes = {axes: getattr(value, axes) for axes, value in pairs if type(axes) is str}
    for k, (axes, value) in enumerate(pairs):
        if type(axes) is tuple:
            value = numbers(names[k], value)
            axes = _axes_of(axes, value.ndim)
            wanted = tuple(sizes.get(axis, axis) for axis in axes)
            values[k] = (as_weight if kept[k] else as_float32)(names[k], value, wanted)
            sizes |= dict(zip(axes, fit(values[k].shape, wanted), strict=True))
    return tuple(values)
