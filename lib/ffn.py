"""The feed-forward network: FFN(x) = φ(x W₁ + b₁) W₂ + b₂, the same function at every position.

Vaswani et al. 2017, section 3.3. The two products are NumPy's; the activation between them is
compiled, one pass over the hidden vector. `swiglu` is the gated form of Llama models.
"""

import math

import numpy as np

from lib import reference
from lib.arguments import all_finite
from lib.contract import operation
from lib.errors import CourseError
from lib.jit import NUMBA, elementwise


@elementwise
def _relu(x):
    """max(x, 0)."""
    return np.float32(0.0) if x <= 0 else x


@elementwise
def _gelu(x):
    """x Φ(x), with Φ(x) = (1 + erf(x / √2)) / 2."""
    return np.float32(x * 0.5 * (1.0 + math.erf(x / math.sqrt(2.0))))


@elementwise
def _gelu_tanh(x):
    """The approximation of `_gelu` that some models were trained with."""
    u = math.sqrt(2.0 / math.pi) * (x + 0.044715 * float(x) ** 3)
    return np.float32(0.5 * x * (1.0 + math.tanh(u)))


@elementwise
def _silu(x):
    """x / (1 + e^−x)."""
    return np.float32(x / (1.0 + np.exp(-float(x))))


@elementwise
def _gated(gate, up):
    """silu(gate) · up, the hidden vector of SwiGLU."""
    return np.float32(gate / (1.0 + np.exp(-float(gate))) * up)


ACTIVATIONS = {"relu": _relu, "gelu": _gelu, "gelu_tanh": _gelu_tanh, "silu": _silu}


def known_activation(activation):
    """Return the name of an activation, or raise a CourseError that lists the known ones."""
    if activation not in ACTIVATIONS:
        raise CourseError(
            f"activation should be one of {', '.join(ACTIVATIONS)}; it is {activation!r}"
        )
    return activation


def _with_known_activation(*arguments):
    known_activation(arguments[-1])
    return arguments


@operation("(…)->(…)", prepare=_with_known_activation, quiet=True)
def activate(X, activation="gelu"):
    """Apply an activation to every number: (…,) -> float32 (…,).

    Parameters
    ----------
    X : array_like, any shape
    activation : {"relu", "gelu", "gelu_tanh", "silu"}
        ``"gelu"`` is the exact form with erf; ``"gelu_tanh"`` its approximation, which differs
        by up to 4.7e-4.

    Raises
    ------
    CourseError
        An unknown activation; NaN, infinity or not numbers in X.
    """
    if activation == "relu" and not all_finite(X):
        return X  # ReLU alone would make −∞ a number, and a damaged weight go unseen
    if not NUMBA:
        return reference.ACTIVATIONS[activation](X).astype(np.float32)
    return ACTIVATIONS[activation](X)


@operation(
    "(…,d),(d,d_ff),(d_ff),(d_ff,d_out),(d_out)->(…,d_out)",
    weights=("W_1", "b_1", "W_2", "b_2"),
    prepare=_with_known_activation,
    quiet=True,
)
def ffn(X, W_1, b_1, W_2, b_2, activation="gelu"):
    """Apply the FFN to each row: φ(x W₁ + b₁) W₂ + b₂.

    Parameters
    ----------
    X : array_like, (d,) or (…, d)
        One token's vector, or one per row.
    W_1, b_1 : array_like, (d, d_ff) and (d_ff,)
    W_2, b_2 : array_like, (d_ff, d_out) and (d_out,)
        In a layer d_out is d.
    activation : {"relu", "gelu", "gelu_tanh", "silu"}

    Returns
    -------
    ndarray, float32, (…, d_out)

    Raises
    ------
    CourseError
        A shape that does not match, an unknown activation, NaN or infinity.
    """
    return activate.trusted(X @ W_1 + b_1, activation) @ W_2 + b_2


@operation(
    "(…,d),(d,d_ff),(d,d_ff),(d_ff,d_out)->(…,d_out)",
    weights=("W_gate", "W_up", "W_down"),
    quiet=True,
)
def swiglu(X, W_gate, W_up, W_down):
    """Apply the gated FFN to each row: (silu(x W_gate) ⊙ x W_up) W_down.

    Shazeer 2020, equation 6 (FFN_SwiGLU), without biases, as Llama models have it.

    Parameters
    ----------
    X : array_like, (d,) or (…, d)
    W_gate, W_up : array_like, (d, d_ff)
    W_down : array_like, (d_ff, d_out)

    Returns
    -------
    ndarray, float32, (…, d_out)

    Raises
    ------
    CourseError
        A shape that does not match, NaN or infinity.
    """
    gate, up = X @ W_gate, X @ W_up
    hidden = _gated(gate, up) if NUMBA else reference.silu(gate) * up
    return hidden @ W_down
