"""The stack: L layers, and the L-th is the result."""

import numpy as np
import pytest

from lib import reference
from lib.layer import layer, residual_layer, two_steps
from lib.stack import random_stack, stack, stack_outputs

X = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)


@pytest.mark.parametrize("L", [1, 2, 5])
@pytest.mark.parametrize("step", [two_steps, residual_layer, layer])
def test_a_stack_is_its_layers_in_order(L, step):
    layers = random_stack(L, 4, 9, seed=1)
    by_hand = X
    for w in layers:
        by_hand = step(by_hand, w)
    np.testing.assert_array_equal(stack(X, layers, step), by_hand)
    stages = stack_outputs(X, layers, step)
    assert len(stages) == L + 1
    np.testing.assert_array_equal(stages[0], X)
    np.testing.assert_array_equal(stages[-1], by_hand)


@pytest.mark.parametrize("L", [1, 3, 12])
def test_agrees_with_the_definition(L):
    layers = random_stack(L, 4, 9, seed=2)
    # Each layer adds about 1e-6 to numbers whose size grows like √L.
    np.testing.assert_allclose(
        stack(X, layers), reference.stack(X, layers), rtol=1e-4, atol=1e-5 * L
    )


def test_the_order_of_the_layers_matters_and_each_has_its_own_weights():
    first, second = random_stack(2, 4, 9, seed=3)
    assert abs(stack(X, [first, second]) - stack(X, [second, first])).max() > 0.1
    assert abs(first.W_Q - second.W_Q).min() > 0


def test_the_output_of_the_stack_is_causal_to_the_bit():
    layers = random_stack(4, 4, 9, seed=4)
    changed = X.copy()
    changed[3] = 5
    moved = abs(stack(changed, layers) - stack(X, layers)).max(axis=1)
    np.testing.assert_array_equal(moved[:3], 0)
    assert (moved[3:] > 1e-4).all()
