"""What the heads look at, on tiny random models and on the real one."""

import sys
from pathlib import Path

import numpy as np
import pytest

from lib import reference
from lib.engine.llama import load_model, merge_heads
from lib.errors import CourseError
from lib.lab import heads, lens
from lib.lab.figures import real as pictures

sys.path.insert(0, str(Path(__file__).parents[1] / "engine"))

TOKENS = [5, 9, 200, 31, 9, 77, 120]


# --- weights ---


def test_weights_and_values_give_what_the_models_attention_adds(model):
    config, hidden = model.config, model.hidden(TOKENS)
    weights = heads.head_weights(model, hidden)
    assert weights.shape == (config.L, config.H, len(TOKENS), len(TOKENS))
    added, _ = lens.added(model, hidden)
    for k in range(config.L):
        V = heads.queries_keys_values(hidden[k], model.layers[k], config)[2]
        mixed = merge_heads([weights[k, h] @ V[:, h // 3] for h in range(config.H)])
        # sums of twenty float32 products, of numbers around 1
        np.testing.assert_allclose(mixed @ model.layers[k].W_O, added[k], rtol=1e-4, atol=1e-4)


def test_weights_are_the_definition_on_rotated_queries_and_keys(model):
    config, hidden = model.config, model.hidden(TOKENS)
    w, positions = model.layers[1], np.arange(len(TOKENS))
    X = reference.rms_norm(hidden[1], w.attention_gain, config.eps)
    h, kv, width = 4, 1, config.d_head  # three heads to a group: head 4 reads key-value head 1
    Q = (X @ w.W_Q)[:, h * width : (h + 1) * width]
    K = (X @ w.W_K)[:, kv * width : (kv + 1) * width]
    turned = [reference.rope(Z, positions, config.rope_base, "interleaved") for Z in (Q, K)]
    expected = reference.causal_weights(*turned)
    got = heads.head_weights(model, hidden)[1, h]
    np.testing.assert_allclose(got, expected, atol=1e-5)  # float32 against float64


# --- scores ---

WEIGHTS = np.array([[1, 0, 0, 0], [0.25, 0.75, 0, 0], [0.5, 0.1, 0.4, 0], [0.2, 0.3, 0.4, 0.1]])


def test_scores_by_hand():
    assert heads.on_the_first(WEIGHTS) == pytest.approx((0.25 + 0.5 + 0.2) / 3)
    assert heads.on_the_previous(WEIGHTS) == pytest.approx((0.1 + 0.4) / 2)
    # two tokens, repeated: query 2 looks at 1, query 3 at 2
    assert heads.on_the_next_of_the_last_time(WEIGHTS, 2) == pytest.approx((0.1 + 0.4) / 2)
    assert heads.on_the_next_of_the_last_time(WEIGHTS, 3) == pytest.approx(0.3)
    assert heads.mean_weight(WEIGHTS, [3, 1], [0, 1]) == pytest.approx((0.2 + 0.75) / 2)


def test_scores_keep_layers_and_heads():
    many = np.stack([WEIGHTS, WEIGHTS[:, ::-1]] * 3).reshape(2, 3, 4, 4)
    got = heads.on_the_first(many)
    plain, turned = (0.25 + 0.5 + 0.2) / 3, 0.1 / 3
    np.testing.assert_allclose(got, [[plain, turned, plain], [turned, plain, turned]])


@pytest.mark.parametrize(
    ("queries", "keys", "message"),
    [
        ([1, 2], [0], "equally long"),
        ([], [], "equally long"),
        ([4], [0], "queries should be positions from 0 to 3"),
        ([1], [-1], "keys should be positions from 0 to 3"),
    ],
)
def test_positions_that_do_not_fit_are_refused(queries, keys, message):
    with pytest.raises(CourseError, match=message):
        heads.mean_weight(WEIGHTS, queries, keys)


def test_the_ranking_names_layers_and_heads_and_keeps_the_order_of_ties():
    scores = np.array([[0.1, 0.7, 0.3], [0.7, 0.2, 0.9]])
    assert heads.ranked(scores, 4) == [(1, 2, 0.9), (0, 1, 0.7), (1, 0, 0.7), (0, 2, 0.3)]


# --- the real model ---


@pytest.mark.parametrize("seed", [1, 2])
def test_the_real_models_copier_and_its_left_neighbour(real, seed):
    once = np.random.default_rng(seed).integers(1000, 40_000, 20).tolist()
    weights = heads.head_weights(real, real.hidden(once + once))
    copies = heads.on_the_next_of_the_last_time(weights, 20)
    assert heads.ranked(copies, 1)[0][:2] == (18, 6)
    assert copies[18, 6] > 0.8
    assert {place[:2] for place in heads.ranked(copies, 4)} >= {(18, 6), (17, 3), (17, 4)}
    assert heads.ranked(heads.on_the_previous(weights), 1)[0][:2] == (16, 0)


def test_the_real_model_rests_on_the_first_token_and_finds_the_country(real):
    tokens = real.tokenizer.encode("The capital of France is")
    weights = heads.head_weights(real, real.hidden(tokens))
    assert heads.on_the_first(weights)[12:].mean() > 0.75
    assert weights[23, 4, -1, 3] == pytest.approx(0.90, abs=0.01)
    assert np.delete(weights[23, :, -1, 3], 4).max() < 0.4


# --- figures ---


def images(axis):
    return np.ma.filled(axis.images[0].get_array(), np.nan)


def test_the_sheet_has_every_map_at_its_layer_and_head():
    weights = np.arange(2 * 3 * 4 * 4).reshape(2, 3, 4, 4) / 100
    figure = pictures.contact_sheet(weights)
    sheet = images(figure.axes[0])
    assert sheet.shape == (3 * 6, 2 * 6)
    got, past = sheet[12:16, 6:10], np.tri(4, dtype=bool)
    np.testing.assert_array_equal(got[past], weights[1, 2][past])
    assert np.isnan(got[~past]).all()
    assert [t.get_text() for t in figure.axes[0].get_xticklabels()] == ["0", "1"]
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == ["0", "1", "2"]


def test_scores_are_drawn_with_layers_across():
    scores = np.array([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]])
    axis = pictures.by_head({"a": scores, "b": 1 - scores}).axes[1]
    np.testing.assert_allclose(images(axis), 1 - scores.T)
    assert axis.get_title(loc="left") == "b"


@pytest.mark.parametrize("tokens", [None, ["a", "b", "c", "d"]])
def test_maps_of_a_sentence_leave_the_future_grey(tokens):
    figure = pictures.sentence_maps({"one": WEIGHTS, "two": WEIGHTS**2}, tokens)
    got = images(figure.axes[1])
    past = np.tri(4, dtype=bool)
    np.testing.assert_array_equal(got[past], (WEIGHTS**2)[past])
    assert np.isnan(got[~past]).all()
    labels = [t.get_text() for t in figure.axes[0].get_yticklabels()]
    assert labels == (tokens or ["0"])


def test_what_is_written_adds_up_to_the_logit():
    model = load_model()
    tokens = model.tokenizer.encode("The capital of France is")
    hidden, logits = model.hidden(tokens), model.logits(tokens, all=True)
    targets = logits.argmax(axis=1)
    A, F = lens.added(model, hidden)
    towards = heads.direction(model, hidden, targets)
    parts = [(part * towards).sum(axis=-1) for part in (hidden[0], *A, *F)]
    above = logits[range(len(tokens)), targets] - logits.mean(axis=1)
    np.testing.assert_allclose(sum(parts), above, atol=2e-3)
    by_heads = heads.written(model, hidden, targets)
    assert by_heads.shape == (30, 9, len(tokens))
    by_layer = [(part * towards).sum(axis=-1) for part in A]
    np.testing.assert_allclose(by_heads.sum(axis=1), by_layer, atol=2e-3)
