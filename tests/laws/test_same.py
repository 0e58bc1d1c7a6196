"""What changes nothing: pairs in another order, a constant on all scores, a token to the right.

Where a law says "the same bits" it compares for equality. Elsewhere both sides are held to one
definition, since what is equal by definition may be rounded in another order.
"""

from functools import partial

import numpy as np
import pytest
from hypothesis import strategies as st

from lib import reference
from lib.attention import (
    MIN_QUERIES_FOR_BLOCKS,
    QUERIES_PER_BLOCK,
    attend,
    attend_causal,
    causal_weights,
    softmax,
)
from lib.ffn import ACTIVATIONS, activate, ffn, swiglu
from lib.layer import layer, random_layer, residual_layer, two_steps
from lib.norm import layer_norm, rms_norm
from lib.rope import rope
from lib.stack import random_stack, stack, stack_outputs
from tests.laws import bounds
from tests.laws.bounds import assert_near, exact
from tests.laws.cases import COMPILED, catches, different, in_float64, law, made, numbers, plainly
from tests.laws.test_values import as_32, named, rope_cases

SEEDS = st.integers(0, 2**16)


def whole(rng, shape, most=9):
    """Return whole numbers whose products and sums float32 holds exactly."""
    return rng.integers(-most, most + 1, shape).astype(np.float32)


# --- Attention ------------------------------------------------------------------------------------


@st.composite
def one_query(draw):
    n, d, d_v = draw(different(3, most=12))
    q, K, V = (draw(numbers(shape, -3, 3, plain=True)).X for shape in [(d,), (n, d), (n, d_v)])
    return q, K, V, np.random.default_rng(draw(SEEDS))


def bound_on_attend(q, K, V):
    right = bounds.attention(exact(q[None]), exact(K), exact(V))[1][0]
    return right._replace(value=reference.attend(q, K, V))


def check_permuted(function, case):
    q, K, V, rng = case
    order = rng.permutation(len(K))
    assert_near(plainly(function)(q, K[order], V[order]), bound_on_attend(q, K, V))


@law(one_query())
def test_key_value_pairs_in_another_order(case):
    check_permuted(attend, case)


def with_scores(change):
    def wrong(q, K, V):
        q, K, V = reference.float64(q, K, V)
        s = q @ K.T / np.sqrt(len(q))
        return as_32(reference.softmax(change(s)) @ V)

    return wrong


WRONG_IN_ORDER = {
    "a slope over the positions": with_scores(lambda s: s - 1e-4 * np.arange(len(s))),
    "the last key twice": with_scores(lambda s: s + np.log(2) * (np.arange(len(s)) == len(s) - 1)),
    "the first key left out": with_scores(
        lambda s: np.where((np.arange(len(s)) == 0) & (len(s) > 1), -np.inf, s)
    ),
}


@pytest.mark.parametrize("wrong", named(WRONG_IN_ORDER))
def test_the_law_of_order_finds(wrong):
    assert catches(check_permuted, wrong, one_query())


def check_constant_on_scores(function, case):
    """q (K + 1 cᵀ)ᵀ = q Kᵀ + q·c: one constant on all scores. In whole numbers the sum is exact."""
    q, K, V, rng = case
    q, K, c = whole(rng, q.shape), whole(rng, K.shape), whole(rng, q.shape, 99)
    right, moved = bound_on_attend(q, K, V), bound_on_attend(q, K + c, V)
    error = np.maximum(right.error, moved.error)
    assert_near(plainly(function)(q, K + c, V), right._replace(error=error))


@law(one_query())
def test_a_constant_on_all_scores(case):
    check_constant_on_scores(attend, case)


def beside_a_key_of_zeros(q, K, V):
    """Weights e^s / (1 + Σ e^s)."""
    q, K, V = reference.float64(q, K, V)
    s = np.append(q @ K.T / np.sqrt(len(q)), 0.0)
    return as_32(reference.softmax(s)[:-1] @ V)


