"""Instruments: what a function of (n, d) arrays does to positions, measured from outside."""

import numpy as np


def movement(f, X, j, change=1.0):
    """Change token j and tell how far each output moves: (n, d) -> (n,).

    Parameters
    ----------
    f : callable
        Maps (n, d) to (n, d).
    X : ndarray, (n, d)
    j : int
        The token to change.
    change : float or array_like, (d,)
        What is added to its vector.

    Returns
    -------
    ndarray, float64, (n,)
        The largest difference in each output row; exactly zero where nothing moved.
    """
    changed = np.array(X)
    changed[j] += change
    return np.abs(np.float64(f(changed)) - np.float64(f(X))).max(axis=1)


def jacobian(f, X, step=1e-5):
    """Return the derivative of every output by every input, by central differences.

    Parameters
    ----------
    f : callable
        Maps (n, d) to (n, d), in float64: a function of `lib.reference`.
    X : ndarray, (n, d)
    step : float
        With float64 the error is about step² and 1e-16 / step: 1e-10 of either at 1e-5.

    Returns
    -------
    ndarray, float64, (n, d, n, d)
        Entry [i, a, j, b] is how fast coordinate a of output i moves with coordinate b of token j.
    """
    X = np.array(X, np.float64)
    derivative = np.empty((*np.shape(f(X)), *X.shape))
    for j, b in np.ndindex(*X.shape):
        ahead, behind = X.copy(), X.copy()
        ahead[j, b] += step
        behind[j, b] -= step
        derivative[:, :, j, b] = (f(ahead) - f(behind)) / (2 * step)
    return derivative


def influence(f, X, step=1e-5):
    """Return the size of each block of the `jacobian`: (n, n), the Frobenius norm of block [i, j].

    Zero in row i, column j means that output i does not depend on token j.
    """
    return np.sqrt((jacobian(f, X, step) ** 2).sum(axis=(1, 3)))


def movements(f, X, change=1.0):
    """Change each token in turn and tell how far each output moves: (n, d) -> (n, n).

    Row i, column j is how far output i moves when token j changes: the coarse picture that
    `influence` draws finely, for functions of any precision. Arguments are those of `movement`.
    """
    before = np.float64(f(X))
    moved = np.empty((len(X), len(X)))
    for j in range(len(X)):
        changed = np.array(X)
        changed[j] += change
        moved[:, j] = np.abs(np.float64(f(changed)) - before).max(axis=1)
    return moved


def score_factors(weights, other):
    """Compare the scores behind two sets of weights: (m, n), (m, n) -> (pairs,).

    The log of the ratio of two weights of one query is the difference of their scores. For each
    query and each two keys that have a weight in both, the factor is that difference in
    ``weights``, divided by that in ``other``: all 1 if the scores are the same, all √d if a
    division by √d was left out, all 0 if the scores of ``weights`` are equal.

    Parameters
    ----------
    weights, other : array_like, (m, n)
        One row for each query. Pairs of keys whose scores in ``other`` differ by less than 0.001
        are passed over.

    Returns
    -------
    ndarray, float64, (pairs,)
        Empty if no query gives weight to two keys.
    """
    factors = []
    for row, beside in zip(np.float64(weights), np.float64(other), strict=True):
        seen = np.flatnonzero((row > 0) & (beside > 0))
        first, second = np.triu_indices(len(seen), 1)
        rise = [np.log(r[seen[first]]) - np.log(r[seen[second]]) for r in (row, beside)]
        clear = np.abs(rise[1]) > 1e-3
        factors.append(rise[0][clear] / rise[1][clear])
    return np.concatenate(factors)


def nonlinearity(f, A, B):
    """Tell how far f is from a linear function with a constant: the size of what must cancel.

    For a linear function plus a constant, such as x W + b, and for no other smooth f, the sum
    f(A) + f(B) − f(A + B) − f(0) is zero for all A and B.

    Parameters
    ----------
    f : callable
        Maps (n, d) to (n, d).
    A, B : ndarray, (n, d)

    Returns
    -------
    float
        The largest of the absolute values.
    """
    gap = np.float64(f(A)) + f(B) - f(A + B) - f(np.zeros_like(A))
    return float(np.abs(gap).max())
