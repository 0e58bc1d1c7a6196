"""From the layer of chapter 3 to a Llama layer: five small changes, and a sixth around the stack.

Every function is a whole layer, and each is the last one with one thing changed; `show.diff` shows
what. They are written to be compared, and run in chapter 6 alone: the course's own layers are
`lib.layer.layer`, where the changes begin, and `lib.engine.llama.llama_layer`, where they end.

`config` is any record with the fields that a layer reads: H, H_kv, rope_base, eps. A
`lib.engine.llama.LlamaConfig` has them all.
"""

from functools import partial
from types import SimpleNamespace

import numpy as np

from lib.attention import attend_causal
from lib.engine.llama import merge_heads, split_heads
from lib.ffn import ffn, swiglu
from lib.norm import layer_norm, rms_norm
from lib.rope import rope
from lib.stack import stack


def one_head(X, w):  # (n, d) -> (n, d)
    """Run the layer of chapter 3, `lib.layer.layer`, with its two steps written out."""
    A = layer_norm(X, w.gain_1, w.bias_1)
    Q = A @ w.W_Q  # (n, d)
    K = A @ w.W_K  # (n, d)
    V = A @ w.W_V  # (n, d)
    X = X + attend_causal(Q, K, V) @ w.W_O
    B = layer_norm(X, w.gain_2, w.bias_2)
    return X + ffn(B, w.W_1, w.b_1, w.W_2, w.b_2, w.activation)


def several_heads(X, w, config):  # (n, d) -> (n, d)
    """Attend H times, each time with a slice of the queries, keys and values.

    Vaswani et al. 2017, section 3.2.2.
    """
    A = layer_norm(X, w.gain_1, w.bias_1)
    Q = split_heads(A @ w.W_Q, config.H)  # (n, H, d_head)
    K = split_heads(A @ w.W_K, config.H)  # (n, H, d_head)
    V = split_heads(A @ w.W_V, config.H)  # (n, H, d_head)
    heads = [attend_causal(Q[:, h], K[:, h], V[:, h]) for h in range(config.H)]
    X = X + merge_heads(heads) @ w.W_O
    B = layer_norm(X, w.gain_2, w.bias_2)
    return X + ffn(B, w.W_1, w.b_1, w.W_2, w.b_2, w.activation)


