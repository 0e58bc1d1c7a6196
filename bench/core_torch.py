"""PyTorch as a contestant: cases on standard input, see `core_cases`.

Each case is written as PyTorch's own layers do it: `scaled_dot_product_attention` on four axes,
`linear` on weights that lie as (out, in).
"""

from core_cases import THREADS, arrays, serve

import torch  # isort: skip
from torch.nn.functional import gelu, layer_norm, linear, scaled_dot_product_attention

torch.set_num_threads(int(THREADS))
torch.set_grad_enabled(False)


def prepare(case, *sizes):
    """Return a call that computes the case with PyTorch."""
    given = arrays(case, *sizes)
    if case == "product":
        X, W = map(torch.from_numpy, given)
        W = W.T.contiguous()
        return lambda: linear(X, W)
    if case == "layer":
        x, w = torch.from_numpy(given[0]), _oriented(given[1])
        return lambda: _layer(x, w)
    Q, K, V = (torch.from_numpy(array).reshape(1, 1, -1, array.shape[-1]) for array in given)
    causal = case == "attend_causal"
    return lambda: scaled_dot_product_attention(Q, K, V, is_causal=causal)


def _oriented(weights):
    """Lay the matrices as `linear` wants them: (out, in)."""
    tensors = {name: torch.from_numpy(array) for name, array in weights.items()}
    return {k: t.T.contiguous() if t.ndim == 2 else t for k, t in tensors.items()}


def _layer(x, w):
    """Run `lib.layer.layer`: (n, d) -> (n, d)."""
    normed = layer_norm(x, x.shape[-1:], w["gain_1"], w["bias_1"])
    Q, K, V = (linear(normed, w[name])[None, None] for name in ("W_Q", "W_K", "W_V"))
    H = x + linear(scaled_dot_product_attention(Q, K, V, is_causal=True)[0, 0], w["W_O"])
    normed = layer_norm(H, x.shape[-1:], w["gain_2"], w["bias_2"])
    return H + linear(gelu(linear(normed, w["W_1"], w["b_1"])), w["W_2"], w["b_2"])


if __name__ == "__main__":
    with torch.inference_mode():
        serve(prepare)
