"""Every intermediate of one layer, by name: what the forward pass makes and then forgets."""

from typing import NamedTuple

import numpy as np

from lib.arguments import as_float32
from lib.attention import attend_causal, causal_weights
from lib.errors import CourseError
from lib.ffn import activate
from lib.layer import layer, residual_layer, two_steps
from lib.norm import layer_norm


class Stage(NamedTuple):
    """One intermediate of a layer."""

    name: str
    formula: str  # how it is made of earlier ones
    value: np.ndarray  # one row per token; NaN where nothing is computed

    @property
    def size(self):
        """The root mean square of the numbers that are there."""
        return float(np.sqrt(np.nanmean(np.square(self.value, dtype=np.float64))))


def trace_layer(X, w, form=layer):
    """Run a layer with the functions of the core and keep every intermediate.

    Parameters
    ----------
    X : array_like, (n, d)
        The vectors that enter the layer, one per token.
    w : LayerWeights
    form : {layer, residual_layer, two_steps}
        One of the three functions of `lib.layer`. All have the same stages: where a form has no
        norm or no residual, the stage repeats what it would have changed.

    Returns
    -------
    list of Stage, 15 long
        Five that each token makes by itself (X N_1 Q K V), five of the attention step
        (scores weights O A M), five of the FFN step (N_2 Z hidden F Y). The last value is
        ``form(X, w)``.

    Raises
    ------
    CourseError
        X is not (n, d), or holds NaN or infinity; or another form.
    """
    if form not in (layer, residual_layer, two_steps):
        raise CourseError(
            f"form should be layer, residual_layer or two_steps of lib.layer; it is {form!r}"
        )
    X = as_float32("X", X, ("n", w.d))
    first = _attention_stages(X, w, form)
    return [Stage("X", "what enters", X), *first, *_ffn_stages(first[-1].value, w, form)]


def _attention_stages(X, w, form):
    normed = ("LayerNorm(X)", layer_norm(X, w.gain_1, w.bias_1))
    N_1 = Stage("N_1", *(normed if form is layer else ("X (no norm)", X)))
    Q, K, V = N_1.value @ w.W_Q, N_1.value @ w.W_K, N_1.value @ w.W_V  # each (n, d)
    scores = Q @ K.T / np.float32(np.sqrt(w.d))  # (n, n)
    past = np.tri(len(X), dtype=bool)  # the kernel computes no score of the future
    O = attend_causal(Q, K, V)  # noqa: E741
    A = O @ w.W_O
    return [
        N_1,
        Stage("Q", "N_1 W_Q", Q),
        Stage("K", "N_1 W_K", K),
        Stage("V", "N_1 W_V", V),
        Stage("scores", "Q Kᵀ / √d", np.where(past, scores, np.float32(np.nan))),
        Stage("weights", "Softmax(scores)", causal_weights(Q, K)),
        Stage("O", "weights V", O),
        Stage("A", "O W_O", A),
        Stage("M", *(("A (no residual)", A) if form is two_steps else ("X + A", X + A))),
    ]


def _ffn_stages(M, w, form):
    normed = ("LayerNorm(M)", layer_norm(M, w.gain_2, w.bias_2))
    N_2 = Stage("N_2", *(normed if form is layer else ("M (no norm)", M)))
    Z = N_2.value @ w.W_1 + w.b_1  # (n, d_ff)
    hidden = activate(Z, w.activation)
    F = hidden @ w.W_2 + w.b_2
    return [
        N_2,
        Stage("Z", "N_2 W_1 + b_1", Z),
        Stage("hidden", f"{w.activation}(Z)", hidden),
        Stage("F", "hidden W_2 + b_2", F),
        Stage("Y", *(("F (no residual)", F) if form is two_steps else ("M + F", M + F))),
    ]
