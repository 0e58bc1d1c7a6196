"""Checks of arguments, shared by the public functions of the core.

A public function checks and names what is wrong; the kernel behind it trusts its arguments.
"""

import math
import sys
from typing import TypeGuard

import numpy as np

from lib.errors import CourseError


def as_float32(name, value, shape):
    """Return ``value`` as a C-contiguous float32 array of the given shape, or say why not.

    Parameters
    ----------
    name : str
        The argument's name, for the message.
    value : array_like
        Real numbers: any integer or floating type, any strides, lists too.
    shape : tuple of int or str
        A number must match exactly; a letter stands for any size of at least one; ``"…"`` stands
        for any further axes.

    Returns
    -------
    ndarray, float32
        A copy only where the type or the strides ask for one.

    Raises
    ------
    CourseError
        Not numbers, a wrong shape, an empty axis, NaN or infinity, or a number beyond float32.
    """
    array = numbers(name, value)
    _check_shape(name, array, shape)
    with np.errstate(over="ignore"):  # the next line finds what became infinity
        result = np.ascontiguousarray(array, dtype=np.float32)
    if not all_finite(result):
        raise CourseError(f"{name} should hold finite float32 numbers; {_first_bad(array, result)}")
    return result


def as_weight(name, value, shape):
    """Return ``value`` as a float32 array of the given shape, without a pass over its numbers.

    Weights are large and do not change between calls: they are not copied for their strides and
    not searched for NaN here. `check_result` finds a bad weight by what it does.
    """
    array = numbers(name, value)
    _check_shape(name, array, shape)
    with np.errstate(over="ignore"):
        return array.astype(np.float32, copy=False)


def check_result(result, **weights):
    """Return ``result`` as float32, if all of it is finite; otherwise name what spoiled it.

    Raises
    ------
    CourseError
        A weight holds NaN or infinity, or the result is too large for float32.
    """
    if result.dtype != np.float32:
        with np.errstate(over="ignore"):  # said in words below
            result = result.astype(np.float32)
    if all_finite(result):
        return result
    refuse_infinite(**weights)
    raise CourseError(
        "the result should fit into float32, whose largest number is 3.4e38; it does not: "
        "scale the inputs or the weights down"
    )


def refuse_infinite(**arrays):
    """Raise a CourseError that names the first array with NaN or infinity, and where; if any."""
    for name, array in arrays.items():
        if not all_finite(array):
            where = _first_bad(array, array)
            raise CourseError(f"{name} should hold finite float32 numbers; {where}")


def all_finite(X):
    """Tell whether every number is finite.

    A sum of squares is finite only if every number is, and it makes no array on the way. It can
    overflow without an infinity in X: only then the numbers are looked at one by one.
    """
    return bool(math.isfinite(np.vdot(X, X)) or np.isfinite(X).all())


def positive(name, value, *, zero=False):
    """Return ``value`` as a float if it is finite and above zero (or zero, where allowed)."""
    number = float(value) if is_number(value) else math.nan
    if not math.isfinite(number):
        raise CourseError(f"{name} should be a finite number; it is {shown(value)}")
    if number < 0 or (number == 0 and not zero):
        raise CourseError(
            f"{name} should be {'at least' if zero else 'above'} zero; it is {shown(value)}"
        )
    return number


def numbers(name, value):
    """Return ``value`` as an array of real numbers of whatever type and shape."""
    try:
        array = np.asarray(value)
    except ValueError:
        raise CourseError(
            f"{name} should be an array of numbers; its rows differ in length"
        ) from None
    if array.dtype.kind not in "fiu":
        raise CourseError(f"{name} should hold real numbers; its dtype is {array.dtype}")
    return array


def _check_shape(name, array, shape):
    if not fit(array.shape, shape) or 0 in array.shape:
        empty = ", every size at least 1" if fit(array.shape, shape) else ""
        raise CourseError(
            f"{name} should have shape {_spell(shape)}{empty}; it has shape {array.shape}"
        )


def fit(got, wanted):
    """Return the size that each wanted axis has, or nothing if the shapes don't fit.

    A number must match, a name fits any size, and ``"…"`` all axes that the others leave over.
    """
    if "…" in wanted:
        front = list(wanted).index("…")
        behind = len(got) - (len(wanted) - 1 - front)
        if front > behind:
            return ()
        got = (*got[:front], got[front:behind], *got[behind:])
    if len(got) != len(wanted):
        return ()
    for size, want in zip(got, wanted, strict=True):
        if size != want and type(want) is not str:
            return ()
    return got


def _spell(shape):
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def _first_bad(array, result):
    where = np.unravel_index(np.argmin(np.isfinite(result)), result.shape)
    index = ", ".join(str(int(k)) for k in where)
    return f"at [{index}] it holds {array[where]}"


def check_sampling(
    temperature: float, top_k: int | None = None, top_p: float | None = None
) -> None:
    """Check how tokens are to be drawn.

    Raises
    ------
    CourseError
        If the temperature is negative or not finite, `top_k` is below 1, or `top_p` is not above
        0 and at most 1.
    """
    if not is_number(temperature) or not 0 <= temperature < np.inf:
        raise CourseError(
            f"temperature should be a finite number, 0 or more; it is {shown(temperature)}"
        )
    if top_k is not None and not (is_whole(top_k) and top_k >= 1):
        raise CourseError(f"top_k should be a whole number of at least 1; it is {shown(top_k)}")
    if top_p is not None and not (is_number(top_p) and 0 < top_p <= 1):
        raise CourseError(f"top_p should be above 0 and at most 1; it is {shown(top_p)}")


def is_number(value: object) -> bool:
    """Tell whether a value is one real number that a float can hold; infinity and NaN are."""
    real = isinstance(value, (int, float, np.integer, np.floating))
    huge = isinstance(value, int) and abs(value) > sys.float_info.max
    return real and not isinstance(value, bool) and not huge


def is_whole(value: object) -> TypeGuard[int]:
    """Tell whether a value is one whole number."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def shown(value: object) -> str:
    """Return a value as text for a message, cut where it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no whole number of more than 4300 digits
        return "a number of thousands of digits"
    return text if len(text) <= 60 else f"{text[:57]}…"
