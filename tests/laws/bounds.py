"""How far a computation in float32 may be from its definition: bounds, derived and not tuned.

Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd edition 2002; sections in brackets.

- An operation on float32 numbers returns its exact result times 1 + δ, |δ| ≤ U = 2⁻²⁴ (2.2), and
  below the normal numbers it is wrong by at most TINY = 2⁻¹⁵⁰ instead (2.8); sums are exact there.
- n factors 1 + δ together are within 1 ± γₙ, γₙ = n U / (1 - n U) (3.1).
- A sum of n products is within γₙ Σ |a||b| of the exact one, in any order, with fused products or
  without (3.1, 3.5): the bound for matrix products, and the reason why a compiler may reorder.

The oracle's own errors in float64 are 2⁻²⁹ of these. Each γ below has room for one more U than
needed, which covers them, and what the bounds themselves are rounded by.

A `Near` carries a value by definition and a bound on how far the computed number may be from it.
Each function takes such numbers and returns such numbers, so that bounds compose as operations do.
"""

from typing import NamedTuple

import numpy as np

from lib import reference

U = 2.0**-24  # of float32: half the distance from 1 to the next number
TINY = 2.0**-150  # half the smallest number above zero
U_64 = 2.0**-53
LARGEST = float(np.finfo(np.float32).max)


class Near(NamedTuple):
    """Numbers by definition, and how far from them the computed ones may be."""

    value: np.ndarray
    error: np.ndarray

    @property
    def size(self):
        """The largest that a computed number may be, without its sign."""
        return np.abs(self.value) + self.error

    @property
    def T(self):
        """Rows and columns exchanged."""
        return Near(self.value.T, self.error.T)

    def __getitem__(self, key):
        """Return a part; both halves are cut alike."""
        return Near(self.value[key], self.error[key])

    def reshape(self, *shape):
        """Return the same numbers in another shape."""
        return Near(self.value.reshape(*shape), self.error.reshape(*shape))


def exact(X):
    """Take numbers as they are."""
    X = np.asarray(X, dtype=np.float64)
    return Near(X, np.zeros_like(X))


def assert_near(got, right):
    """Assert that numbers are finite and within the bound; name the worst."""
    got = np.asarray(got, dtype=np.float64)
    assert got.shape == right.value.shape, f"{got.shape}, and not {right.value.shape}"
    assert np.isfinite(got).all(), f"not finite: {got}"
    if not got.size:
        return
    excess = np.abs(got - right.value) - right.error
    assert not np.isnan(excess).any(), "the bound is not a number"
    at = np.unravel_index(np.argmax(excess), excess.shape)
    assert excess[at] <= 0, (
        f"at {at}: {got[at]!r} is {abs(got[at] - right.value[at]):.2e} from {right.value[at]!r}; "
        f"at most {right.error[at]:.2e} is due to rounding"
    )


def gamma(n):
    """Return γₙ, the bound on n roundings together."""
    return n * U / (1 - n * U)


def rounded(x, n):
    """Add the error of n more roundings."""
    return Near(x.value, x.error + gamma(n) * x.size + n * TINY)


def add(x, y):
    """x + y, rounded once."""
    value, error = x.value + y.value, x.error + y.error
    return Near(value, error + U * (np.abs(value) + error))


def multiply(A, B, more=0, size=None):
    """A B, a sum of k products for each number, with some `more` roundings.

    Where a product is made of larger parts that cancel, `size` is theirs, in place of |B|.
    """
    k = A.value.shape[-1]
    size = A.size @ (B.size if size is None else size)
    passed_on = A.error @ B.size + np.abs(A.value) @ B.error
    return Near(A.value @ B.value, passed_on + gamma(k + 1 + more) * size + (k + more) * TINY)


# --- Attention ------------------------------------------------------------------------------------

# Of e^x, x ≤ 0: the subtraction of the largest score and the reduction of the argument, k ln 2 with
# ln 2 rounded, are wrong by U |x| and 2 U (|x| + 0.35). The Taylor series in Horner's form, for
# |r| ≤ 0.35: the last step rounds by U and passes on |1 - e^-r| ≤ 0.42 of what came before, which
# is a product, a division (by a reciprocal: two roundings) and a step of the same kind: under 4.2 U
# in all; what the series leaves out is r⁸ / 8! ≤ 0.2 U. The exponentials of NumPy (2.6 units in
# the last place, 5.2 U) and of the engine (2e-7, 3.4 U) need less. Then the sum, in float64 and
# rounded once, and the division: 3 U. Together 3 U |x| + 9 U, and one U for products of errors.
EXP_PER_X, EXP = 3, 10
# Below e^-87 the core takes 0 and the engine e^-87; the sum of all is at least 1.
CUT = 2 * float(np.exp(-87.0))


