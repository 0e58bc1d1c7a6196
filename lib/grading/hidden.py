"""Inputs that nobody has seen before: more rungs at the top of each ladder.

The other inputs lie in `lib`, for everybody to read, so a function could know their results by
heart. These are made of a seed that depends on the submission itself and on a secret of the run:
the same submission meets the same inputs again, and no submission can hold their results.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from lib.exercises.building import Building, Given, Rung
from lib.exercises.t05_build_a_layer import DOUBLE, SQUARE
from lib.exercises.t06_build_the_stack import ADD, TIMES
from lib.exercises.work import Kernel
from lib.layer import random_layer

MECHANISM = "numbers of its own"
MEANING = "All of it together, on numbers that no other submission gets."


def seed_of(*texts: str) -> int:
    """Return a seed that depends on all of the texts."""
    digest = hashlib.sha256("\0".join(texts).encode("utf-8", "replace")).digest()
    return int.from_bytes(digest[:8], "big")


class _Chance:
    """Signed numbers without any symmetry."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def __call__(self, *shape: int) -> np.ndarray:
        return self.rng.normal(size=shape).round(2)

    def whole(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high))


def _head(r: _Chance) -> Given:
    W = r(4, 6)
    return Given("head(x) = x @ W, with W of shape (4, 6)", lambda x: x @ W)


def _layer(r: _Chance) -> tuple:
    w = random_layer(5, 7, seed=r.whole(0, 10**9))
    return r(4, 5), replace(w, gain_1=r(5), bias_1=r(5), gain_2=r(5), bias_2=r(5))


# For each function that is built: r -> its arguments. No two sizes are equal that could differ.
ARGUMENTS: dict[str, Callable] = {
    "scores": lambda r: (r(6), r(4, 6)),
    "softmax": lambda r: (900 + 2 * r(3, 5),),
    "attend": lambda r: (r(5), r(6, 5), r(6, 3)),
    "causal_weights": lambda r: (r(6, 4), r(6, 4)),
    "attend_causal": lambda r: (r(6, 4), r(6, 4), r(6, 3)),
    "attend_last": lambda r: (r(2, 4), r(5, 4), r(5, 3)),
    "gelu": lambda r: (2 * r(3, 4),),
    "ffn": lambda r: (r(4, 5), r(5, 7), r(7), r(7, 5), r(5)),
    "layer_norm": lambda r: (r(4, 6), r(6), r(6), 0.3),
    "residual_layer": lambda r: (r(4, 3), SQUARE, DOUBLE),
    "layer": _layer,
    "stack": lambda r: (r(4, 3), [r(3, 3) for _ in range(3)], TIMES),
    "predictions": lambda r: (r(3, 4), [2 * r(4) for _ in range(5)], ADD, _head(r)),
    "next_token": lambda r: (r(8), 0.7, float(r.rng.random())),
    "decode_step": lambda r: (r(4), r(3, 4), r(3, 4), r(4, 4), r(4, 4), r(4, 4)),
    "my_attention": lambda r: (r(2, 4), r(5, 4), r(5, 3)),
    "multiply_adds": lambda r: (r.whole(4, 60), r.whole(2, 40)),
    "bytes_of_query": lambda r: (r.whole(3, 90), r.whole(2, 90), r.whole(1, 9)),
    "attend_one": lambda r: (r(5), r(6, 5), r(6, 3)),
    "attend_all": lambda r: (r(6, 4), r(6, 4), r(6, 3)),
    "attend_online": lambda r: (r(5), r(6, 5), r(6, 3)),
}


# Rungs of hidden numbers. Where an answer is one number of few, guesses would hit too often.
RUNGS = {"next_token": 40, "multiply_adds": 40, "bytes_of_query": 40}


def _rungs(name: str, r: _Chance, shaped: Callable) -> list[Rung]:
    count = RUNGS.get(name, 4)
    return [Rung(MECHANISM, MEANING, shaped(ARGUMENTS[name](r))) for _ in range(count)]


def building(shown: Building, seed: int) -> Building:
    """Return a ladder with more rungs at its top."""
    return replace(shown, rungs=(*shown.rungs, *_rungs(shown.name, _Chance(seed), tuple)))


def kernel(shown: Kernel, seed: int) -> Kernel:
    """Return a kernel with more rungs, whose work is counted on numbers that it is never shown.

    Queries and keys are stretched only: how often a loop finds a larger score stays the same.
    """
    r = _Chance(seed)
    values = replace(shown.values, rungs=(*shown.values.rungs, *_rungs(shown.name, r, _single)))
    q, K, V = shown.inputs
    counted = q * r.rng.uniform(0.6, 1.4), K * r.rng.uniform(0.6, 1.4), r(*V.shape)
    return replace(shown, values=values, counted=_single(counted))


def _single(arrays: tuple) -> tuple:
    return tuple(array.astype(np.float32) for array in arrays)
