"""Two random Llamas of `transformers`, through every road of the course.

The weights of `transformers` turn coordinate k of a head together with k + d_head / 2. Files in
GGUF form turn neighbours together, 2k and 2k + 1: whoever converts a model moves the rows of W_Q
and W_K, within each head (`permute` in llama.cpp's convert_hf_to_gguf.py). Both are tried here.
"""

import json
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from lib import reference
from lib.attention import attend_causal
from lib.engine.llama import load_model, merge_heads, split_heads
from lib.ffn import swiglu
from lib.norm import rms_norm
from lib.rope import rope
from lib.stack import stack
from tests.engine.tiny_models import byte_level, write_tiny
from tests.witnesses.rounding import rounding_bound

HEADS = ("tied", "untied")
NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


@pytest.fixture(scope="module")
def peer(peer_llama):
    """Sizes, tokens, logits, and the weights under the names that `transformers` gives them."""
    sizes = json.loads(str(peer_llama["sizes"]))
    weights = {
        key.removeprefix("weights."): array / np.float32(64)
        for key, array in peer_llama.items()
        if key.startswith("weights.")
    }
    logits = {head: peer_llama[f"logits.{head}"] for head in HEADS}
    return SimpleNamespace(**sizes, weights=weights, tokens=peer_llama["tokens"], logits=logits)


def interleaved(W, heads):  # (heads · d_head, d): rows k and k + d_head / 2 become neighbours
    return W.reshape(heads, 2, -1, W.shape[1]).swapaxes(1, 2).reshape(W.shape)


def tensors_of(peer, head, permute=True):
    """Return the weights as a GGUF file has them."""
    found = {"token_embd.weight": peer.weights["model.embed_tokens.weight"]}
    found["output_norm.weight"] = peer.weights["model.norm.weight"]
    if head == "untied":
        found["output.weight"] = peer.weights["lm_head.weight"]
    for k in range(peer.num_hidden_layers):
        for theirs, ours in NAMES.items():
            found[f"blk.{k}.{ours}.weight"] = peer.weights[f"model.layers.{k}.{theirs}.weight"]
        if permute:
            for ours, H in (("q", peer.num_attention_heads), ("k", peer.num_key_value_heads)):
                name = f"blk.{k}.attn_{ours}.weight"
                found[name] = interleaved(found[name], H)
    return found


