"""The trace of a layer: every intermediate is what its formula says, and the last is the layer."""

import numpy as np
import pytest

from lib import reference
from lib.errors import CourseError
from lib.lab.trace import trace_layer
from lib.layer import attention_step, layer, random_layer, residual_layer, two_steps

N, D, D_FF = 6, 4, 9
FORMS = [two_steps, residual_layer, layer]


@pytest.fixture
def X():
    return np.random.default_rng(1).standard_normal((N, D)).astype(np.float32)


def values(stages):
    return {stage.name: stage.value for stage in stages}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_the_last_value_is_the_layer(form, activation, X):
    w = random_layer(D, D_FF, seed=2, activation=activation)
    # The same float32 operations in the same order: nothing may differ beyond a last bit.
    np.testing.assert_allclose(trace_layer(X, w, form)[-1].value, form(X, w), rtol=0, atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_every_stage_agrees_with_its_formula_in_float64(form, X):
    w = random_layer(D, D_FF, seed=3)
    got = values(trace_layer(X, w, form))
    N_1 = reference.layer_norm(X, w.gain_1, w.bias_1) if form is layer else reference.float64(X)
    Q, K, V = N_1 @ w.W_Q, N_1 @ w.W_K, N_1 @ w.W_V
    A = reference.attend_causal(Q, K, V) @ w.W_O
    M = A if form is two_steps else X + A
    N_2 = reference.layer_norm(M, w.gain_2, w.bias_2) if form is layer else M
    hidden = reference.gelu(N_2 @ w.W_1 + w.b_1)
    right = {"X": X, "N_1": N_1, "Q": Q, "K": K, "V": V, "weights": reference.causal_weights(Q, K)}
    right |= {"O": reference.attend_causal(Q, K, V), "A": A, "M": M, "N_2": N_2}
    right |= {"Z": N_2 @ w.W_1 + w.b_1, "hidden": hidden, "F": hidden @ w.W_2 + w.b_2}
    for name, value in right.items():
        # Numbers of size 1 through at most five float32 products of nine terms.
        np.testing.assert_allclose(got[name], value, rtol=1e-5, atol=1e-5, err_msg=name)


def test_scores_are_given_up_to_the_query_and_missing_to_its_right(X):
    w = random_layer(D, D_FF, seed=4)
    got = values(trace_layer(X, w, residual_layer))
    past = np.tri(N, dtype=bool)
    right = (X @ w.W_Q) @ (X @ w.W_K).T / 2  # √d = 2
    np.testing.assert_allclose(got["scores"][past], right[past], rtol=1e-5, atol=1e-5)
    assert np.isnan(got["scores"][~past]).all()
    assert (got["weights"][~past] == 0).all()


def test_names_and_shapes_in_order(X):
    stages = trace_layer(X, random_layer(D, D_FF, seed=5))
    square, wide = (N, N), (N, D_FF)
    shapes = {"scores": square, "weights": square, "Z": wide, "hidden": wide}
    names = ["X", "N_1", *"QKV", "scores", "weights", *"OAM", "N_2", "Z", "hidden", *"FY"]
    assert [stage.name for stage in stages] == names
    assert [stage.value.shape for stage in stages] == [shapes.get(k, (N, D)) for k in names]


def test_the_size_is_the_root_mean_square_of_what_is_there(X):
    stages = trace_layer(X, random_layer(D, D_FF, seed=6))
    sizes = {stage.name: stage.size for stage in stages}
    scores = values(stages)["scores"][np.tri(N, dtype=bool)]
    assert sizes["scores"] == pytest.approx(np.sqrt((scores.astype(np.float64) ** 2).mean()))
    assert sizes["X"] == pytest.approx(np.sqrt((X.astype(np.float64) ** 2).mean()))


def test_norms_change_the_trace_and_their_absence_is_said(X):
    w = random_layer(D, D_FF, seed=7)
    plain, normed = trace_layer(X, w, residual_layer), trace_layer(X, w, layer)
    assert plain[1].formula == "X (no norm)"
    assert normed[1].formula == "LayerNorm(X)"
    np.testing.assert_array_equal(plain[1].value, X)
    assert abs(normed[1].value - X).max() > 0.1


@pytest.mark.parametrize("form", [attention_step, None])
def test_another_form_is_refused_by_name(form, X):
    with pytest.raises(CourseError, match="form should be layer, residual_layer or two_steps"):
        trace_layer(X, random_layer(D, D_FF, seed=8), form)


def test_a_wrong_width_is_refused_by_name(X):
    with pytest.raises(CourseError, match=r"X should have shape \(n, 4\)"):
        trace_layer(X[:, :3], random_layer(D, D_FF, seed=9))
