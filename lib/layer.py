"""One layer: self-attention, then the FFN.

The same two steps three times, each a small change of the last: alone (`two_steps`), each added to
what entered it (`residual_layer`), and with a norm in front of each (`layer`), as models have it.
"""

import functools
from dataclasses import dataclass

import numpy as np

from lib.arguments import as_float32, check_result
from lib.attention import attend_causal
from lib.errors import CourseError
from lib.ffn import ACTIVATIONS, ffn
from lib.norm import layer_norm


@dataclass(frozen=True)
class LayerWeights:
    """The weights of one layer, float32.

    Raises
    ------
    CourseError
        A weight whose shape does not fit, or that holds NaN or infinity.
    """

    W_Q: np.ndarray  # (d, d)
    W_K: np.ndarray  # (d, d)
    W_V: np.ndarray  # (d, d)
    W_O: np.ndarray  # (d, d)
    W_1: np.ndarray  # (d, d_ff)
    b_1: np.ndarray  # (d_ff,)
    W_2: np.ndarray  # (d_ff, d)
    b_2: np.ndarray  # (d,)
    gain_1: np.ndarray  # (d,), of the norm before attention
    bias_1: np.ndarray  # (d,)
    gain_2: np.ndarray  # (d,), of the norm before the FFN
    bias_2: np.ndarray  # (d,)
    activation: str = "gelu"

    def __post_init__(self):
        d, d_ff = np.shape(self.W_Q)[-1:] or ("d",), np.shape(self.W_1)[-1:] or ("d_ff",)
        shapes = dict.fromkeys(("W_Q", "W_K", "W_V", "W_O"), d + d)
        shapes |= {"W_1": d + d_ff, "b_1": d_ff, "W_2": d_ff + d, "b_2": d}
        shapes |= dict.fromkeys(("gain_1", "bias_1", "gain_2", "bias_2"), d)
        for name, shape in shapes.items():
            object.__setattr__(self, name, as_float32(name, getattr(self, name), shape))
        if self.activation not in ACTIVATIONS:
            raise CourseError(
                f"activation should be one of {', '.join(ACTIVATIONS)}; it is {self.activation!r}"
            )

    @property
    def d(self):
        """Width of a token's vector."""
        return self.W_Q.shape[0]


def random_layer(d, d_ff, seed, activation="gelu"):
    """Return a layer of random weights, scaled so that vectors keep their size.

    A weight matrix with m rows has entries of variance 1/m (Glorot and Bengio 2010, section 4.2.1,
    in its one-sided form), so that x @ W has about the variance of x.
    """
    rng = np.random.default_rng(seed)

    def matrix(rows, columns):
        return rng.standard_normal((rows, columns)) / np.sqrt(rows)

    def near(centre, size):
        return centre + 0.1 * rng.standard_normal(size)

    return LayerWeights(
        *(matrix(d, d) for _ in range(4)),
        W_1=matrix(d, d_ff),
        b_1=near(0.0, d_ff),
        W_2=matrix(d_ff, d),
        b_2=near(0.0, d),
        gain_1=near(1.0, d),
        bias_1=near(0.0, d),
        gain_2=near(1.0, d),
        bias_2=near(0.0, d),
        activation=activation,
    )


def attention_step(X, w):
    """Take the first step of a layer: each token gathers from its left context.

    Parameters
    ----------
    X : array_like, (n, d)
        One vector per token.
    w : LayerWeights

    Returns
    -------
    ndarray, float32, (n, d)

    Raises
    ------
    CourseError
        X is not (n, d), or holds NaN or infinity.
    """
    X = _tokens(X, w)
    Q, K, V = X @ w.W_Q, X @ w.W_K, X @ w.W_V  # each (n, d)
    return attend_causal(Q, K, V) @ w.W_O


def ffn_step(X, w):
    """Take the second step of a layer: the same function at every position, (n, d) -> (n, d)."""
    return ffn(_tokens(X, w), w.W_1, w.b_1, w.W_2, w.b_2, w.activation)


def two_steps(X, w):
    """Run the two steps alone, attention and then the FFN: (n, d) -> float32 (n, d)."""
    return ffn_step(attention_step(X, w), w)


def residual_layer(X, w):
    """Run the two steps, each added to what entered it: (n, d) -> float32 (n, d).

    Residual connections are He et al. 2016, equation 1.
    """
    X = _tokens(X, w)
    M = X + attention_step(X, w)
    return M + ffn_step(M, w)


def layer(X, w):
    """Run one layer as models have it, with a norm before each step: (n, d) -> float32 (n, d).

    The pre-norm form of Xiong et al. 2020, figure 1(b).

    Parameters
    ----------
    X : array_like, (n, d)
        The vectors that enter the layer, one per token.
    w : LayerWeights

    Returns
    -------
    ndarray, float32, (n, d)
        Row i stands for token i and carries the context of all tokens before it.

    Raises
    ------
    CourseError
        X is not (n, d), or holds NaN or infinity.
    """
    X = _tokens(X, w)
    M = X + attention_step(layer_norm(X, w.gain_1, w.bias_1), w)
    return M + ffn_step(layer_norm(M, w.gain_2, w.bias_2), w)


def _tokens(X, w):
    return as_float32("X", X, ("n", w.d))


# --- What leaves float32 is said in words; the functions above stay as the chapters show them ---


def _checked(step):
    """Let a step raise a CourseError where NumPy would warn and go on with infinity."""

    @functools.wraps(step)
    def checked(X, w):
        with np.errstate(over="ignore", invalid="ignore"):
            return check_result(step(X, w))

    return checked


attention_step, ffn_step = _checked(attention_step), _checked(ffn_step)
two_steps, residual_layer, layer = map(_checked, (two_steps, residual_layer, layer))
