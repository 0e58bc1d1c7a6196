from unittest.mock import Mock

import numpy as np
import pytest
from tiny_models import BLOCKS, ODD, plain_logits

import lib.engine.llama as llama
from lib.attention import attend_causal
from lib.engine.cache import Cache, LayerCache
from lib.engine.gguf import read_gguf
from lib.engine.llama import (
    LlamaConfig,
    LlamaWeights,
    llama_attention,
    llama_ffn,
    load_model,
    merge_heads,
)
from lib.errors import CourseError
from lib.norm import rms_norm

TOKENS = [17, 200, 3, 88, 88, 41, 260, 9, 130]
# Logits here reach 4; two float32 passes that sum in different orders were 2e-6 apart at most.
CLOSE = {"rtol": 0, "atol": 2e-5}


@pytest.mark.parametrize(
    ("kind", "sizes"), [("F32", ODD), ("F16", ODD), ("Q8_0", BLOCKS), ("Q4_1", BLOCKS)]
)
@pytest.mark.parametrize("untied", [False, True])
def test_logits_agree_with_the_independent_pass(tiny, kind, sizes, untied):
    path = tiny(kind=kind, sizes=sizes, untied=untied)
    expected = plain_logits(read_gguf(path), TOKENS)
    model = load_model(path)
    np.testing.assert_allclose(model.logits(TOKENS, all=True), expected, **CLOSE)
    np.testing.assert_allclose(model.logits(TOKENS), expected[-1], **CLOSE)
    assert np.ptp(expected) > 1  # there is something to compare


def test_the_layers_are_run_by_the_stack_of_the_core(odd, monkeypatch):
    seen = []

    def spy(X, layers, step):
        seen.append(len(layers))
        for layer in layers:
            X = step(X, layer)
        return X

    expected = odd.logits(TOKENS)
    monkeypatch.setattr(llama, "stack", spy)
    np.testing.assert_array_equal(odd.logits(TOKENS), expected)
    assert seen == [ODD["L"]]


@pytest.mark.parametrize("cuts", [[6, 7, 8], [1, 2, 3, 4, 5, 6, 7, 8], [4], [2, 5]])
def test_cached_equals_uncached(odd, cuts):
    # Faults 4 and 5: steps of one and of many tokens, into an empty and a filled cache.
    expected = odd.logits(TOKENS, all=True)
    cache = odd.new_cache()
    parts = np.split(np.array(TOKENS), cuts)
    found = [odd.logits(part, cache, all=True) for part in parts]
    np.testing.assert_allclose(np.concatenate(found), expected, **CLOSE)
    assert cache.n == len(TOKENS)


def test_a_cached_step_sees_every_earlier_token(odd):
    def last(first):
        cache = odd.new_cache()
        odd.logits([first, *TOKENS[1:4]], cache)
        return odd.logits(TOKENS[4:5], cache)

    assert np.abs(last(17) - last(18)).max() > 1e-2


@pytest.mark.parametrize("cached", [False, True])
def test_prefill_is_causal(odd, cached):
    def run(last):
        return odd.logits([*TOKENS[:5], last], odd.new_cache() if cached else None, all=True)

    one, other = run(7), run(8)
    np.testing.assert_array_equal(one[:5], other[:5])  # the same sums: equal to the bit
    assert np.abs(one[5] - other[5]).max() > 1e-2


def test_keys_are_stored_at_their_positions(odd):
    # Fault 6, the first key; fault 7, offsets 6, 7, 8 after a prompt of 6. Layer 0 sees the
    # embeddings, so its keys can be computed here.
    cache = odd.new_cache()
    odd.logits(TOKENS[:6], cache)
    for token in TOKENS[6:9]:
        odd.logits([token], cache)
    w, c = odd.layers[0], odd.config
    x = odd.embedding[TOKENS]
    normed = x / np.sqrt(np.mean(x * x, -1, keepdims=True) + c.eps) * w.attention_gain
    K = (normed @ w.W_K).reshape(9, c.H_kv, c.d_head)
    angle = np.outer(np.arange(9), c.rope_base ** (-np.arange(0, c.d_head, 2) / c.d_head))
    turned = (K[..., 0::2] + 1j * K[..., 1::2]) * np.exp(1j * angle)[:, None]
    K_turned = np.stack([turned.real, turned.imag], -1).reshape(K.shape)
    found = cache.layers[0].keys[:, :9].swapaxes(0, 1)
    np.testing.assert_allclose(found, K_turned, **CLOSE)
    np.testing.assert_allclose(found[0], K[0], **CLOSE)  # position 0 is not turned
    assert np.abs(found[0]).min() > 0
    V = (normed @ w.W_V).reshape(9, c.H_kv, c.d_head)
    np.testing.assert_allclose(cache.layers[0].values[:, :9].swapaxes(0, 1), V, **CLOSE)


