"""Exercise 06: right functions pass, each mistake gets its message; an attention in the model."""

import numpy as np
import pytest

from lib import reference
from lib.exercises import NotRight, Unanswered, check
from lib.exercises import t06_build_the_stack as t06
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


def test_the_engine_has_its_own_attention_back():
    from lib.attention import attend_causal
    from lib.engine import llama

    with pytest.raises(NotRight):
        t06.finish("Once", lambda Q, K, V: None, n=1)
    assert llama.attend_causal is attend_causal


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
