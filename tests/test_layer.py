"""One layer: its two steps, alone, with residuals, and with norms."""

import numpy as np
import pytest

from lib import reference
from lib.attention import attend
from lib.layer import (
    attention_step,
    ffn_step,
    layer,
    random_layer,
    residual_layer,
    two_steps,
)

FORMS = [attention_step, ffn_step, two_steps, residual_layer, layer]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("n", "d", "d_ff"), [(1, 3, 5), (6, 4, 9), (4, 9, 6), (40, 24, 70)])
@pytest.mark.parametrize("activation", ["relu", "gelu", "silu"])
def test_every_form_agrees_with_the_definition(form, n, d, d_ff, activation):
    w = random_layer(d, d_ff, seed=n, activation=activation)
    X = np.random.default_rng(1).standard_normal((n, d)).astype(np.float32)
    got, right = form(X, w), getattr(reference, form.__name__)(X, w)
    assert got.dtype == np.float32
    # Weights keep vectors at size 1, so five products of at most 70 terms err by less than 1e-5.
    np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-5)


def test_the_two_steps_in_order_written_out_for_the_last_token():
    w = random_layer(4, 9, seed=0)
    X = np.random.default_rng(1).standard_normal((6, 4))
    gathered = attend(X[-1] @ w.W_Q, X @ w.W_K, X @ w.W_V) @ w.W_O
    out = reference.gelu(gathered @ w.W_1 + w.b_1) @ w.W_2 + w.b_2
    np.testing.assert_allclose(two_steps(X, w)[-1], out, rtol=1e-5, atol=1e-5)
    other_order = attention_step(ffn_step(X, w), w)[-1]
    assert abs(other_order - out).max() > 0.1


@pytest.mark.parametrize("form", [two_steps, residual_layer, layer])
def test_a_layer_reads_the_left_context_and_nothing_else(form):
    w = random_layer(4, 9, seed=3)
    X = np.random.default_rng(2).standard_normal((6, 4))
    before = form(X, w)
    for j in range(6):
        changed = X.copy()
        changed[j] += [1, -1, 2, 0.5]
        moved = abs(form(changed, w) - before).max(axis=1)
        np.testing.assert_array_equal(moved[:j], 0)
        assert (moved[j:] > 1e-4).all()


def test_the_ffn_step_moves_only_its_own_position():
    w = random_layer(4, 9, seed=3)
    X = np.random.default_rng(2).standard_normal((6, 4))
    changed = X.copy()
    changed[2] += 1
    moved = abs(ffn_step(changed, w) - ffn_step(X, w)).max(axis=1)
    assert moved[2] > 0.1
    np.testing.assert_array_equal(np.delete(moved, 2), 0)


def test_random_layers_are_made_by_their_seed():
    np.testing.assert_array_equal(random_layer(4, 9, 5).W_1, random_layer(4, 9, 5).W_1)
    assert abs(random_layer(4, 9, 5).W_1 - random_layer(4, 9, 6).W_1).min() > 0


def test_random_weights_keep_the_size_of_vectors():
    w = random_layer(300, 400, seed=5)
    # The mean of n numbers of deviation σ is within 5 σ / √n of theirs, so is their variance
    # within 5 √2 σ² / √n.
    for name in ("gain_1", "gain_2"):
        assert abs(getattr(w, name).mean() - 1) < 5 * 0.1 / 300**0.5
    for name in ("b_1", "b_2", "bias_1", "bias_2"):
        assert abs(getattr(w, name).mean()) < 5 * 0.1 / 300**0.5
        assert abs(getattr(w, name).std() - 0.1) < 5 * 0.1 / 300**0.5
    for name in ("W_Q", "W_K", "W_V", "W_O", "W_1", "W_2"):
        W = getattr(w, name)
        assert abs(W.var() * len(W) - 1) < 5 * 2**0.5 / W.size**0.5
