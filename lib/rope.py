"""Rotary positions: a query and a key are turned by angles that grow with their positions.

Su et al. 2021, section 3.2.2. The dot product of two turned vectors depends on the distance of
their positions alone.
"""

import numpy as np

from lib import reference
from lib.arguments import as_float32, positive
from lib.contract import operation
from lib.errors import CourseError
from lib.jit import NUMBA, kernel


@kernel
def _rotate(X, cos, sin, step, gap, out):
    """Turn pair k of every head: (n, H, d_head), (n, d_head / 2) -> (n, H, d_head).

    Pair k is made of the coordinates k·step and k·step + gap.
    """
    n, H, d_head = X.shape
    for i in range(n):
        for h in range(H):
            for k in range(d_head // 2):
                a, b = k * step, k * step + gap
                x, y = X[i, h, a], X[i, h, b]
                out[i, h, a] = x * cos[i, k] - y * sin[i, k]
                out[i, h, b] = x * sin[i, k] + y * cos[i, k]


PAIRINGS = ("interleaved", "halves")


def _turns(X, positions, base, pairing, factors):
    """Check how far the rows are to be turned, and which coordinates together."""
    positions, base, d_head = _positions(positions, len(X)), positive("base", base), X.shape[-1]
    if d_head % 2:
        raise CourseError(f"X should have rows of even width; their width is {d_head}")
    if pairing not in PAIRINGS:
        raise CourseError(f"pairing should be interleaved or halves; it is {pairing!r}")
    factors = 1.0 if factors is None else _factors(factors, d_head // 2)
    return X, positions, base, pairing, factors


def _positions(positions, n):
    positions = np.asarray(positions)
    if positions.shape != (n,) or positions.dtype.kind not in "iu" or positions.min() < 0:
        raise CourseError(
            f"positions should be {n} integers of at least 0, one for each row of X; "
            f"they are {positions.tolist()!r}"
        )
    return positions


def _factors(factors, pairs):
    factors = as_float32("factors", factors, (pairs,))
    if factors.min() <= 0:
        raise CourseError(f"factors should be above zero; the smallest is {factors.min()}")
    return factors


def _angles(positions, d_head, base, factors):
    with np.errstate(over="ignore", invalid="ignore"):
        angles = reference.rope_angles(positions, d_head, base, factors)
    if not np.isfinite(angles).all():
        raise CourseError(
            f"base and factors should give finite angles; base is {base!r}, one is infinite"
        )
    return angles


@operation("(n,…,d_head)->(n,…,d_head)", prepare=_turns)
def rope(X, positions, base=10000.0, pairing="interleaved", factors=None):
    """Rotate the pairs of each row by angle position · base^(−2k / d_head).

    Parameters
    ----------
    X : array_like, (n, d_head) or (n, …, d_head)
        Queries or keys; the first axis runs over tokens. d_head is even.
    positions : array_like of int, (n,)
        The position of each token in the text, from 0.
    base : float
        10000 in the paper; real models choose larger ones.
    pairing : {"interleaved", "halves"}
        Which coordinates form a pair: (0, 1), (2, 3) … or (0, d_head/2), (1, d_head/2 + 1) …
        A model's weights fit one of the two; Llama files in GGUF form are interleaved.
    factors : array_like, (d_head / 2,), optional
        Each pair's angle is divided by its factor: how models are stretched to longer texts than
        they were first trained on (Chen et al. 2023, section 2.3: one factor for all pairs).

    Returns
    -------
    ndarray, float32, same shape as X

    Raises
    ------
    CourseError
        An odd width, positions that are not counting numbers, an unknown pairing, factors
        that are not above zero, NaN or infinity, angles or a result beyond the range of numbers.
    """
    d_head = X.shape[-1]
    angles = _angles(positions, d_head, base, factors)  # (n, d_head / 2)
    if not NUMBA:
        return reference.rope(X, positions, base, pairing, factors)
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    step, gap = (2, 1) if pairing == "interleaved" else (1, d_head // 2)
    out = np.empty_like(X)
    heads = (len(X), -1, d_head)
    _rotate(X.reshape(heads), cos, sin, step, gap, out.reshape(heads))
    return out
