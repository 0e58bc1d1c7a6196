"""Calling a kernel that was compiled to WebAssembly, with NumPy's arrays in their place.

The one place that knows Numba's calling convention (numba/core/callconv.py, `CPUCallConv`): a
kernel takes a pointer for its result, one for an exception, and its arguments laid flat. An array
is five words, its shape and its strides; a tuple is its parts.
"""

import ctypes
import functools
import json
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent
LIBRARY, LIST = "kernels.so", "kernels.json"  # made by `lib.wasm.build`

# Kinds of number: as a key has them, and as ctypes passes them.
NUMBERS = {"i8": ctypes.c_int64, "f8": ctypes.c_double, "f4": ctypes.c_float, "i4": ctypes.c_int32}
RESULTS = {"none": None, "b1": np.bool_, "f4": np.float32, "f8": np.float64, "i8": np.int64}


def key_of(arguments) -> str:
    """Return the types of a call as one word, such as ``f4:2C f4:1C i8``.

    An array is its kind, its number of axes, and C where its numbers lie in order, otherwise A;
    the parts of a tuple stand in brackets.
    """
    return " ".join(map(_word, arguments))


def _word(value) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype.str[1:]}:{value.ndim}{'C' if value.flags.c_contiguous else 'A'}"
    if isinstance(value, tuple):
        return f"({key_of(value)})"
    if isinstance(value, np.generic):
        return value.dtype.str[1:]
    return "f8" if isinstance(value, float) else "i8"


def flat(value, word: str) -> list:
    """Return what is passed for a value: pairs of a type of ctypes and a number."""
    if isinstance(value, np.ndarray):
        words = (0, 0, value.size, value.itemsize, value.ctypes.data, *value.shape, *value.strides)
        kinds = "ppllp" + "l" * (2 * value.ndim)
        return [(_KINDS[kind], number) for kind, number in zip(kinds, words, strict=True)]
    if isinstance(value, tuple):
        return [pair for part in value for pair in flat(part, _word(part))]
    return [(NUMBERS[word], value)]


_KINDS = {"p": ctypes.c_void_p, "l": ctypes.c_int64}


@functools.cache
def library():
    """Return the loaded kernels and their list, or None where they are not.

    The list maps ``module.kernel`` and the types of a call to a symbol and the type of the result.
    """
    if not (FOLDER / LIBRARY).exists() or not (FOLDER / LIST).exists():
        return None
    names = json.loads((FOLDER / LIST).read_text(encoding="utf-8"))
    return ctypes.CDLL(str(FOLDER / LIBRARY)), names


def compiled(function):
    """Return a function that runs its kernel where one fits the call, otherwise itself."""
    loaded = library()
    own = loaded and loaded[1].get(f"{function.__module__}.{function.__qualname__}")
    if not own:
        return function

    @functools.wraps(function)
    def run(*arguments):
        found = own.get(key_of(arguments)) or own.get(key_of(arguments).replace("C", "A"))
        if found is None:
            return function(*arguments)
        return _call(loaded[0], *found, arguments)

    return run


def _call(kernels, symbol, result, arguments):
    room = np.zeros(8, np.int64)  # where a result and an exception go
    words = [(ctypes.c_void_p, room.ctypes.data), (ctypes.c_void_p, room.ctypes.data + 32)]
    for value in arguments:
        words += flat(value, _word(value))
    kernel = kernels[symbol]
    kernel.argtypes, kernel.restype = [kind for kind, _ in words], ctypes.c_int
    status = kernel(*(word for _, word in words))
    if status not in (0, -2):  # -2: the kernel returns None
        raise RuntimeError(f"the kernel {symbol} stopped with status {status}")
    kind = RESULTS[result]
    return None if kind is None else room.view(kind)[0]
