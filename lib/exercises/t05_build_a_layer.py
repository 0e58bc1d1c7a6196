"""Exercise 05: build a layer, from the activation to the two steps with norms and residuals."""

from dataclasses import replace

import numpy as np

from lib import reference
from lib.exercises.building import Building, Given, Rung, numbers
from lib.exercises.judging import Task
from lib.exercises.t04_build_attention import array
from lib.layer import random_layer


def gelu_ffn(X, W_1, b_1, W_2, b_2):
    """Return GELU(X W₁ + b₁) W₂ + b₂: (n, d) -> (n, d)."""
    return reference.ffn(X, W_1, b_1, W_2, b_2, "gelu")


def residual_layer(X, attention_step, ffn_step):
    """Return the two steps, each added to what entered it: (n, d) -> (n, d)."""
    H = X + attention_step(X)
    return H + ffn_step(H)


GELU = Building(
    name="gelu",
    parameters=("x",),
    definition=reference.gelu,
    rungs=(
        Rung("far to the right", "There Φ(x) is 1, and x passes as it is.", (array(20, 100),)),
        Rung("far to the left", "There Φ(x) is 0, and nothing passes.", (array(-20, -100),)),
        Rung("the bend",
             "Between −2 and 2 the curve bends smoothly, and dips below zero on the left. "
             "Compared to two decimals.",
             (array(-2, -1, -0.5, 0, 0.5, 1, 2),), tolerance=4e-3),
        Rung("the exact form",
             "The approximation with tanh is off by 0.0005 here; the definition uses erf.",
             (array(2.7, -2.7),)),
        Rung("an array of any shape", "The function works on each number by itself.",
             (numbers(1, 3, 2),)),
    ),
)  # fmt: skip

_W_1, _W_2 = numbers(2, 3, 4), numbers(3, 4, 3)
_b_1, _b_2 = numbers(4, 4), numbers(5, 3)

FFN = Building(
    name="ffn",
    parameters=("X", "W_1", "b_1", "W_2", "b_2"),
    definition=gelu_ffn,
    rungs=(
        Rung("the last bias", "W_2 is zero, so b_2 alone is left, in every row.",
             (numbers(6, 2, 3), _W_1, _b_1, np.zeros((4, 3)), array(1, -2, 3))),
        Rung("the first bias",
             "X is zero, so the hidden vector is GELU(b_1). "
             "It is far to the right, where GELU changes nothing.",
             (np.zeros((1, 3)), _W_1, array(10, 20, 30, 40), _W_2, np.zeros(3))),
        Rung("the two products",
             "One token. All hidden numbers are far to the right, where GELU changes nothing.",
             (array([10, 20, 30]), array([1, 2, 0, 1], [0, 1, 3, 1], [2, 0, 1, 1]), np.zeros(4),
              _W_2, np.zeros(3))),
        Rung("the activation",
             "The hidden numbers are far to the left, where GELU lets nothing pass: b_2 is left.",
             (np.zeros((1, 3)), _W_1, array(-20, -30, -40, -50), _W_2, array(1, 2, 3))),
        Rung("the kind of activation", "The hidden numbers are small, where GELU bends.",
             (np.zeros((1, 3)), _W_1, array(0.5, -0.5, 1, -1), array([1, 0, 0], [0, 1, 0],
              [0, 0, 1], [1, 1, 1]), np.zeros(3))),
        Rung("each row for itself",
             "Four tokens. The second is run alone, then among the others: "
             "its result must be the same.",
             (numbers(7, 4, 3), _W_1, _b_1, _W_2, _b_2),
             run=lambda call, X, *w: call(X, *w)[1] - call(X[1:2], *w)[0],
             part="row 1 among others − row 1 alone"),
        Rung("all of it together", "Five tokens of width 3, hidden width 4.",
             (numbers(8, 5, 3), _W_1, _b_1, _W_2, _b_2)),
    ),
)  # fmt: skip


def _row_0_moves(call, X, *rest):
    changed = np.array(X)
    changed[1] = [7.0, -8.0, 9.0]
    return (call(changed, *rest) - call(X, *rest))[0]


LAYER_NORM = Building(
    name="layer_norm",
    parameters=("X", "gain", "bias", "eps"),
    definition=reference.layer_norm,
    rungs=(
        Rung("each row for itself",
             "Two tokens. The second is changed to (7, −8, 9): the first may not move.",
             (array([1, 2, 6], [0, -4, 1]), np.ones(3), np.zeros(3), 1e-5),
             run=_row_0_moves, part="how far row 0 moves"),
        Rung("the centre", "The gain is 1 and the bias 0, so the mean of a row becomes 0.",
             (array([4, 6, 11]), np.ones(3), np.zeros(3), 1e-5),
             run=lambda call, *a: call(*a).mean(axis=1), part="the mean of the row"),
        Rung("the spread", "The variance is the mean of the squared distances from the mean: "
             "here 9, so a distance of 3 becomes 1.",
             (array([2, 8]), np.ones(2), np.zeros(2), 1e-5)),
        Rung("the gain", "Each coordinate is stretched by its own gain.",
             (array([2, 8, 2, 8]), array(1, 2, -3, 0), np.zeros(4), 1e-5)),
        Rung("the bias", "The bias comes last: the gain does not stretch it.",
             (array([2, 8]), array(3, -2), array(10, 100), 1e-5)),
        Rung("a row of equal numbers",
             "The distances from the mean are all 0, and so is the variance: the bias is left.",
             (array([5, 5, 5]), np.ones(3), array(1, 2, 3), 1e-5)),
        Rung("the place of eps",
             "eps is as large as 7 here, and the variance is 9. "
             "The root is taken of their sum, 16.",
             (array([2, 8]), np.ones(2), np.zeros(2), 7.0)),
        Rung("all of it together", "Four tokens of width 3.",
             (numbers(9, 4, 3), numbers(10, 3), numbers(11, 3), 1e-5)),
    ),
)  # fmt: skip

