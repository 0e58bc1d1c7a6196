from types import SimpleNamespace

import numpy as np
import pytest
from tiny_models import sentencepiece

from lib.engine.llama import load_model
from lib.engine.sampling import generate, penalise, probabilities, sample, until
from lib.errors import CourseError

LOGITS = np.log([0.05, 0.5, 0.15, 0.3]) + 2.0
EXACT = {"rtol": 1e-6, "atol": 0}  # float32 softmax


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, [0.05, 0.5, 0.15, 0.3]),
        ({"temperature": 0.5}, np.array([0.0025, 0.25, 0.0225, 0.09]) / 0.365),
        ({"temperature": 0}, [0, 1, 0, 0]),
        ({"top_k": 2}, [0, 0.625, 0, 0.375]),
        ({"top_k": 9}, [0.05, 0.5, 0.15, 0.3]),
        ({"top_p": 0.4}, [0, 1, 0, 0]),  # never nothing
        ({"top_p": 0.6}, [0, 0.625, 0, 0.375]),
        ({"top_p": 1.0}, [0.05, 0.5, 0.15, 0.3]),
        ({"top_k": 3, "top_p": 0.9}, np.array([0, 0.5, 0.15, 0.3]) / 0.95),
        # The order: top_p is of what top_k left, 0.625 and 0.375, not of 0.5 and 0.3.
        ({"top_k": 2, "top_p": 0.6}, [0, 1, 0, 0]),
        # The order: the temperature comes first; 0.25 / 0.365 = 0.685 alone reaches 0.6.
        ({"temperature": 0.5, "top_p": 0.6}, [0, 1, 0, 0]),
    ],
)
def test_probabilities(arguments, expected):
    found = probabilities(LOGITS, **arguments)
    np.testing.assert_allclose(found, expected, **EXACT)
    assert abs(found.sum() - 1) < 1e-12


def test_ties_go_to_the_first():
    np.testing.assert_allclose(probabilities([1, 3, 3, 3], top_k=2), [0, 0.5, 0.5, 0])
    assert sample([1.0, 3.0, 3.0], temperature=0) == 1


@pytest.mark.parametrize("temperature", [1e-300, 1e-30, 1e-3])
def test_a_tiny_temperature_is_greedy(temperature):
    np.testing.assert_array_equal(probabilities([1.0, 1e4, -1e4], temperature), [0, 1, 0])


def test_extreme_logits():
    np.testing.assert_array_equal(probabilities(np.float32([-3e38, 0, 3e38])), [0, 0, 1])
    np.testing.assert_allclose(probabilities([-1e30] * 4), [0.25] * 4)


def test_samples_follow_the_probabilities():
    rng = np.random.default_rng(8)
    n = 8000
    counts = np.bincount([sample(LOGITS, top_k=3, rng=rng) for _ in range(n)], minlength=4)
    p = np.array([0, 0.5, 0.15, 0.3]) / 0.95
    assert counts[0] == 0
    assert (np.abs(counts - n * p) <= 4 * np.sqrt(n * p * (1 - p))).all()  # 4 sigma, seeded


def test_a_seed_decides_the_samples():
    def draw(seed):
        rng = np.random.default_rng(seed)
        return [sample(LOGITS, rng=rng) for _ in range(30)]

    assert draw(3) == draw(3)
    assert draw(3) != draw(4)


