"""One layer: self-attention, then the FFN.

The same two steps three times, each a small change of the last: alone (`two_steps`), each added to
what entered it (`residual_layer`), and with a norm in front of each (`layer`), as models have it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lib.arguments import as_float32
from lib.attention import attend_causal
from lib.contract import operation
from lib.ffn import ffn, known_activation
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
        known_activation(self.activation)

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


@operation("(n,d),{d}->(n,d)", quiet=True, again=(attend_causal.trusted, attend_causal))
def attention_step(X, w, attend=attend_causal.trusted):
    """Take the first step of a layer: each token gathers from its left context.

    Parameters
    ----------
    X : array_like, (n, d)
        One vector per token.
    w : LayerWeights
    attend : callable
        What makes the outputs of Q, K, V: `attend_causal`, or a function in its place.

    Returns
    -------
    ndarray, float32, (n, d)

    Raises
    ------
    CourseError
        X is not (n, d), or holds NaN or infinity.
    """
    Q, K, V = X @ w.W_Q, X @ w.W_K, X @ w.W_V  # each (n, d)
    return attend(Q, K, V) @ w.W_O


@operation("(n,d),{d}->(n,d)", quiet=True, again=(ffn.trusted, ffn))
def ffn_step(X, w, ffn=ffn.trusted):
    """Take the second step of a layer: the same function at every position, (n, d) -> (n, d)."""
    return ffn(X, w.W_1, w.b_1, w.W_2, w.b_2, w.activation)


@dataclass(frozen=True)
class Parts:
    """The functions that a layer is made of: ``layer(X, w, Parts(attend=mine))``.

    They are given arrays that were checked once, where the layer was called.
    """

    norm: Callable = layer_norm.trusted  # X (n, d), gain (d,), bias (d,) -> (n, d)
    attend: Callable = attend_causal.trusted  # Q (n, d), K (n, d), V (n, d) -> (n, d)
    attention: Callable = attention_step.trusted  # X (n, d), LayerWeights, attend -> (n, d)
    ffn: Callable = ffn_step.trusted  # X (n, d), LayerWeights -> (n, d)


PARTS = Parts()
CHECKED_PARTS = Parts(layer_norm, attend_causal, attention_step, ffn_step)
AGAIN = (PARTS, CHECKED_PARTS)  # where something leaves float32, each part says whether it was that


@operation("(n,d),{d}->(n,d)", quiet=True, again=AGAIN)
def two_steps(X, w, parts=PARTS):
    """Run the two steps alone, attention and then the FFN: (n, d) -> float32 (n, d)."""
    return parts.ffn(parts.attention(X, w, parts.attend), w)


@operation("(n,d),{d}->(n,d)", quiet=True, again=AGAIN)
def residual_layer(X, w, parts=PARTS):
    """Run the two steps, each added to what entered it: (n, d) -> float32 (n, d).

    Residual connections are He et al. 2016, equation 1.
    """
    M = X + parts.attention(X, w, parts.attend)
    return M + parts.ffn(M, w)


@operation("(n,d),{d}->(n,d)", quiet=True, again=AGAIN)
def layer(X, w, parts=PARTS):
    """Run one layer as models have it, with a norm before each step: (n, d) -> float32 (n, d).

    The pre-norm form of Xiong et al. 2020, figure 1(b).

    Parameters
    ----------
    X : array_like, (n, d)
        The vectors that enter the layer, one per token.
    w : LayerWeights
    parts : Parts
        What the layer is made of; by default the functions of the core.

    Returns
    -------
    ndarray, float32, (n, d)
        Row i stands for token i and carries the context of all tokens before it.

    Raises
    ------
    CourseError
        X is not (n, d), or holds NaN or infinity.
    """
    M = X + parts.attention(parts.norm(X, w.gain_1, w.bias_1), w, parts.attend)
    return M + parts.ffn(parts.norm(M, w.gain_2, w.bias_2), w)
