"""Attention against its definition in float64, and against numbers worked out by hand."""

import numpy as np
import pytest

from lib import reference
from lib.attention import (
    MIN_QUERIES_FOR_BLOCKS,
    QUERIES_PER_BLOCK,
    attend,
    attend_causal,
    attention_weights,
    causal_weights,
    softmax,
)
from lib.errors import CourseError

EPS = np.finfo(np.float32).eps  # 1.2e-7, the spacing of float32 numbers at 1
SHAPES = [(1, 1, 1), (1, 5, 3), (2, 1, 4), (6, 4, 3), (7, 3, 5), (33, 64, 17), (300, 20, 8)]
# Queries and keys around the places where attention changes its road: few queries, whole blocks.
BLOCK, FEWEST = QUERIES_PER_BLOCK, MIN_QUERIES_FOR_BLOCKS
ROADS = [(FEWEST - 1, 20), (FEWEST, 20), (FEWEST, FEWEST), (BLOCK, BLOCK), (BLOCK + 1, 150)]
ROADS += [(2 * BLOCK, 300)]


def made(n, d, d_v, seed=0, m=None):
    rng = np.random.default_rng(seed)
    Q = rng.standard_normal((n if m is None else m, d)).astype(np.float32)
    K, V = rng.standard_normal((n, d)), rng.standard_normal((n, d_v))
    return Q, K.astype(np.float32), V.astype(np.float32)


def tolerance(Q, K, V):
    """Bound on the error of the kernel, of first order.

    A dot product of d terms errs by at most d·EPS·|q||K|ᵀ (Higham 2002, section 3.1), times 1/√d
    for the score, and a few roundings. An error ε in every score changes a weight by a factor of
    at most e^2ε, the sums add a rounding per term, and the output is a mean of the values.
    """
    d, n = K.shape[1], len(K)
    score = EPS * (d + 3) * (np.abs(Q) @ np.abs(K).T).max() / np.sqrt(d)
    return (np.expm1(2 * score) + EPS * (n + 8)) * np.abs(V).max()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [1e-30, 1e-3, 1.0, 4.0])
def test_one_query_agrees_with_the_definition(shape, size):
    Q, K, V = made(*shape)
    q = Q[-1] * np.float32(size)
    bound = tolerance(q[None], K, V)
    np.testing.assert_allclose(attend(q, K, V), reference.attend(q, K, V), rtol=0, atol=bound)
    weights = reference.attention_weights(q, K)
    np.testing.assert_allclose(attention_weights(q, K), weights, rtol=0, atol=bound)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("m", [1, 2, None])
def test_all_queries_agree_with_the_definition(shape, m):
    m = min(m, shape[0]) if m else None
    Q, K, V = made(*shape, seed=1, m=m)
    bound = tolerance(Q, K, V)
    expected = reference.attend_causal(Q, K, V)
    np.testing.assert_allclose(attend_causal(Q, K, V), expected, rtol=0, atol=bound)
    expected = reference.causal_weights(Q, K)
    np.testing.assert_allclose(causal_weights(Q, K), expected, rtol=0, atol=bound)


@pytest.mark.parametrize(("m", "n"), ROADS)
class TestManyQueries:
    def test_agree_with_the_definition(self, m, n):
        Q, K, V = made(n, 5, 3, seed=2, m=m)
        bound = tolerance(Q, K, V)
        expected = reference.attend_causal(Q, K, V)
        np.testing.assert_allclose(attend_causal(Q, K, V), expected, rtol=0, atol=bound)
        expected = reference.causal_weights(Q, K)
        np.testing.assert_allclose(causal_weights(Q, K), expected, rtol=0, atol=bound)

    def test_a_later_token_leaves_earlier_outputs_the_same_bits(self, m, n):
        Q, K, V = made(n, 5, 3, seed=3, m=m)
        before = attend_causal(Q, K, V)
        j = m // 2
        Q[j], K[n - m + j], V[n - m + j] = 7.0, -7.0, 70.0
        after = attend_causal(Q, K, V)
        np.testing.assert_array_equal(after[:j], before[:j])
        assert abs(after[j] - before[j]).max() > 0.1

    @pytest.mark.usefixtures("compiled")  # whose exponential of −∞ is NaN
    @pytest.mark.parametrize("name", ["Q", "K", "V"])
    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_nan_and_infinity_are_named_wherever_they_stand(self, m, n, name, bad):
        for row in (0, m - 1):
            given = dict(zip("QKV", made(n, 5, 3, seed=4, m=m), strict=True))
            given[name][row, 1] = bad
            message = rf"^{name} should hold .* at \[{row}, 1\] it holds {bad}"
            with pytest.raises(CourseError, match=message):
                attend_causal(**given)

    def test_scores_beyond_float32_are_done_in_float64(self, m, n):
        Q, K, V = made(n, 5, 3, seed=5, m=m)
        Q, K = Q * np.float32(1e20), K * np.float32(1e20)
        expected = reference.attend_causal(Q, K, V)
        np.testing.assert_allclose(attend_causal(Q, K, V), expected, rtol=EPS)
        np.testing.assert_allclose(causal_weights(Q, K), reference.causal_weights(Q, K), rtol=EPS)


