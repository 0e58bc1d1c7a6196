"""Patients: each has the fault that it was given, shows it as its task says, and hides its name."""

import inspect

import numpy as np
import pytest

from lib import reference
from lib.errors import CourseError, ModelError
from lib.lab import faults, installed
from lib.lab.faults import (
    REAL_FAULTS,
    TOY_FAULTS,
    WARDS,
    deal,
    healthy_layer,
    patient,
    toy_parts,
    toy_patient,
    toy_stack,
)
from lib.lab.probes import movements
from lib.layer import random_layer

SEEDS = range(20)
N, D = 5, 4
X, OLD = np.random.default_rng(0).standard_normal((2, N, D))
w = random_layer(D, 7, seed=1)
Q, K, V = X @ w.W_Q, X @ w.W_K, X @ w.W_V
SCORES = Q @ K.T / 2  # √d = 2


def parts(fault):
    return toy_parts(w, OLD, fault)


def normal(exponentials):
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def test_without_a_fault_it_is_the_layer_of_the_core():
    sound = parts(None)
    M = X + sound.attend(X)
    np.testing.assert_allclose(sound.attend(X), reference.attention_step(X, w), rtol=1e-12)
    np.testing.assert_allclose(
        sound.finish(M, sound.feed(M)), reference.residual_layer(X, w), rtol=1e-12
    )


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("no_scaling", normal(np.exp(2 * SCORES) * np.tri(N))),
        ("no_mask", normal(np.exp(SCORES))),
        ("mask_ahead", normal(np.exp(SCORES) * np.tri(N, k=1))),
        ("uniform_weights", normal(np.tri(N))),
        ("values_unmixed", np.eye(N)),
        (
            "wrong_axis",
            np.exp(SCORES) * np.tri(N) / (np.exp(SCORES) * np.tri(N)).sum(axis=0),
        ),
    ],
)
def test_weights_of_a_fault(fault, expected):
    weights = parts(fault).weigh(X)
    np.testing.assert_allclose(weights, expected, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(parts(fault).attend(X), expected @ V @ w.W_O, rtol=1e-10, atol=1e-12)


def test_a_mask_that_hides_a_token_from_itself_leaves_the_first_row_one_key():
    weights = parts("mask_behind").weigh(X)
    np.testing.assert_array_equal(weights[:2], [[1, 0, 0, 0, 0]] * 2)
    np.testing.assert_allclose(
        weights[2:], normal(np.exp(SCORES[2:]) * np.tri(N, k=-1)[2:]), rtol=1e-12
    )


@pytest.mark.parametrize(
    ("fault", "first_key", "second_key"),
    [("first_key_lost", np.zeros(D), K[1]), ("stale_cache", OLD[0] @ w.W_K, OLD[1] @ w.W_K)],
)
def test_what_stands_in_a_cache_that_was_not_filled(fault, first_key, second_key):
    keys = np.vstack([first_key, second_key, K[2:]])  # half of five tokens are two
    values = V.copy()
    values[0] = 0 if fault == "first_key_lost" else OLD[0] @ w.W_V
    values[1] = V[1] if fault == "first_key_lost" else OLD[1] @ w.W_V
    expected = reference.attend_causal(Q, keys, values) @ w.W_O
    np.testing.assert_allclose(parts(fault).attend(X), expected, rtol=1e-12)


def network(x):
    return reference.ffn_step(x, w)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("left_out", np.zeros((N, D))),
        ("no_activation", (X @ w.W_1 + w.b_1) @ w.W_2 + w.b_2),
        ("same_everywhere", np.tile(network(OLD[0]), (N, 1))),
        ("scrambled", network(X.ravel(order="F").reshape(N, D))),
        ("shifted", network(X[[0, 0, 1, 2, 3]])),
    ],
)
def test_what_the_ffn_of_a_fault_adds(fault, expected):
    np.testing.assert_allclose(parts(fault).feed(X), expected, rtol=1e-12)
    assert not np.allclose(expected, network(X), atol=1e-2)