def softmax(scores, visible=True, more=0):
    """Weights of scores, along the last axis.

    If each score is wrong by a_j, e^(s_j ± a_j) over the sum of e^(s_i ∓ a_i) bounds the weight
    from both sides; the errors of e^x count as errors a of its argument, since 1 + δ ≤ e^δ.
    """
    s = np.where(visible, scores.value, -np.inf)
    x = s - s.max(-1, keepdims=True)
    far = np.where(visible, np.abs(x), 0.0)
    a = np.where(visible, scores.error + U * (EXP_PER_X * far + EXP + more), 0.0)
    high = np.exp(np.minimum(x + a - _log_sum(x - a), 0.0))
    low = np.exp(x - a - _log_sum(x + a))
    value = reference.softmax(scores.value, visible)
    off = np.maximum(high - value, value - low) + CUT
    return Near(value, np.where(visible, np.minimum(off, 1.0), 0.0))


def _log_sum(x):
    top = x.max(-1, keepdims=True)
    return top + np.log(np.exp(x - top).sum(-1, keepdims=True))


def scores(Q, K):
    """Q Kᵀ / √d; the scale, and Q times the scale or the product times it, are rounded.

    Where the scale is applied to Q, a number that underflows there meets every key.
    """
    root = np.sqrt(K.value.shape[-1])
    s = multiply(Q, K.T, more=3)
    lost = TINY * (1 + K.size.sum(-1))
    return Near(s.value / root, s.error / root + lost)


def attention(Q, K, V, more=0):
    """Softmax(Q Kᵀ / √d) V, causally: the queries belong to the last of the positions."""
    m, n = len(Q.value), len(K.value)
    visible = np.arange(n) <= np.arange(n - m, n)[:, None]
    weights = softmax(scores(Q, K), visible, more)
    return weights, multiply(weights, V, more)


def streamed(n):
    """Return what the fast engine's attention over n keys rounds beyond the core's.

    The weights are added up in float32 in 16 lanes, n / 16 terms and four halvings; for each
    block of 64 keys a sum is multiplied by an exponential (3.4 U and a rounding) and added to.
    """
    return n // 16 + 10 + 7 * (n // 64 + 1)


# --- FFN ------------------------------------------------------------------------------------------

# The steepest that an activation gets: GELU, at √2, 1/2 (1 + erf 1) + e⁻¹/√π = 1.129; its
# approximation 1.13; SiLU, at 2.4, 1.1.
STEEPEST = 1.13


def activation(x, name):
    """φ(x), computed in float64 and rounded.

    1 + erf and 1 + tanh cancel in the left tail: what they lose is a few units of float64, times
    x, in the definition and in the kernel alike.
    """
    value = reference.ACTIVATIONS[name](x.value)
    return rounded(Near(value, STEEPEST * x.error + 8 * U_64 * x.size), 2)


def gated(gate, up):
    """silu(gate) · up, computed in float64 or as a product in float32, after an exponential."""
    s = activation(gate, "silu")
    error = s.error * up.size + np.abs(s.value) * up.error
    # The engine holds e^x at e^88, and its exponential and 1 + e^-x take 7 U of silu(gate).
    error += gamma(8) * s.size * up.size + np.exp(-87.0) * gate.size * up.size
    return Near(s.value * up.value, error + 2 * TINY * (1 + up.size))


def ffn(X, W_1, b_1, W_2, b_2, name):
    """φ(X W₁ + b₁) W₂ + b₂, and the largest number on the way."""
    before = add(multiply(X, W_1), b_1)
    hidden = activation(before, name)
    out = add(multiply(hidden, W_2), b_2)
    sums = [X.size @ W_1.size + b_1.size, hidden.size @ W_2.size + b_2.size]
    return out, max(size.max() for size in sums)


def swiglu(X, W_gate, W_up, W_down):
    """(silu(X W_gate) ⊙ X W_up) W_down, and the largest number on the way."""
    gate, up = multiply(X, W_gate), multiply(X, W_up)
    hidden = gated(gate, up)
    sums = [X.size @ W_gate.size, X.size @ W_up.size, hidden.size, hidden.size @ W_down.size]
    return multiply(hidden, W_down), max(size.max() for size in sums)


# --- Norms ----------------------------------------------------------------------------------------


def rms_norm(X, gain, eps, sums=0):
    """Gain x / N, N = √(mean of x² + eps), computed in float64 and rounded, or with `sums`.

    N as a function of x has slope at most 1/√d: an error e of x moves it by ν = |e|₂ / √d at most.
    With x moved by e and N by ν, x / N moves by |e| / N' + |x| ν / (N N'), N' ≥ max(√eps, N - ν).
    `sums` is the number of roundings in a sum of squares in float32; the root halves their error.
    """
    d = X.value.shape[-1]
    N = np.sqrt((X.value**2).mean(-1, keepdims=True) + eps)
    nu = np.sqrt((X.error**2).mean(-1, keepdims=True))
    least = np.maximum(np.sqrt(eps), N - nu)
    moved = X.error / least + np.abs(X.value) * nu / (N * least)
    value = reference.rms_norm(X.value, gain, eps)
    own = (2 * U + d * U_64) * np.abs(value)
    if sums:  # also the root, x · 1/N and the gain; squares and x / N may underflow
        own += gamma(sums / 2 + 5) * (np.abs(value) + np.abs(gain) * moved)
        own += np.abs(value) * d * TINY / eps + TINY * np.abs(gain)
    return Near(value, np.abs(gain) * moved * (1 + 2 * U) + own + TINY)


