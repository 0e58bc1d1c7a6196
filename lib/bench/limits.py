"""What the machine can do at most: bytes read a second, multiply-adds a second.

The two roofs of the roofline (Williams, Waterman and Patterson 2009). They are measured with the
engine's own vectors, by kernels that do nothing else: one only reads, the others only multiply
and add numbers that stay in the nearest cache.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from lib.engine.simd import (
    dot_nibbles,
    fma,
    load,
    load_bytes,
    no_dots,
    no_ints,
    spread,
    store,
    total,
    total_dots,
    total_int,
    zeros,
)
from lib.errors import CourseError
from lib.jit import vector_kernel

READ_BYTES = 256_000_000  # per pass: more than any cache holds
STEPS = 16  # multiply-adds of one number between its load and its store


@vector_kernel
def _read(x):
    """Σ x, to have read all of it: (n,) float32, n a multiple of 64.

    Four places at a time: the processor fetches ahead of each, and memory is busier for it.
    """
    part = len(x) // 4
    a = b = c = d = zeros()
    for at in range(0, part, 16):
        a = a + load(x, at)
        b = b + load(x, part + at)
        c = c + load(x, 2 * part + at)
        d = d + load(x, 3 * part + at)
    return total(a + b) + total(c + d)


@vector_kernel
def _multiply_add(x, y, z, rounds):
    """x · y + z, `STEPS` times for each number, and that `rounds` times: (n,) -> (n,)."""
    y, z = spread(y), spread(z)
    for _ in range(rounds):
        for at in range(0, len(x), 64):  # four at a time, for the next must wait for the last
            a, b, c, d = load(x, at), load(x, at + 16), load(x, at + 32), load(x, at + 48)
            for _ in range(STEPS):
                a, b, c, d = fma(a, y, z), fma(b, y, z), fma(c, y, z), fma(d, y, z)
            store(x, at, a)
            store(x, at + 16, b)
            store(x, at + 32, c)
            store(x, at + 48, d)


@vector_kernel
def _dot_bytes(w, x, rounds):
    """Σ w · x of each 64 bytes of w with four vectors x, `rounds` times: (n,), (256,) -> int."""
    sums = no_ints()
    for _ in range(rounds):
        for at in range(0, len(w), 512):
            a = b = c = d = no_dots()
            for step in range(at, at + 512, 64):
                row = load_bytes(w, step)
                a = dot_nibbles(a, row, load_bytes(x, 0))
                b = dot_nibbles(b, row, load_bytes(x, 64))
                c = dot_nibbles(c, row, load_bytes(x, 128))
                d = dot_nibbles(d, row, load_bytes(x, 192))
            sums = sums + total_dots(a) + total_dots(b) + total_dots(c) + total_dots(d)
    return total_int(sums)


def read_bandwidth(threads: int, passes: int = 8) -> dict[str, float]:
    """Read a large array from memory, a part of it in each thread.

    Parameters
    ----------
    threads : int
        At least 1.
    passes : int
        How often all of it is read.

    Returns
    -------
    dict
        ``bytes`` and ``seconds``.

    Raises
    ------
    CourseError
        Fewer than one thread or pass.
    """
    _check(threads, "passes", passes)
    n = READ_BYTES // 4 // threads // 64 * 64
    parts = [np.ones(n, np.float32) for _ in range(threads)]  # written, so that memory is behind it
    seconds = _together([lambda x=x: [_read(x) for _ in range(passes)] for x in parts])
    return {"bytes": 4 * n * threads * passes, "seconds": seconds}


def multiply_add_peak(
    threads: int, kind: str = "float32", rounds: int = 200_000
) -> dict[str, float]:
    """Multiply and add numbers that lie in the first cache.

    Parameters
    ----------
    threads : int
        At least 1.
    kind : str
        ``"float32"``, or ``"int8"`` for the dot product of bytes that the quantised engine uses.
    rounds : int
        How long it takes: times 16,384 multiply-adds for float32, twice that for bytes.

    Returns
    -------
    dict
        ``multiply_adds`` and ``seconds``.

    Raises
    ------
    CourseError
        Fewer than one thread or round, or another kind.
    """
    _check(threads, "rounds", rounds)
    if kind == "float32":
        parts = [np.ones(1024, np.float32) for _ in range(threads)]
        y, z = np.float32(0.5), np.float32(0.5)  # 1 · 0.5 + 0.5 stays 1
        calls = [lambda x=x: _multiply_add(x, y, z, rounds) for x in parts]
        count = 1024 * STEPS
    elif kind == "int8":
        w = np.arange(8192, dtype=np.uint8) % 16
        x = (np.arange(256) % 255 - 127).astype(np.int8).view(np.uint8)
        calls = [lambda: _dot_bytes(w, x, rounds)] * threads
        count = 4 * len(w)
    else:
        raise CourseError(f"kind should be 'float32' or 'int8'; it is {kind!r}")
    seconds = _together(calls)
    return {"multiply_adds": count * rounds * threads, "seconds": seconds}


def _together(calls: list[Callable]) -> float:
    """Run calls in a thread each, and return the seconds until the last has ended."""
    with ThreadPoolExecutor(len(calls)) as pool:
        list(pool.map(lambda _: None, calls))  # start the threads
        start = time.perf_counter()
        list(pool.map(lambda call: call(), calls))
        return time.perf_counter() - start


def _check(threads: int, name: str, number: int) -> None:
    if threads < 1:
        raise CourseError(f"threads should be at least 1; it is {threads}")
    if number < 1:
        raise CourseError(f"{name} should be at least 1; it is {number}")