def test_a_lost_residual():
    F = network(X)
    np.testing.assert_array_equal(parts("residual_lost").finish(X, F), F)


# --- What the tasks say of their patients ---


def each(task):
    """Yield a patient for every fault of a task and every seed."""
    for fault in WARDS[task].attention + WARDS[task].FFN:
        for seed in SEEDS:
            yield toy_patient(seed, task, fault)


def off(p):
    return np.abs(p.Y - p.healthy.Y).max(axis=1)


def test_the_layer_of_the_scenario_listens_to_nobody_and_changes_every_vector():
    for p in each("scenario"):
        reach = movements(p.layer, p.X)
        assert (reach[~np.eye(6, dtype=bool)] == 0).all()
        assert (reach.diagonal() > 0.1).all()
        assert (np.abs(p.Y - p.X).max(axis=1) > 1e-2).all()


def test_patient_1_is_wrong_almost_everywhere():
    for p in each("patient_1"):
        assert (off(p) > 5e-3).sum() >= 4


def test_patient_2_reads_the_future():
    for p in each("patient_2"):
        assert np.triu(movements(p.layer, p.X), 1).max() > 1e-2


def test_patient_3_is_right_at_position_0_and_wrong_after_it():
    for p in each("patient_3"):
        assert off(p)[0] == 0
        assert off(p)[1:].max() > 1e-2
        assert np.triu(movements(p.layer, p.X), 1).max() == 0


def test_patient_4_is_wrong_and_reads_no_future():
    for p in each("patient_4"):
        assert off(p).max() > 1e-2
        assert np.triu(movements(p.layer, p.X), 1).max() == 0


def test_patient_5_moves_where_it_should():
    for p in each("patient_5"):
        reach = movements(p.layer, p.X)
        assert np.triu(reach, 1).max() == 0
        assert (reach[np.tril_indices(6)] > 0).all()
        assert off(p).max() > 1e-2


def test_one_layer_of_the_stack_is_sick_and_stages_part_there():
    for fault in TOY_FAULTS:
        for seed in range(5):
            stack = toy_stack(seed, "stack", fault)
            layers = [stack.layer(k) for k in range(1, stack.L + 1)]
            sick = [k for k, p in enumerate(layers, 1) if off(p).max() > 0]
            pairs = zip(stack.stages, stack.healthy.stages, strict=True)
            parted = [k for k, (a, b) in enumerate(pairs) if np.abs(a - b).max() > 0]
            assert len(sick) == 1
            assert parted == list(range(sick[0], stack.L + 1))


# --- Which patient a seed gives ---


def test_a_seed_gives_the_same_patient_again_and_another_seed_another():
    for task in ("patient_1", "stack"):
        one, again, other = patient(7, task), patient(7, task), patient(8, task)
        X = [p.stages[0] if task == "stack" else p.X for p in (one, again, other)]
        np.testing.assert_array_equal(X[0], X[1])
        assert not np.allclose(X[0], X[2])


def test_the_faults_of_one_seed_are_the_same_on_every_machine():
    assert deal(2026) == {
        "scenario": "values_unmixed",
        "patient_1": "same_everywhere",
        "patient_2": "mask_ahead",
        "patient_3": "uniform_weights",
        "patient_4": "first_key_lost",
        "patient_5": "residual_lost",
        "stack": "left_out",
        "real_1": "values_unmixed",
        "real_2": "shifted",
    }


def test_every_fault_is_dealt_and_both_components_as_often():
    dealt = {name: set() for name in WARDS}
    for seed in range(200):
        of_seed = deal(seed)
        toy = [TOY_FAULTS[of_seed[t]].component for t in WARDS if WARDS[t].kind != "real"]
        real = [REAL_FAULTS[of_seed[t]].component for t in WARDS if WARDS[t].kind == "real"]
        assert sorted(toy[1:]) == ["FFN"] * 3 + ["attention"] * 3
        assert sorted(real) == ["FFN", "attention"]
        for task, fault in of_seed.items():
            dealt[task].add(fault)
    assert dealt == {task: {*ward.attention, *ward.FFN} for task, ward in WARDS.items()}


