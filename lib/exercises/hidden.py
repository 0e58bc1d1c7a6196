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

from lib import reference
from lib.exercises import t08_read_a_model as t08
from lib.exercises import t09_your_llama as t09
from lib.exercises.building import Building, Given, Rung
from lib.exercises.t06_build_the_stack import ADD, ALMOST_ONE, TIMES
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

    def sizes(self, count: int) -> list[int]:
        """Return sizes from 3 to 9, no two of them equal."""
        return [int(size) for size in self.rng.choice(np.arange(3, 10), count, replace=False)]

    def quarters(self, *shape: int) -> np.ndarray:
        """Return multiples of 1/4: beside 1000 they are exact in float32 too."""
        return self.rng.integers(-8, 9, shape) / 4

    def far(self) -> int:
        """Return a number whose exponential no float holds, in float32 or float64."""
        return self.whole(800, 1200)


# What scores are near to, for so many keys. Each breaks another softmax that does not hold.
def _high(r: _Chance, n: int) -> np.ndarray:
    return np.full(n, r.far())


def _low(r: _Chance, n: int) -> np.ndarray:
    return np.full(n, -r.far())


def _rising(r: _Chance, n: int) -> np.ndarray:
    return r.far() * np.arange(1 - n, 1)  # the largest one is 0


def _falling(r: _Chance, n: int) -> np.ndarray:
    return r.far() * np.arange(n, 0, -1)