# Llama 3.1 and later: the slow pairs are slowed down further.
FACTORS = np.array([1.0, 6.5], np.float32)
SCALED = [
    ({"tensors": {"rope_freqs.weight": FACTORS}}, (1.0, 6.5)),
    (
        {"metadata": {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.5}},
        (2.5, 2.5),
    ),
    (
        {
            "tensors": {"rope_freqs.weight": FACTORS},
            "metadata": {"llama.rope.scaling.factor": 4.0},  # linear where the type is not given
        },
        (4.0, 26.0),
    ),
]


@pytest.mark.parametrize(("options", "factors"), SCALED)
def test_scaled_positions_agree_with_the_independent_pass(tiny, options, factors):
    path = tiny(**options)
    model = load_model(path)
    assert model.config.rope_factors == factors
    expected = plain_logits(read_gguf(path), TOKENS)
    np.testing.assert_allclose(model.logits(TOKENS, all=True), expected, **CLOSE)
    unscaled = load_model(tiny()).logits(TOKENS, all=True)  # the same weights
    np.testing.assert_allclose(unscaled[0], expected[0], **CLOSE)  # position 0 is not turned
    assert np.abs(unscaled[1:] - expected[1:]).max() > 0.05
    cache = model.new_cache()
    model.logits(TOKENS[:6], cache)
    for token in TOKENS[6:]:
        found = model.logits([token], cache)
    np.testing.assert_allclose(found, expected[-1], **CLOSE)


def test_a_factor_slows_a_pair_down(tiny):
    # With a factor of 2 a pair has at position 6 the angle that it had at position 3.
    plain = load_model(tiny())
    half = load_model(tiny(tensors={"rope_freqs.weight": np.array([1.0, 2.0], np.float32)}))
    at = {}
    for name, model in (("plain", plain), ("half", half)):
        cache = model.new_cache()
        model.logits([17] * 7, cache)
        at[name] = cache.layers[0].keys[:, :7].reshape(2, 7, 2, 2)  # (H_kv, n, pairs, 2)
    np.testing.assert_allclose(at["half"][:, 6, 1], at["plain"][:, 3, 1], **CLOSE)
    np.testing.assert_allclose(at["half"][:, 6, 0], at["plain"][:, 6, 0], **CLOSE)
    assert np.abs(at["half"][:, 6, 1] - at["plain"][:, 6, 1]).max() > 1e-2


@pytest.mark.parametrize(
    "metadata",
    [
        {"llama.rope.scaling.type": "none", "llama.rope.scaling.factor": 4.0},
        {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 1.0},
        {"llama.rope.scaling.factor": 0.0},
        {"llama.rope.scale_linear": 1.0},
    ],
)
def test_no_factor_where_the_file_asks_for_none(tiny, metadata):
    assert load_model(tiny(metadata=metadata)).config.rope_factors is None


def test_the_older_key_of_the_factor(tiny):
    metadata = {"llama.rope.scale_linear": 8.0}
    assert load_model(tiny(metadata=metadata)).config.rope_factors == (8.0, 8.0)
    metadata["llama.rope.scaling.factor"] = 2.0  # the newer key counts
    assert load_model(tiny(metadata=metadata)).config.rope_factors == (2.0, 2.0)


def test_grouped_heads_are_repeated_in_order():
    # Fault 11: 2 key-value heads serve 4 heads as 0 0 1 1. One token attends to itself alone, so
    # its heads are the values: (1, 2) and (3, 4).
    config = LlamaConfig(1, 3, 4, 2, 2, 5, 7, 9, 10000.0, 1e-5)
    rng = np.random.default_rng(1)
    W_V = np.zeros((3, 4), np.float32)
    W_V[0] = [1, 2, 3, 4]
    random = [rng.standard_normal(shape).astype(np.float32) for shape in [(3, 8), (3, 4)]]
    w = LlamaWeights(None, *random, W_V, np.eye(8, dtype=np.float32), None, None, None, None)
    X = np.array([[1.0, 0.0, 0.0]], np.float32)
    cache = Cache(1, 2, 1, 2).layers[0]
    np.testing.assert_allclose(
        llama_attention(X, w, cache, config), [[1, 2, 1, 2, 3, 4, 3, 4]], rtol=1e-6
    )


