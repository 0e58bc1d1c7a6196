"""The FFN and its activations against their definitions in float64."""

import numpy as np
import pytest

from lib import reference
from lib.errors import CourseError
from lib.ffn import activate, ffn, swiglu

EPS = np.finfo(np.float32).eps
SHAPES = [(1, 1, 1, 2), (5, 3, 7, 3), (2, 8, 3, 5), (6, 4, 16, 4), (3, 65, 130, 65)]


def made(n, d, d_ff, d_out, seed=0):
    rng = np.random.default_rng(seed)
    shapes = [(n, d), (d, d_ff), (d_ff,), (d_ff, d_out), (d_out,)]
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def bound_on_products(X, W_1, b_1, W_2, b_2=0.0):
    """Bound on the error of two products with an activation between (Higham 2002, section 3.5).

    None of the activations grows faster than 1.13 |x|, nor is steeper.
    """
    hidden = np.abs(X) @ np.abs(W_1) + np.abs(b_1)
    d, d_ff = W_1.shape
    return 1.3 * EPS * (d + d_ff + 12) * (hidden @ np.abs(W_2) + np.abs(b_2))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh", "silu"])
def test_agrees_with_the_definition(shape, activation):
    arguments = made(*shape)
    error = abs(ffn(*arguments, activation) - reference.ffn(*arguments, activation))
    assert (error <= bound_on_products(*arguments)).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_swiglu_agrees_with_the_definition(shape):
    X, W_gate, _, W_down, _ = made(*shape)
    W_up = made(*shape, seed=1)[1]
    error = abs(swiglu(X, W_gate, W_up, W_down) - reference.swiglu(X, W_gate, W_up, W_down))
    size = (np.abs(X) @ np.abs(W_gate)) * (np.abs(X) @ np.abs(W_up)) @ np.abs(W_down)
    d, d_ff = W_gate.shape
    assert (error <= 1.3 * EPS * (2 * d + d_ff + 12) * size).all()


def test_swiglu_gates_with_the_first_matrix():
    # silu(2) · 3, not silu(3) · 2, through W_down = 10; silu(2) from a table.
    got = swiglu([1.0], [[2.0]], [[3.0]], [[10.0]])
    np.testing.assert_allclose(got, [1.7615941560 * 30], rtol=4 * EPS)


# Values from tables of the normal distribution and of the logistic function, to 10 digits.
KNOWN = {
    "relu": {-1.0: 0.0, 0.0: 0.0, 2.0: 2.0},
    "gelu": {-1.0: -0.1586552539, 0.0: 0.0, 2.0: 1.9544997361},
    "silu": {-1.0: -0.2689414214, 0.0: 0.0, 2.0: 1.7615941560},
}


@pytest.mark.parametrize("activation", KNOWN)
def test_known_values(activation):
    known = KNOWN[activation]
    got = activate(list(known), activation)
    np.testing.assert_allclose(got, list(known.values()), rtol=2 * EPS, atol=0)


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh", "silu"])
@pytest.mark.parametrize("size", [1e-30, 1e-3, 1.0, 30.0, 1e4, 1e30])
def test_every_size(activation, size):
    x = np.float32(np.linspace(-size, size, 101))
    got, right = activate(x, activation), reference.ACTIVATIONS[activation](x)
    # A tail that float64 still knows as 1e-40 · 1e4 is a denormal in float32.
    tiny = np.finfo(np.float32).tiny
    np.testing.assert_allclose(got, right, rtol=4 * EPS, atol=max(tiny, EPS * min(size, 8.0)))


def test_fault_13_the_two_forms_of_gelu_are_told_apart():
    x = np.float32(np.linspace(-4, 4, 801))
    gap = abs(activate(x, "gelu") - activate(x, "gelu_tanh"))
    assert 4.6e-4 < gap.max() < 4.8e-4
    assert abs(abs(x[gap.argmax()]) - 2.7) < 0.1
    np.testing.assert_allclose(activate(x, "gelu"), reference.gelu(x), rtol=0, atol=1e-6)
    np.testing.assert_allclose(activate(x, "gelu_tanh"), reference.gelu_tanh(x), rtol=0, atol=1e-6)


def test_the_same_function_at_every_position():
    X, *weights = made(6, 4, 16, 4)
    rows = ffn(X, *weights)
    for i in range(6):
        np.testing.assert_allclose(ffn(X[i], *weights), rows[i], rtol=1e-5, atol=1e-6)
    order = [3, 0, 5, 1, 4, 2]
    np.testing.assert_allclose(ffn(X[order], *weights), rows[order], rtol=1e-5, atol=1e-6)


def test_fault_16_a_transposed_weight_has_another_shape():
    X, W_1, b_1, W_2, b_2 = made(6, 4, 16, 4)
    with pytest.raises(ValueError, match=r"W_1 should have shape \(4, d_ff\)"):
        ffn(X, W_1.T, b_1, W_2, b_2)


def test_without_an_activation_between_them_two_products_are_one():
    X, W_1, b_1, W_2, b_2 = made(6, 4, 16, 4)
    far = 1e4  # shifted far to the right, where ReLU is the identity
    got = ffn(X, W_1, b_1 + far, W_2, b_2, "relu")
    right = X @ (W_1 @ W_2) + (b_1 + far) @ W_2 + b_2
    np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-6 * far)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_a_weight_of_minus_infinity_is_named_behind_any_activation(activation):
    # ReLU alone would make a zero of it.
    X, W_1, b_1, W_2, b_2 = made(6, 4, 16, 4)
    b_1[3] = -np.inf
    with pytest.raises(CourseError, match=r"^b_1 should hold .*; at \[3\] it holds -inf"):
        ffn(X, W_1, b_1, W_2, b_2, activation)
