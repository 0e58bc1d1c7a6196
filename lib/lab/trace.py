"""Every intermediate of one layer, by name: what the forward pass makes and then forgets."""

from typing import NamedTuple

import numpy as np

from lib.arguments import as_float32
from lib.attention import causal_weights
from lib.errors import CourseError
from lib.ffn import activate
from lib.layer import PARTS, Parts, layer, residual_layer, two_steps


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
    """Run a layer of the core and keep every intermediate.

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
    seen = {}
    Y = form(X, w, watching(seen))
    N_2, F = seen["ffn"]
    M = seen["norm"][-1][0] if seen["norm"] else N_2  # with norms, the second one reads M
    return [
        Stage("X", "what enters", X),
        *_attention_stages(w, form, M, *seen["attention"], *seen["attend"]),
        *_ffn_stages(w, form, N_2, F, Y),
    ]


def watching(seen):
    """Return the parts of a layer that write down what each is given and what it makes of it.

    ``seen["attend"]`` will be (Q, K, V, O), ``seen["attention"]`` and ``seen["ffn"]`` what enters
    the step and what it adds, and ``seen["norm"]`` a list of such pairs.
    """
    seen["norm"] = []

    def norm(X, gain, bias):
        seen["norm"].append((X, PARTS.norm(X, gain, bias)))
        return seen["norm"][-1][1]

    def attend(Q, K, V):
        seen["attend"] = (Q, K, V, PARTS.attend(Q, K, V))
        return seen["attend"][-1]

    def attention(X, w, attend):
        seen["attention"] = (X, PARTS.attention(X, w, attend))
        return seen["attention"][-1]

    def ffn(X, w):
        seen["ffn"] = (X, PARTS.ffn(X, w))
        return seen["ffn"][-1]

    return Parts(norm, attend, attention, ffn)


def _attention_stages(w, form, M, N_1, A, Q, K, V, O):  # noqa: E741
    scores = Q @ K.T / np.float32(np.sqrt(w.d))  # (n, n)
    past = np.tri(len(Q), dtype=bool)  # the kernel computes no score of the future
    return [
        Stage("N_1", "LayerNorm(X)" if form is layer else "X (no norm)", N_1),
        Stage("Q", "N_1 W_Q", Q),
        Stage("K", "N_1 W_K", K),
        Stage("V", "N_1 W_V", V),
        Stage("scores", "Q Kᵀ / √d", np.where(past, scores, np.float32(np.nan))),
        Stage("weights", "Softmax(scores)", causal_weights(Q, K)),
        Stage("O", "weights V", O),
        Stage("A", "O W_O", A),
        Stage("M", "A (no residual)" if form is two_steps else "X + A", M),
    ]


def _ffn_stages(w, form, N_2, F, Y):
    Z = N_2 @ w.W_1 + w.b_1  # (n, d_ff)
    return [
        Stage("N_2", "LayerNorm(M)" if form is layer else "M (no norm)", N_2),
        Stage("Z", "N_2 W_1 + b_1", Z),
        Stage("hidden", f"{w.activation}(Z)", activate(Z, w.activation)),
        Stage("F", "hidden W_2 + b_2", F),
        Stage("Y", "F (no residual)" if form is two_steps else "M + F", Y),
    ]
