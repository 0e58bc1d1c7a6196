"""The inputs that nobody has seen: drawn of a seed, in these sizes, the same in every term."""

import numpy as np
import pytest

from lib.exercises import t04_build_attention as t04
from lib.exercises import t06_build_the_stack as t06
from lib.exercises import t07_make_it_fast as t07
from lib.grading import hidden

SEED = 5
# For each function the arrays in the order in which they are drawn: shape, factor, added number.
DRAWN = {
    "scores": [(6,), (4, 6)],
    "softmax": [((3, 5), 2, 900)],
    "attend": [(5,), (6, 5), (6, 3)],
    "causal_weights": [(6, 4), (6, 4)],
    "attend_causal": [(6, 4), (6, 4), (6, 3)],
    "attend_last": [(2, 4), (5, 4), (5, 3)],
    "gelu": [((3, 4), 2, 0)],
    "ffn": [(4, 5), (5, 7), (7,), (7, 5), (5,)],
    "layer_norm": [(4, 6), (6,), (6,), 0.3],
    "residual_layer": [(4, 3)],
    "decode_step": [(4,), (3, 4), (3, 4), (4, 4), (4, 4), (4, 4)],
    "my_attention": [(2, 4), (5, 4), (5, 3)],
    "attend_one": [(5,), (6, 5), (6, 3)],
    "attend_all": [(6, 4), (6, 4), (6, 3)],
    "attend_online": [(5,), (6, 5), (6, 3)],
}


def made(name, seed=SEED):
    return hidden.ARGUMENTS[name](hidden._Chance(seed))


def draw(rng, shape):
    return rng.normal(size=shape).round(2)


@pytest.mark.parametrize("name", DRAWN)
def test_arrays_are_drawn_one_after_the_other(name):
    rng = np.random.default_rng(SEED)
    for argument, what in zip(made(name), DRAWN[name], strict=False):
        if isinstance(what, float):
            assert argument == what
            continue
        shape, factor, added = what if isinstance(what[0], tuple) else (what, 1, 0)
        np.testing.assert_array_equal(argument, added + factor * draw(rng, shape))


def test_the_other_arguments():
    rng = np.random.default_rng(SEED)
    X, layers, _ = made("stack")
    for array, shape in zip([X, *layers], [(4, 3), *[(3, 3)] * 3], strict=True):
        np.testing.assert_array_equal(array, draw(rng, shape))

    rng = np.random.default_rng(SEED)
    X, layers, _, head = made("predictions")
    np.testing.assert_array_equal(X, draw(rng, (3, 4)))
    for w in layers:
        np.testing.assert_array_equal(w, 2 * draw(rng, 4))
    assert len(layers) == 5
    np.testing.assert_array_equal(head(np.ones(4)), np.ones(4) @ draw(rng, (4, 6)))

    rng = np.random.default_rng(SEED)
    logits, temperature, u = made("next_token")
    np.testing.assert_array_equal(logits, draw(rng, 8))
    assert (temperature, u) == (0.7, rng.random())

    rng = np.random.default_rng(SEED)
    X, w = made("layer")
    assert w.W_1.shape == (5, 7)
    assert int(rng.integers(0, 10**9)) >= 0
    np.testing.assert_array_equal(X, draw(rng, (4, 5)))
    for name in ("gain_1", "bias_1", "gain_2", "bias_2"):
        np.testing.assert_array_equal(getattr(w, name), np.float32(draw(rng, 5)))


def test_counts_are_many_and_within_their_limits():
    seen = {name: [set(column) for column in zip(*(made(name, s) for s in range(400)), strict=True)]
            for name in ("multiply_adds", "bytes_of_query")}  # fmt: skip
    for name, limits in {"multiply_adds": [(4, 60), (2, 40)],
                         "bytes_of_query": [(3, 90), (2, 90), (1, 9)]}.items():  # fmt: skip
        for found, (low, high) in zip(seen[name], limits, strict=True):
            assert low <= min(found) < max(found) < high
            assert len(found) > 0.9 * (high - low - 1)  # too many to be guessed


def test_a_seed_depends_on_every_text_and_on_where_one_ends():
    seeds = [hidden.seed_of(*texts) for texts in [("a", "b"), ("ab",), ("b", "a"), ("a", "b", "")]]
    assert len(set(seeds)) == 4
    assert all(0 <= seed < 2**64 for seed in seeds)
    assert max(seeds) > 2**60  # all of the eight bytes are used
    assert hidden.seed_of("a", "b") == seeds[0]
    assert hidden.seed_of("\ud800")  # a text that no file can hold


def test_a_building_gets_more_rungs_each_with_other_numbers():
    more = hidden.building(t04.ATTEND, SEED)
    assert more.rungs[:-4] == t04.ATTEND.rungs
    np.testing.assert_array_equal(more.rungs[-4].arguments[1], made("attend")[1])
    assert {rung.mechanism for rung in more.rungs[-4:]} == {"numbers of its own"}
    assert len({rung.arguments[0].tobytes() for rung in more.rungs[-4:]}) == 4


def test_a_next_token_that_draws_nothing_meets_an_unused_variable_often_enough():
    more = hidden.building(t06.NEXT_TOKEN, SEED)
    shown = len(t06.NEXT_TOKEN.rungs)
    fits = sum(
        int(rung.run(t06.next_token, *rung.arguments)) == int(np.argmax(rung.arguments[0]))
        for rung in more.rungs[shown:]
    )
    assert len(more.rungs) == shown + 40
    assert fits < 35


def test_a_kernel_is_counted_on_numbers_of_its_own_with_scores_in_the_same_order():
    more = hidden.kernel(t07.ONLINE, SEED)
    assert len(more.values.rungs) == len(t07.ONLINE.values.rungs) + 4
    assert all(array.dtype == np.float32 for array in more.values.rungs[-1].arguments)
    rng = hidden._Chance(SEED)
    for _ in range(4):
        hidden.ARGUMENTS["attend_online"](rng)
    q, K, V = t07.ONLINE.inputs
    right = q * rng.rng.uniform(0.6, 1.4), K * rng.rng.uniform(0.6, 1.4), rng(*V.shape)
    assert more.inputs is t07.ONLINE.inputs
    for mine, array in zip(more.counted, right, strict=True):
        assert mine.dtype == np.float32
        np.testing.assert_array_equal(mine, np.float32(array))