class TestInfinityThatAWeightOfZeroCouldHide:
    # d = 1 and q = 1: the scores are the keys.
    @pytest.mark.usefixtures("compiled")
    def test_a_key_of_minus_infinity(self):
        K, V = np.float32([[0.0], [-np.inf], [0.5]]), np.float32([[1.0], [2.0], [3.0]])
        with pytest.raises(CourseError, match=r"^K should hold .*; at \[1, 0\] it holds -inf"):
            attend(np.float32([1.0]), K, V)

    def test_a_value_whose_weight_is_zero(self):
        K, V = np.float32([[0.0], [-200.0]]), np.float32([[1.0], [np.inf]])
        assert attention_weights([1.0], K)[1] == 0
        with pytest.raises(CourseError, match=r"^V should hold .*; at \[1, 0\] it holds inf"):
            attend(np.float32([1.0]), K, V)

    def test_a_score_that_leaves_float32_downwards(self):
        K, V = np.float32([[1e30], [-1e30]]), np.float32([[1.0], [2.0]])
        np.testing.assert_array_equal(attend(np.float32([1e30]), K, V), [1.0])

    def test_values_as_large_as_float32_holds(self):
        # Their mean is representable, their sum is not.
        V = np.full((300, 2), 3e38, np.float32)
        K = np.zeros((300, 1), np.float32)
        np.testing.assert_allclose(attend([1.0], K, V), [3e38, 3e38], rtol=300 * EPS)
        np.testing.assert_allclose(attend_causal(K, K, V), V, rtol=300 * EPS)


@pytest.mark.parametrize("logit", [1e4, -1e4, 1e-30])
def test_logits_of_any_size(logit):
    # d = 1, so that the scores are the products themselves: exact, whatever their size.
    K = np.float32([[1.0], [0.5], [-1.0], [1.0]])
    V = np.float32([[1, 2], [3, 4], [5, 6], [7, 8]])
    q = np.float32([logit])
    np.testing.assert_allclose(attend(q, K, V), reference.attend(q, K, V), rtol=4 * EPS)


def test_by_hand():
    # √d = 2. q·k = 2 ln 2, 0, 0, so s = ln 2, 0, 0 and α = 2/4, 1/4, 1/4.
    q = [2 * np.log(2), 0, 0, 0]
    K = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]
    V = [[4, 0], [0, 8], [-4, 0]]
    np.testing.assert_allclose(attention_weights(q, K), [0.5, 0.25, 0.25], rtol=2 * EPS)
    np.testing.assert_allclose(attend(q, K, V), [1.0, 2.0], rtol=4 * EPS)


def test_products_beyond_float32_are_done_in_float64():
    q, K = np.float32([1e30, 1e30]), np.float32([[1e30, -1e30], [1e30, -1e30], [-1e30, -1e30]])
    V = np.float32([[1], [3], [9]])
    np.testing.assert_allclose(attend(q, K, V), [2.0], rtol=EPS)
    np.testing.assert_allclose(attend_causal(q[None], K, V), [[2.0]], rtol=EPS)
    np.testing.assert_allclose(attention_weights(q, K), [0.5, 0.5, 0.0], rtol=EPS)


