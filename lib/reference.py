"""Every operation as its definition: NumPy, float64, no thought of speed.

This is the oracle. A kernel of the core is right when it agrees with the function of the same name
here, and the chapters derive the functions here from the equations. Arguments are not checked:
that is the work of the public functions in `lib.attention` and its neighbours.
"""

import math
from typing import Any

import numpy as np

_erf = np.vectorize(math.erf, otypes=[np.float64])


def float64(*arrays) -> Any:
    """Return the arrays as float64: several as a tuple, one as itself."""
    found = [np.asarray(array, dtype=np.float64) for array in arrays]
    return tuple(found) if len(found) > 1 else found[0]


# --- Attention (Vaswani et al. 2017, section 3.2.1) ---


def softmax(scores, visible=None):
    """Return e^s / Σ e^s along the last axis: (…, n) -> (…, n).

    The largest score is subtracted first. That changes nothing, as the factor cancels, and the
    largest exponent becomes e⁰ = 1. Where ``visible`` is False the weight is exactly zero.
    """
    scores = float64(scores)
    if visible is not None:
        scores = np.where(visible, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def attention_weights(q, K):
    """Return α = Softmax(q Kᵀ / √d): (d,), (n, d) -> (n,)."""
    q, K = float64(q, K)
    return softmax(q @ K.T / math.sqrt(K.shape[1]))


def attend(q, K, V):
    """Return Softmax(q Kᵀ / √d) V: (d,), (n, d), (n, d_v) -> (d_v,)."""
    return attention_weights(q, K) @ float64(V)


def causal_weights(Q, K):
    """Return the weights of all queries: (m, d), (n, d) -> (m, n), zero right of each query.

    The m queries belong to the last m of the n positions.
    """
    Q, K = float64(Q, K)
    m, n = len(Q), len(K)
    visible = np.arange(n) <= np.arange(n - m, n)[:, None]  # key position <= query position
    return softmax(Q @ K.T / math.sqrt(K.shape[1]), visible)


def attend_causal(Q, K, V):
    """Return the attention of every query over its left context: (m, d), … -> (m, d_v)."""
    return causal_weights(Q, K) @ float64(V)


# --- The feed-forward network (Vaswani et al. 2017, section 3.3) ---


def relu(x):
    """Return max(x, 0)."""
    return np.maximum(float64(x), 0.0)


def gelu(x):
    """Return x Φ(x), with Φ the normal distribution function (Hendrycks and Gimpel 2016)."""
    x = float64(x)
    return x * 0.5 * (1.0 + _erf(x / math.sqrt(2.0)))


def gelu_tanh(x):
    """Return the tanh approximation of `gelu` (the same paper, section 2)."""
    x = float64(x)
    with np.errstate(over="ignore"):  # x³ may overflow, and tanh(∞) = 1 is the right limit
        return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def silu(x):
    """Return x / (1 + e^−x) (Hendrycks and Gimpel 2016; also called swish)."""
    x = float64(x)
    with np.errstate(over="ignore"):  # e^−x overflows for x << 0, and x/∞ = 0 is the right limit
        return x / (1.0 + np.exp(-x))


ACTIVATIONS = {"relu": relu, "gelu": gelu, "gelu_tanh": gelu_tanh, "silu": silu}


def ffn(X, W_1, b_1, W_2, b_2, activation="gelu"):
    """Return φ(X W₁ + b₁) W₂ + b₂: (…, d) -> (…, d)."""
    X, W_1, b_1, W_2, b_2 = float64(X, W_1, b_1, W_2, b_2)
    return ACTIVATIONS[activation](X @ W_1 + b_1) @ W_2 + b_2


def swiglu(X, W_gate, W_up, W_down):
    """Return (silu(X W_gate) ⊙ X W_up) W_down: (…, d) -> (…, d) (Shazeer 2020, equation 6)."""
    X, W_gate, W_up, W_down = float64(X, W_gate, W_up, W_down)
    return (silu(X @ W_gate) * (X @ W_up)) @ W_down


# --- Norms ---


def layer_norm(X, gain, bias, eps=1e-5):
    """Return gain (x − mean) / √(var + eps) + bias, row by row (Ba et al. 2016, equation 4)."""
    X, gain, bias = float64(X, gain, bias)
    centred = X - X.mean(axis=-1, keepdims=True)
    variance = (centred**2).mean(axis=-1, keepdims=True)
    return gain * centred / np.sqrt(variance + eps) + bias


def rms_norm(X, gain, eps=1e-5):
    """Return gain x / √(mean of x² + eps), row by row (Zhang and Sennrich 2019, equation 4)."""
    X, gain = float64(X, gain)
    return gain * X / np.sqrt((X**2).mean(axis=-1, keepdims=True) + eps)


# --- Rotary positions (Su et al. 2021, section 3.2.2) ---


def rope_angles(positions, d_head, base=10000.0, factors: Any = 1.0):
    """Return the angle of each pair at each position: (n,) -> (n, d_head / 2), in radians."""
    frequencies = base ** (-2.0 * np.arange(d_head // 2) / d_head) / float64(factors)
    return float64(positions)[:, None] * frequencies


def rope(X, positions, base=10000.0, pairing="interleaved", factors: Any = 1.0):
    """Rotate each pair of coordinates by its angle: (n, …, d_head), (n,) -> (n, …, d_head)."""
    X = float64(X)
    d_head = X.shape[-1]
    turn = np.exp(1j * rope_angles(positions, d_head, base, factors))
    turn = turn.reshape(len(X), *[1] * (X.ndim - 2), d_head // 2)
    even = np.arange(0, d_head, 2)
    half = np.arange(d_head // 2)
    first, second = {"interleaved": (even, even + 1), "halves": (half, half + d_head // 2)}[pairing]
    turned = (X[..., first] + 1j * X[..., second]) * turn
    out = np.empty_like(X)
    out[..., first], out[..., second] = turned.real, turned.imag
    return out


# --- One layer and the stack ---


def attention_step(X, w, attend=attend_causal):
    """Return the first step of a layer, attention over the left context: (n, d) -> (n, d)."""
    X, W_Q, W_K, W_V, W_O = float64(X, w.W_Q, w.W_K, w.W_V, w.W_O)
    return attend(X @ W_Q, X @ W_K, X @ W_V) @ W_O


def ffn_step(X, w):
    """Return the second step of a layer, the FFN at every position: (n, d) -> (n, d)."""
    return ffn(X, w.W_1, w.b_1, w.W_2, w.b_2, w.activation)


def two_steps(X, w, attend=attend_causal, ffn_step=ffn_step):
    """Return the two steps alone, one after the other: (n, d) -> (n, d)."""
    return ffn_step(attention_step(X, w, attend), w)


def residual_layer(X, w, attend=attend_causal, ffn_step=ffn_step):
    """Return the two steps, each added to what entered it: (n, d) -> (n, d)."""
    M = float64(X) + attention_step(X, w, attend)
    return M + ffn_step(M, w)


def layer(X, w, attend=attend_causal, ffn_step=ffn_step):
    """Return the layer with norms before its steps: (n, d) -> (n, d)."""
    M = float64(X) + attention_step(layer_norm(X, w.gain_1, w.bias_1), w, attend)
    return M + ffn_step(layer_norm(M, w.gain_2, w.bias_2), w)


def stack(X, layers, step=layer):
    """Return the output of the last layer: (n, d) -> (n, d)."""
    for w in layers:
        X = step(X, w)
    return X