WRONG_ON_CONSTANTS = {
    "weights that need not sum to 1": beside_a_key_of_zeros,
    "scores held to ±50": with_scores(lambda s: np.clip(s, -50, 50)),
    "the score of the first key halved": with_scores(
        lambda s: s * np.where(np.arange(len(s)) == 0, 0.5, 1.0)
    ),
}  # fmt: skip


@pytest.mark.parametrize("wrong", named(WRONG_ON_CONSTANTS))
def test_the_law_of_constants_finds(wrong):
    assert catches(check_constant_on_scores, wrong, one_query())


@law(one_query())
def test_keys_moved_across_the_query_leave_the_very_bits(case):
    """q·c = 0: in whole numbers each score is the same number."""
    q, K, V, rng = case
    q, K = whole(rng, (len(q) + 1,)), whole(rng, (len(K), len(q) + 1))
    c = np.zeros_like(q)
    c[0], c[-1] = q[-1], -q[0]
    again = plainly(attend)(q, K + c, V)
    np.testing.assert_array_equal(again, plainly(attend)(q, K, V))


@law(different(2, most=40), SEEDS, st.integers(-20, 20))
def test_softmax_of_scores_and_a_constant_is_the_same_bits(shape, seed, exponent):
    """Scores and constant are multiples of one power of two, so that adding rounds nothing."""
    rng = np.random.default_rng(seed)
    unit = np.float32(2.0**exponent)
    scores, constant = whole(rng, shape, 1000) * unit, whole(rng, (shape[0], 1), 100_000) * unit
    found = plainly(softmax)(scores + constant)
    np.testing.assert_array_equal(found, plainly(softmax)(scores))


@law(one_query(), st.integers(-60, 60))
def test_values_times_a_power_of_two(case, power):
    q, K, V, rng = case
    V, factor = whole(rng, V.shape), np.float32(2.0**power)
    once = plainly(attend)(q, K, V)
    np.testing.assert_array_equal(plainly(attend)(q, K, V * factor), once * factor)


@law(one_query())
def test_the_output_is_a_mean_of_the_values(case):
    q, K, V, _ = case
    out, error = plainly(attend)(q, K, V), bound_on_attend(q, K, V).error
    assert (out >= V.min(0) - error).all()
    assert (out <= V.max(0) + error).all()


# --- The left context -----------------------------------------------------------------------------


@st.composite
def causal_cases(draw):
    """Queries below, at and above the numbers from which attention runs in blocks."""
    n, d, d_v = draw(different(3, most=12))
    few, block = MIN_QUERIES_FOR_BLOCKS, QUERIES_PER_BLOCK
    n = draw(st.sampled_from([n, n, few, few + n, block, block + n, 2 * block + n]))
    m = draw(st.one_of(st.just(n), st.integers(1, n)))
    rng = np.random.default_rng(draw(SEEDS))
    Q, K, V = (as_32(rng.standard_normal(shape)) for shape in [(m, d), (n, d), (n, d_v)])
    return Q, K, V, rng


def check_later_token(function, case):
    Q, K, V, rng = case
    m, n = len(Q), len(K)
    before = plainly(function)(Q, K, V)
    j = int(rng.integers(m))
    K, V, Q = K.copy(), V.copy(), Q.copy()
    Q[j:] += 1
    K[n - m + j :] *= -2
    V[n - m + j :] += 50
    after = plainly(function)(Q, K, V)
    np.testing.assert_array_equal(after[:j], before[:j])
    assert np.abs(after[j:] - before[j:]).max() > 1e-2


@law(causal_cases())
def test_a_later_token_leaves_the_very_bits_of_attention(case):
    check_later_token(attend_causal, case)


@law(causal_cases())
def test_a_later_token_leaves_the_very_bits_of_the_weights(case):
    Q, K, V, rng = case
    check_later_token(lambda Q, K, V: causal_weights(Q, K) @ V, (Q, K, V, rng))