ZERO = Given("adds nothing: returns zeros", np.zeros_like)
TEN = Given("returns 10 everywhere", lambda X: np.full_like(X, 10.0))
SQUARE = Given("returns the square of every number", np.square)
DOUBLE = Given("returns twice what it reads", lambda X: 2 * X)

RESIDUAL = Building(
    name="residual_layer",
    parameters=("X", "attention_step", "ffn_step"),
    definition=residual_layer,
    rungs=(
        Rung("two steps that add nothing", "The vectors must leave as they came.",
             (array([1, 2, -3], [4, 0, 5]), ZERO, ZERO)),
        Rung("the first sum", "The FFN adds nothing, so what attention found must still be there, "
             "once, beside X.",
             (array([1, 2, -3], [4, 0, 5]), TEN, ZERO)),
        Rung("the second sum", "Attention adds nothing, so the FFN's result stands beside X, once.",
             (array([1, 2, -3], [4, 0, 5]), ZERO, TEN)),
        Rung("what the FFN reads",
             "Attention adds 10 everywhere. The FFN squares what it reads, so one sees what that "
             "was.",
             (array([1, 2, -3], [4, 0, 5]), TEN, SQUARE)),
        Rung("what attention reads",
             "Attention squares what it reads, so one sees what that was. The FFN doubles.",
             (array([1, 2, -3], [4, 0, 5]), SQUARE, DOUBLE)),
    ),
)  # fmt: skip

# The layer of the rungs: signed random weights; norms whose gain and bias cannot be overlooked.
_BASE = replace(
    random_layer(3, 5, seed=12),
    gain_1=[1, 2, -1], bias_1=[0.5, 0, 1], gain_2=[2, -1, 1], bias_2=[0, 1, -0.5],
)  # fmt: skip
_NO_FFN = {"W_2": np.zeros((5, 3)), "b_2": np.zeros(3)}
_NO_ATTENTION = {"W_O": np.zeros((3, 3))}
# An FFN that passes on what it reads: 20 moves every number to where GELU changes nothing.
_PASSES = {"W_1": np.eye(3, 5), "b_1": np.full(5, 20.0), "W_2": np.eye(5, 3), "b_2": [-20.0] * 3}

LAYER = Building(
    name="layer",
    parameters=("X", "w"),
    definition=reference.layer,
    rungs=(
        Rung("the residuals", "W_O, W_2 and b_2 are zero, so both steps add nothing: X is left.",
             (numbers(13, 2, 3), replace(_BASE, **_NO_FFN, **_NO_ATTENTION))),
        Rung("the first norm",
             "One token, so attention passes on its own value; W_V and W_O change nothing. "
             "The FFN adds nothing. What is left: X + LayerNorm(X) with gain_1 and bias_1.",
             (numbers(14, 1, 3), replace(_BASE, W_V=np.eye(3), W_O=np.eye(3), **_NO_FFN))),
        Rung("values and their way out", "One token, so attention passes on its own value, "
             "through W_V and then W_O. The FFN adds nothing.",
             (numbers(15, 1, 3), replace(_BASE, **_NO_FFN))),
        Rung("the left context",
             "W_Q is zero, so all scores are equal: token i gathers the plain mean of the values "
             "0 … i. The FFN adds nothing.",
             (numbers(16, 3, 3), replace(_BASE, W_Q=np.zeros((3, 3)), **_NO_FFN))),
        Rung("queries and keys", "Four tokens; the FFN adds nothing.",
             (numbers(17, 4, 3), replace(_BASE, **_NO_FFN))),
        Rung("the second norm",
             "Attention adds nothing, and the FFN passes on what it reads. "
             "What is left: X + LayerNorm(X) with gain_2 and bias_2.",
             (numbers(18, 2, 3), replace(_BASE, **_PASSES, **_NO_ATTENTION))),
        Rung("the FFN", "Attention adds nothing.",
             (numbers(19, 2, 3), replace(_BASE, **_NO_ATTENTION))),
        Rung("what the FFN reads",
             "One token. Attention adds to its vector; the FFN must see that.",
             (numbers(20, 1, 3), _BASE)),
        Rung("all of it together", "Four tokens of width 3, hidden width 5.",
             (numbers(21, 4, 3), _BASE)),
    ),
)  # fmt: skip

TASKS = [
    Task("05.gelu", "The activation", GELU.form, 5, 1, GELU.judge),
    Task("05.ffn", "The feed-forward network", FFN.form, 5, 1, FFN.judge),
    Task("05.layer_norm", "The norm", LAYER_NORM.form, 10, 2, LAYER_NORM.judge),
    Task("05.residual_layer", "Two steps and their residuals", RESIDUAL.form, 5, 1,
         RESIDUAL.judge),
    Task("05.layer", "One layer", LAYER.form, 10, 2, LAYER.judge),
]  # fmt: skip