def _scored(r: _Chance, near: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a query and keys whose scores are near to these numbers, and exact in float32."""
    q = r.rng.choice([-1.0, 1.0], 4)  # of width 4, so the scale is 1/2
    return q, np.outer(near / 2, q) + r.rng.integers(-1, 2, (len(near), 4))


def _one(near: Callable | None = None) -> Callable:
    """Return how arguments of attention for one query are drawn."""

    def draw(r: _Chance) -> tuple:
        n, d, d_v = r.sizes(3)
        q, K = _scored(r, near(r, n)) if near else (r(d), r(n, d))
        return q, K, r(n, d_v)

    return draw


def _last(near: Callable | None = None, m: int = 0, wide: int = 0) -> Callable:
    """Return how arguments of attention are drawn, for the last m queries; for all, if m is 0."""

    def draw(r: _Chance) -> tuple:
        n, d, d_v = r.sizes(3)
        if near:
            q, K = _scored(r, near(r, n))
            return np.tile(q, (m or n, 1)), K, r(n, d_v)
        return r(m or n, wide or d), r(n, wide or d), r(n, d_v)

    return draw


def _without_values(draw: Callable) -> Callable:
    return lambda r: draw(r)[:2]


def _below_any_mask(r: _Chance) -> tuple:
    """The first token finds itself with a score far below what a mask may be made of."""
    near = -1e9 * np.array([r.whole(3, 9), *[0] * r.whole(2, 6)])
    q, K = _scored(r, near)
    return np.tile(q, (len(near), 1)), K


def _softmax_rows(r: _Chance) -> np.ndarray:
    n, m = r.sizes(2)
    return r.quarters(n, m) + (r.far() * r.rng.permutation(np.arange(n) - n // 2))[:, None]


def _softmax_apart(r: _Chance) -> np.ndarray:
    scores = r.quarters(r.whole(4, 10))
    scores[r.whole(0, len(scores))] = 3 * r.far()
    return scores


def _ffn(r: _Chance) -> tuple:
    n, d, d_ff = r.sizes(3)
    return r(n, d), r(d, d_ff), r(d_ff), r(d_ff, d), r(d)


def _layer_norm(r: _Chance) -> tuple:
    n, d = r.sizes(2)
    X = r(n, d)
    X[r.whole(0, n)] = r.whole(2, 9)  # a row of equal numbers
    return X, r(d), r(d), float(r.rng.choice([1e-5, 0.3, 7.0]))


def _step(r: _Chance) -> Given:
    a, b, c = (float(number) for number in r(3))
    return Given(f"returns {a} X² + {b} X + {c}", lambda X: a * X**2 + b * X + c)


def _residual(r: _Chance) -> tuple:
    n, d = r.sizes(2)
    return r(n, d), _step(r), _step(r)


def _layer(r: _Chance) -> tuple:
    n, d, d_ff = r.sizes(3)
    w = random_layer(d, d_ff, seed=r.whole(0, 10**9))
    return r(n, d), replace(w, gain_1=r(d), bias_1=r(d), gain_2=r(d), bias_2=r(d))


def _stack(r: _Chance) -> tuple:
    n, d, L = r.sizes(3)
    return r(n, d), [r(d, d) for _ in range(L)], TIMES


def _sums(r: _Chance) -> tuple:
    n, d, L = r.sizes(3)
    return r(n, d), [float(number) for number in r(L)], ADD


def _predictions(r: _Chance) -> tuple:
    n, d, vocabulary, L = r.sizes(4)
    W = r(d, vocabulary)
    head = Given(f"head(x) = x @ W, with W of shape {W.shape}", lambda x: x @ W)
    return r(n, d), [2 * r(d) for _ in range(L)], ADD, head


def _drawn(r: _Chance) -> tuple:
    return r(r.whole(5, 12)), r.whole(3, 25) / 10, float(r.rng.random())


def _largest(r: _Chance) -> tuple:
    return r(r.whole(5, 12)), 0, float(r.rng.random())


def _equals(r: _Chance) -> tuple:
    logits = r(r.whole(5, 12))
    logits[r.rng.choice(len(logits), 2, replace=False)] = logits.max() + 1
    return logits, 0, float(r.rng.random())


def _large_logits(r: _Chance) -> tuple:
    return r.far() + r.quarters(r.whole(5, 12)), 1, float(r.rng.random())


def _impossible(r: _Chance) -> tuple:
    logits = r(r.whole(5, 12))
    logits[: r.whole(1, 4)] = -1e6 * r.whole(1, 9)
    return logits, 1, 0.0


# So many equal tokens whose probabilities add up to less than 1, by rounding.
_SHORT_SUMS = [n for n in range(5, 60) if np.cumsum(reference.softmax(np.zeros(n)))[-1] < 1]


def _beyond(r: _Chance) -> tuple:
    return np.full(r.rng.choice(_SHORT_SUMS), r.whole(-9, 9) / 4), 1, ALMOST_ONE


def _step_with_cache(r: _Chance) -> tuple:
    n, d = r.sizes(2)
    if n + 1 == d:  # with the new token there would be as many keys as coordinates
        n = d + 1
    return r(d), r(n, d), r(n, d), r(d, d), r(d, d), r(d, d)


def _empty_cache(r: _Chance) -> tuple:
    (d,) = r.sizes(1)
    return r(d), np.zeros((0, d)), np.zeros((0, d)), r(d, d), r(d, d), r(d, d)


def _large_with_cache(r: _Chance) -> tuple:
    n = r.whole(5, 9)
    q, K = _scored(r, _high(r, n))
    return q, K, r(n, 4), np.eye(4), np.eye(4)[r.rng.permutation(4)], r(4, 4)


_LAST_QUERIES = (
    *map(_last, [None] * 3, (1, 2, 0)),
    _last(_high, 2),
    _last(_low, 1),
    _last(_rising, 2),
)
_ONE_QUERY = (_one(), _one(), _one(_high), _one(_low), _one(_rising), _one(_falling))

# For each function that is built, how the arguments of its rungs are drawn: r -> arguments. There
# is one for each mechanism of its ladder, since a function may know the shown inputs by heart.
# No two sizes are equal that could differ, and they are not the same for everybody.
ARGUMENTS: dict[str, tuple[Callable, ...]] = {
    "scores": (
        *[_without_values(_one())] * 2,
        lambda r: (lambda d: (r(d), r(3, d)))(r.whole(17, 40)),  # wide
    ),
    "softmax": (
        lambda r: (2 * r(*r.sizes(2)),),
        lambda r: (r.quarters(r.whole(3, 9)) + r.far(),),
        lambda r: (r.quarters(r.whole(3, 9)) - r.far(),),
        lambda r: (_softmax_rows(r),),
        lambda r: (_softmax_apart(r),),
    ),
    "attend": _ONE_QUERY,
    "causal_weights": (
        *[_without_values(_last(near)) for near in (None, _high, _low, _rising)],
        _without_values(_last(wide=17)),
        _below_any_mask,
    ),
    "attend_causal": (_last(), _last(), _last(wide=17), *map(_last, (_high, _low, _rising))),
    "attend_last": _LAST_QUERIES,
    "gelu": (
        lambda r: (2 * r(*r.sizes(2)),),
        lambda r: (20 * r(r.whole(3, 9)),),
        lambda r: (r.rng.uniform(2.2, 3.2, (2, 3)) * r.rng.choice([-1, 1], (2, 3)),),
    ),
    "ffn": (_ffn,) * 4,
    "layer_norm": (_layer_norm,) * 6,
    "residual_layer": (_residual,) * 4,
    "layer": (_layer,) * 4,
    "stack": (_stack, _sums, _stack, _sums),
    "predictions": (_predictions,) * 4,
    # One token of few: guesses hit often, so there are many.
    "next_token": (
        *[_drawn] * 40,
        *[draw for draw in (_largest, _equals, _large_logits, _impossible, _beyond) for _ in "123"],
    ),
    "decode_step": (*[_step_with_cache] * 3, _empty_cache, _large_with_cache),
    "my_attention": _LAST_QUERIES,
    # The loop is run for each of them, which takes as long as it is large.
    "multiply_adds": (lambda r: (r.whole(4, 30), r.whole(2, 40)),) * 12,
    "bytes_of_query": (lambda r: (r.whole(3, 90), r.whole(2, 90), r.whole(1, 9)),) * 12,
    "attend_one": _ONE_QUERY,
    "attend_all": (_last(), _last(), _last(_high), _last(_low), _last(_rising)),
    "attend_online": _ONE_QUERY,
    **t08.HIDDEN,
    **t09.HIDDEN,
}


def _rungs(name: str, r: _Chance, shaped: Callable) -> list[Rung]:
    return [Rung(MECHANISM, MEANING, shaped(draw(r))) for draw in ARGUMENTS[name]]


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
