"""Parts taken out of tiny models and of the real one, and what shows it."""

import sys
from pathlib import Path

import ipywidgets
import numpy as np
import pytest

from lib.attention import attend_causal
from lib.engine.llama import merge_heads
from lib.errors import CourseError
from lib.ffn import swiglu
from lib.lab import ablation, lens, widgets
from lib.lab.figures import real as pictures
from lib.lab.figures.base import panels
from lib.lab.heads import queries_keys_values
from lib.norm import rms_norm

sys.path.insert(0, str(Path(__file__).parents[1] / "engine"))

TOKENS = [5, 9, 200, 31, 9, 77, 120]


def by_hand(model, tokens, attention=(), ffn=(), heads=()):
    """Run the layers with additions left out; the result of a head that is gone is zeros."""
    config, X = model.config, model.embed(tokens)
    group = config.H // config.H_kv
    for k, w in enumerate(model.layers):
        if k not in attention:
            Q, K, V = queries_keys_values(X, w, config)
            every = [
                attend_causal(Q[:, h], K[:, h // group], V[:, h // group]) * ((k, h) not in heads)
                for h in range(config.H)
            ]
            X = X + merge_heads(every) @ w.W_O
        if k not in ffn:
            X = X + swiglu(rms_norm(X, w.ffn_gain, config.eps), w.W_gate, w.W_up, w.W_down)
    return X


PARTS = [
    {"attention": [1]},
    {"ffn": [0, 2]},
    {"heads": [(1, 4), (2, 0)]},
    {"attention": [0], "ffn": [1], "heads": [(2, 5)]},
    {},
]


@pytest.mark.parametrize("parts", PARTS)
def test_a_part_that_is_gone_adds_nothing_and_the_rest_runs(model, parts):
    got = ablation.without(model, **parts).hidden(TOKENS)[-1]
    # float32, three layers: numbers of about ten differ in the last digits
    np.testing.assert_allclose(got, by_hand(model, TOKENS, **parts), rtol=1e-4, atol=1e-4)
    if parts:
        assert np.abs(got - model.hidden(TOKENS)[-1]).max() > 0.1


def test_the_model_itself_stays_as_it_was(model):
    before = model.logits(TOKENS)
    layers = list(model.layers)
    other = ablation.without(model, attention=[0], ffn=[1], heads=[(2, 3)])
    assert all(a is b for a, b in zip(model.layers, layers, strict=True))
    np.testing.assert_array_equal(model.logits(TOKENS), before)
    assert other.layers[1].W_O is model.layers[1].W_O  # what is not gone is shared
    assert other.layers[2].W_down is model.layers[2].W_down


def test_without_anything_a_layer_lets_the_stream_pass(model):
    every = range(model.config.L)
    got = ablation.without(model, attention=every, ffn=every).hidden(TOKENS)
    for stage in got:
        np.testing.assert_array_equal(stage, model.embed(TOKENS))


def test_one_by_one_is_what_each_model_returns(model):
    parts = [{"attention": [2]}, {"ffn": [1]}, {"heads": [(1, 3), (0, 2)]}, {"ffn": [0]}]
    got = ablation.one_by_one(model, model.hidden(TOKENS), parts)
    whole = [ablation.without(model, **part).hidden(TOKENS)[-1] for part in parts]
    # products of more rows at once sum in another order
    np.testing.assert_allclose(got, whole, rtol=1e-4, atol=1e-4)


def test_leaving_from_a_depth_gives_the_last_stage(model):
    hidden = model.hidden(TOKENS)
    for first in range(model.config.L + 1):
        left = ablation.leave(model, hidden, first) if first < model.config.L else hidden[-1]
        np.testing.assert_array_equal(left, hidden[-1])


def test_every_step_is_attention_and_then_ffn():
    assert ablation.every_step(2) == [
        {"attention": [0]}, {"attention": [1]}, {"ffn": [0]}, {"ffn": [1]}
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"attention": [3]}, "attention should name layers from 0 to 2; one is 3"),
        ({"ffn": [-1]}, "ffn should name layers from 0 to 2; one is -1"),
        ({"heads": [(3, 0)]}, "heads should name layers from 0 to 2; one is 3"),
        ({"heads": [(0, 6)]}, "heads should name heads from 0 to 5; one is 6"),
        ({"heads": [(0, 1.0)]}, "heads should name heads from 0 to 5; one is 1.0"),
    ],
)
def test_parts_that_are_not_there_are_named(model, parts, message):
    with pytest.raises(CourseError, match=message):
        ablation.without(model, **parts)


# --- the real model ---


def p_of(model, prompt, answer, *parts):
    """Return the probability of a token: intact, and without each of the parts."""
    hidden = model.hidden(model.tokenizer.encode(prompt))
    last = [hidden[-1, -1], *ablation.one_by_one(model, hidden, parts)[:, -1]]
    return lens.predictions(model, np.stack(last))[:, lens.token_of(model, answer)]