@pytest.fixture(scope="module")
def write(peer, tmp_path_factory):
    """Return a function that writes the model as a GGUF file."""
    folder = tmp_path_factory.mktemp("peer")

    def write(head, permute=True):
        names = ("hidden_size", "num_hidden_layers", "intermediate_size", "head_dim")
        names += ("num_attention_heads", "num_key_value_heads")
        keys = ("d", "L", "d_ff", "d_head", "H", "H_kv")
        sizes = {key: getattr(peer, name) for key, name in zip(keys, names, strict=True)}
        tokenizer = byte_level()
        tokens = tokenizer["tokenizer.ggml.tokens"][: peer.vocab_size]
        tokenizer |= {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.merges": ["! !"]}
        tokens[-1] = "!!"
        tokenizer["tokenizer.ggml.token_type"] = [3] * 3 + [1] * (peer.vocab_size - 3)
        metadata = {
            "llama.rope.freq_base": peer.base,
            "llama.attention.layer_norm_rms_epsilon": peer.eps,
            "llama.context_length": peer.context,
        }
        return write_tiny(
            folder / f"{head}-{permute}.gguf",
            sizes=sizes,
            tokenizer=tokenizer,
            metadata=metadata,
            tensors=tensors_of(peer, head, permute),
        )

    return write


def layer(X, w, peer, core):
    """Run one layer on weights as `transformers` has them, (out, in), with the functions of `core`.

    `core` is the library or its definitions in float64.
    """

    def heads(name, turned):  # -> (n, heads, d_head)
        W = w[f"self_attn.{name}_proj"]
        x = split_heads(h @ W.T, len(W) // peer.head_dim)
        return core.rope(x, np.arange(len(X)), peer.base, "halves") if turned else x

    h = core.rms_norm(X, w["input_layernorm"], peer.eps)
    Q, K, V = heads("q", True), heads("k", True), heads("v", False)
    group = Q.shape[1] // K.shape[1]
    pairs = [(Q[:, i], K[:, i // group], V[:, i // group]) for i in range(Q.shape[1])]
    out = merge_heads([core.attend_causal(*pair) for pair in pairs])
    X = X + out @ w["self_attn.o_proj"].T
    h = core.rms_norm(X, w["post_attention_layernorm"], peer.eps)
    return X + core.swiglu(h, *(w[f"mlp.{name}_proj"].T for name in ("gate", "up", "down")))


def logits_of(peer, weights, head, core):
    """Run the whole model on weights as `transformers` has them."""
    layers = [
        {name: weights[f"model.layers.{k}.{name}.weight"] for name in NAMES}
        for k in range(peer.num_hidden_layers)
    ]
    X = weights["model.embed_tokens.weight"][peer.tokens]
    X = core.stack(X, layers, partial(layer, peer=peer, core=core))
    W = weights["lm_head.weight" if head == "untied" else "model.embed_tokens.weight"]
    return core.rms_norm(X, weights["model.norm.weight"], peer.eps) @ W.T


DEFINITIONS = reference
LIBRARY = SimpleNamespace(
    rope=rope, rms_norm=rms_norm, attend_causal=attend_causal, swiglu=swiglu, stack=stack
)


@pytest.fixture(scope="module")
def bounds(peer):
    """Return what float32 may change in the logits, for each head.

    The longest sum is that of the FFN's second product; ten roundings for the functions between,
    among which the exponentials of the two engines err by at most four (lib/jit.py, kernels.py).
    """

    def bound(head):
        used = {k: w for k, w in peer.weights.items() if head == "untied" or "lm_head" not in k}
        exact = {name: array.astype(np.float64) for name, array in used.items()}
        run = partial(logits_of, peer, head=head, core=DEFINITIONS)
        return rounding_bound(run, exact, terms=peer.intermediate_size + 10)

    found = {head: bound(head) for head in HEADS}
    for head in HEADS:  # there is something to compare, and little room for it to be wrong
        assert found[head] < 1e-4 * np.ptp(peer.logits[head])
    return found


@pytest.mark.parametrize("head", HEADS)
def test_the_definitions(peer, head):
    weights = {name: array.astype(np.float64) for name, array in peer.weights.items()}
    found = logits_of(peer, weights, head, DEFINITIONS)
    # `transformers` computes in float64, but for norms and angles: a few roundings to float32, 14
    # norms and rotations in a row, on numbers whose logits are of size 1 to 10.
    np.testing.assert_allclose(found, peer.logits[head], rtol=0, atol=1e-5)


@pytest.mark.parametrize("head", HEADS)
def test_the_stack_of_the_core(peer, bounds, head):
    found = logits_of(peer, peer.weights, head, LIBRARY)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, peer.logits[head], rtol=0, atol=bounds[head])


@pytest.mark.parametrize("head", HEADS)
def test_the_plain_engine(peer, bounds, write, head):
    model = load_model(write(head))
    tokens, expected = peer.tokens, peer.logits[head]
    found = model.logits(tokens, all=True)
    np.testing.assert_allclose(found, expected, rtol=0, atol=bounds[head])
    cache = model.new_cache()
    model.logits(tokens[:6], cache)
    steps = [model.logits([token], cache) for token in tokens[6:]]
    np.testing.assert_allclose(steps, expected[6:], rtol=0, atol=bounds[head])


@pytest.mark.parametrize("head", HEADS)
def test_the_fast_engine(peer, bounds, write, head):
    pytest.importorskip("numba")
    from lib.engine.fast import load_fast

    model = load_fast(write(head), threads=2, cache_type="float32")
    found = model.logits(peer.tokens, all=True)
    np.testing.assert_allclose(found, peer.logits[head], rtol=0, atol=bounds[head])


def test_rows_that_are_not_moved_are_noticed(peer, bounds, write):
    # The first token is at position 0 and not turned; from the second on everything is wrong.
    found = load_model(write("tied", permute=False)).logits(peer.tokens, all=True)
    error = np.abs(found - peer.logits["tied"]).max(axis=1)
    assert error[0] < bounds["tied"]
    assert error[1:].min() > 1000 * bounds["tied"]
