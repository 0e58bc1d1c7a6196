"""Single-head attention: Att(q, K, V) = Softmax(q Kᵀ / √d) V.

Scaled dot-product attention of Vaswani et al. 2017, section 3.2.1, for row vectors. Each kernel
is one part of the formula; `_attend` puts them together, `_attend_causal` calls it for every query.
"""

import numpy as np

from lib import reference
from lib.arguments import as_float32
from lib.errors import CourseError
from lib.jit import NUMBA, kernel

FLOAT32_MAX = float(np.finfo(np.float32).max)


@kernel
def _scores(q, K, scores):
    """s = q Kᵀ / √d: (d,), (n, d) -> (n,)."""
    n, d = K.shape
    scale = np.float32(1.0 / np.sqrt(d))
    for j in range(n):
        dot = np.float32(0.0)
        for c in range(d):
            dot += q[c] * K[j, c]
        scores[j] = dot * scale


@kernel
def _softmax(scores, weights):
    """α = e^(s − max s) / Σ e^(s − max s): (n,) -> (n,). The two may be the same array."""
    n = len(scores)
    top = scores[0]
    for j in range(n):
        top = max(top, scores[j])
    total = 0.0  # float64, so that long sums lose nothing
    for j in range(n):
        weights[j] = np.exp(scores[j] - top)  # at most e⁰: this never overflows
        total += weights[j]
    for j in range(n):
        weights[j] /= total


@kernel
def _mix(weights, V, out):
    """α V, the mean of the values weighted by α: (n,), (n, d_v) -> (d_v,)."""
    out[:] = 0.0
    n, d_v = V.shape
    for j in range(n):
        for c in range(d_v):
            out[c] += weights[j] * V[j, c]


@kernel
def _attend(q, K, V, weights, out):
    """Softmax(q Kᵀ / √d) V: (d,), (n, d), (n, d_v) -> weights (n,), out (d_v,)."""
    _scores(q, K, weights)
    _softmax(weights, weights)
    _mix(weights, V, out)


@kernel
def _attend_causal(Q, K, V, weights, out):
    """`_attend` for each query over its left context: (m, d) -> weights (m, n), out (m, d_v).

    The loop stops at the query's own position: what lies to the right is never read.
    """
    m, n = len(Q), len(K)
    for i in range(m):
        seen = n - m + i + 1  # i′: the tokens before this one, and itself
        _attend(Q[i], K[:seen], V[:seen], weights[i, :seen], out[i])


def softmax(scores, visible=None):
    """Turn scores into weights that are positive and sum to one.

    Parameters
    ----------
    scores : array_like, (n,) or (m, n)
        Finite numbers of any size; rows are independent.
    visible : array_like of bool, same shape, optional
        Where False, the weight is exactly zero and the score is not read.

    Returns
    -------
    ndarray, float32, same shape

    Raises
    ------
    CourseError
        A score is not a finite number, or a row has nothing visible.
    """
    two = np.ndim(scores) == 2
    scores = as_float32("scores", scores, ("m", "n") if two else ("n",))
    rows = scores[None] if not two else scores
    if visible is not None:
        shown = _visible(visible, scores.shape).reshape(rows.shape)
        rows = np.where(shown, rows, np.float32(-np.inf))
    if not NUMBA:
        weights = reference.softmax(rows).astype(np.float32)
    else:
        weights = np.empty_like(rows)
        for i in range(len(rows)):
            _softmax(rows[i], weights[i])
    return weights.reshape(scores.shape)


def attend(q, K, V):
    """Attend with one query: Softmax(q Kᵀ / √d) V.

    Parameters
    ----------
    q : array_like, (d,)
        The query of the current token.
    K : array_like, (n, d)
        The keys of the left context and of the current token, n = i′ of them.
    V : array_like, (n, d_v)
        The values; here d_v is d, but any width is right.

    Returns
    -------
    ndarray, float32, (d_v,)
        A point inside the hull of the values.

    Raises
    ------
    CourseError
        No keys, a width that does not match, NaN or infinity, or not numbers.
    """
    q = as_float32("q", q, ("d",))
    K, V = _keys_and_values(K, V, len(q))
    return _attend_one(q, K, V)[1]


def attention_weights(q, K):
    """Return the weights α = Softmax(q Kᵀ / √d) of one query: (d,), (n, d) -> float32 (n,).

    Raises
    ------
    CourseError
        As for `attend`.
    """
    q = as_float32("q", q, ("d",))
    K = as_float32("K", K, ("n", len(q)))
    return _attend_one(q, K, np.zeros((len(K), 1), np.float32))[0]


def attend_causal(Q, K, V):
    """Attend with every query over its own left context.

    Parameters
    ----------
    Q : array_like, (m, d)
        The queries of the last m of the n positions; m = n when all are asked at once.
    K, V : array_like, (n, d) and (n, d_v)

    Returns
    -------
    ndarray, float32, (m, d_v)
        Row i is what `attend` returns for query i over keys 0 … n − m + i.

    Raises
    ------
    CourseError
        As for `attend`; also when there are more queries than keys.
    """
    Q = as_float32("Q", Q, ("m", "d"))
    K, V = _keys_and_values(K, V, Q.shape[1])
    return _attend_all(Q, K, V)[1]


def causal_weights(Q, K):
    """Return the weights of every query, zero to its right: (m, d), (n, d) -> float32 (m, n).

    Raises
    ------
    CourseError
        As for `attend_causal`.
    """
    Q = as_float32("Q", Q, ("m", "d"))
    K = as_float32("K", K, ("n", Q.shape[1]))
    return _attend_all(Q, K, np.zeros((len(K), 1), np.float32))[0]


def _attend_one(q, K, V):
    if not NUMBA or _may_overflow(q, K):
        weights, out = reference.attention_weights(q, K), reference.attend(q, K, V)
        return weights.astype(np.float32), out.astype(np.float32)
    weights = np.empty(len(K), np.float32)
    out = np.empty(V.shape[1], np.float32)
    _attend(q, K, V, weights, out)
    return weights, out


def _attend_all(Q, K, V):
    if len(Q) > len(K):
        raise CourseError(f"Q should have at most as many rows as K; it has {len(Q)}, K {len(K)}")
    if not NUMBA or _may_overflow(Q, K):
        weights, out = reference.causal_weights(Q, K), reference.attend_causal(Q, K, V)
        return weights.astype(np.float32), out.astype(np.float32)
    weights = np.zeros((len(Q), len(K)), np.float32)
    out = np.empty((len(Q), V.shape[1]), np.float32)
    _attend_causal(Q, K, V, weights, out)
    return weights, out


def _keys_and_values(K, V, d):
    K = as_float32("K", K, ("n", d))
    return K, as_float32("V", V, (len(K), "d_v"))


def _may_overflow(Q, K):
    """Tell whether a dot product could leave float32; the definition, in float64, then answers."""
    return _reach(Q) * _reach(K) * K.shape[1] > FLOAT32_MAX


def _reach(X):
    return float(max(X.max(), -X.min()))  # max |x|, without an array of the absolute values


def _visible(visible, shape):
    visible = np.asarray(visible)
    if visible.dtype != np.bool_ or visible.shape != shape:
        raise CourseError(
            f"visible should be an array of bool of shape {shape}; "
            f"it is {visible.dtype} of shape {visible.shape}"
        )
    blind = np.flatnonzero(~np.atleast_2d(visible).any(axis=1))
    if blind.size:
        raise CourseError(
            f"visible should leave at least one key to every row; row {blind[0]} has none"
        )
    return visible