def test_what_the_capital_of_france_needs(real):
    parts = [{"ffn": [8]}, {"ffn": [11]}, {"ffn": [17]}, {"attention": [1]}, {"attention": [23]}]
    p = p_of(real, "The capital of France is", " Paris", *parts, {"heads": [(23, 4)]})
    # rounded to two decimals, and float32 sums in another order move the third
    assert p[0] == pytest.approx(0.77, abs=0.01)
    assert max(p[1], p[2]) < 0.01
    assert p[3] == pytest.approx(0.85, abs=0.01)
    assert p[4] < 0.01
    assert p[5] < 0.1
    assert p[6] == pytest.approx(0.14, abs=0.02)


def test_the_head_that_reads_the_country_is_not_needed_elsewhere(real):
    p = p_of(real, "The opposite of hot is", " cold", {"heads": [(23, 4)]}, {"ffn": [11]})
    assert p[0] == pytest.approx(0.68, abs=0.01)
    assert abs(p[1] - p[0]) < 0.02
    assert p[2] < 0.01


def test_copying_needs_the_copiers_and_the_head_that_feeds_them(real):
    once = np.random.default_rng(1).integers(1000, 40_000, 20).tolist()
    text = once + once

    def copied(*heads):
        X = ablation.without(real, heads=heads).hidden(text)[-1]
        p = lens.predictions(real, X[20:-1])
        return float(p[np.arange(19), text[21:]].mean())

    intact = copied()
    assert intact > 0.2
    assert copied((18, 6)) < 0.6 * intact
    assert copied((16, 0)) < 0.2 * intact
    assert copied((18, 0)) == pytest.approx(intact, rel=0.1)


# --- figures and the switchboard ---


def test_the_strip_shows_per_cent_by_part_and_layer():
    p = np.array([[0.03, 0.684, 0.5], [0.9, 0.004, 0.773]])
    axis = pictures.damage(p, ["attention", "FFN"]).axes[0]
    assert [t.get_text() for t in axis.texts] == ["3", "68", "50", "90", "0", "77"]
    assert [t.get_text() for t in axis.get_yticklabels()] == ["attention", "FFN"]
    np.testing.assert_allclose(axis.images[0].get_array(), 100 * p)


def test_bars_of_parts_share_their_names():
    figure = pictures.parts({"MB": {"a": 1.5, "b": 3.0}, "millions": {"a": 7.0, "b": 2.0}})
    widths = [[bar.get_width() for bar in axis.patches] for axis in figure.axes]
    assert widths == [[1.5, 3.0], [7.0, 2.0]]
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == ["a", "b"]


def test_ranks_are_drawn_with_the_best_on_top():
    figure = pictures.rank_and_probability({"x": [900, 30, 1]}, {"x": [0.0, 0.1, 0.8]})
    left, right = figure.axes
    assert left.get_ylim()[0] > left.get_ylim()[1]
    assert left.lines[0].get_ydata().tolist() == [900, 30, 1]
    assert right.lines[0].get_ydata().tolist() == [0.0, 0.1, 0.8]


def test_heads_are_compared_with_what_is_measured_when_all_are_there():
    axis = pictures.head_bars([0.7, 0.1, 0.6], intact=0.65).axes[0]
    assert [bar.get_height() for bar in axis.patches] == [0.7, 0.1, 0.6]
    assert set(axis.lines[0].get_ydata()) == {0.65}


@pytest.mark.parametrize("several", [False, True])
def test_a_distribution_is_drawn_over_the_models_own(several):
    p, plain, words = [0.75, 0.25, 0.0], [0.5, 0.3, 0.2], ["a", "b", "c"]
    if several:
        axis = pictures.samplings({"one": plain, "two": p}, plain, words).axes[1]
    else:
        axis = pictures.sampling(p, plain, words).axes[0]
    assert [bar.get_height() for bar in axis.patches[:3]] == p
    assert axis.lines[0].get_ydata().tolist() == [0.5, 0.3, 0.2, 0.2]
    assert [line.get_xdata()[0] for line in axis.lines[1:]] == [2]  # the cross: it is out


def test_a_slow_explorer_says_that_it_works_and_computes_once():
    seen, board = [], None

    def draw(layer):
        seen.append((layer, board.children[-2].value if board else "working …"))
        if layer == 3:
            raise CourseError("layer should not be 3")
        return panels()[0]

    layer = widgets.slider("layer", 0, 5, 1)
    board = widgets.slow_explorer(draw, layer=layer)
    message, picture = board.children[-2:]
    first = picture.value
    assert "data:image/png;base64," in first
    assert isinstance(board, ipywidgets.VBox)
    assert layer.continuous_update is False

    for value in (2, 1, 2, 3):
        layer.value = value
    assert seen == [(1, "working …"), (2, "working …"), (3, "working …")]
    assert message.value == "layer should not be 3"
    layer.value = 1
    assert (message.value, picture.value) == ("", first)
