"""Compare every vector operation, compiled, with its twin in Python, bit for bit.

Run in a process of its own, with NUMBA_CPU_NAME naming a processor: what an operation compiles to
is chosen once, at import. Prints the way bytes are multiplied, and the operations compared.
"""
# ruff: noqa: F405

import numpy as np

from lib.engine import processor
from lib.engine.simd import *  # noqa: F403
from lib.jit import vector_kernel

rng = np.random.default_rng(11)


@vector_kernel
def floats(x, out):
    a, b, c = load(x, 0), load(x, 16), load(x, 32)
    store(out, 0, a + b)
    store(out, 16, a - b)
    store(out, 32, a * b)
    store(out, 48, a / b)
    store(out, 64, fma(a, b, c))
    store(out, 80, larger(a, b))
    put(out, 96, get(x, 33) + largest_size(a, b))
    put(out, 97, largest_size(c / zeros(), b))
    store(out, 112, nearest(a * spread(30.5)))
    store(out, 128, power_of_two(nearest(b * spread(9.0))))
    store(out, 144, keep(a, 5, -np.inf))
    store(out, 160, spread_at(x, 7) + zeros())
    put(out, 176, total(a))
    put(out, 177, largest(b))


@vector_kernel
def ints(x, out, small):
    whole = to_int(nearest(load(x, 0) * spread(40.0)))
    store(out, 0, to_float(whole + whole + no_ints()))
    store_bytes(small, 0, whole)
    put(out, 16, total_int(whole))


@vector_kernel
def halves(bits, raw, out):
    store(out, 0, load(bits, 1))
    store(out, 16, load_halves(raw, 6))
    store(out, 32, load_floats(raw, 64))


@vector_kernel
def half_stores(x, bits):
    store(bits, 0, load(x, 0))
    put(bits, 16, x[1])


@vector_kernel
def dots(w, x, out):
    acc = no_dots()
    for step in range(4):
        four = spread_four(x, 4 * step)
        acc = dot_nibbles(acc, low_nibbles(load_bytes(w, 64 * step)), four)
        acc = dot_nibbles(acc, high_nibbles(load_bytes(w, 64 * step)), four)
    store(out, 0, to_float(total_dots(acc)))
    whole = no_ints()
    for step in range(4):
        whole = dot_bytes(whole, load_bytes(w, 256 + 64 * step), spread_four(x, 4 * step))
    store(out, 16, to_float(whole))
    for j in range(4):
        store(out, 32 + 16 * j, to_float(byte_of_four(load_bytes(w, 300), j)))


@vector_kernel
def counters(sync, out):
    pause()
    give_way()
    put(out, 0, np.float32(atomic_add(sync, 2, 5)))
    put(out, 1, np.float32(atomic_load(sync, 2)))


def compare(kernel, *arrays):
    """Run a kernel compiled and plainly on copies of the same arrays: they end up the same."""
    ours = [array.copy() for array in arrays]
    plain = [array.copy() for array in arrays]
    kernel(*ours)
    kernel.py_func(*plain)
    assert any((a != b).any() for a, b in zip(ours, arrays, strict=True)), "nothing was written"
    for a, b in zip(ours, plain, strict=True):
        np.testing.assert_array_equal(a.view(np.uint8), b.view(np.uint8), kernel.__name__)


def out(n):
    return np.full(n, -7, np.float32)


x = (rng.standard_normal(64) * 3).astype(np.float32)
compare(floats, x, out(180))
compare(ints, x, out(20), np.zeros(16, np.int8))
bits = (rng.standard_normal(20) * 900).astype(np.float16)
bits[:6] = 0.0, -0.0, 6e-8, -3e-5, 65504, 1.0  # the least denormal one, and the largest
raw = np.concatenate([rng.standard_normal(32).astype(np.float16).view(np.uint8), x.view(np.uint8)])
raw[6:12] = bits[:3].view(np.uint8)
compare(halves, bits.view(np.uint16), raw, out(48))
if processor.HALVES:
    compare(half_stores, np.abs(x) * 1e-5 + x, np.zeros(20, np.uint16))
for extreme in range(3):
    w = rng.integers(0, 256, 512, np.uint8)
    w[256:] = rng.integers(-127, 128, 256).astype(np.int8).view(np.uint8)
    q = rng.integers(-127, 128, 32).astype(np.int8)
    if extreme:  # the largest sums that can come up, of both signs
        w[:256], w[256:] = 255, np.int8(-127).view(np.uint8)
        q[:] = 127 * (-1) ** extreme
    compare(dots, w, q, out(96))
compare(counters, np.arange(4), out(4))
print(processor.BYTE_DOT, "fused" if processor.FUSED else "not fused")
