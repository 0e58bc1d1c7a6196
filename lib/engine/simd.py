"""Vectors of 16 numbers, that the processor adds or multiplies in one go.

Each function is its own definition: a few lines of NumPy that run anywhere, with Numba or without.
`lib.engine.simd_llvm` says which instructions compiled code takes in its place.

Two dot products of bytes carry the quantised engine. Both take 64 bytes as 16 groups of four and
add the four products of a group to a lane: 64 multiply-adds.
"""

import numpy as np

from lib.engine.processor import FUSED
from lib.jit import NUMBA

LANES = 16

# ------------------------------------------------------------------ memory


def load(array, at):
    """Return the 16 numbers of a float32 array from `at` on; uint16 holds the bits of float16."""
    found = array[at : at + LANES]
    return found.copy() if found.dtype == np.float32 else found.view("f2").astype(np.float32)


def store(array, at, x):
    """Write 16 numbers to an array from `at` on; into uint16 as the bits of float16."""
    array[at : at + LANES] = x if array.dtype == np.float32 else x.astype("f2").view(np.uint16)


def load_halves(array, at):
    """Return 16 finite float16 numbers that lie in an array of bytes."""
    return array[at : at + 2 * LANES].view("f2").astype(np.float32)


def load_floats(array, at):
    """Return 16 float32 numbers that lie in an array of bytes."""
    return array[at : at + 4 * LANES].view(np.float32).copy()


def load_bytes(array, at):
    """Return 64 bytes."""
    return array[at : at + 64].view(np.uint8).copy()


def spread_four(array, at):
    """Return the 4 bytes from `at` on, 16 times."""
    return np.tile(array[at : at + 4].view(np.uint8), LANES)


def put(array, at, x):
    """Write one number to a float32 array; into uint16 as the bits of float16."""
    array[at] = x if array.dtype == np.float32 else np.float16(x).view(np.uint16)


def get(array, at):
    """Return one number of a float32 array; unlike array[at] it takes no `at` from the end."""
    return array[at]


def store_bytes(array, at, x):
    """Write 16 whole numbers as bytes: the lowest 8 bits of each."""
    array[at : at + LANES] = x.astype(array.dtype)


# ------------------------------------------------------------------ arithmetic


def spread(x):
    """Return one number, 16 times."""
    return np.full(LANES, x, np.float32)


def spread_at(array, at):
    """Return one number of a float32 array, 16 times."""
    return np.full(LANES, array[at], np.float32)


def zeros():
    """Return 16 zeros."""
    return np.zeros(LANES, np.float32)


def fma(x, y, z):
    """Return x · y + z, rounded once where the processor can."""
    if not FUSED:
        return x * y + z
    return (x.astype(np.longdouble) * y + z).astype(np.float32)


def larger(x, y):
    """Return the larger of each pair; y where one is NaN."""
    return np.where(x > y, x, y)


def to_float(x):
    """Return whole numbers as float32."""
    return x.astype(np.float32)


# Added to a number below 2²² and taken away again, it leaves the nearest whole number.
ROUNDER = 1.5 * 2**23


def nearest(x):
    """Return the nearest whole numbers, even ones at a half; for sizes below 2²²."""
    return (x + np.float32(ROUNDER)) - np.float32(ROUNDER)


def to_int(x):
    """Return the whole part of numbers below 2³¹ as int32."""
    return x.astype(np.int32)


def power_of_two(n):
    """Return 2ⁿ for whole n of -126 to 127, by writing n into the exponent's bits."""
    return ((n.astype(np.int32) + 127) << 23).view(np.float32)


def keep(x, n, other):
    """Return the first n numbers, and another in place of the rest."""
    return np.where(np.arange(LANES) < n, x, np.float32(other))


def total(x):
    """Return the sum of the 16 numbers, added by halves."""
    while len(x) > 1:
        x = x[: len(x) // 2] + x[len(x) // 2 :]
    return x[0]


def largest(x):
    """Return the largest of the 16 numbers."""
    while len(x) > 1:
        x = larger(x[: len(x) // 2], x[len(x) // 2 :])
    return x[0]


def largest_size(x, y):
    """Return the largest absolute value of 32 numbers; NaN if one is NaN."""
    sizes = np.abs(np.concatenate([x, y])).view(np.int32)
    return sizes.max().view(np.float32)


def total_int(x):
    """Return the sum of the 16 whole numbers."""
    return x.sum(dtype=np.int32)


# ------------------------------------------------------------------ dot products of bytes


def low_nibbles(x):
    """Return the lower 4 bits of each byte."""
    return x & 15


def high_nibbles(x):
    """Return the upper 4 bits of each byte."""
    return x >> 4


def no_dots():
    """Return the empty sum that `dot_nibbles` adds to."""
    return np.zeros(LANES, np.int32)


def dot_nibbles(acc, w, x):
    """Add Σ w · x over groups of four, w of 0 to 15, x signed of at most 127: 8 times at most."""
    return acc + _groups_of_four(w.astype(np.int32) * x.view(np.int8))


def total_dots(acc):
    """Return the sums as 32-bit numbers."""
    return acc


def dot_bytes(acc, w, x):
    """Add Σ w · x over groups of four, both signed, -127 to 127."""
    return acc + _groups_of_four(w.view(np.int8).astype(np.int32) * x.view(np.int8))


def byte_of_four(x, j):
    """Return byte j of each group of four, signed."""
    return x.view(np.int8)[j::4].astype(np.int32)


def no_ints():
    """Return 16 whole zeros."""
    return np.zeros(LANES, np.int32)


# ------------------------------------------------------------------ threads


def atomic_add(array, at, x):
    """Add x to an item of an int64 array and return what was there, as one step for all threads."""
    found = array[at]
    array[at] += x
    return found


def atomic_load(array, at):
    """Return an item of an int64 array as other threads have last written it."""
    return array[at]


def pause():
    """Tell the processor that this thread is only waiting."""


def give_way():
    """Let another program have this processor, where one waits for it; nothing on Windows."""


def _groups_of_four(products):  # (64,) -> (16,)
    return products.reshape(LANES, 4).sum(1, dtype=np.int32)


if NUMBA:  # from here on the compiler knows what these functions are
    from lib.engine import simd_llvm  # noqa: F401
