"""The six changes of chapter 6: each layer against its definition, the last against the engine."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from lib import reference
from lib.engine.cache import LayerCache
from lib.engine.llama import LlamaWeights, llama_layer
from lib.errors import CourseError
from lib.lab import changes, show
from lib.lab.figures import llama as drawings
from lib.layer import layer, random_layer

CONFIG = SimpleNamespace(
    H=4, H_kv=2, d_head=6, rope_base=500.0, eps=0.02, rope_factors=None
)  # an eps that is felt
N, D, D_FF = 7, 10, 14
W = changes.random_weights(D, CONFIG, D_FF, seed=1)
X = np.random.default_rng(2).standard_normal((N, D)).astype(np.float32)
# float32 sums of up to 24 products of numbers near 1: errors near 24 · 6e-8 · a few
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def heads_by_definition(A, w, rotary):
    """Attend head by head in float64, each slice cut by hand, heads 0 1 | 2 3 sharing."""
    results = []
    for h, shared in enumerate([0, 0, 1, 1]):
        own, kept = slice(6 * h, 6 * h + 6), slice(6 * shared, 6 * shared + 6)
        q, k, v = A @ w.W_Q[:, own], A @ w.W_K[:, kept], A @ w.W_V[:, kept]
        if rotary:
            q, k = (reference.rope(m, range(N), CONFIG.rope_base) for m in (q, k))
        results.append(reference.attend_causal(q, k, v))
    return np.hstack(results) @ w.W_O


def by_definition(w, *, rotary=False, rms=False, gated=False):
    out = np.float64(X)
    if rms:
        out = out + heads_by_definition(
            reference.rms_norm(out, w.attention_gain, CONFIG.eps), w, rotary
        )
        B = reference.rms_norm(out, w.ffn_gain, CONFIG.eps)
    else:
        out = out + heads_by_definition(reference.layer_norm(out, w.gain_1, w.bias_1), w, rotary)
        B = reference.layer_norm(out, w.gain_2, w.bias_2)
    if gated:
        return out + reference.swiglu(B, w.W_gate, w.W_up, w.W_down)
    return out + reference.ffn(B, w.W_1, w.b_1, w.W_2, w.b_2, "gelu")


STAGES = [
    (changes.grouped_heads, {}),
    (changes.rotary_positions, {"rotary": True}),
    (changes.root_mean_square, {"rotary": True, "rms": True}),
    (changes.gated_ffn, {"rotary": True, "rms": True, "gated": True}),
]


@pytest.mark.parametrize(("form", "what"), STAGES, ids=[form.__name__ for form, _ in STAGES])
def test_each_layer_is_its_definition_and_no_other(form, what):
    got = form(X, W, CONFIG)
    for _, other in STAGES:
        same = np.allclose(got, by_definition(W, **other), **CLOSE)
        assert same == (other == what)


def test_the_changes_start_at_the_layer_of_chapter_3():
    w = random_layer(D, D_FF, seed=3)
    np.testing.assert_allclose(changes.one_head(X, w), layer(X, w), **CLOSE)
    one = SimpleNamespace(H=1)
    np.testing.assert_allclose(changes.several_heads(X, w, one), layer(X, w), **CLOSE)


def test_shared_heads_are_repeated_in_groups():
    W_K = np.float32([[1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12]])  # two heads of width 3
    got = changes.shared_heads(W_K, H=4, H_kv=2)
    assert got[0].tolist() == [1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6]
    assert got[1].tolist() == [7, 8, 9, 7, 8, 9, 10, 11, 12, 10, 11, 12]


def test_several_heads_with_repeated_columns_are_grouped_heads():
    both = {name: changes.shared_heads(getattr(W, name), 4, 2) for name in ("W_K", "W_V")}
    got = changes.several_heads(X, SimpleNamespace(**vars(W) | both), CONFIG)
    np.testing.assert_allclose(got, by_definition(W), **CLOSE)
    wrong = {name: np.tile(getattr(W, name), 2) for name in ("W_K", "W_V")}  # 0 1 0 1
    got = changes.several_heads(X, SimpleNamespace(**vars(W) | wrong), CONFIG)
    assert not np.allclose(got, by_definition(W), atol=0.1)


def test_the_last_layer_is_the_engines():
    names = LlamaWeights.__dataclass_fields__
    weights = LlamaWeights(**{name: getattr(W, name) for name in names})
    keys, values = np.zeros((2, 2, N, 6), np.float32)
    expected = llama_layer(X, (weights, LayerCache(keys, values)), CONFIG)
    np.testing.assert_allclose(changes.gated_ffn(X, weights, CONFIG), expected, **CLOSE)


def test_a_tied_head_is_the_embedding_transposed():
    rng = np.random.default_rng(4)
    m = SimpleNamespace(
        embedding=rng.standard_normal((23, D)).astype(np.float32),
        layers=[W],
        output_gain=rng.standard_normal(D).astype(np.float32),
        W_head=rng.standard_normal((D, 23)).astype(np.float32),
    )
    tokens = np.array([3, 22, 0, 3, 7])
    left = changes.gated_ffn(m.embedding[tokens], W, CONFIG)
    normed = reference.rms_norm(left, m.output_gain, CONFIG.eps)
    np.testing.assert_allclose(
        changes.tied_head(tokens, m, CONFIG), normed @ m.embedding.T, **CLOSE
    )
    np.testing.assert_allclose(changes.own_head(tokens, m, CONFIG), normed @ m.W_head, **CLOSE)


def before(x):
    """Say one thing.

    In several lines.
    """
    y = x + 1
    return y


def after(x):
    """Say another."""
    y = x + 2
    return y


def test_diff_shows_what_goes_and_comes_and_no_docstring():
    assert show.diff(before, after).data == (
        "```diff\n-def before(x):\n-    y = x + 1\n+def after(x):\n+    y = x + 2\n"
        "     return y\n```"
    )


def test_every_change_is_a_few_lines():
    forms = [changes.one_head, changes.several_heads, *(form for form, _ in STAGES)]
    pairs = [*pairwise(forms), (changes.own_head, changes.tied_head)]
    for old, new in pairs:
        lines = show.diff(old, new).data.split("\n")[1:-1]
        changed = [line for line in lines if line[0] in "+-" and not line[1:].startswith("def ")]
        assert 0 < len(changed) <= 9


Q_1, K_1 = np.array([1.0, -0.5, 2.0, 0.25]), np.array([0.5, 1.5, -1.0, 3.0])


def test_the_score_that_is_drawn_is_that_of_the_turned_vectors():
    q = reference.rope(Q_1[None], [5], 100.0)[0]
    k = reference.rope(K_1[None], [3], 100.0)[0]
    assert drawings.score(Q_1, K_1, 5, 3, 100.0) == pytest.approx(q @ k / 2, abs=1e-6)
    axis = drawings.turning(Q_1, K_1, 5, 3, base=100.0).axes[-1]
    assert axis.get_title(loc="left") == f"score {q @ k / 2:.2f} at distance 2".replace("-", "−")
    assert axis.lines[0].get_ydata()[2] == pytest.approx(q @ k / 2, abs=1e-5)


def test_a_key_to_the_right_of_its_query_is_refused():
    with pytest.raises(CourseError, match="the query is at 3, the key at 4"):
        drawings.turning(Q_1, K_1, 3, 4, base=100.0)


def test_figures_hold_their_numbers():
    figure = drawings.heads_of_one({"a": [0.25, 0.75], "b": [1.0, 0.0]}, ["x", "y"], title="t")
    assert [text.get_text() for text in figure.axes[1].texts] == ["1.00", "0.00"]
    figure = drawings.stops(Q_1, K_1, [(3, 2), (9, 8), (9, 4)], base=100.0)
    titles = [axis.get_title() for axis in figure.axes[:3]]
    assert titles[0].split("score")[1] == titles[1].split("score")[1]
    assert titles[0].split("score")[1] != titles[2].split("score")[1]
    lines = drawings.by_distance({"m": np.arange(20.0)}, {"p": np.arange(20.0)}).axes[0].lines
    assert lines[0].get_ydata().tolist() == list(range(20))
    assert lines[1].get_xdata().tolist() == [0, 8, 16]
