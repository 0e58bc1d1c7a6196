"""The ladder of chapter 8: one product of a vector with a matrix, from blocks to the engine.

A matrix is (rows, columns) here, as a file keeps it: a row for each number of the result, so
y = x Wᵀ. Blocks are 32 neighbours of a row. `lib.engine.quant` lays the same blocks out for the
vectors; here they stay apart and can be looked at.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lib.engine import quant, work
from lib.engine.config import LlamaConfig
from lib.engine.gguf import TensorInfo
from lib.engine.layout import MATRIX
from lib.engine.quant import BLOCK
from lib.engine.team import Team
from lib.errors import CourseError
from lib.jit import NUMBA, kernel, vector_kernel

if NUMBA:  # the blocks go without, the engine's vectors do not
    from lib.engine import batch
    from lib.engine.kernels import Activations, four_groups, meet, multiply
    from lib.engine.simd import atomic_add
if TYPE_CHECKING:
    from lib.engine.fast import FastLlama

BYTES_AT_ONCE = 24 * 1024  # of weights that a thread takes at a time


# ------------------------------------------------------------------ blocks of few bits


@dataclass(frozen=True)
class Blocks:
    """A matrix in blocks: w = d · c + m."""

    codes: np.ndarray  # (rows, blocks, 32) uint8: the whole numbers c
    d: np.ndarray  # (rows, blocks) float32: the scale, the step from one c to the next
    m: np.ndarray  # (rows, blocks) float32: the offset


def round_to(W: np.ndarray, bits: int) -> Blocks:  # (rows, columns)
    """Round each block of 32 to 2^bits values, spaced evenly from its least to its largest.

    Parameters
    ----------
    W : ndarray, (rows, columns)
        Columns a multiple of 32.
    bits : int
        1 to 8.

    Raises
    ------
    CourseError
        Other bits, or columns that are no multiple of 32.
    """
    if bits not in range(1, 9):
        raise CourseError(f"bits should be 1 to 8; it is {bits!r}")
    blocks = _in_blocks(W)
    low, high = blocks.min(axis=2), blocks.max(axis=2)  # (rows, blocks)
    d = (high - low) / np.float32(2**bits - 1)
    steps = (blocks - low[..., None]) / np.where(d == 0, 1, d)[..., None]
    return Blocks(np.rint(steps).astype(np.uint8), d, low)


def file_blocks(info: TensorInfo) -> Blocks:
    """Return the blocks of a tensor of type Q4_1 as the file holds them.

    Raises
    ------
    CourseError
        The tensor is of another type.
    """
    if info.type != "Q4_1":
        raise CourseError(f"the tensor should be of type Q4_1; it is {info.type}")
    rows, columns = info.shape
    found = info.data.reshape(rows, columns // BLOCK, 20)
    halves = np.ascontiguousarray(found[..., :4]).view("<f2").astype(np.float32)
    codes = np.concatenate([found[..., 4:] & 15, found[..., 4:] >> 4], axis=2)
    return Blocks(codes, halves[..., 0], halves[..., 1])


def unpack(blocks: Blocks) -> np.ndarray:  # -> (rows, columns) float32
    """Return the weights that blocks stand for."""
    W = blocks.d[..., None] * blocks.codes + blocks.m[..., None]
    return W.reshape(len(W), -1)


def round_vector(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:  # (…, columns)
    """Round a vector to 8 bits: whole numbers q (…, blocks, 32), scales s (…, blocks).

    The largest size in a block becomes 127. A block of zeros has the scale 0.
    """
    blocks = _in_blocks(x)
    s = np.abs(blocks).max(axis=-1) / np.float32(127)
    q = np.rint(blocks / np.where(s == 0, 1, s)[..., None]).astype(np.int8)
    return q, s


def whole_product(blocks: Blocks, q: np.ndarray, s: np.ndarray) -> np.ndarray:
    """Return Σ over blocks of d s Σ c q + m s Σ q: (rows,) float32.

    Parameters
    ----------
    blocks : Blocks
    q, s : ndarray, (blocks, 32) and (blocks,)
        What `round_vector` returned.
    """
    dots = (blocks.codes.astype(np.int32) * q).sum(axis=2)  # (rows, blocks), exact
    dots, sums = np.float32(dots), np.float32(q.sum(axis=1, dtype=np.int32))
    return (blocks.d * s * dots + blocks.m * s * sums).sum(axis=1)


def _in_blocks(x):  # (…, columns) -> (…, blocks, 32) float32
    x = np.asarray(x, np.float32)
    if x.ndim == 0 or x.shape[-1] % BLOCK:
        raise CourseError(f"the last axis should be a multiple of {BLOCK}; the shape is {x.shape}")
    return x.reshape(*x.shape[:-1], -1, BLOCK)


# ------------------------------------------------------------------ kernels without vectors


@kernel
def product(W, x, out):  # (rows, columns), (columns,) -> (rows,)
    """Y = x Wᵀ, float32."""
    for r in range(len(W)):
        total = np.float32(0.0)
        for i in range(len(x)):
            total += W[r, i] * x[i]
        out[r] = total


@kernel
def whole_kernel(codes, d, m, q, s, out):  # the fields of Blocks, and those of the vector
    """`whole_product` as loops: one product of whole numbers serves a block."""
    for r in range(len(codes)):
        total = np.float32(0.0)
        for b in range(len(s)):
            dot, plain = np.int32(0), np.int32(0)
            for i in range(32):
                dot = np.int32(dot + np.int32(codes[r, b, i]) * np.int32(q[b, i]))
                plain = np.int32(plain + np.int32(q[b, i]))
            total += s[b] * (d[r, b] * np.float32(dot) + m[r, b] * np.float32(plain))
        out[r] = total


# ------------------------------------------------------------------ the engine's product alone


@vector_kernel
def _products(thread, threads, sync, arena, matrices, rows, tokens, out, width):
    """All matrices times the vectors of all tokens, together with the other threads."""
    slot = 1
    for i in range(len(matrices)):
        slot = multiply(arena, matrices[i], rows, tokens, out, width, sync, slot)


@vector_kernel
def _take(thread, threads, sync, arena, matrix, rows, out, width, who, seen):
    """One product; note which thread took each piece, and what each thread sees afterwards."""
    meet(sync, threads)
    piece = atomic_add(sync, 1, 1)  # a ticket
    while piece < len(who):
        four_groups(arena, matrix, piece, rows, 0, 1, out, width)
        who[piece] = thread
        piece = atomic_add(sync, 1, 1)
    meet(sync, 2 * threads)
    for done in who:
        seen[thread] += done >= 0


class VectorMatrices:
    """Matrices of 4 bits, laid out for the engine's vectors, and a team of threads.

    Parameters
    ----------
    infos : sequence of TensorInfo
        Tensors of type Q4_1 or Q4_0, all of one shape.
    threads : int, optional
        By default as in `load_fast`.

    Raises
    ------
    CourseError
        Tensors of another type, or of different shapes; or Numba is not installed.
    """

    def __init__(self, infos: Sequence[TensorInfo], threads: int | None = None):
        if not NUMBA:
            raise CourseError("VectorMatrices needs Numba, which is not installed")
        kinds = {(info.type, info.shape) for info in infos}
        if len(kinds) != 1 or infos[0].type not in ("Q4_0", "Q4_1"):
            raise CourseError(f"the tensors should be 4-bit ones of one shape; they are {kinds}")
        self.rows, self.columns = infos[0].shape
        place = quant.layout(quant.NIBBLES, self.rows, self.columns)  # groups, blocks, bytes
        arena = np.empty((len(infos), *place), np.uint8)
        self.packed = [
            quant.pack(i.data, i.type, self.rows, self.columns, quant.NIBBLES, out)
            for i, out in zip(infos, arena, strict=True)
        ]
        self.nbytes, self._arena, self._team = arena.nbytes, arena.reshape(-1), Team(threads)
        self.threads = self._team.threads
        self._width, size = 16 * place[0], arena[0].nbytes
        group_bytes = place[1] * place[2]
        step = max(1, BYTES_AT_ONCE // (4 * group_bytes))
        self._matrices = np.recarray(len(infos), MATRIX)
        for i, matrix in enumerate(self._matrices):
            matrix.kind, matrix.at, matrix.to = quant.NIBBLES, i * size, i * self._width
            matrix.groups, matrix.columns, matrix.group_bytes = place[0], self.columns, group_bytes
            matrix.vectors, matrix.onto, matrix.step = 4, False, step

    def products(self, X: np.ndarray) -> np.ndarray:  # (n, columns) -> (n, matrices, rows)
        """Multiply all matrices with n vectors, which are rounded to 8 bits first."""
        rows, count = self._enter(X), len(self._matrices)
        out = np.empty(len(X) * count * self._width, np.float32)
        arguments = self._arena, self._matrices, rows, len(X), out, count * self._width
        self._team.run(_products, 1 + 2 * count, *arguments)
        return out.reshape(len(X), count, self._width)[..., : self.rows]

    def tickets(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Multiply the first matrix with one vector, and tell who did what.

        Returns
        -------
        tuple of ndarray
            The product (rows,); the thread that took each piece of 64 rows; and how many pieces
            each thread saw done when all had met.
        """
        who = np.full(len(self.packed[0].data) // 4, -1)
        seen = np.zeros(self.threads, np.int64)
        out = np.empty(self._width, np.float32)
        rows = self._enter(np.asarray(x)[None])
        arguments = self._arena, self._matrices[0], rows, out, self._width, who, seen
        self._team.run(_take, 2, *arguments)
        return out[: self.rows], who, seen

    def _enter(self, X):  # (n, columns) -> Activations
        X = np.asarray(X, np.float32)
        if X.ndim != 2 or X.shape[1] != self.columns:
            raise CourseError(f"X should be (n, {self.columns}); its shape is {X.shape}")
        q, s = round_vector(X)
        sums = s * np.float32(q.sum(axis=2, dtype=np.int32))  # kernels trust that it is float32
        flat = [np.ascontiguousarray(a).reshape(-1) for a in (X, q, s, sums)]
        return Activations(*flat, self.columns)


# ------------------------------------------------------------------ predictions


def pass_cost(
    config: LlamaConfig, bits: float, tokens: int = 1, before: int = 0, head_bits: float = 8.5
) -> tuple[int, float]:
    """Return the multiply-adds and the bytes of a pass over some tokens.

    Parameters
    ----------
    config : LlamaConfig
    bits : float
        Of a weight in the layers, scales and offsets included: 5 for Q4_1.
    tokens, before : int
        Tokens of the pass, of which the last alone meets the head; tokens in the cache before it.
    head_bits : float
        Of a weight in the head; 8.5 for Q8_0.

    Returns
    -------
    multiply_adds : int
    bytes : float
        Each weight once, the gains of the norms, and the cache in float32 once.
    """
    if bits <= 0 or head_bits <= 0:
        raise CourseError(f"bits should be above 0; they are {bits} and {head_bits}")
    if tokens < 1 or before < 0:
        raise CourseError(
            f"tokens should be at least 1 and before at least 0; they are {tokens} and {before}"
        )
    layers = config.L * work.weights_of_layer(config) * bits / 8
    head = config.vocabulary * config.d * head_bits / 8
    gains = 4 * (2 * config.L + 1) * config.d
    read = layers + head + gains + work.cache_bytes(config, before, 4)
    return work.multiply_adds(config, tokens, before), read


def bytes_of_parts(config: LlamaConfig, bits: float = 5, head_bits: float = 8.5) -> tuple:
    """Return the bytes that a token reads in the layers, and in the head."""
    head = config.vocabulary * config.d * head_bits / 8
    return pass_cost(config, bits, head_bits=head_bits)[1] - head, head


@vector_kernel
def _meet_once(thread, threads, sync):
    meet(sync, threads)


def token_time(model: FastLlama, prompt: Sequence[int], token: int, times: int = 16) -> dict:
    """Return the seconds of one token by part, the least of some: they add up to the whole.

    Parameters
    ----------
    model : FastLlama
    prompt : sequence of int
        What is in the cache before.
    token : int
    times : int

    Returns
    -------
    dict
        layers, head, start of threads, Python.
    """
    cache, team = model.new_cache(len(prompt) + 1), model._team
    model.logits(prompt, cache)
    run, inside, whole, layers, start = team.run, [], [], [], []

    def seconds(call, found):
        begun = time.perf_counter()
        call()
        found.append(time.perf_counter() - begun)

    def one():
        model.logits([token], cache)
        cache.truncate(len(prompt))

    runs = [batch.Run(0, np.array([token]), True)]
    team.run = lambda *given: seconds(lambda: run(*given), inside)
    try:
        for _ in range(times):
            seconds(one, whole)
    finally:
        del team.run
    cache.make_room(1)
    for _ in range(times):
        seconds(lambda: model._run(runs, [cache], [], 0, model.config.L), layers)
        seconds(lambda: run(_meet_once, 2), start)
    threads = min(start)
    return {
        "layers": min(layers) - threads,
        "head": max(0.0, min(inside) - min(layers)),
        "start of threads": threads,
        "Python": min(whole) - min(inside),
    }