@pytest.mark.parametrize("seed", [-1, 10**18 + 1, 1.0, "7", True, None])
def test_a_seed_of_another_kind_is_refused(seed):
    with pytest.raises(CourseError, match="seed should be a whole number from 0"):
        patient(seed, "patient_1")


def test_unknown_tasks_and_layers_are_refused():
    with pytest.raises(CourseError, match="task should be one of scenario, .*; it is 'patient_9'"):
        patient(1, "patient_9")
    for k in (0, 5, True, 1.0):
        with pytest.raises(CourseError, match=f"k should be a layer from 1 to 4; it is {k}"):
            patient(1, "stack").layer(k)


def test_nothing_that_is_shown_names_the_fault():
    for fault in TOY_FAULTS:
        p = toy_patient(3, "patient_1", fault)
        shown = [p, p.weights, p.attention_step, p.ffn_step, p.layer, p.second_half, p.healthy]
        stack = toy_stack(3, "stack", fault)
        shown += [stack, stack.layer(1), stack.layer, stack.healthy, vars(p)["label"]]
        assert not [text for text in map(repr, shown) if fault in text]


def test_arrays_of_a_patient_are_read_only():
    for array in (patient(1, "patient_1").X, *patient(1, "stack").stages):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 1


def test_a_healthy_layer_is_its_own_twin():
    sound = healthy_layer()
    np.testing.assert_array_equal(sound.Y, sound.healthy.Y)
    np.testing.assert_array_equal(sound.Y, sound.M + sound.ffn_step(sound.M))


def test_a_chart_shows_movements_of_both_and_what_sets_them_apart():
    p = patient(2026, "patient_2")
    axes = faults.chart(p).axes
    shown = [axis.images[0].get_array() for axis in axes]
    np.testing.assert_array_equal(shown[0], movements(p.layer, p.X))
    np.testing.assert_array_equal(shown[1], movements(p.healthy.layer, p.X))
    np.testing.assert_array_equal(shown[2][:, 0], off(p))


# --- The real model ---


def test_a_healthy_layer_of_the_real_stack_is_the_engines_own():
    stack = faults.healthy_real_stack()
    model = faults.real_model()
    hidden = model.hidden(model.tokenizer.encode(faults.PROMPT))
    for k in (1, 2):  # the same functions on the same arrays
        np.testing.assert_array_equal(stack.layer(k).Y, hidden[k])
    with pytest.raises(CourseError, match="weights should be asked of a toy patient"):
        stack.layer(1).weights(stack.layer(1).X)


def test_own_values_is_attention_of_each_token_to_itself():
    model = faults.real_model()
    weights, config = model.layers[4], model.config
    X = np.random.default_rng(2).standard_normal((3, config.d)).astype(np.float32)
    alone = [faults.healthy_attention(row[None], weights, config)[0] for row in X]
    # Two orders of summation in float32, over 576 numbers.
    np.testing.assert_allclose(
        faults.own_values(X, weights, config), alone, rtol=0, atol=1e-5 * np.abs(alone).max()
    )


def test_the_probability_of_a_word():
    found = faults.real_probabilities(faults.healthy_real_stack().stages)
    assert found.shape == (31,)
    assert found[-1] == pytest.approx(0.7725, abs=2e-3)


def test_a_missing_model_is_said_in_one_line(monkeypatch):
    def missing():
        raise ModelError("The model is not installed")

    monkeypatch.setattr("lib.engine.llama.load_model", missing)
    with pytest.raises(installed.NoModel) as raised:
        inspect.unwrap(installed.real_model)()
    assert raised.value._render_traceback_() == [
        "The real model is needed here: The model is not installed"
    ]