def grouped_heads(X, w, config):  # (n, d) -> (n, d)
    """Let H / H_kv heads share the keys and values of one. Ainslie et al. 2023, section 2.2."""
    A = layer_norm(X, w.gain_1, w.bias_1)
    Q = split_heads(A @ w.W_Q, config.H)  # (n, H, d_head)
    K = split_heads(A @ w.W_K, config.H_kv)  # (n, H_kv, d_head)
    V = split_heads(A @ w.W_V, config.H_kv)  # (n, H_kv, d_head)
    group = config.H // config.H_kv
    heads = [attend_causal(Q[:, h], K[:, h // group], V[:, h // group]) for h in range(config.H)]
    X = X + merge_heads(heads) @ w.W_O
    B = layer_norm(X, w.gain_2, w.bias_2)
    return X + ffn(B, w.W_1, w.b_1, w.W_2, w.b_2, w.activation)


def rotary_positions(X, w, config):  # (n, d) -> (n, d)
    """Turn queries and keys by their positions. Su et al. 2021, section 3.2.2."""
    A = layer_norm(X, w.gain_1, w.bias_1)
    turn = partial(rope, positions=np.arange(len(X)), base=config.rope_base)
    Q = turn(split_heads(A @ w.W_Q, config.H))  # (n, H, d_head)
    K = turn(split_heads(A @ w.W_K, config.H_kv))  # (n, H_kv, d_head)
    V = split_heads(A @ w.W_V, config.H_kv)  # (n, H_kv, d_head)
    group = config.H // config.H_kv
    heads = [attend_causal(Q[:, h], K[:, h // group], V[:, h // group]) for h in range(config.H)]
    X = X + merge_heads(heads) @ w.W_O
    B = layer_norm(X, w.gain_2, w.bias_2)
    return X + ffn(B, w.W_1, w.b_1, w.W_2, w.b_2, w.activation)


def root_mean_square(X, w, config):  # (n, d) -> (n, d)
    """Norm without the mean and the bias. Zhang and Sennrich 2019, equation 4."""
    A = rms_norm(X, w.attention_gain, config.eps)
    turn = partial(rope, positions=np.arange(len(X)), base=config.rope_base)
    Q = turn(split_heads(A @ w.W_Q, config.H))  # (n, H, d_head)
    K = turn(split_heads(A @ w.W_K, config.H_kv))  # (n, H_kv, d_head)
    V = split_heads(A @ w.W_V, config.H_kv)  # (n, H_kv, d_head)
    group = config.H // config.H_kv
    heads = [attend_causal(Q[:, h], K[:, h // group], V[:, h // group]) for h in range(config.H)]
    X = X + merge_heads(heads) @ w.W_O
    B = rms_norm(X, w.ffn_gain, config.eps)
    return X + ffn(B, w.W_1, w.b_1, w.W_2, w.b_2, w.activation)


def gated_ffn(X, w, config):  # (n, d) -> (n, d)
    """Gate the FFN: a Llama layer. Shazeer 2020, equation 6."""
    A = rms_norm(X, w.attention_gain, config.eps)
    turn = partial(rope, positions=np.arange(len(X)), base=config.rope_base)
    Q = turn(split_heads(A @ w.W_Q, config.H))  # (n, H, d_head)
    K = turn(split_heads(A @ w.W_K, config.H_kv))  # (n, H_kv, d_head)
    V = split_heads(A @ w.W_V, config.H_kv)  # (n, H_kv, d_head)
    group = config.H // config.H_kv
    heads = [attend_causal(Q[:, h], K[:, h // group], V[:, h // group]) for h in range(config.H)]
    X = X + merge_heads(heads) @ w.W_O
    B = rms_norm(X, w.ffn_gain, config.eps)
    return X + swiglu(B, w.W_gate, w.W_up, w.W_down)


def own_head(tokens, m, config):  # (n,) -> (n, vocabulary)
    """Run a model whose output head is a matrix of its own.

    ``m`` is a record of embedding (vocabulary, d), layers, output_gain (d,), W_head
    (d, vocabulary).
    """
    X = m.embedding[tokens]  # (n, d)
    X = stack(X, m.layers, partial(gated_ffn, config=config))
    X = rms_norm(X, m.output_gain, config.eps)
    return X @ m.W_head


def tied_head(tokens, m, config):  # (n,) -> (n, vocabulary)
    """Run a model whose output head is the embedding. Press and Wolf 2017, section 3."""
    X = m.embedding[tokens]  # (n, d)
    X = stack(X, m.layers, partial(gated_ffn, config=config))
    X = rms_norm(X, m.output_gain, config.eps)
    return X @ m.embedding.T


def random_weights(d, config, d_ff, seed):
    """Return random weights that every layer of this module can run on, as one record.

    ``config`` gives H, H_kv and d_head. A matrix of m rows has entries of variance 1/m, as in
    `lib.layer.random_layer`. `several_heads` needs keys and values for all H heads: see
    `shared_heads`.
    """
    rng = np.random.default_rng(seed)
    d_q, d_kv = config.H * config.d_head, config.H_kv * config.d_head
    shapes = {"W_Q": (d, d_q), "W_K": (d, d_kv), "W_V": (d, d_kv), "W_O": (d_q, d)}
    shapes |= {"W_1": (d, d_ff), "W_2": (d_ff, d)}
    shapes |= {"W_gate": (d, d_ff), "W_up": (d, d_ff), "W_down": (d_ff, d)}
    made = {name: rng.standard_normal(size) / np.sqrt(size[0]) for name, size in shapes.items()}
    for name in ("gain_1", "gain_2", "attention_gain", "ffn_gain"):
        made[name] = 1 + 0.1 * rng.standard_normal(d)
    for name, size in {"bias_1": d, "bias_2": d, "b_1": d_ff, "b_2": d}.items():
        made[name] = 0.1 * rng.standard_normal(size)
    made = {name: weight.astype(np.float32) for name, weight in made.items()}
    return SimpleNamespace(**made, activation="gelu")


def shared_heads(W, H, H_kv):  # (d, H_kv · d_head) -> (d, H · d_head)
    """Repeat the columns of each key-value head for every head of its group: 0 0 1 1."""
    heads = W.reshape(len(W), H_kv, -1)  # (d, H_kv, d_head)
    return np.repeat(heads, H // H_kv, axis=1).reshape(len(W), -1)