def test_heads_are_merged_in_order():
    # Fault 10: a … h, two heads, two tokens, width 2.
    merged = merge_heads([np.array([[1, 2], [3, 4]]), np.array([[5, 6], [7, 8]])])
    np.testing.assert_array_equal(merged, [[1, 2, 5, 6], [3, 4, 7, 8]])


def test_hidden_holds_every_stage(odd):
    hidden = odd.hidden(TOKENS)
    assert hidden.shape == (ODD["L"] + 1, len(TOKENS), ODD["d"])
    np.testing.assert_array_equal(hidden[0], odd.embedding[TOKENS])
    np.testing.assert_allclose(odd.head(hidden[-1]), odd.logits(TOKENS, all=True), **CLOSE)
    assert np.abs(hidden[1] - hidden[2]).max() > 1e-2


def test_tokens_are_checked(odd):
    vocabulary = odd.config.vocabulary
    for bad, message in [
        ([], "at least one token"),
        ([[1, 2]], "at least one token; its shape is"),
        ([1, vocabulary], f"0 to {vocabulary - 1}; one is {vocabulary}"),
        ([-1], "one is -1"),
        ([1.5], "whole numbers"),
        (list(range(13)), "fit into the context of 12; 0 are in it and 13 more came"),
    ]:
        for method in (odd.logits, odd.hidden):
            with pytest.raises(CourseError, match=message):
                method(bad)


def test_a_full_context_is_an_error_and_loses_nothing(odd):
    cache = odd.new_cache()
    odd.logits(TOKENS, cache)
    before = [layer.keys.copy() for layer in cache.layers]
    with pytest.raises(CourseError, match="9 are in it and 4 more came"):
        odd.logits([1, 2, 3, 4], cache)
    assert cache.n == 9
    for layer, keys in zip(cache.layers, before, strict=True):
        np.testing.assert_array_equal(layer.keys, keys)
    expected = odd.logits([*TOKENS, 1, 2, 3])
    np.testing.assert_allclose(odd.logits([1, 2, 3], cache), expected, **CLOSE)


def test_a_pass_that_was_broken_off_leaves_no_trace(odd, monkeypatch):
    cache = odd.new_cache()
    odd.logits(TOKENS[:4], cache)

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(llama, "swiglu", interrupt)
        with pytest.raises(KeyboardInterrupt):
            odd.logits([250], cache)  # layer 0 has stored its keys by then
    assert cache.n == 4
    found = odd.logits(TOKENS[4:], cache)
    np.testing.assert_allclose(found, odd.logits(TOKENS), **CLOSE)


def test_truncate_goes_back_in_the_text(odd):
    cache = odd.new_cache()
    odd.logits(TOKENS, cache)
    cache.truncate(4)
    found = odd.logits([70, 71], cache)
    np.testing.assert_allclose(found, odd.logits([*TOKENS[:4], 70, 71]), **CLOSE)
    with pytest.raises(CourseError, match="n should be 0 to 6, .* it is 7"):
        cache.truncate(7)


def test_a_layer_cache_refuses_before_it_stores():
    cache = LayerCache(np.zeros((2, 3, 4), np.float32), np.zeros((2, 3, 4), np.float32))
    with pytest.raises(CourseError, match="context of 3; 0 are in it and 5 more"):
        cache.append(np.ones((2, 5, 4)), np.ones((2, 5, 4)))
    assert not cache.keys.any()
    assert cache.n == 0
    with pytest.raises(CourseError, match="capacity should be at least 1"):
        Cache(1, 2, 0, 4)


def test_other_parts_of_a_layer_and_the_model_keeps_its_own(tiny):
    model = load_model(tiny())
    own = model.logits(TOKENS)
    attend = Mock(wraps=attend_causal)
    np.testing.assert_array_equal(model.using(attend=attend).logits(TOKENS), own)
    assert attend.call_count == model.config.L * model.config.H
    other = model.using(ffn=lambda X, weights: 0 * X)
    hidden = other.hidden(TOKENS)
    for X, Y, weights in zip(hidden[:-1], hidden[1:], model.layers, strict=True):
        normed = rms_norm(X, weights.attention_gain, model.config.eps)
        cache = model.new_cache(len(TOKENS)).layers[0]
        np.testing.assert_array_equal(Y, X + llama_attention(normed, weights, cache, model.config))
    assert other.using(ffn=llama_ffn).logits(TOKENS).tolist() == own.tolist()
    np.testing.assert_array_equal(model.logits(TOKENS), own)


def test_a_part_that_a_layer_does_not_have(tiny):
    with pytest.raises(
        CourseError, match="has the parts attend, attention, ffn, layer, head; got 'norm'"
    ):
        load_model(tiny()).using(norm=abs)