BAD = [
    ({"temperature": -0.1}, "temperature should be a finite number, 0 or more; it is -0.1"),
    ({"temperature": float("nan")}, "temperature"),
    ({"temperature": float("inf")}, "temperature"),
    ({"temperature": "1"}, "temperature"),
    ({"temperature": 10**400}, "temperature should be a finite number, 0 or more; it is 1000"),
    ({"temperature": 10**5000}, "it is a number of thousands of digits"),
    ({"top_p": 0}, "top_p should be above 0 and at most 1; it is 0"),
    ({"top_p": 2}, "top_p should be above 0 and at most 1; it is 2"),
    ({"top_k": 0}, "top_k should be a whole number of at least 1; it is 0"),
    ({"top_k": 1.5}, "top_k"),
    ({"temperature": 0, "top_p": 2}, "top_p"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_arguments_are_checked(arguments, message):
    for function in (probabilities, sample):
        with pytest.raises(CourseError, match=message):
            function(LOGITS, **arguments)
    with pytest.raises(CourseError, match=message):
        generate(script([1]), [1], 5, **arguments)


@pytest.mark.parametrize("logits", [[1.0, np.nan], [np.inf, 0.0], [], [[1.0, 2.0]]])
@pytest.mark.parametrize("temperature", [0, 1])
def test_logits_are_checked(logits, temperature):
    with pytest.raises(CourseError, match="logits should"):
        sample(logits, temperature=temperature)


def script(next_tokens, context=10):
    """A model that always says the same text, and notes what it was fed."""
    fed = []

    def logits(tokens, cache):
        fed.append(list(tokens))
        return np.eye(1, 50, next_tokens[len(fed) - 1])[0]

    return SimpleNamespace(
        config=SimpleNamespace(context=context),
        tokenizer=SimpleNamespace(stop={49}, bos=None),
        embed=lambda tokens: None,
        new_cache=lambda capacity: SimpleNamespace(n=0),
        logits=logits,
        fed=fed,
    )


def test_generate_feeds_the_prompt_once_and_then_each_token():
    model = script([5, 6, 7, 8])
    assert list(generate(model, [1, 2, 3], 4)) == [5, 6, 7, 8]
    assert model.fed == [[1, 2, 3], [5], [6], [7]]


def test_generate_ends_at_a_stop_token():
    model = script([5, 49, 7])
    assert list(generate(model, [1], 3)) == [5]
    assert len(model.fed) == 2


def test_generate_yields_each_token_before_it_computes_the_next():
    model = script([5, 6, 7])
    assert next(generate(model, [1], 3)) == 5
    assert model.fed == [[1]]
    assert list(generate(script([5]), [1], 0)) == []


@pytest.mark.parametrize(
    ("prompt", "n", "seed", "message"),
    [
        ([], 3, None, "the prompt is empty"),
        ([1] * 11, 0, None, "context of 10 tokens; the prompt has 11 and n is 0"),
        ([1] * 8, 3, None, "context of 10 tokens; the prompt has 8 and n is 3"),
        ([1], -1, None, "n should be a whole number of at least 0; it is -1"),
        ([1], 2.5, None, "n should be"),
        ([1], 2, -4, "seed should be a whole number of at least 0; it is -4"),
    ],
)
def test_generate_refuses_at_the_call(prompt, n, seed, message):
    model = script([])
    with pytest.raises(CourseError, match=message):
        generate(model, prompt, n, seed=seed)
    assert model.fed == []


def test_generate_slides_past_the_context_if_asked(odd):
    """The policy: when the context of 12 is full, the newer 6 tokens are the text."""
    found = list(generate(odd, [7, 8, 9], 30, when_full="slide"))
    assert len(found) > 20
    window = [7, 8, 9]
    for token in found:
        if len(window) > 12:
            window = window[-6:]
        assert token == int(np.argmax(odd.logits(window)))
        window.append(token)
    with pytest.raises(CourseError, match="when_full should be error or slide; it is 'stop'"):
        generate(odd, [7], 1, when_full="stop")
    with pytest.raises(CourseError, match="context of 12 tokens; the prompt has 13"):
        generate(odd, [7] * 13, 1, when_full="slide")


def test_generate_runs_to_the_end_of_the_context(odd):
    prompt = [7, 8, 9]
    found = list(generate(odd, prompt, 9, temperature=1.0, seed=11))
    assert len(prompt) + len(found) == odd.config.context
    assert found == list(generate(odd, prompt, 9, temperature=1.0, seed=11))
    assert found != list(generate(odd, prompt, 9, temperature=1.0, seed=12))
    with pytest.raises(CourseError, match="one is 5000"):
        generate(odd, [5000], 1)


def test_top_p_of_one_drops_nothing():
    logits = np.random.default_rng(3).normal(0, 4, 5000)
    np.testing.assert_array_equal(probabilities(logits, top_p=1.0), probabilities(logits))


@pytest.mark.parametrize("shares", [[0.7, 0.2, 0.1], [0.1] * 10, [0.6, 0.3, 0.1]])
def test_top_p_keeps_the_fewest_that_reach_it(shares):
    """Rounding in a sum of shares keeps no token too many."""
    logits = np.log(np.array(shares))
    for k in range(1, len(shares)):
        kept = np.count_nonzero(probabilities(logits, top_p=float(np.round(sum(shares[:k]), 12))))
        assert kept == k


def test_a_text_that_slides_keeps_the_first_token_that_the_file_wants(tiny):
    model = load_model(tiny(tokenizer=sentencepiece()))
    model.tokenizer.stop, reads, real = frozenset(), [], model.logits
    model.logits = lambda tokens, cache: (reads.append(list(tokens)), real(tokens, cache))[1]
    prompt = model.tokenizer.encode("a b")
    list(generate(model, prompt, 25, when_full="slide"))
    texts = [read for read in reads if len(read) > 1]
    assert len(texts) > 2
    assert {text[0] for text in texts} == {prompt[0]}
    assert {len(text) for text in texts[1:]} == {model.config.context // 2}


def test_a_context_too_small_to_slide_is_told_at_the_call():
    model = script([], context=1)
    with pytest.raises(CourseError, match="should have room to slide; it has 1 tokens in all"):
        generate(model, [1], 2, when_full="slide")


def test_generate_goes_on_from_what_a_cache_holds(odd):
    cache = odd.new_cache()
    odd.logits([7, 8], cache)
    found = list(generate(odd, [7, 8, 9], 4, cache=cache))
    assert found == list(generate(odd, [7, 8, 9], 4))
    assert cache.n == 6


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"min_p": 0.0}, [0.05, 0.5, 0.15, 0.3]),
        ({"min_p": 0.11}, np.array([0, 0.5, 0.15, 0.3]) / 0.95),
        ({"min_p": 0.5}, [0, 0.625, 0, 0.375]),
        ({"min_p": 1.0}, [0, 1, 0, 0]),
        (
            {"min_p": 0.59, "temperature": 2.0},
            np.sqrt([0, 0.5, 0, 0.3]) / np.sqrt([0.5, 0.3]).sum(),
        ),
    ],
)
def test_min_p_keeps_what_is_near_the_likeliest(arguments, expected):
    np.testing.assert_allclose(probabilities(LOGITS, **arguments), expected, **EXACT)


