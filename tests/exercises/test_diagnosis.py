"""The instruments' readings on layers made by hand, at the borders of what counts."""

from types import SimpleNamespace

import numpy as np
import pytest

from lib.exercises import Malformed, Wrong, diagnosis
from lib.exercises.t03_debugging import DIAGNOSES, nothing_arrives
from lib.lab.probes import movement

TOLERANCE = 1e-3
BIG = 1000.0  # how far the vectors move: what counts is relative to it


def made(**functions):
    """Return a layer of two tokens with these functions, and nothing else."""
    X = np.array([[1.0, 2.0], [3.0, 5.0]])
    return SimpleNamespace(X=X, M=X, tolerance=TOLERANCE, **functions)


def mixing(part):
    """Return a step in which each row is BIG times itself, plus a part of the other's."""
    return lambda X: np.array([[BIG, part], [part, BIG]]) @ X


@pytest.mark.parametrize(("part", "holds"), [(0.5, False), (2.0, True)])
def test_what_moves_by_less_than_the_tolerance_does_not_count(part, holds):
    # A thousandth of 1000 is 1.
    assert diagnosis.future_leaks(made(attention_step=mixing(part))).holds is holds
    assert diagnosis.ffn_mixes_positions(made(ffn_step=mixing(part))).holds is holds


@pytest.mark.parametrize(("silent", "first_alone", "some_early", "none_heard"), [
    ([], False, False, False),
    ([0], True, False, False),
    ([0, 1], False, True, False),
    ([0, 1, 2], False, True, False),
    ([1], False, False, False),
    ([1, 2], False, False, False),
    ([0, 1, 2, 3], False, False, True),
])  # fmt: skip
def test_which_tokens_move_no_later_position(silent, first_alone, some_early, none_heard):
    # Of five tokens the last has no position after it.
    heard = np.tril(np.ones((5, 5)))
    for token in silent:
        heard[token + 1 :, token] = 0
    layer = made(attention_step=lambda X: heard @ X)
    layer.X = np.arange(10.0).reshape(5, 2)
    assert diagnosis.first_token_unseen(layer).holds is first_alone
    assert diagnosis.early_tokens_unseen(layer).holds is some_early
    assert diagnosis.no_left_context(layer).holds is none_heard
    words = diagnosis.first_token_unseen(layer).words
    listed = ", ".join(map(str, silent))
    assert words.endswith(
        f"are: {listed}" if silent else "every token moves the positions after it"
    )


@pytest.mark.parametrize(("gap", "holds"), [(0.5, False), (2.0, True)])
def test_a_residual_is_missing_by_more_than_the_tolerance(gap, holds):
    layer = made(ffn_step=np.zeros_like, second_half=lambda M: M + gap)
    layer.M = np.full((2, 2), BIG)
    assert diagnosis.residual_missing(layer).holds is holds


@pytest.mark.parametrize(("bend", "holds"), [(1.5, True), (3.0, False)])
def test_a_bend_smaller_than_the_tolerance_is_none(bend, holds):
    # One token of 1000, and beside it 1001: f(A) + f(B) − f(A + B) − f(0) is the bend, at 2001.
    layer = made(ffn_step=lambda X: X + bend * (X > 1500))
    layer.M = np.full((1, 2), BIG)
    reading = diagnosis.ffn_is_linear(layer)
    assert reading.holds is holds
    assert f"reaches {bend:.3f}" in reading.words


def test_the_sum_that_is_named_is_the_farthest_from_one():
    weights = np.diag([1.0, 1.4, 0.9])
    reading = diagnosis.rows_do_not_sum(made(weights=lambda X: weights))
    assert reading.holds
    assert "of query 1, is 1.400" in reading.words


@pytest.mark.parametrize(("spread", "holds"), [(0.005, True), (0.05, False)])
def test_factors_are_one_when_they_differ_by_less_than_a_thousandth(spread, holds):
    def weights(*rises):
        return lambda X: np.array([[1.0, np.exp(rise)] for rise in rises])

    layer = made(weights=weights(10.0, 10 + spread), healthy=made(weights=weights(1.0, 1.0)))
    assert diagnosis.weights_too_sharp(layer).holds is holds


def test_a_seed_has_a_limit():
    answer = {"component": "FFN", "evidence": "ffn_is_linear", "because": "."}
    judge = DIAGNOSES["patient_1"]
    assert judge.parse({**answer, "seed": 10**18})["seed"] == 10**18
    for seed in (-1, 10**18 + 1):
        with pytest.raises(Malformed, match='"seed" should be from 0 to 10¹⁸'):
            judge.parse({**answer, "seed": seed})


def test_what_is_seen_from_outside_is_measured():
    sick = diagnosis.patient(2026, "scenario")
    changed = sick.X.copy()
    changed[0] += 1
    moved, twin = (
        abs(np.float64(layer.layer(changed)[-1]) - layer.layer(sick.X)[-1]).max()
        for layer in (sick, sick.healthy)
    )
    said = nothing_arrives(sick, "FFN")
    assert f"the layer moves by {moved:.3f}; in the healthy twin by {twin:.3f}. " in said
    assert twin > 0.1
    assert twin != movement(sick.healthy.layer, sick.X, 0)[0]
    with pytest.raises(Wrong) as refused:
        diagnosis.check_component(sick, {"component": "FFN", "seed": 2026}, nothing_arrives)
    assert said in str(refused.value)
