"""The toy writes its two sentences with both steps of its layer, and with neither alone."""

import numpy as np
import pytest

from lib import reference
from lib.errors import CourseError
from lib.lab import toy
from lib.layer import layer, residual_layer

SENTENCES = ["the dog saw the bird fly .", "the bird saw the dog run ."]
FORMS = [layer, residual_layer]


@pytest.mark.parametrize("step", FORMS)
@pytest.mark.parametrize("sentence", SENTENCES)
def test_both_openings_are_continued_to_the_full_stop(step, sentence):
    opening = " ".join(sentence.split()[:2])
    assert toy.write(opening, step=step) == sentence


@pytest.mark.parametrize("step", FORMS)
def test_without_attention_the_toy_says_saw_again(step):
    for opening in ("the dog", "the bird"):
        text = toy.write(opening, [toy.WITHOUT_ATTENTION], step, limit=8)
        assert text == f"{opening} saw the dog saw the dog"


@pytest.mark.parametrize("step", FORMS)
def test_without_the_ffn_the_toy_repeats_the_word(step):
    for opening in ("the dog", "the bird"):
        word = opening.split()[1]
        text = toy.write(opening, [toy.WITHOUT_FFN], step, limit=8)
        assert text == f"{opening} {' '.join([word] * 6)}"


@pytest.mark.parametrize("step", FORMS)
@pytest.mark.parametrize("sentence", SENTENCES)
def test_every_next_word_is_clear(step, sentence):
    """A rounding, or a processor of another kind, must not change a word."""
    words = sentence.split()
    for k in range(2, len(words)):
        p = toy.next_word(" ".join(words[:k]), step=step)
        assert toy.WORDS[p.argmax()] == words[k]
        assert p.max() > 0.85


def test_an_article_with_nothing_seen_leaves_two_words_open():
    p = toy.next_word("the")
    dog, bird = (p[toy.WORDS.index(word)] for word in ("dog", "bird"))
    assert dog == bird > 0.4


def test_the_definition_writes_the_same():
    """The float64 definition gives the probabilities of the float32 functions."""
    for sentence in SENTENCES:
        X = toy.embed(sentence)
        Y = reference.stack(X, [toy.WEIGHTS])
        assert np.allclose(
            reference.softmax(Y[-1] @ toy.W_HEAD), toy.next_word(sentence), atol=1e-6
        )


def test_every_row_that_a_norm_meets_is_balanced():
    for sentence in SENTENCES:
        X = toy.embed(sentence)
        assert not X.sum(axis=1).any()
        assert np.allclose(layer(X, toy.WEIGHTS).sum(axis=1), 0, atol=1e-5)


def test_the_norm_leaves_words_of_three_features_as_they_are():
    X = toy.embed("dog bird fly run")
    normed = reference.layer_norm(X, toy.GAIN, toy.NO_BIAS)
    assert np.allclose(normed, X, atol=1e-4)


@pytest.mark.parametrize(
    ("text", "words"), [("", "at least one word"), ("the cat", "it has 'cat'")]
)
def test_a_text_of_other_words_is_refused(text, words):
    for function in (toy.ids, toy.embed, toy.next_word, toy.write):
        with pytest.raises(CourseError, match=words):
            function(text)
