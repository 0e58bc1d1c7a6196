"""SmolLM2-135M-Instruct through the functions of the course: fault 14 and the golden texts."""

import numpy as np
import pytest
from tiny_models import plain_logits

from lib.engine.sampling import generate, probabilities

TEXT = "The left context of a token is all that stands before it: 1 word, or 100."


@pytest.fixture(scope="module")
def tokens(model):
    return model.tokenizer.encode(TEXT)


@pytest.fixture(scope="module")
def all_logits(model, tokens):
    return model.logits(tokens, all=True)


def test_sizes(model):
    c = model.config
    assert (c.L, c.d, c.H, c.H_kv, c.d_head, c.d_ff) == (30, 576, 9, 3, 64, 1536)
    assert (c.vocabulary, c.context, c.rope_base) == (49152, 8192, 100000.0)
    assert c.eps == pytest.approx(1e-5)


def test_logits_agree_with_the_independent_pass(real_file, tokens, all_logits):
    # Two float32 passes of 30 layers in different orders of summation; logits reach 32, and the
    # passes were 5e-5 apart.
    expected = plain_logits(real_file, tokens)
    np.testing.assert_allclose(all_logits, expected, rtol=0, atol=2e-3)


def test_the_head_is_tied(model):
    assert np.shares_memory(model.W_head, model.embedding)


def test_greedy_text(model):
    prompt = model.tokenizer.encode("Once upon a time")
    found = list(generate(model, prompt, 10))
    assert found == [28, 260, 2240, 282, 23324, 27108, 436, 253, 15114, 39228]
    text = "".join(model.tokenizer.stream_text(found))
    assert text == ", the city of Nova Haven was a thriving metropolis"


def test_probability_of_the_next_word(model):
    logits = model.logits(model.tokenizer.encode("The capital of France is"))
    p = probabilities(logits)
    best = int(np.argmax(p))
    assert model.tokenizer.decode([best]) == " Paris"
    assert p[best] == pytest.approx(0.7725, abs=2e-3)


def test_an_answer_ends_by_itself(model):
    text = model.tokenizer.chat([{"role": "user", "content": "What is 2 + 2? Answer briefly."}])
    prompt = model.tokenizer.encode(text, special=True)
    found = list(generate(model, prompt, 60))
    assert 0 < len(found) < 60
    assert not model.tokenizer.stop.intersection(found)


def test_cached_steps_equal_the_whole(model, tokens, all_logits):
    cache = model.new_cache(len(tokens))
    model.logits(tokens[:6], cache)
    steps = [model.logits([token], cache) for token in tokens[6:9]]
    np.testing.assert_allclose(steps, all_logits[6:9], rtol=0, atol=2e-3)


def test_twice_the_same(model, tokens, all_logits):
    np.testing.assert_array_equal(model.logits(tokens, all=True), all_logits)


def test_prediction_after_each_layer(model, tokens, all_logits):
    hidden = model.hidden(tokens)
    assert hidden.shape == (31, len(tokens), 576)
    np.testing.assert_allclose(model.head(hidden[-1]), all_logits, rtol=0, atol=2e-3)
    assert np.abs(model.head(hidden[15]) - all_logits).max() > 1