def far(Q, K, V):
    """Attention whose mask is a score of -30 and not of -∞."""
    Q, K, V = reference.float64(Q, K, V)
    m, n = len(Q), len(K)
    s = Q @ K.T / np.sqrt(K.shape[1])
    seen = np.arange(n) <= np.arange(n - m, n)[:, None]
    return as_32(reference.softmax(np.where(seen, s, s - 30)) @ V)


def one_scale(Q, K, V):
    """Attention that divides by the largest value of all, and multiplies again."""
    top = np.float32(np.abs(V).max() * 1.1)
    return attend_causal(Q, K, V / top) * top


WRONG_TO_THE_LEFT = {
    "a mask of -30": far,
    "a scale that all tokens share": one_scale,
    "sees the next token": lambda Q, K, V: attend_causal(
        Q, np.roll(K, -1, axis=0), np.roll(V, -1, axis=0)
    ),
}


@pytest.mark.parametrize("wrong", named(WRONG_TO_THE_LEFT))
def test_the_law_of_the_left_context_finds(wrong):
    assert catches(check_later_token, wrong, causal_cases())


@law(causal_cases(), share=0.5)
def test_each_row_is_one_query_over_its_left_context(case):
    """The same bits where queries go one by one; in blocks both agree with the definition."""
    Q, K, V, _ = case
    m, n = len(Q), len(K)
    rows = plainly(attend_causal)(Q, K, V)
    for i in {0, m // 2, m - 1}:
        seen = n - m + i + 1
        one = plainly(attend)(Q[i], K[:seen], V[:seen])
        if m < MIN_QUERIES_FOR_BLOCKS:
            np.testing.assert_array_equal(rows[i], one)
        assert_near(rows[i], bound_on_attend(Q[i], K[:seen], V[:seen]))
        assert_near(one, bound_on_attend(Q[i], K[:seen], V[:seen]))


@law(causal_cases(), share=0.5)
def test_the_last_queries_by_themselves(case):
    Q, K, V, rng = case
    few = int(rng.integers(1, len(Q) + 1))
    last = plainly(attend_causal)(Q[-few:], K, V)
    assert_near(last, bounds.attention(exact(Q), exact(K), exact(V))[1][-few:])
    if len(Q) < MIN_QUERIES_FOR_BLOCKS:
        np.testing.assert_array_equal(last, plainly(attend_causal)(Q, K, V)[-few:])


@law(causal_cases(), share=0.5)
def test_a_later_token_that_leaves_float32_leaves_earlier_rows_right(case):
    """Scores beyond float32 send all queries to float64: earlier rows may differ by rounding."""
    Q, K, V, rng = case
    right = bounds.attention(exact(Q), exact(K), exact(V))[1]
    j = int(rng.integers(len(Q)))
    Q, K = Q.copy(), K.copy()
    Q[j:], K[len(K) - len(Q) + j :] = 1e30, 2e30
    assert_near(plainly(attend_causal)(Q, K, V)[:j], right[:j])


# --- Rows by themselves ---------------------------------------------------------------------------


@st.composite
def rows_cases(draw):
    n, d = draw(different(2))
    X = draw(numbers((n, d), -20, 20, plain=True)).X
    return X, np.random.default_rng(draw(SEEDS))


@law(rows_cases())
def test_norms_and_activations_see_one_row_alone(case):
    X, rng = case
    n, d = X.shape
    gain, bias = as_32(rng.standard_normal((2, d)))
    order = rng.permutation(n)
    functions = [lambda X: rms_norm(X, gain), lambda X: layer_norm(X, gain, bias)]
    functions += [partial(activate, activation=name) for name in ACTIVATIONS]
    for function in map(plainly, functions):
        rows = function(X)
        np.testing.assert_array_equal(function(X[order]), rows[order])
        for i in range(n):
            np.testing.assert_array_equal(function(X[i]), rows[i])


@law(rows_cases())
def test_the_ffn_sees_one_row_alone(case):
    """NumPy may sum the products of one row in another order than those of many."""
    X, rng = case
    X = np.clip(X, -1e6, 1e6)
    n, d = X.shape
    d_ff = d + n
    W_1, W_2, b_1, b_2 = (as_32(rng.standard_normal(s)) for s in [(d, d_ff), (d_ff, d), d_ff, d])
    W_up = as_32(rng.standard_normal((d, d_ff)))
    weights = [exact(W) for W in (W_1, b_1, W_2, b_2)]
    right, _ = bounds.ffn(exact(X), *weights, "gelu")
    right_gated, _ = bounds.swiglu(exact(X), *map(exact, (W_1, W_up, W_2)))
    order = rng.permutation(n)
    assert_near(plainly(ffn)(X[order], W_1, b_1, W_2, b_2), right[order])
    assert_near(plainly(swiglu)(X[order], W_1, W_up, W_2), right_gated[order])
    for i in range(n):
        assert_near(plainly(ffn)(X[i], W_1, b_1, W_2, b_2), right[i])
        assert_near(plainly(swiglu)(X[i], W_1, W_up, W_2), right_gated[i])


def check_scaled(function, case):
    """A row times a power of two, and eps times its square, gives the same bits."""
    X, rng = case
    gain = as_32(rng.standard_normal(X.shape[1]))
    power, eps = 2.0 ** int(rng.integers(-30, 30)), float(np.square(X, dtype=float).mean()) + 1e-5
    again = plainly(function)(X * np.float32(power), gain, eps * power**2)
    np.testing.assert_array_equal(again, plainly(function)(X, gain, eps))


def centred(X, gain, eps):
    return layer_norm(X, gain, np.zeros_like(gain), eps)


@law(rows_cases())
def test_norms_of_a_row_times_a_power_of_two(case):
    X, rng = case
    for norm in (rms_norm, centred) if COMPILED else (rms_norm,):  # see `in_float64`
        check_scaled(norm, (np.where(np.abs(X) < 1e-15, 0, X), rng))


WRONG_SCALED = {
    "eps outside the root": lambda X, gain, eps: as_32(
        reference.float64(gain) * X / (np.sqrt(np.square(X, dtype=float).mean(-1, keepdims=True))
                                       + eps)
    ),
    "an eps of its own beside": lambda X, gain, eps: rms_norm(X, gain, eps + 1e-3),
}  # fmt: skip


@pytest.mark.parametrize("wrong", named(WRONG_SCALED))
def test_the_law_of_scaled_rows_finds(wrong):
    assert catches(check_scaled, wrong, rows_cases())


@in_float64
@law(st.integers(1, 40), st.floats(2.0**-149, 2.0**127, width=32), SEEDS)
def test_a_row_of_equal_numbers_gives_the_bias_whatever_their_size(d, number, seed):
    gain, bias = as_32(made((2, d), "normal", 0, seed))
    for x in (number, -number):
        np.testing.assert_array_equal(layer_norm(np.full(d, x, np.float32), gain, bias), bias)


@in_float64
@law(rows_cases())
def test_layer_norm_of_a_row_and_a_constant(case):
    """In whole numbers adding a constant to a row is exact."""
    X, rng = case
    X, c = whole(rng, X.shape), whole(rng, (len(X), 1), 10_000)
    gain, bias = as_32(rng.standard_normal((2, X.shape[1])))
    right = bounds.layer_norm(exact(X), exact(gain).value, exact(bias).value, 1e-5)
    shifted = bounds.layer_norm(exact(X + c), exact(gain).value, exact(bias).value, 1e-5)
    error = np.maximum(right.error, shifted.error)
    assert_near(plainly(layer_norm)(X + c, gain, bias), right._replace(error=error))


# --- Rotary positions -----------------------------------------------------------------------------


def turned(X, positions, base, pairing):
    angles = reference.rope_angles(positions, X.value.shape[-1], base)
    return bounds.rope(X.reshape(len(X.value), 1, -1), angles, pairing).reshape(*X.value.shape)


def check_turned_twice(function, case):
    """Turned to position p and then by q more is turned to p + q."""
    X, (positions, base, pairing, _) = case
    x, p = X.X.reshape(-1, X.X.shape[-1]), int(positions[0]) % 1000
    first = np.arange(len(x)) + p
    once = turned(exact(x), first, base, pairing)
    twice = turned(once, np.full(len(x), 7), base, pairing)
    got = function(function(x, first, base, pairing), np.full(len(x), 7), base, pairing)
    right = turned(exact(x), first + 7, base, pairing)
    assert_near(got, right._replace(error=twice.error + right.error))


@law(rope_cases())
def test_turned_twice(case):
    check_turned_twice(rope, case)


WRONG_TURNS = {
    "one position late": lambda X, p, base, pairing: rope(X, p + 1, base, pairing),
    "a table that ends at 500": lambda X, p, base, pairing: rope(
        X, np.minimum(p, 500), base, pairing
    ),
    "angles that grow like √p": lambda X, p, base, pairing: as_32(
        reference.rope(X, np.sqrt(p), base, pairing)
    ),
}


@pytest.mark.parametrize("wrong", named(WRONG_TURNS))
def test_the_law_of_turns_finds(wrong):
    assert catches(check_turned_twice, wrong, rope_cases())


@law(rope_cases())
def test_each_head_and_each_token_turns_by_itself(case):
    X, (positions, base, pairing, factors) = case
    if X.X.ndim < 3:
        return
    rows = rope(X.passed, positions, base, pairing, factors)
    for i, position in enumerate(positions):
        for h in range(X.X.shape[1]):
            one = rope(X.X[i : i + 1, h], [int(position)], base, pairing, factors)
            np.testing.assert_array_equal(rows[i, h], one[0])


# --- The stack ------------------------------------------------------------------------------------


@st.composite
def stack_cases(draw):
    L, n, d, d_ff = draw(different(4, most=7))
    n = draw(st.sampled_from([n, n, MIN_QUERIES_FOR_BLOCKS + n]))
    layers = random_stack(L, d, d_ff, draw(SEEDS))
    return draw(numbers((n, d), -3, 2, plain=True)).X, layers


@pytest.mark.parametrize("step", [two_steps, residual_layer, layer])
@law(stack_cases(), share=0.3)
def test_a_stack_is_its_layers_one_after_another_cut_anywhere(step, case):
    X, layers = case
    whole_stack, stages = plainly(stack)(X, layers, step), plainly(stack_outputs)(X, layers, step)
    np.testing.assert_array_equal(stages[0], X)
    np.testing.assert_array_equal(stages[-1], whole_stack)
    for cut in range(1, len(layers)):
        np.testing.assert_array_equal(stages[cut], plainly(stack)(X, layers[:cut], step))
        np.testing.assert_array_equal(plainly(stack)(stages[cut], layers[cut:], step), whole_stack)


@pytest.mark.parametrize("step", [two_steps, residual_layer, layer])
@law(stack_cases(), SEEDS, share=0.3)
def test_a_later_token_leaves_the_very_bits_of_a_stack(step, case, seed):
    X, layers = case
    j = seed % len(X)
    changed = X.copy()
    changed[j:] += as_32(np.random.default_rng(seed).standard_normal(changed[j:].shape))
    before, after = (plainly(stack_outputs)(x, layers, step) for x in (X, changed))
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(new[:j], old[:j])
    assert (changed[j:] != X[j:]).any()


@law(different(3, most=7), SEEDS)
def test_a_layer_whose_steps_add_nothing_is_the_identity(sizes, seed):
    """W_O, W_2 and b_2 of zeros: the residual stream passes with its very bits."""
    n, d, d_ff = sizes
    w = vars(random_layer(d, d_ff, seed)) | {"W_O": np.zeros((d, d)), "W_2": np.zeros((d_ff, d))}
    w = type(random_layer(d, d_ff, seed))(**w | {"b_2": np.zeros(d)})
    X = as_32(made((n, d), "all sizes", 5, seed))
    np.testing.assert_array_equal(plainly(layer)(X, w), X)
    np.testing.assert_array_equal(plainly(residual_layer)(X, w), X)
