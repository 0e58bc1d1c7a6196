"""Guesses change how long a text takes, and no token of it."""

import numpy as np
import pytest
from tiny_models import BLOCKS

from lib.engine.fast import load_fast
from lib.engine.guess import COST_OF_A_GUESS, Guesser, PromptLookup, Widths, gain, kept
from lib.engine.sampling import generate, probabilities
from lib.errors import CourseError

LONG = {"llama.context_length": 300}
numba = pytest.importorskip("numba")


@pytest.fixture(scope="module")
def quick(compiled, tmp_path_factory):
    from tiny_models import write_tiny

    path = tmp_path_factory.mktemp("guess") / "tiny.gguf"
    return load_fast(write_tiny(path, sizes=BLOCKS, kind="Q4_1", metadata=LONG), threads=2)


def looked_up(text, width):
    lookup = PromptLookup()
    lookup.read(text)
    return lookup.match, lookup.guess(width)


@pytest.mark.parametrize(
    ("text", "match", "guess"),
    [
        ([], 0, []),
        ([7], 0, []),
        ([1, 2, 3], 0, []),
        ([1, 2, 3, 1], 1, [2, 3, 1]),
        ([1, 2, 3, 1, 2, 4, 1, 2], 2, [4, 1, 2]),  # the latest of two places
        ([7, 1, 2, 3, 4, 5, 9, 6, 1, 2, 3, 4, 5, 8, 7, 1, 2, 3, 4, 5], 5, [8, 7, 1]),  # 5 at most
        ([1, 2, 3, 9, 2, 3, 8, 1, 2, 3], 3, [9, 2, 3]),  # the longest ending before the latest
        ([4, 4], 1, [4, 4, 4]),  # runs into the end, and goes on
        ([1, 2, 1, 2], 2, [1, 2, 1]),
    ],
)
def test_lookup(text, match, guess):
    assert looked_up(text, 3) == (match, guess)


def test_lookup_equals_a_search_of_the_whole_text():
    rng = np.random.default_rng(4)
    for _ in range(100):
        text = rng.integers(0, 4, rng.integers(1, 30)).tolist()
        expected = (0, [])
        for length in (5, 4, 3, 2, 1):
            ends = [k for k in range(length, len(text)) if text[k - length : k] == text[-length:]]
            if ends and length < len(text):
                period = text[ends[-1] :]
                expected = length, (period * 5)[:5]
                break
        assert looked_up(text, 5) == expected


@pytest.mark.parametrize("prompts", [5, pytest.param(50, marks=pytest.mark.slow)])
def test_greedy_text_with_guesses_is_the_text_without(quick, prompts):
    """Each width from 1 to 16, and the width chosen."""
    quick.tokenizer.stop, rng, right = frozenset(), np.random.default_rng(0), 0
    for _ in range(prompts):
        prompt = rng.integers(3, 40, rng.integers(1, 20)).tolist()
        plain = list(generate(quick, prompt, 20))
        for width in [*range(1, 17), "auto"]:
            guesser = Guesser(width)
            assert list(generate(quick, prompt, 20, guess=guesser)) == plain
            right += guesser.kept - guesser.passes
    assert right > 10 * prompts  # guesses were made, and many were right


def test_a_sampled_text_with_guesses_is_the_text_of_the_same_seed(quick):
    prompt = [9, 8, 7, 9, 8]
    how = {"temperature": 0.3, "top_p": 0.9, "min_p": 0.02, "penalty": 1.1}
    for seed in range(8):
        plain = list(generate(quick, prompt, 40, seed=seed, **how))
        for guess in (1, 5, 16, "auto"):
            assert list(generate(quick, prompt, 40, seed=seed, guess=guess, **how)) == plain


class Oracle(Guesser):
    """Knows the text; each pass, the guess at place `wrong` is another token."""

    def __init__(self, text, wrong, width):
        super().__init__(width)
        self.known, self.wrong, self.width = text, wrong, width

    def guess(self, text, most):
        width = min(self.width, most)
        guesses = self.known[len(text) : len(text) + width]
        if self.wrong < len(guesses):
            guesses[self.wrong] = (guesses[self.wrong] + 1) % 200
        return guesses


