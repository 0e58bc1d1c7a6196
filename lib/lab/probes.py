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
