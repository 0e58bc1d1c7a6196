"""The instruments, on functions whose derivative is known."""

import numpy as np

from lib import reference
from lib.lab.probes import (
    influence,
    jacobian,
    movement,
    movements,
    nonlinearity,
    score_factors,
)
from lib.layer import random_layer

X = np.random.default_rng(0).standard_normal((3, 2))
MIX = np.array([[1.0, 0, 0], [2, 3, 0], [0, -4, 5]])  # positions
TURN = np.array([[0.0, 1, 2], [3, 0, -1]])  # coordinates


def linear(Z):
    return MIX @ Z @ TURN  # (3, 2) -> (3, 3)


def test_the_jacobian_of_a_linear_map_is_the_map():
    expected = np.einsum("ij,ba->iajb", MIX, TURN)
    np.testing.assert_allclose(jacobian(linear, X), expected, rtol=0, atol=1e-8)


def test_the_jacobian_of_a_product_of_coordinates():
    derivative = jacobian(lambda Z: Z**3, X)
    expected = np.zeros((3, 2, 3, 2))
    for i, a in np.ndindex(3, 2):
        expected[i, a, i, a] = 3 * X[i, a] ** 2
    np.testing.assert_allclose(derivative, expected, rtol=0, atol=1e-8)


def test_influence_is_the_norm_of_each_block():
    np.testing.assert_allclose(
        influence(linear, X), np.abs(MIX) * np.linalg.norm(TURN), rtol=0, atol=1e-7
    )


def test_influence_of_the_two_steps():
    w = random_layer(4, 9, seed=0)
    Z = np.random.default_rng(1).standard_normal((5, 4))
    first = influence(lambda Y: reference.attention_step(Y, w), Z)
    second = influence(lambda Y: reference.ffn_step(Y, w), Z)
    assert (first[np.triu_indices(5, 1)] == 0).all()
    assert (first[np.tril_indices(5)] > 1e-3).all()
    assert (second[~np.eye(5, dtype=bool)] == 0).all()
    assert (second.diagonal() > 1e-1).all()


def test_movement_is_the_largest_change_of_each_row_and_spares_the_input():
    before = X.copy()
    moved = movement(linear, X, j=1, change=[1.0, 0.5])
    expected = np.abs(MIX[:, 1]) * np.abs(np.array([1.0, 0.5]) @ TURN).max()
    np.testing.assert_allclose(moved, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(X, before)


def test_movements_has_a_column_for_each_changed_token():
    moved = movements(linear, X, change=[1.0, 0.5])
    expected = np.abs(MIX) * np.abs(np.array([1.0, 0.5]) @ TURN).max()
    np.testing.assert_allclose(moved, expected, rtol=1e-12, atol=1e-12)
    assert moved[0, 1] == moved[0, 2] == moved[1, 2] == 0


def test_score_factors_of_scores_multiplied():
    scores = np.array([[0.0, 1.0, 0.0], [2.0, -1.0, 0.5]])
    one, three = reference.softmax(scores), reference.softmax(3 * scores)
    # Row 0 has two pairs with different scores, row 1 three.
    np.testing.assert_allclose(score_factors(three, one), [3] * 5, rtol=1e-12)
    np.testing.assert_allclose(score_factors(one, three), [1 / 3] * 5, rtol=1e-12)
    np.testing.assert_array_equal(score_factors(np.full((2, 3), 1 / 3), one), [0] * 5)


def test_score_factors_pass_over_keys_without_weight():
    half = np.array([[0.5, 0.5, 0.0]])
    assert score_factors([[1.0, 0.0, 0.0]], [[0.2, 0.3, 0.5]]).shape == (0,)
    found = score_factors([[0.2, 0.4, 0.4]], [[0.25, 0.75, 0.0]])
    np.testing.assert_allclose(found, np.log(2) / np.log(3), rtol=1e-12)
    assert score_factors([[0.2, 0.4, 0.4]], half).shape == (0,)


def test_nonlinearity_of_known_functions():
    other = np.array([[1.0, -2.0], [0.5, 3.0], [-1.0, 0.25]])
    assert nonlinearity(lambda Z: Z @ TURN + 7.0, X, other) < 1e-14
    # (a + b)² − a² − b² = 2 a b
    found = nonlinearity(lambda Z: Z**2 + 7.0, X, other)
    np.testing.assert_allclose(found, np.abs(2 * X * other).max(), rtol=1e-12)
