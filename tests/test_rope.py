"""Rotary positions against their definition, and the law that they exist for."""

import numpy as np
import pytest

from lib import reference
from lib.rope import rope

EPS = np.finfo(np.float32).eps
PAIRINGS = ["interleaved", "halves"]


def made(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("shape", [(1, 2), (5, 6), (3, 2, 8), (2, 3, 4, 6)])
@pytest.mark.parametrize("base", [10000.0, 100000.0, 2])
def test_agrees_with_the_definition(shape, pairing, base):
    X, positions = made(shape), np.arange(shape[0]) * 7 + 3
    got, right = rope(X, positions, base, pairing), reference.rope(X, positions, base, pairing)
    np.testing.assert_allclose(got, right, rtol=0, atol=4 * EPS * np.abs(X).max())


@pytest.mark.parametrize(
    ("pairing", "right"),
    [("halves", [-1.984, 1.960, 2.462, 4.020]), ("interleaved", [-1.143, 1.922, 2.960, 4.030])],
)
def test_fault_12_the_pairing(pairing, right):
    got = rope([[1, 2, 3, 4]], [1], base=10000, pairing=pairing)
    np.testing.assert_allclose(got, [right], rtol=0, atol=6e-4)  # the values have three decimals


def test_by_hand_a_quarter_turn():
    # d_head = 2: one pair, frequency 1, so the angle is the position itself, in radians.
    got = rope([[1.0, 0.0], [0.0, 2.0]], [0, 11], base=10000)
    np.testing.assert_allclose(got, [[1, 0], [-2 * np.sin(11), 2 * np.cos(11)]], rtol=4 * EPS)


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_scores_depend_on_the_distance_alone(pairing):
    q, k = made((2, 8))
    scores = [
        float(rope(q[None], [i], pairing=pairing)[0] @ rope(k[None], [j], pairing=pairing)[0])
        for i, j in [(5, 2), (105, 102), (1005, 1002)]
    ]
    # Cosines are rounded to float32: a few spacings on numbers of size 3.
    np.testing.assert_allclose(scores, scores[0], rtol=0, atol=40 * EPS)
    other = float(rope(q[None], [5], pairing=pairing)[0] @ rope(k[None], [3], pairing=pairing)[0])
    assert abs(other - scores[0]) > 0.1


def test_a_turn_keeps_the_length_and_position_0_changes_nothing():
    X = made((6, 8))
    got = rope(X, np.arange(6))
    np.testing.assert_array_equal(got[0], X[0])
    np.testing.assert_allclose((got**2).sum(axis=1), (X**2).sum(axis=1), rtol=16 * EPS)


def test_every_head_of_a_token_turns_by_the_same_angle():
    X = made((4, 3, 8))
    got = rope(X, [3, 1, 4, 1])
    for h in range(3):
        np.testing.assert_array_equal(got[:, h], rope(X[:, h], [3, 1, 4, 1]))


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_factors_divide_the_angle_of_each_pair(pairing):
    X, positions, factors = made((5, 6)), np.arange(5) * 9, np.float32([1, 2, 4])
    got = rope(X, positions, 100.0, pairing, factors)
    right = reference.rope(X, positions, 100.0, pairing, factors)
    np.testing.assert_allclose(got, right, rtol=0, atol=4 * EPS * np.abs(X).max())
    # One factor of 3 for all pairs is the same as positions three times as dense.
    stretched = rope(X, positions, 100.0, pairing, [3.0, 3.0, 3.0])
    np.testing.assert_allclose(
        stretched, rope(X, positions // 3, 100.0, pairing), rtol=0, atol=8 * EPS * np.abs(X).max()
    )


def test_factors_are_above_zero_and_one_for_each_pair():
    with pytest.raises(ValueError, match="^factors should be above zero; the smallest is 0.0"):
        rope(made((5, 6)), np.arange(5), factors=[1, 0, 1])
    with pytest.raises(ValueError, match=r"^factors should have shape \(3,\); it has shape \(2,\)"):
        rope(made((5, 6)), np.arange(5), factors=[1, 1])


def test_the_base_of_the_paper_is_the_default():
    # Far out a base of 10001 would turn the fastest pairs but the first by other angles.
    X = np.random.default_rng(6).standard_normal((3, 8))
    far = [5000, 70000, 900000]
    for turned in (rope, reference.rope):
        np.testing.assert_array_equal(turned(X, far), turned(X, far, base=10000.0))
    assert abs(rope(X, far) - rope(X, far, base=10001.0)).max() > 0.1


def test_angles_by_hand():
    # Base 10000, two pairs: the second turns a hundredth as fast as the first.
    np.testing.assert_allclose(reference.rope_angles([3], 4), [[3, 0.03]], rtol=1e-15)
