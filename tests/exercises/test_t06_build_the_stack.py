"""Exercise 06: right functions pass, each mistake gets its message; an attention in the model."""

from types import SimpleNamespace

import numpy as np
import pytest

from lib import reference
from lib.engine.llama import Parts
from lib.exercises import NotRight, Unanswered, check
from lib.exercises import t06_build_the_stack as t06
from lib.lab.installed import real_model
from tests.exercises.wrong.t06 import loops


def test_plain_loops_of_a_reader_finish_the_sentence(capsys):
    check("06.real_model", loops)
    assert capsys.readouterr().out == (
        "06.real_model: right. It was called 1,620 times, once for each head of each layer at each "
        "step, and the model says: “Once upon a time, the city of Nova Haven”.\n"
    )


def test_an_empty_body_in_the_model_is_unanswered():
    with pytest.raises(Unanswered, match="your attention returns nothing yet"):
        t06.finish("Once", lambda Q, K, V: None, n=1)


@pytest.mark.parametrize(
    ("attention", "words"),
    [
        (
            lambda Q, K, V: V[: len(Q), :5],
            r"shape \(1, 5\) where finite numbers of shape \(1, 64\)",
        ),
        (lambda Q, K, V: np.full((len(Q), V.shape[1]), np.nan), "where finite numbers of shape"),
        (lambda Q, K, V: "V", "it returned something of type str"),
    ],
)
def test_what_the_model_cannot_use_is_named_with_its_place(attention, words):
    with pytest.raises(
        NotRight, match=f"in layer 1, head 1 of the real model, with 1 queries and 1 keys.*{words}"
    ):
        t06.finish("Once", attention, n=1)


def test_the_model_keeps_its_own_attention():
    with pytest.raises(NotRight):
        t06.finish("Once", lambda Q, K, V: None, n=1)
    assert real_model().parts == Parts()


def test_decoding_step_by_step_is_causal_attention():
    rung = t06.DECODE_STEP.rungs[-1]
    X, _, _, W_Q, W_K, W_V = rung.arguments
    np.testing.assert_allclose(
        rung.run(t06.decode_step, *rung.arguments),
        reference.attend_causal(X @ W_Q, X @ W_K, X @ W_V),
        rtol=0,
        atol=1e-12,
    )


# The sentences of the messages say these numbers.
BY_HAND = [
    (t06.STACK, 0, [[3, 2], [7, 4], [11, 6]]),
    (t06.STACK, 1, [[1112, 1113], [1114, 1115], [1116, 1117]]),
    (t06.STACK, 2, [[6, 1], [14, 3], [22, 5]]),
    (t06.PREDICTIONS, 0, [0, 1, 1, 2]),
    (t06.PREDICTIONS, 1, [0, 2]),
    (t06.PREDICTIONS, 2, [0, 1]),
    (t06.NEXT_TOKEN, 0, 1),
    (t06.NEXT_TOKEN, 1, 1),
    (t06.NEXT_TOKEN, 2, [0, 1, 1, 2]),
    (t06.NEXT_TOKEN, 3, [1, 0, 0]),
    (t06.NEXT_TOKEN, 4, 1),
    (t06.NEXT_TOKEN, 5, 1),
    (t06.NEXT_TOKEN, 6, 9),
]


@pytest.mark.parametrize(("built", "number", "expected"), BY_HAND)
def test_rungs_expect_what_one_computes_by_hand(built, number, expected):
    rung = built.rungs[number]
    np.testing.assert_array_equal(rung.run(built.definition, *rung.arguments), expected)


def test_the_token_seen_in_the_cache_is_counted():
    rung = t06.DECODE_STEP.rungs[3]
    out, K, V = t06.decode_step(*rung.arguments)
    np.testing.assert_allclose(out, [3, 3], rtol=0, atol=1e-12)  # mean of (6, 0), (0, 3), (3, 6)
    np.testing.assert_array_equal(V, [[6, 0], [0, 3], [3, 6]])
    np.testing.assert_array_equal(K[-1], [3, 6])


# --- The attention in the model, call by call, on a model of two layers of three heads ---


@pytest.fixture
def small(monkeypatch):
    config = SimpleNamespace(L=2, H=3)
    monkeypatch.setattr(t06, "real_model", lambda: SimpleNamespace(config=config))


def heads(seed):
    return np.random.default_rng(seed).standard_normal((3, 2, 4)).astype(np.float32)


def test_each_call_is_compared_with_the_definition(small):
    watched = t06.InTheModel(reference.attend_causal)
    for seed in range(5):
        out = watched(*heads(seed))
        assert out.dtype == np.float32
        np.testing.assert_allclose(out, reference.attend_causal(*heads(seed)), rtol=1e-6)
    assert (watched.calls, watched.fault) == (5, "")


@pytest.mark.parametrize(("size", "off", "fault"), [
    (1, 0.9e-4, ""), (1, 1.2e-4, "layer 2, head 2"), (100, 0.9e-2, ""), (100, 2e-2, "row 1"),
    (0.01, 0.9e-4, ""),
])  # fmt: skip
def test_a_difference_counts_beyond_a_ten_thousandth_of_the_largest(small, size, off, fault):
    def almost(Q, K, V):
        out = reference.attend_causal(Q, K, V)
        out[1, 2] += off
        return out

    Q, K, V = heads(1)
    V = np.full_like(V, size)
    watched = t06.InTheModel(almost)
    watched.calls = 10  # one pass of six heads, and four of the next
    watched(Q, K, V)
    assert fault in watched.fault
    assert bool(watched.fault) == bool(fault)
    if fault:
        first = watched.fault
        assert f"row 1 should begin [{size}.0, {size}.0, {size}.0]" in first
        watched(Q, K, V)
        assert watched.fault == first  # the first difference is the one that is told


def test_four_numbers_draw_four_tokens():
    rung = next(rung for rung in t06.NEXT_TOKEN.rungs if rung.mechanism == "the temperature")
    assert rung.run(t06.next_token, *rung.arguments).tolist() == [1, 0, 0]
