"""Checks of arguments, shared by the public functions of the core.

A public function checks and names what is wrong; the kernel behind it trusts its arguments.
"""

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
        A number must match exactly; a letter stands for any size of at least one; a leading
        ``"…"`` stands for any further axes in front.

    Returns
    -------
    ndarray, float32
        A copy only where the type or the strides ask for one.

    Raises
    ------
    CourseError
        Not numbers, a wrong shape, an empty axis, NaN or infinity, or a number beyond float32.
    """
    array = _numbers(name, value)
    _check_shape(name, array, shape)
    with np.errstate(over="ignore"):
        result = np.ascontiguousarray(array, dtype=np.float32)
    if not np.isfinite(result).all():
        raise CourseError(f"{name} should hold finite float32 numbers; {_first_bad(array, result)}")
    return result


def as_weight(name, value, shape):
    """Return ``value`` as a float32 array of the given shape, without a pass over its numbers.

    Weights are large and do not change between calls: they are not copied for their strides and
    not searched for NaN here. `check_result` finds a bad weight by what it does.
    """
    array = _numbers(name, value)
    _check_shape(name, array, shape)
    with np.errstate(over="ignore"):
        return array.astype(np.float32, copy=False)


def check_result(result, **weights):
    """Return ``result`` if it is finite; otherwise name the weight that spoiled it.

    Raises
    ------
    CourseError
        A weight holds NaN or infinity, or the result is too large for float32.
    """
    if np.isfinite(result).all():
        return result
    for name, array in weights.items():
        if not np.isfinite(array).all():
            where = _first_bad(array, array)
            raise CourseError(f"{name} should hold finite float32 numbers; {where}")
    raise CourseError(
        "the result should fit into float32, whose largest number is 3.4e38; it does not: "
        "scale the inputs or the weights down"
    )


def positive(name, value, *, zero=False):
    """Return ``value`` as a float if it is finite and above zero (or zero, where allowed)."""
    number = value if isinstance(value, (int, float, np.number)) else None
    if number is None or isinstance(value, bool) or not np.isfinite(number):
        raise CourseError(f"{name} should be a finite number; it is {value!r}")
    if number < 0 or (number == 0 and not zero):
        raise CourseError(
            f"{name} should be {'at least' if zero else 'above'} zero; it is {value!r}"
        )
    return float(number)


def _numbers(name, value):
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
    open_front = shape[0] == "…"
    wanted = shape[1:] if open_front else shape
    got = array.shape[max(0, array.ndim - len(wanted)) :] if open_front else array.shape
    fits = len(got) == len(wanted) and all(
        want == size for want, size in zip(wanted, got, strict=True) if isinstance(want, int)
    )
    if not fits:
        raise CourseError(f"{name} should have shape {_spell(shape)}; it has shape {array.shape}")
    if 0 in array.shape:
        raise CourseError(
            f"{name} should have shape {_spell(shape)}, every size at least 1; "
            f"it has shape {array.shape}"
        )


def _spell(shape):
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def _first_bad(array, result):
    where = np.unravel_index(np.argmin(np.isfinite(result)), result.shape)
    index = ", ".join(str(int(k)) for k in where)
    return f"at [{index}] it holds {array[where]}"
