"""NumPy as a contestant: cases on standard input, see `core_cases`.

Each case as one writes it with whole arrays, in float32: the formula, without a loop.
"""

from core_cases import arrays, serve

import numpy as np  # isort: skip


def prepare(case, *sizes):
    """Return a call that computes the case with NumPy."""
    given = arrays(case, *sizes)
    if case == "product":
        X, W = given
        return lambda: X @ W
    if case == "layer":
        raise SystemExit("Error: NumPy has no erf, so no layer with the exact GELU")
    Q, K, V = given
    return lambda: _attend(Q, K, V, causal=case == "attend_causal")


def _attend(Q, K, V, causal=False):
    """Softmax(Q Kᵀ / √d) V: (d,) or (n, d), (n, d), (n, d_v) -> (d_v,) or (n, d_v)."""
    scores = Q @ K.T / np.sqrt(np.float32(K.shape[1]))
    if causal:
        scores = np.where(np.tri(len(Q), dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights @ V / weights.sum(-1, keepdims=Q.ndim == 2)


if __name__ == "__main__":
    serve(prepare)
