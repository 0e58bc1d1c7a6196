"""Single-head attention: Att(q, K, V) = Softmax(q Kᵀ / √d) V.

Scaled dot-product attention of Vaswani et al. 2017, section 3.2.1, for row vectors. Each kernel
is one part of the formula; `_attend` puts them together, `_attend_causal` calls it for every query.
`_attend_blocks` is the next rung, for many queries: the same steps on a block of them at a time.

NaN and infinity in a query, a key or a value show in the result: `_softmax` makes NaN of an
infinite score. Only then does the contract look for where they came from.
"""

import math

import numpy as np

from lib import reference
from lib.arguments import refuse_infinite
from lib.contract import FLOAT32, operation
from lib.errors import CourseError
from lib.jit import exp, kernel

QUERIES_PER_BLOCK = 128  # their scores over a thousand keys fit into the cache of a core
MIN_QUERIES_FOR_BLOCKS = 8  # fewer of them are faster one by one


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
    for start in range(0, m, QUERIES_PER_BLOCK):
        stop = min(start + QUERIES_PER_BLOCK, m)
        seen = n - m + stop  # what the last query of the block sees
        weights = _causal_weights(Q[start:stop], K[:seen])
        np.matmul(weights, V[:seen], out=out[start:stop])


def _keys_to_see(scores, visible):
    """Check what `softmax` is given beside the scores, and that all of these are finite."""
    refuse_infinite(scores=scores)
    return scores, None if visible is None else _visible(visible, scores.shape)


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


def _keys_for_all(Q, K, *V):
    """Check that every query has a position among the keys."""
    if len(Q) > len(K):
        raise CourseError(f"Q should have at most as many rows as K; it has {len(Q)}, K {len(K)}")
    return Q, K, *V


@operation("(n)->(n)", reference.softmax)
def _softmax_of(s):
    weights = s.copy()
    _softmax(weights)
    return weights


@operation("(m?,n)->(m?,n)", prepare=_keys_to_see)
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
    weights = np.zeros_like(scores)
    visible = np.ones(scores.shape, bool) if visible is None else visible
    rows = np.atleast_2d(weights, scores, visible)
    for out, s, seen in zip(*rows, strict=True):
        out[seen] = _softmax_of(s[seen])
    return weights


@operation("(d),(n,d),(n,d_v)->(d_v)", reference.attend)
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
    weights, out = np.empty(len(K), FLOAT32), np.empty(V.shape[1], FLOAT32)
    _attend(q, K, V, weights, out)
    return out


@operation("(d),(n,d)->(n)", reference.attention_weights)
def attention_weights(q, K):
    """Return the weights α = Softmax(q Kᵀ / √d) of one query: (d,), (n, d) -> float32 (n,).

    Raises
    ------
    CourseError
        As for `attend`.
    """
    weights = np.empty(len(K), FLOAT32)
    _scores(q, K, weights)
    _softmax(weights)
    return weights


@operation("(m,d),(n,d),(n,d_v)->(m,d_v)", reference.attend_causal,
           prepare=_keys_for_all, quiet=True)  # fmt: skip
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
    out = np.empty((len(Q), V.shape[1]), FLOAT32)
    if len(Q) < MIN_QUERIES_FOR_BLOCKS:
        _attend_causal(Q, K, V, np.empty((len(Q), len(K)), FLOAT32), out)
    else:
        _attend_blocks(Q, K, V, out)
    return out


@operation("(m,d),(n,d)->(m,n)", reference.causal_weights, prepare=_keys_for_all, quiet=True)
def causal_weights(Q, K):
    """Return the weights of every query, zero to its right: (m, d), (n, d) -> float32 (m, n).

    Raises
    ------
    CourseError
        As for `attend_causal`.
    """
    return _causal_weights(Q, K)