def layer_norm(X, gain, bias, eps):
    """Gain (x - mean) / N + bias in float64, rounded once: x - mean is wrong by e + mean of e.

    The mean itself is wrong by (d + 2) units of float64: that counts where it is large beside
    what is left when it is taken away.
    """
    d = X.value.shape[-1]
    mean = X.value.mean(-1, keepdims=True)
    average = X.error.mean(-1, keepdims=True)
    average = average + (d + 2) * U_64 * np.abs(X.value).mean(-1, keepdims=True)
    centred = Near(X.value - mean, X.error + average)
    stretched = rms_norm(centred, gain, eps)
    value = reference.layer_norm(X.value, gain, bias, eps)
    return Near(value, stretched.error + 2 * U * (np.abs(value) + stretched.error) + TINY)


# --- Rotary positions -----------------------------------------------------------------------------


def rope(X, angles, pairing="interleaved"):
    """Turn the pairs of X, (n, H, d_head): cos and sin rounded, two products, one sum."""
    half = X.value.shape[-1] // 2
    k = np.arange(half)
    first, second = (2 * k, 2 * k + 1) if pairing == "interleaved" else (k, k + half)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    x, y = X[..., first], X[..., second]
    value, error = np.empty_like(X.value), np.empty_like(X.value)
    for place, c, s, sign in ((first, cos, sin, -1), (second, sin, cos, 1)):
        value[..., place] = x.value * c + sign * y.value * s
        passed_on = x.error * np.abs(c) + y.error * np.abs(s)
        own = gamma(4) * (x.size * np.abs(c) + y.size * np.abs(s))
        # sin of an angle near a multiple of π is as exact as the angle, which has 53 bits.
        error[..., place] = passed_on + own + 3 * TINY
    return Near(value, error)


# --- One layer ------------------------------------------------------------------------------------


def attention_step(X, w):
    """Attention over the left context, between its projections."""
    Q, K, V = (multiply(X, exact(W)) for W in (w.W_Q, w.W_K, w.W_V))
    return multiply(attention(Q, K, V)[1], exact(w.W_O))


def ffn_step(X, w):
    """The FFN."""
    return ffn(X, exact(w.W_1), exact(w.b_1), exact(w.W_2), exact(w.b_2), w.activation)[0]


def two_steps(X, w):
    """The two steps alone."""
    return ffn_step(attention_step(X, w), w)


def residual_layer(X, w):
    """The two steps, each added to what entered it."""
    H = add(X, attention_step(X, w))
    return add(H, ffn_step(H, w))


def layer(X, w):
    """The layer with norms before its steps."""
    H = add(X, attention_step(layer_norm(X, w.gain_1, w.bias_1, 1e-5), w))
    return add(H, ffn_step(layer_norm(H, w.gain_2, w.bias_2, 1e-5), w))


# --- Blocks of 8 bits and 16-bit floats -----------------------------------------------------------


def to_8_bits(X):
    """Each block of 32 as whole numbers q times a scale, the largest size / 127.

    The definition rounds as the engine does. Where x · 127 / top is further from a half than it
    may be wrong, both find the same q, and the scale's error is all; elsewhere q may be the
    neighbour: both are within half a step of what they round.
    """
    n, columns = X.value.shape
    X = X.reshape(n, columns // 32, 32)
    top, off = np.abs(X.value).max(-1, keepdims=True), X.error.max(-1, keepdims=True)
    back = 127 / np.where(top == 0, 1, top)
    t = X.value * back
    q = np.rint(t)
    wrong = X.error * back + np.abs(t) * (off * back / 127 + gamma(3))
    step = (top + off) / 127
    sure = (np.abs(np.abs(t - np.floor(t)) - 0.5) > wrong * 1.01) & (top - off > 1e-29)
    same = np.abs(q) * (off / 127 + gamma(3) * step)
    error = np.where(sure, same, X.error + step * 1.01 + np.where(top - off > 1e-29, 0, top))
    value = np.where(top > 1e-30, q * top / 127, 0.0)
    return Near(value, error).reshape(n, columns)


def to_halves(X):
    """Rounded to float16, which keeps the order: from the least to the largest that X may be."""
    with np.errstate(over="ignore"):
        low, high = ((X.value + off).astype(np.float16) for off in (-X.error, X.error))
    low, high = np.float64(low), np.float64(high)
    return Near((low + high) / 2, (high - low) / 2)
