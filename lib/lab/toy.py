"""The toy: a language of seven words, and a model of one layer with weights that one can read.

    the dog saw the bird fly .
    the bird saw the dog run .

A token's vector has 16 columns. Five say what the word is. Three are empty until attention fills
them. Seven stand for a word each: when a token enters, they name the token itself, and when it
leaves, the word that comes next. The last holds minus the sum of the others, so that every row has
mean zero and a norm changes nothing but its length.

Attention: a noun looks for an action, an article for an animal. FFN: each of eight hidden units
finds one situation, and votes for the words that may follow it.
"""

from dataclasses import replace

import numpy as np

from lib.attention import softmax
from lib.errors import CourseError
from lib.layer import LayerWeights, layer
from lib.stack import stack

WORDS = ["the", "dog", "saw", "bird", "fly", "run", "."]
MEANINGS = {
    "the": ["article"],
    "dog": ["animal", "ground"],
    "saw": ["action"],
    "bird": ["animal", "air"],
    "fly": ["action", "air"],
    "run": ["action", "ground"],
    ".": [],
}
KINDS = ["article", "animal", "action", "air", "ground"]
SEEN = ["seen action", "seen air", "seen ground"]
COLUMNS = [*KINDS, *SEEN, *WORDS, "balance"]
d = len(COLUMNS)


def matrix(rows, columns, entries):
    """Return a float32 matrix of zeros but for ``entries``: {(name of row, of column): number}."""
    M = np.zeros((len(rows), len(columns)), np.float32)
    for (row, column), number in entries.items():
        M[rows.index(row), columns.index(column)] = number
    return M


def balanced(M):
    """Return the matrix with minus the sum of each row in its last column: (m, d) -> (m, d)."""
    M = M.copy()
    M[:, -1] = -M[:, :-1].sum(axis=1)
    return M


# --- The embedding: each word by its meaning and its name ---

EMBEDDING = balanced(
    matrix(WORDS, COLUMNS, {(word, name): 1 for word in WORDS for name in [*MEANINGS[word], word]})
)  # (7, d)

# --- Attention ---

# What a token looks for. The score of a key that fits is 16 · 1 / √16 = 4.
W_Q = matrix(COLUMNS, COLUMNS, {("animal", "action"): 16, ("article", "animal"): 16})
# What a token can be found by.
W_K = matrix(COLUMNS, COLUMNS, {("animal", "animal"): 1, ("action", "action"): 1})
# What a token passes on when it is found.
W_V = matrix(COLUMNS, COLUMNS, {(name[5:], name): 1 for name in SEEN})
# What is kept of it.
W_O = balanced(matrix(COLUMNS, COLUMNS, {(name, name): 1 for name in SEEN}))

# --- The FFN: what each hidden unit looks for, its bias, and the words that it votes for ---

UNITS = {
    "action, no place": ({"action": 1, "air": -1, "ground": -1}, 0, {"the": 4}),
    "place, no animal": ({"air": 1, "ground": 1, "animal": -1}, 0, {".": 5}),
    "article": ({"article": 1}, 0, {"dog": 2, "bird": 2}),
    "article, dog seen": ({"article": 1, "seen ground": 2}, -1.5, {"dog": -3, "bird": 2}),
    "article, bird seen": ({"article": 1, "seen air": 2}, -1.5, {"dog": 2, "bird": -3}),
    "animal, no action": ({"animal": 1, "seen action": -2}, 0, {"saw": 5}),
    "bird, action seen": ({"animal": 1, "air": 1, "seen action": 1}, -2, {"fly": 12}),
    "dog, action seen": ({"animal": 1, "ground": 1, "seen action": 1}, -2, {"run": 12}),
}
UNIT_NAMES = list(UNITS)


def _of_units(part):
    """Return the entries of W_1 or W_2: {(unit, column): number}."""
    return {
        (unit, name): number for unit, all_ in UNITS.items() for name, number in all_[part].items()
    }


W_1 = matrix(UNIT_NAMES, COLUMNS, _of_units(0)).T  # (d, d_ff): a column for each unit
b_1 = np.array([bias for _, bias, _ in UNITS.values()], np.float32)  # (d_ff,)
W_2 = balanced(matrix(UNIT_NAMES, COLUMNS, _of_units(2)))  # (d_ff, d): a row for each unit
b_2 = np.zeros(d, np.float32)

# --- The layer and the head ---

# A word of three features has variance 12/16. This gain undoes what the norm does to it.
GAIN = np.full(d, np.sqrt(12 / 16), np.float32)
NO_BIAS = np.zeros(d, np.float32)
WEIGHTS = LayerWeights(
    W_Q, W_K, W_V, W_O, W_1, b_1, W_2, b_2, GAIN, NO_BIAS, GAIN, NO_BIAS, activation="relu"
)
WITHOUT_ATTENTION = replace(WEIGHTS, W_O=np.zeros((d, d)))
WITHOUT_FFN = replace(WEIGHTS, W_2=np.zeros_like(W_2))

W_HEAD = matrix(COLUMNS, WORDS, {(word, word): 1 for word in WORDS})  # (d, 7): reads the words

# --- From a text to the next word ---


def ids(text):
    """Return the number of each word of a text.

    Raises
    ------
    CourseError
        The text is empty, or a word is none of the seven.
    """
    words = text.split()
    for word in words:
        if word not in WORDS:
            raise CourseError(
                f"text should be made of the words {' '.join(WORDS)}; it has {word!r}"
            )
    if not words:
        raise CourseError("text should have at least one word; it is empty")
    return [WORDS.index(word) for word in words]


def embed(text):
    """Return the vectors that enter the first layer, one for each word: float32 (n, d)."""
    return EMBEDDING[ids(text)]


def next_word(text, layers=(WEIGHTS,), step=layer):
    """Return the probability of each of the seven words to come next: float32 (7,).

    ``layers`` are the weights of the stack and ``step`` is the form of its layers, as in
    `lib.stack.stack`.
    """
    Y = stack(embed(text), layers, step)  # (n, d)
    return softmax(Y[-1] @ W_HEAD)  # the last row says what comes next


def write(text, layers=(WEIGHTS,), step=layer, limit=10):
    """Continue a text with the likeliest word each time, up to a full stop or ``limit`` words.

    Of equally likely words the first of the vocabulary is taken.
    """
    ids(text)  # says what is wrong with it
    words = text.split()
    while words[-1] != "." and len(words) < limit:
        words.append(WORDS[int(next_word(" ".join(words), layers, step).argmax())])
    return " ".join(words)


# --- The running example ---

TEXT = "the dog saw the bird fly"
TOKENS = TEXT.split()
X = embed(TEXT)  # (n, d) = (6, 16)