@pytest.mark.parametrize("wrong", range(7))
def test_a_guess_may_be_wrong_at_every_place(quick, wrong):
    """Truncation: what the cache holds afterwards is what it holds without guesses."""
    quick.tokenizer.stop = frozenset()
    prompt, caches = [30, 31, 5, 30], [quick.new_cache(), quick.new_cache()]
    plain = list(generate(quick, prompt, 25, cache=caches[0]))
    oracle = Oracle(prompt + plain, wrong, width=6)
    assert list(generate(quick, prompt, 25, cache=caches[1], guess=oracle)) == plain
    assert oracle.passes == -(-25 // (min(wrong, 6) + 1))
    assert caches[0].n == caches[1].n == 28
    for layer in range(2):
        for one, other in zip(caches[0].layer(layer), caches[1].layer(layer), strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_guess_that_ends_the_text_ends_it(quick):
    quick.tokenizer.stop = frozenset()
    prompt, cache = [30, 31, 5, 30], quick.new_cache()
    plain = list(generate(quick, prompt, 25))
    quick.tokenizer.stop = frozenset({plain[7]})
    end = plain.index(plain[7])
    oracle = Oracle(prompt + plain, 99, width=12)
    assert list(generate(quick, prompt, 25, cache=cache, guess=oracle)) == plain[:end]
    assert cache.n == len(prompt) + end


def test_guesses_stay_within_the_context_and_slide_with_it(tiny):
    model = load_fast(tiny(sizes=BLOCKS, kind="Q4_0"), threads=1)  # a context of 12
    model.tokenizer.stop = frozenset()
    plain = list(generate(model, [7, 8, 7], 40, when_full="slide"))
    for guess in (1, 4, 15, "auto"):
        assert list(generate(model, [7, 8, 7], 40, when_full="slide", guess=guess)) == plain
        assert list(generate(model, [7, 8, 7], 9, guess=guess)) == plain[:9]


def test_a_text_left_early_leaves_a_cache_to_go_on_from(quick):
    quick.tokenizer.stop = frozenset()
    prompt, cache = [30, 31, 5, 30], quick.new_cache()
    plain = list(generate(quick, prompt, 30))
    left = generate(quick, prompt, 30, cache=cache, guess=Oracle(prompt + plain, 4, width=9))
    said = [next(left) for _ in range(7)]
    read = [*prompt, *said][: cache.n]
    cache.truncate(len(read) - 1)
    assert list(generate(quick, prompt + said, 23, cache=cache)) == plain[7:]


def draw_pairs(keep, n=6000):
    """Two tokens of a vocabulary of three, with guesses that are often wrong: counts of pairs."""
    first, rng = np.log([0.2, 0.5, 0.3]), np.random.default_rng(7)
    second = np.log([[0.6, 0.3, 0.1], [0.1, 0.2, 0.7], [1 / 3, 1 / 3, 1 / 3]])
    counts = np.zeros((3, 3))
    for _ in range(n):
        guess = int(rng.choice(3, p=[0.8, 0.1, 0.1]))
        said = keep([first, second[guess]], [guess], rng)
        if len(said) == 1:
            said.append(int(rng.choice(3, p=np.exp(second[said[0]]))))
        counts[said[0], said[1]] += 1
    return counts / n, np.exp(first)[:, None] * np.exp(second)


def off(counts, expected, n=6000):  # the largest deviation, in σ
    return float(np.abs((counts - expected) / np.sqrt(expected * (1 - expected) / n)).max())


def test_kept_tokens_follow_the_model_and_a_biased_rule_does_not():
    def ours(rows, guesses, rng):
        def draw(row):
            return int(rng.choice(3, p=probabilities(row)))

        return kept(np.array(rows), guesses, draw, frozenset())

    def biased(rows, guesses, rng):  # a wrong guess gets a second chance: drawn from all of p
        p = probabilities(rows[0])
        if rng.random() < p[guesses[0]]:
            return [guesses[0], int(rng.choice(3, p=probabilities(rows[1])))]
        return [int(rng.choice(3, p=p))]

    assert off(*draw_pairs(ours)) < 4
    assert off(*draw_pairs(biased)) > 8


def test_the_width_follows_what_was_right_lately():
    widths = Widths()
    assert widths.choose(0, 15) == 0  # nothing was found
    for _ in range(30):
        widths.learn(2, [5, 6, 7], [5, 6, 7])
    assert widths.choose(2, 15) == 15
    assert widths.choose(2, 4) == 4
    for _ in range(40):
        widths.learn(2, [5, 6, 7], [9])
    assert widths.shares[2] < 0.02
    assert widths.choose(2, 15) == 0  # and it goes on learning from what it would have guessed
    for _ in range(20):
        widths.learn(2, [5], [5])
    assert widths.choose(2, 15) > 2


def test_gain_is_the_theorem_of_leviathan():
    for share in (0.0, 0.3, 0.9):
        for width in range(5):
            tokens = (1 - share ** (width + 1)) / (1 - share)
            assert gain(share, width, 0.1) == pytest.approx(tokens / (1 + 0.1 * width))
    assert gain(1.0, 3, 0.0) == 4
    assert gain(COST_OF_A_GUESS - 0.01, 1) < 1 < gain(COST_OF_A_GUESS + 0.01, 1)


@pytest.mark.parametrize("width", [0, -1, 2.5, True, "wide"])
def test_a_width_is_checked_at_the_call(quick, width):
    with pytest.raises(CourseError, match='guess should be "auto" or a whole number of at least 1'):
        generate(quick, [1], 5, guess=width)
