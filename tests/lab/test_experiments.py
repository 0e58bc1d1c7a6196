"""The layer on which exercise 02 experiments, and the counts of its work."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from lib import reference
from lib.lab import experiments as lab

n, d, d_ff = 6, 4, 16


def test_one_layer_is_its_two_steps():
    H = lab.X + lab.attention(lab.X)
    np.testing.assert_array_equal(lab.layer(lab.X), H + lab.ffn(H))


def test_stages_lead_from_what_enters_to_what_leaves():
    stages = lab.stages(lab.X)
    assert " ".join(stages) == "X Q K V scores weights O A M hidden F Y"
    np.testing.assert_array_equal(stages["X"], lab.X)
    # Float64 sums in another order: 1e-15 for numbers of size 1.
    np.testing.assert_allclose(stages["A"], lab.attention(lab.X), rtol=0, atol=1e-13)
    np.testing.assert_allclose(stages["F"], lab.ffn(stages["M"]), rtol=0, atol=1e-13)
    np.testing.assert_allclose(stages["Y"], lab.layer(lab.X), rtol=0, atol=1e-13)
    for i, scores in enumerate(stages["scores"]):
        weights = reference.softmax(scores[: i + 1])
        np.testing.assert_allclose(stages["weights"][i, : i + 1], weights, rtol=0, atol=1e-13)


def test_intermediates_move_as_far_as_the_change():
    assert lab.intermediates(1, 1)["X"] == 1
    for name, matrix in {"Q": lab.W.W_Q, "K": lab.W.W_K, "V": lab.W.W_V}.items():
        far = np.abs(matrix.sum(axis=0)).max()  # all four coordinates grew by 1; W is float32
        assert np.isclose(lab.intermediates(1, 1)[name], far, rtol=1e-6)
        assert lab.intermediates(1, 5)[name] == 0


def test_shares_of_parameters_by_hand():
    in_attention, in_ffn = 4 * d * d, 2 * d * d_ff + d_ff + d
    assert lab.share_of_parameters(lab.attention) == in_attention / (in_attention + in_ffn)
    assert lab.share_of_parameters(lab.ffn) == in_ffn / (in_attention + in_ffn)


def test_counted_work_is_that_of_a_layer_that_gives_the_right_outputs():
    counts, outputs = lab.multiply_adds(lab.X)
    assert counts == {
        "projections": 4 * n * d * d,
        "scores and mean": n * (n + 1) * d,
        "FFN": 2 * n * d * d_ff,
    }
    np.testing.assert_allclose(outputs, lab.layer(lab.X), rtol=0, atol=1e-13)


def test_with_a_cache_only_the_new_tokens_are_computed():
    counts, outputs = lab.multiply_adds(lab.X, cached=5)
    assert counts == {
        "projections": 4 * d * d,
        "scores and mean": 2 * n * d,
        "FFN": 2 * d * d_ff,
    }
    np.testing.assert_allclose(outputs, lab.layer(lab.X)[5:], rtol=0, atol=1e-13)


def test_work_for_texts_and_tokens_by_the_formula():
    assert lab.work_for_a_text("scores and mean") == (100 * 101 * d, 200 * 201 * d)
    assert lab.work_for_a_token("scores and mean") == (2 * 100 * d, 2 * 200 * d)
    assert lab.work_for_a_text("FFN") == (100 * 2 * d * d_ff, 200 * 2 * d * d_ff)
    assert lab.growth_of_work(lab.ffn) == 1
    fixed = 4 * d * d
    expected = (fixed + 400 * d) / (fixed + 200 * d)
    assert np.isclose(lab.growth_of_work(lab.attention), expected)
    assert np.isclose(lab.share_of_work(lab.ffn), 768 / (768 + 384 + 168))
    assert np.isclose(lab.share_of_work(lab.attention), 552 / (768 + 384 + 168))


@pytest.mark.parametrize("place", [0, 2, 7])
def test_a_windowed_layer_is_that_of_the_three_tokens_in_the_window(place):
    w = lab.LAYERS[0]
    seen = lab.LONG[max(0, place - 2) : place + 1]
    expected = reference.residual_layer(seen, w)[-1]  # the last of them sees all of them
    np.testing.assert_allclose(lab.windowed_layer(lab.LONG, w)[place], expected, rtol=0, atol=1e-13)


def test_a_silenced_step_adds_nothing_and_the_others_do():
    first, second = lab.silence(lab.LAYERS, without_attention=(1,), without_ffn=(2,))[:2]
    assert (reference.attention_step(lab.X, first) == 0).all()
    assert (reference.ffn_step(lab.X, second) == 0).all()
    np.testing.assert_array_equal(
        reference.ffn_step(lab.X, first), reference.ffn_step(lab.X, lab.LAYERS[0])
    )
    assert np.abs(reference.attention_step(lab.X, second)).max() > 0.1


def test_movement_at_depths_is_that_of_stacks_of_one_two_and_three_layers():
    changed = lab.X.copy()
    changed[1] += 1
    found = lab.moved_at_depths()
    for depth in (1, 2, 3):
        run = partial(reference.stack, layers=lab.LAYERS[:depth], step=reference.residual_layer)
        assert found[depth - 1] == np.abs(run(changed) - run(lab.X))[-1].max() > 0.1


# Instruments see a difference that was put there, and nothing where there is none.
STEPS = {
    "identity": (lambda X: X, {lab.own_moves: 1}),
    "zero": (lambda X: 0 * X, {}),
    "neighbour": (
        lambda X: np.vstack([X[:1], X[:-1]]),
        {lab.others_move: 1, lab.shuffle_gap: 1, lab.context_shuffled: 1, lab.equal_tokens: 1,
         lab.run_alone: 1},
    ),
    "right neighbour": (
        lambda X: np.vstack([X[1:], X[-1:]]),
        {lab.others_move: 1, lab.earlier_move: 1, lab.shuffle_gap: 1, lab.equal_tokens: 1},
    ),
    "square": (lambda X: X**2, {lab.own_moves: 3, lab.not_additive: 2}),  # (1 + 1)² − 1²
}  # fmt: skip
INSTRUMENTS = [lab.others_move, lab.own_moves, lab.earlier_move, lab.shuffle_gap,
               lab.context_shuffled, lab.run_alone, lab.equal_tokens, lab.not_additive,
               lab.run_twice]  # fmt: skip


@pytest.mark.parametrize("instrument", INSTRUMENTS)
@pytest.mark.parametrize("name", STEPS)
def test_instruments_on_steps_that_one_knows(name, instrument):
    step, expected = STEPS[name]
    assert instrument(step) == pytest.approx(expected.get(instrument, 0), abs=1e-12)


def test_a_step_that_draws_at_random_is_found():
    rng = np.random.default_rng(0)
    assert lab.run_twice(lambda X: X + rng.standard_normal(X.shape)) > 0.1


def test_mean_and_weights_of_the_attention_step():
    assert lab.mean_gap() < 1e-12
    least, most = lab.extreme_weights()
    scores = (lab.X[-1] @ lab.W.W_Q) @ (lab.X @ lab.W.W_K).T / 2
    assert np.isclose(most / least, np.exp(scores.max() - scores.min()))
    louder = replace(lab.W, W_O=2 * lab.W.W_O)
    assert np.allclose(reference.attention_step(lab.X, louder), 2 * lab.attention(lab.X))
