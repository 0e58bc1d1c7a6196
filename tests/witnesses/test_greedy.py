"""How the real model goes on with ten prompts, against `transformers` in float64 on the same file.

What the witness chose is given to the engines, token by token; asked is what each would choose at
each step. So a step that differs does not hide those that follow.
"""

import math

import numpy as np
import pytest

from lib.engine.llama import load_model
from lib.engine.sampling import generate


def read(model, prompt):
    """Return the choice at each step, and the gap between the witness's choice and its second."""
    start = len(prompt["prompt"]) - 1
    logits = model.logits(prompt["prompt"] + prompt["tokens"][:-1], all=True)[start:]
    rows = np.arange(len(logits))
    gaps = logits[rows, prompt["tokens"]] - logits[rows, prompt["second"]]
    return logits.argmax(axis=1), gaps.astype(np.float64)


def of_all(greedy, name):
    return np.concatenate([prompt[name] for prompt in greedy["prompts"]])


@pytest.fixture(scope="module")
def model():
    return load_model()


@pytest.fixture(scope="module")
def fast(compiled):
    pytest.importorskip("numba")
    from lib.engine.fast import load_fast

    return load_fast(threads=1)  # the same bits as with more; the two processes share the cores


@pytest.fixture(scope="module")
def fast_steps(fast, greedy):
    choices, gaps = zip(*(read(fast, prompt) for prompt in greedy["prompts"]), strict=True)
    return np.concatenate(choices), np.concatenate(gaps)


@pytest.fixture(scope="module")
def sigma(greedy):
    """Root mean square of what rounding to 8 bits does to a gap, in llama.cpp."""
    return rms(of_all(greedy, "rounded_gaps") - of_all(greedy, "gaps"))


def rms(x):
    return float(np.sqrt(np.mean(x * x)))


def test_the_fixture_has_close_choices_and_clear_ones(greedy, sigma):
    gaps = of_all(greedy, "gaps")
    assert len(gaps) == 200
    assert (gaps < sigma).sum() > 10
    assert (gaps > 10 * sigma).sum() > 50


def test_the_fast_engine_is_as_near_as_llama_cpp(fast_steps, greedy, sigma):
    """Both round what enters a matrix to 8 bits, each in its own way.

    Errors hang together within a prompt. From one prompt to another their mean square varies by
    0.6 of its mean, so by 0.6 / √10 in the mean of ten, by √2 times that in the ratio of two such
    means, and by half of it in the ratio of the roots: 0.13. Three of these are allowed.
    """
    errors = fast_steps[1] - of_all(greedy, "gaps")
    assert 0.01 < rms(errors) < 1.4 * sigma


def test_the_fast_engine_chooses_otherwise_only_where_it_is_close(fast_steps, greedy, sigma):
    gaps = of_all(greedy, "gaps")
    other = fast_steps[0] != of_all(greedy, "tokens")
    # An error of the gap has to reach the gap; past three σ that is one case in 700.
    assert (gaps[other] < 3 * sigma).all(), gaps[other]
    # How often it happens to errors of that σ, and three deviations of that number.
    chance = np.array([math.erfc(gap / sigma / math.sqrt(2)) / 2 for gap in gaps])
    assert other.sum() <= chance.sum() + 3 * np.sqrt((chance * (1 - chance)).sum())


def test_the_fast_engine_writes_what_the_steps_say(fast, fast_steps, greedy):
    choices = fast_steps[0].reshape(len(greedy["prompts"]), -1)
    whole = 0
    for prompt, chosen in zip(greedy["prompts"], choices, strict=True):
        same = [*(chosen == prompt["tokens"]), False].index(False)
        ends = [token in fast.tokenizer.stop for token in prompt["tokens"][:same]]
        expected = prompt["tokens"][: [*ends, True].index(True)]
        assert list(generate(fast, prompt["prompt"], len(expected))) == expected
        whole += len(expected)
    assert whole > 100


@pytest.mark.parametrize("index", [5, 9])
def test_the_plain_engine(model, greedy, sigma, index):
    """No choice differs: these prompts have no gap below what float32 can do.

    A sum of 1536 products errs by at most 1536 · 2⁻²⁴ of its parts, where 8 bits err by
    1 / (127 √12) of the largest of a block: by 25 times as much. So are the gaps.
    """
    prompt = greedy["prompts"][index]
    allowed = 3 * sigma * (1536 * 2.0**-24) * (127 * math.sqrt(12))
    assert min(prompt["gaps"]) > allowed
    choices, gaps = read(model, prompt)
    assert choices.tolist() == prompt["tokens"]
    np.testing.assert_allclose(gaps, prompt["gaps"], rtol=0, atol=allowed)
