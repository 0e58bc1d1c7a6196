"""Exercise 05: right functions pass, each mistake gets the message meant for it."""

import numpy as np
import pytest

from lib import ffn, layer, norm
from lib.exercises import NotRight, check
from lib.exercises import t05_build_a_layer as t05


def test_the_core_passes_too():
    check("05.gelu", ffn.activate)
    check("05.ffn", ffn.ffn)
    check("05.layer_norm", norm.layer_norm)
    check("05.layer", layer.layer)


# The sentences of the messages say these numbers.
BY_HAND = [
    (t05.GELU, 0, [20, 100]),
    (t05.GELU, 1, [0, 0]),
    (t05.FFN, 0, [[1, -2, 3], [1, -2, 3]]),
    (t05.FFN, 3, [[1, 2, 3]]),
    (t05.FFN, 5, [0, 0, 0]),
    (t05.LAYER_NORM, 0, [0, 0, 0]),
    (t05.LAYER_NORM, 1, [0]),
    (t05.LAYER_NORM, 2, [[-1, 1]]),
    (t05.LAYER_NORM, 3, [[-1, 2, 3, 0]]),
    (t05.LAYER_NORM, 4, [[7, 98]]),
    (t05.LAYER_NORM, 5, [[1, 2, 3]]),
    (t05.LAYER_NORM, 6, [[-0.75, 0.75]]),
    (t05.RESIDUAL, 0, [[1, 2, -3], [4, 0, 5]]),
    (t05.RESIDUAL, 1, [[11, 12, 7], [14, 10, 15]]),
    (t05.RESIDUAL, 3, [[132, 156, 56], [210, 110, 240]]),
    (t05.RESIDUAL, 4, [[6, 18, 18], [60, 0, 90]]),
]


@pytest.mark.parametrize(("built", "number", "expected"), BY_HAND)
def test_rungs_expect_what_one_computes_by_hand(built, number, expected):
    rung = built.rungs[number]
    found = rung.run(built.definition, *rung.arguments)
    # eps = 1e-5 beside a variance of 9 moves a result of 3 by 2e-6
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_the_first_rungs_of_a_layer_leave_what_they_say():
    X, w = t05.LAYER.rungs[0].arguments
    np.testing.assert_allclose(t05.LAYER.definition(X, w), X, rtol=0, atol=1e-12)
    for number, gain, bias in ((1, "gain_1", "bias_1"), (5, "gain_2", "bias_2")):
        X, w = t05.LAYER.rungs[number].arguments
        centred = X - X.mean(axis=1, keepdims=True)
        normed = centred / np.sqrt(X.var(axis=1, keepdims=True) + 1e-5)
        expected = X + normed * getattr(w, gain) + getattr(w, bias)
        # 5 · 20 − 100 in the FFN, whose GELU is x up to 1e-16 there
        np.testing.assert_allclose(t05.LAYER.definition(X, w), expected, rtol=0, atol=1e-9)


def test_a_message_about_a_layer_says_what_was_taken_out():
    with pytest.raises(NotRight) as caught:
        check("05.layer", lambda X, w: 2 * X)
    assert "w = a layer with d = 3, d_ff = 5; zero: W_O, W_2, b_2" in str(caught.value)
    assert "Every number is 2 times what it should be." in str(caught.value)


def test_weights_that_are_changed_in_place_are_named():
    def spoils(X, w):
        out = t05.LAYER.definition(X, w)
        w.b_2[0] += 1
        return out

    with pytest.raises(NotRight, match="layer changes its argument w in place; work on a copy"):
        check("05.layer", spoils)
    assert t05.LAYER.rungs[0].arguments[1].b_2[0] == 0
