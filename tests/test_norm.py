"""The norms against their definitions in float64, and by hand."""

import numpy as np
import pytest

from lib import reference
from lib.norm import layer_norm, rms_norm

EPS = np.finfo(np.float32).eps


def made(shape, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal(shape).astype(np.float32)
    gain, bias = rng.standard_normal((2, shape[-1])).astype(np.float32)
    return X, gain, bias


@pytest.mark.parametrize("shape", [(1,), (5,), (1, 1), (3, 5), (5, 3), (2, 3, 4), (7, 576)])
@pytest.mark.parametrize("size", [1e-30, 1e-3, 1.0, 1e4, 1e30])
def test_agree_with_the_definition(shape, size, request):
    if size == 1e30:  # Python adds a float32 number to a float in float32, Numba in float64
        request.getfixturevalue("compiled")
    X, gain, bias = made(shape)
    X *= np.float32(size)
    # Sums in float64, four roundings to float32 at the end; x − mean cancels exactly enough there.
    largest = np.sqrt(shape[-1]) * np.abs(gain).max() + np.abs(bias).max()
    for got, right in [
        (layer_norm(X, gain, bias), reference.layer_norm(X, gain, bias)),
        (rms_norm(X, gain), reference.rms_norm(X, gain)),
    ]:
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, right, rtol=4 * EPS, atol=2 * EPS * largest)


def test_by_hand():
    # Mean 3, variance 4; mean square 13.
    x, gain, bias = [1.0, 5.0], [1.0, 10.0], [0.5, -0.5]
    got = layer_norm(x, gain, bias, eps=1e-12)
    np.testing.assert_allclose(got, [-1 + 0.5, 10 - 0.5], rtol=4 * EPS)
    np.testing.assert_allclose(rms_norm(x, gain, 1e-12), [1 / 13**0.5, 50 / 13**0.5], rtol=4 * EPS)


def test_eps_stands_under_the_root_beside_the_mean():
    # Mean square 4, eps 12: the divisor is √16. Outside the root, or on the sum, it is not.
    np.testing.assert_allclose(rms_norm([2.0, -2.0], [1, 1], eps=12), [0.5, -0.5], rtol=4 * EPS)
    got = layer_norm([3.0, 7.0], [1, 1], [0, 0], eps=12)
    np.testing.assert_allclose(got, [-0.5, 0.5], rtol=4 * EPS)


def test_a_constant_row_gives_the_bias_and_a_row_of_zeros_gives_zero():
    gain, bias = np.float32([2, 3, 4]), np.float32([0.1, 0.2, 0.3])
    np.testing.assert_array_equal(layer_norm([5.0, 5.0, 5.0], gain, bias), bias)
    np.testing.assert_array_equal(rms_norm([0.0, 0.0, 0.0], gain), np.zeros(3))


def test_rows_are_independent():
    X, gain, bias = made((4, 3))
    before = layer_norm(X, gain, bias), rms_norm(X, gain)
    X[2] *= 100
    for old, new in zip(before, (layer_norm(X, gain, bias), rms_norm(X, gain)), strict=True):
        np.testing.assert_array_equal(old[[0, 1, 3]], new[[0, 1, 3]])
