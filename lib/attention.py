"""Single-head attention: Att(q, K, V) = Softmax(q Kᵀ / √d) V.

Scaled dot-product attention of Vaswani et al. 2017, section 3.2.1, for row vectors. Each kernel
is one part of the formula; `_attend` puts them together, `_attend_causal` calls it for every query.
`_attend_blocks` is the next rung, for many queries: the same steps on a block of them at a time.

Float32 arrays are not searched for NaN and infinity beforehand: that would cost as much as
attention itself. Both show in the result, and only then does one look for where they came from.
"""

import math

import numpy as np

from lib import reference
from lib.arguments import all_finite, as_float32, refuse_infinite
from lib.errors import CourseError
from lib.jit import NUMBA, exp, kernel

FLOAT32 = np.dtype(np.float32)
BLOCK = 128  # queries: their scores over a thousand keys fit into the cache of a core
FEW = 8  # queries: fewer of them are faster one by one


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
def _softmax(s):
    """α = e^(s − max s) / Σ e^(s − max s), in the place of s: (n,) -> (n,)."""
    n = len(s)
    top = s[0]
    for j in range(n):
        top = max(top, s[j])
    for j in range(n):
        s[j] = exp(s[j] - top)  # at most e⁰: this never overflows
    total = 0.0  # float64, so that long sums lose nothing
    for j in range(n):
        total += s[j]
    for j in range(n):
        s[j] /= np.float32(total)


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
    _softmax(weights)
    _mix(weights, V, out)


@kernel
def _attend_checked(q, K, V, weights, out):
    """`_attend`, and tell whether the output is finite."""
    _attend(q, K, V, weights, out)
    total = 0.0
    for c in range(len(out)):
        total += out[c]
    return np.isfinite(total)


@kernel
def _attend_causal(Q, K, V, weights, out):
    """`_attend` for each query over its left context: (m, d) -> weights (m, n), out (m, d_v).

    The loop stops at the query's own position: what lies to the right is never read.
    """
    m, n = len(Q), len(K)
    for i in range(m):
        seen = n - m + i + 1  # i′: the tokens before this one, and itself
        _attend(Q[i], K[:seen], V[:seen], weights[i, :seen], out[i])


@kernel
def _softmax_causal(scores, first):
    """`_softmax` of each query's scores up to its own position, 0 to the right: (m, n) -> (m, n).

    Query 0 of the block stands at position ``first``.
    """
    for i in range(len(scores)):
        seen = first + i + 1
        _softmax(scores[i, :seen])
        scores[i, seen:] = 0.0


def _causal_weights(Q, K):
    """Softmax(Q Kᵀ / √d) of the last m of n positions, causally: (m, d), (n, d) -> (m, n)."""
    scores = (Q * np.float32(1.0 / math.sqrt(K.shape[1]))) @ K.T
    _softmax_causal(scores, len(K) - len(Q))
    return scores


def _attend_blocks(Q, K, V, out):
    """`_attend_causal` for a block of queries at a time: (m, d), (n, d), (n, d_v) -> out (m, d_v).

    A block reads each key and value once for all its queries, and NumPy's matrix products keep
    them in registers. The price is a triangle of scores that are computed and thrown away.
    """
    m, n = len(Q), len(K)
    for start in range(0, m, BLOCK):
        stop = min(start + BLOCK, m)
        seen = n - m + stop  # what the last query of the block sees
        weights = _causal_weights(Q[start:stop], K[:seen])
        np.matmul(weights, V[:seen], out=out[start:stop])


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
    scores = as_float32("scores", scores, ("m", "n") if np.ndim(scores) == 2 else ("n",))
    if visible is not None:
        visible = np.atleast_2d(_visible(visible, scores.shape))
    weights = np.zeros_like(scores)
    for i, (row, s) in enumerate(zip(np.atleast_2d(weights), np.atleast_2d(scores), strict=True)):
        seen = slice(None) if visible is None else visible[i]
        row[seen] = _softmax_of(s[seen])
    return weights


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
    if not _ready(q, K, V, axes=1):
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
    if not _ready(Q, K, V, axes=2):
        Q = as_float32("Q", Q, ("m", "d"))
        K, V = _keys_and_values(K, V, Q.shape[1])
    _refuse_more_queries(Q, K)
    if NUMBA:
        with np.errstate(over="ignore", invalid="ignore"):  # the next line finds what they did
            out = _attend_all(Q, K, V)
        if all_finite(out):
            return out
    refuse_infinite(Q=Q, K=K, V=V)
    return reference.attend_causal(Q, K, V).astype(np.float32)


def causal_weights(Q, K):
    """Return the weights of every query, zero to its right: (m, d), (n, d) -> float32 (m, n).

    Raises
    ------
    CourseError
        As for `attend_causal`.
    """
    Q = as_float32("Q", Q, ("m", "d"))
    K = as_float32("K", K, ("n", Q.shape[1]))
    _refuse_more_queries(Q, K)
    if NUMBA:
        with np.errstate(over="ignore", invalid="ignore"):
            weights = _causal_weights(Q, K)
        if all_finite(weights):
            return weights
    return reference.causal_weights(Q, K).astype(np.float32)


# --- What stands between the checked arguments and the kernels -----------------------------------


def _softmax_of(s):
    weights = s.copy()
    if NUMBA:
        _softmax(weights)
        if all_finite(weights):
            return weights
    return reference.softmax(s).astype(np.float32)  # the gap between two scores left float32


def _attend_one(q, K, V):
    if NUMBA:
        weights = np.empty(len(K), np.float32)
        out = np.empty(V.shape[1], np.float32)
        if _attend_checked(q, K, V, weights, out):
            return weights, out
    refuse_infinite(q=q, K=K, V=V)  # otherwise a score left float32: the definition answers
    weights, out = reference.attention_weights(q, K), reference.attend(q, K, V)
    return weights.astype(np.float32), out.astype(np.float32)


def _attend_all(Q, K, V):
    out = np.empty((len(Q), V.shape[1]), np.float32)
    if len(Q) < FEW:
        _attend_causal(Q, K, V, np.empty((len(Q), len(K)), np.float32), out)
    else:
        _attend_blocks(Q, K, V, out)
    return out


def _ready(Q, K, V, axes):
    """Tell whether the kernels can take the arguments as they are, but for their numbers."""
    for X in (Q, K, V):
        if type(X) is not np.ndarray or X.dtype != FLOAT32 or not X.flags.c_contiguous:
            return False
    shapes_fit = Q.shape[-1:] == K.shape[1:] and len(K) == len(V)
    return shapes_fit and Q.ndim == axes and V.ndim == 2 and 0 not in Q.shape + V.shape


def _keys_and_values(K, V, d):
    K = as_float32("K", K, ("n", d))
    return K, as_float32("V", V, (len(K), "d_v"))


def _refuse_more_queries(Q, K):
    if len(Q) > len(K):
        raise CourseError(f"Q should have at most as many rows as K; it has {len(Q)}, K {len(K)}")


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
