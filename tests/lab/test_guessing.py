"""The instruments and figures of chapter 9."""

import numpy as np

from lib.engine.guess import gain
from lib.lab import guessing
from lib.lab.figures import guess as pictures


def off(rule, p, q, n=20_000):  # the largest deviation from p, in σ
    rng = np.random.default_rng(3)
    guesses = rng.choice(len(p), p=q, size=n)
    drawn = np.bincount([rule(p, q, int(x), rng) for x in guesses], minlength=len(p)) / n
    return float(np.abs((drawn - p) / np.sqrt(np.maximum(p * (1 - p), 1e-9) / n)).max())


def test_accepted_tokens_follow_the_model_and_a_biased_rule_does_not():
    """Also where the guesser never says a word, or says one that the model never does."""
    p, q = np.array([0.5, 0.3, 0.2, 0.0]), np.array([0.0, 0.6, 0.1, 0.3])
    assert off(guessing.accept, p, q) < 4
    assert off(guessing.second_chance, p, q) > 10
    assert off(guessing.accept, q, p) < 4
    assert off(guessing.accept, p, p) < 4


def test_a_watched_guesser_keeps_each_pass():
    watched, text = guessing.Watched(2), [1, 2, 3, 1]
    assert watched.guess(text, 5) == [2, 3]
    watched.learn([2, 9])
    assert watched.seen == [guessing.Pass([2, 3], [2, 9])]
    assert (watched.passes, watched.kept) == (1, 2)


def test_passes_are_drawn_word_by_word_and_told():
    figure = pictures.passes([(["a", "b"], "c", ["d"]), ([], "$e$", [])], title="t")
    words = [text.get_text() for text in figure.axes[0].texts]
    assert words == ["a", "b", "c", "d", "1", "$e$", "2"]
    assert len(figure.axes[0].patches) == 5
    assert figure.in_words() == (
        "t. Pass 1: 2 right guesses (a b), then c; 1 dropped. "
        "Pass 2: 0 right guesses (none), then $e$; 0 dropped."
    )


def test_gains_mark_the_chosen_width():
    axis = pictures.gains([0.5, 0.9], 0.1, most=4, chosen=2).axes[0]
    np.testing.assert_allclose(axis.lines[0].get_ydata(), [gain(0.5, w, 0.1) for w in range(5)])
    assert axis.lines[1].get_xdata() == [2]
    assert len(axis.lines) == 4


def test_shares_are_bars_side_by_side():
    axis = pictures.shares({"p": [0.2, 0.8], "q": [0.5, 0.5]}, ["x", "y"]).axes[0]
    assert [bar.get_height() for bar in axis.patches] == [0.2, 0.8, 0.5, 0.5]
    assert [t.get_text() for t in axis.get_xticklabels()] == ["x", "y"]