class TestSoftmax:
    def test_fault_1_no_overflow(self):
        got = softmax(np.float32([-249.9, -424.1, -460.3, 378.1, -292.6]))
        np.testing.assert_array_equal(got, [0, 0, 0, 1, 0])

    @pytest.mark.parametrize("shape", [(1,), (7,), (1, 1), (3, 5), (5, 3)])
    @pytest.mark.parametrize("size", [1e-30, 1.0, 1e4, 3e38])
    def test_agrees_with_the_definition(self, shape, size):
        scores = np.random.default_rng(2).uniform(-1, 1, shape).astype(np.float32)
        scores *= np.float32(size)
        # The gap to the largest score carries half a spacing of it, and e^x turns that into a
        # factor; where the gap exceeds 104 the weight is zero in float32: the error is capped.
        bound = np.expm1(EPS * min(2 * size, 104)) + 8 * EPS
        np.testing.assert_allclose(softmax(scores), reference.softmax(scores), rtol=0, atol=bound)

    def test_fault_9_each_row_sums_to_one(self):
        scores = np.random.default_rng(3).standard_normal((3, 5))
        np.testing.assert_allclose(softmax(scores).sum(axis=1), np.ones(3), rtol=8 * EPS)
        assert abs(softmax(scores).sum(axis=0) - 1).max() > 0.1

    def test_adding_a_constant_changes_nothing(self):
        scores = np.float32([0.5, -1.0, 2.0, 0.25])
        np.testing.assert_array_equal(softmax(scores), softmax(scores + np.float32(8)))

    def test_hidden_keys_get_weight_zero(self):
        got = softmax([[1.0, 5.0, 1.0], [0, 0, 9.0]], [[True, False, True], [True, True, False]])
        np.testing.assert_array_equal(got, [[0.5, 0, 0.5], [0.5, 0.5, 0]])

    @pytest.mark.parametrize("score", [0.0, -1e9])
    def test_faults_2_and_3_a_row_without_a_key_is_an_error_that_names_it(self, score):
        visible = np.ones((4, 4), bool)
        visible[1] = False
        with pytest.raises(CourseError, match="at least one key to every row; row 1 has none"):
            softmax(np.full((4, 4), score), visible)

    @pytest.mark.parametrize("visible", [[True, True], [1, 1, 1]])
    def test_visible_is_bool_of_the_same_shape(self, visible):
        with pytest.raises(
            CourseError, match=r"^visible should be an array of bool of shape \(3,\)"
        ):
            softmax([1.0, 2.0, 3.0], visible)


class TestLaws:
    def test_fault_8_the_scale_is_the_root_of_the_width_of_the_keys(self):
        Q, K, V = made(6, 4, 3)
        wrong = reference.softmax(Q[-1] @ K.T / np.sqrt(3)) @ V
        right = reference.softmax(Q[-1] @ K.T / np.sqrt(4)) @ V
        np.testing.assert_allclose(attend(Q[-1], K, V), right, rtol=0, atol=tolerance(Q, K, V))
        assert abs(wrong - right).max() > 100 * tolerance(Q, K, V)

    def test_permuting_the_pairs_changes_nothing(self):
        Q, K, V = made(9, 4, 3)
        order = np.random.default_rng(4).permutation(9)
        moved = attend(Q[0], K[order], V[order])
        np.testing.assert_allclose(moved, attend(Q[0], K, V), rtol=0, atol=tolerance(Q, K, V))
        assert abs(attend(Q[0], K[order], V) - moved).max() > 0.1

    def test_a_later_token_leaves_earlier_outputs_the_same_bits(self):
        Q, K, V = made(6, 4, 3)
        before = attend_causal(Q, K, V)
        Q[4], K[4], V[4] = 7.0, -7.0, 70.0
        after = attend_causal(Q, K, V)
        np.testing.assert_array_equal(after[:4], before[:4])
        assert (abs(after[4:] - before[4:]).max(axis=1) > 0.1).all()

    def test_row_i_is_one_query_over_its_left_context(self):
        Q, K, V = made(6, 4, 3)
        rows = attend_causal(Q, K, V)
        for i in range(6):
            np.testing.assert_array_equal(rows[i], attend(Q[i], K[: i + 1], V[: i + 1]))

    @pytest.mark.parametrize("m", range(1, 7))
    def test_the_last_queries_by_themselves(self, m):
        Q, K, V = made(6, 4, 3)
        np.testing.assert_array_equal(attend_causal(Q[-m:], K, V), attend_causal(Q, K, V)[-m:])

    def test_the_weights_to_the_right_are_exactly_zero(self):
        Q, K, _ = made(6, 4, 3)
        weights = causal_weights(Q, K)
        np.testing.assert_array_equal(weights[np.triu_indices(6, 1)], 0)
        np.testing.assert_allclose(weights.sum(axis=1), np.ones(6), rtol=8 * EPS)

    def test_the_first_token_sees_only_itself(self):
        Q, K, V = made(6, 4, 3)
        np.testing.assert_array_equal(attend_causal(Q, K, V)[0], V[0])

    def test_the_output_lies_inside_the_box_of_the_values(self):
        Q, K, V = made(50, 4, 3)
        out = attend_causal(Q * 3, K, V)
        assert (out <= V.max(axis=0) + EPS * 8).all()
        assert (out >= V.min(axis=0) - EPS * 8).all()

    def test_fault_15_the_same_twice(self):
        Q, K, V = made(300, 20, 8)
        np.testing.assert_array_equal(attend_causal(Q, K, V), attend_causal(Q, K, V))