@pytest.mark.parametrize("how", [{}, {"temperature": 50.0}, {"temperature": 1e-9}, {"top_p": 0.9}])
def test_a_banned_token_has_probability_zero(how):
    logits = np.array([-np.inf, 0.0, 1.0, -np.inf])
    found = probabilities(logits, **how)
    assert found[0] == found[3] == 0
    np.testing.assert_array_equal(found[1:3], probabilities(logits[1:3], **how))
    rng = np.random.default_rng(0)
    assert {sample(logits, 50.0, rng=rng) for _ in range(200)} == {1, 2}
    assert sample(np.array([-np.inf, -5.0]), temperature=0) == 1


@pytest.mark.parametrize("temperature", [0, 1])
def test_all_tokens_banned_is_an_error(temperature):
    with pytest.raises(CourseError, match="should leave at least one token; all are banned"):
        sample([-np.inf, -np.inf], temperature)


def test_the_penalty_makes_seen_tokens_less_likely_whatever_their_sign():
    logits = np.array([2.0, -2.0, 1.0, 0.0])
    np.testing.assert_array_equal(penalise(logits, [0, 1, 1], 2.0), [1.0, -4.0, 1.0, 0.0])
    np.testing.assert_array_equal(logits, [2, -2, 1, 0])
    np.testing.assert_array_equal(penalise([-np.inf, 1.0], [0], 2.0), [-np.inf, 1.0])


def test_the_penalty_reads_prompt_and_text(odd):
    odd.tokenizer.stop = frozenset()
    plain = list(generate(odd, [7, 8], 10))
    found = list(generate(odd, [7, 8], 10, penalty=1e9))
    assert len(set(plain)) < 10
    assert len({7, 8, *found}) == 12  # none comes twice


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"min_p": -0.1}, "min_p should be 0 to 1; it is -0.1"),
        ({"min_p": "0"}, "min_p should be 0 to 1"),
        ({"penalty": 0.9}, "penalty should be a finite number, 1 or more; it is 0.9"),
        ({"penalty": float("nan")}, "penalty"),
    ],
)
def test_min_p_and_penalty_are_checked_at_the_call(arguments, message):
    with pytest.raises(CourseError, match=message):
        generate(script([1]), [1], 5, **arguments)


def test_stop_strings_end_a_text_wherever_its_pieces_break():
    text, stops = "one\ntwo, END three", ["END", "\n\n", "two; "]
    for size in range(1, len(text) + 1):
        pieces = [text[k : k + size] for k in range(0, len(text), size)]
        found = list(until(pieces, stops))
        assert "".join(found) == "one\ntwo, "
        assert "" not in found
        assert "".join(until(pieces, ["four", "thre!"])) == text


def test_the_first_of_several_stop_strings_counts():
    assert "".join(until(["abc", "def"], ["e", "cd", "f"])) == "ab"
    assert "".join(until(["aab"], ["ab"])) == "a"
    assert "".join(until(["a", "a", "b"], ["ab"])) == "a"
    with pytest.raises(CourseError, match="stops should hold strings of at least one character"):
        until(["a"], ["x", ""])


def test_text_comes_before_the_stop_string_is_ruled_out():
    pieces = iter(["abc E", "very"])
    found = until(pieces, ["END"])
    assert next(found) == "abc "
    assert next(found) == "Every"
