"""Norms: each token's vector is brought to a standard length before a step reads it.

`layer_norm` is Ba et al. 2016, equation 4; `rms_norm` is Zhang and Sennrich 2019, equation 4, which
leaves out the mean. Sums run in float64: squares of float32 numbers cannot overflow there.
"""

import numpy as np

from lib import reference
from lib.arguments import positive
from lib.contract import operation
from lib.jit import kernel


@kernel
def _layer_norm(X, gain, bias, eps, out):
    """Gain (x − mean) / √(var + eps) + bias, for each row: (n, d) -> (n, d)."""
    n, d = X.shape
    for i in range(n):
        mean = 0.0
        for c in range(d):
            mean += X[i, c]
        mean /= d
        variance = 0.0
        for c in range(d):
            variance += (X[i, c] - mean) ** 2
        scale = 1.0 / np.sqrt(variance / d + eps)
        for c in range(d):
            out[i, c] = (X[i, c] - mean) * scale * gain[c] + bias[c]


@kernel
def _rms_norm(X, gain, eps, out):
    """Gain x / √(mean of x² + eps), for each row: (n, d) -> (n, d)."""
    n, d = X.shape
    for i in range(n):
        squares = 0.0
        for c in range(d):
            squares += np.float64(X[i, c]) ** 2
        scale = 1.0 / np.sqrt(squares / d + eps)
        for c in range(d):
            out[i, c] = X[i, c] * scale * gain[c]


def _with_positive_eps(*arguments):
    return *arguments[:-1], positive("eps", arguments[-1])


@operation("(…,d),(d),(d)->(…,d)", reference.layer_norm, prepare=_with_positive_eps)
def layer_norm(X, gain, bias, eps=1e-5):
    """Give each row mean 0 and variance 1, then stretch by gain and shift by bias.

    Parameters
    ----------
    X : array_like, (d,) or (…, d)
    gain, bias : array_like, (d,)
    eps : float
        Added to the variance, so that a constant row gives the bias and not 0/0.

    Returns
    -------
    ndarray, float32, same shape as X

    Raises
    ------
    CourseError
        A shape that does not match, NaN or infinity, an eps that is not above zero, a result
        beyond float32.
    """
    out = np.empty_like(X)
    _layer_norm(_rows(X), gain, bias, eps, _rows(out))
    return out


@operation("(…,d),(d)->(…,d)", reference.rms_norm, prepare=_with_positive_eps)
def rms_norm(X, gain, eps=1e-5):
    """Divide each row by the root of its mean square, then stretch by gain.

    Parameters
    ----------
    X : array_like, (d,) or (…, d)
    gain : array_like, (d,)
    eps : float
        Added to the mean square, so that a row of zeros stays zero and not 0/0.

    Returns
    -------
    ndarray, float32, same shape as X

    Raises
    ------
    CourseError
        A shape that does not match, NaN or infinity, an eps that is not above zero, a result
        beyond float32.
    """
    out = np.empty_like(X)
    _rms_norm(_rows(X), gain, eps, _rows(out))
    return out


def _rows(X):
    return X.reshape(-1, X.shape[-1])  # a view: X is contiguous
