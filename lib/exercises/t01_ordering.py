"""Exercise 01: put the steps in order, on the toy and its text *the dog saw the bird*."""

import math

import numpy as np

from lib import reference
from lib.exercises.judging import Task
from lib.exercises.ordering import Ordering, Step
from lib.lab import toy

FORM = 'letters in order, in one string, such as "A B C"'
TEXT = "the dog saw the bird"
X = np.float64(toy.embed(TEXT))  # (n, d) = (5, 16); the current token is *bird*, the last
W = toy.WEIGHTS


def features(row):
    """Tell what a row of named columns holds, beginning with a verb: (d,) -> str."""
    held = [f"{name} {number:.2f}" for name, number in zip(toy.COLUMNS, row, strict=True)
            if abs(number) >= 0.005]  # fmt: skip
    return f"holds {', '.join(held)}".replace("-", "−")


def next_word(row):
    """Tell which word the vector of the last token names, beginning with a verb: (d,) -> str."""
    return f"names “{toy.WORDS[int((row @ toy.W_HEAD).argmax())]}” as the next word"


def norm(X):
    """Apply the toy's LayerNorm: (…, d) -> (…, d)."""
    return reference.layer_norm(X, W.gain_1, W.bias_1)


def attends(X):
    """Take the attention step for the last token, without its residual: (n, d) -> (d,)."""
    return reference.attend(X[-1] @ W.W_Q, X @ W.W_K, X @ W.W_V) @ W.W_O


# fmt: off
ONE_QUERY = Ordering(
    given={"q": X[-1] @ W.W_Q, "K": X @ W.W_K, "V": X @ W.W_V},
    words={
        "dots": "the dot products",
        "scores": "the scores",
        "powers": "the exponentials",
        "total": "the sum of the exponentials",
        "alpha": "the weights α",
        "out": "the output",
    },
    goals=("out",),
    steps=(
        Step("Take the dot product of the query with every key.", ("q", "K"), "dots",
             lambda q, K: K @ q),
        Step("Divide the dot products by √d.", ("dots",), "scores",
             lambda dots: dots / math.sqrt(toy.d)),
        Step("Subtract the largest score from all scores, and take e to the power of each.",
             ("scores",), "powers", lambda s: np.exp(s - s.max())),
        Step("Add up the exponentials.", ("powers",), "total", lambda p: p.sum()),
        Step("Divide each exponential by their sum.", ("powers", "total"), "alpha",
             lambda p, total: p / total),
        Step("Add up the values, each multiplied by its weight.", ("alpha", "V"), "out",
             lambda alpha, V: alpha @ V),
        Step("Add up the keys, each multiplied by its weight.", ("alpha", "K"), "out",
             lambda alpha, K: alpha @ K,
             decoy="Keys only serve to be found by. What is passed on are the values."),
        Step("Divide the dot products by d.", ("dots",), "scores", lambda dots: dots / toy.d,
             decoy="The dot product of two random vectors of width d has size √d, not d."),
    ),
    seed=11,
    read=features,
)

# The seed of the course: from the token vectors that enter a layer to the vector that leaves it.
ONE_LAYER = Ordering(
    given={"X": X},
    words={
        "q": "the query of the current token",
        "K": "the keys",
        "V": "the values",
        "alpha": "the weights α",
        "mixed": "the weighted mean of the values",
        "M": "the vector that leaves the attention step",
        "hidden": "the hidden vector of the FFN",
        "out": "the vector that leaves the layer",
    },
    goals=("out",),
    steps=(
        Step("Multiply the current token's vector by W_Q.", ("X",), "q", lambda X: X[-1] @ W.W_Q),
        Step("Multiply the vectors of all tokens seen so far by W_K.", ("X",), "K",
             lambda X: X @ W.W_K),
        Step("Multiply the vectors of all tokens seen so far by W_V.", ("X",), "V",
             lambda X: X @ W.W_V),
        Step("Compare the query with every key: dot products, divided by √d, then the softmax.",
             ("q", "K"), "alpha", reference.attention_weights),
        Step("Take the mean of the values, weighted by α.", ("alpha", "V"), "mixed",
             lambda alpha, V: alpha @ V),
        Step("Multiply the weighted mean by W_O, and add the vector that entered the layer.",
             ("mixed", "X"), "M", lambda mixed, X: X[-1] + mixed @ W.W_O),
        Step("Multiply the vector that left the attention step by W_1, add b_1, and apply the "
             "activation.", ("M",), "hidden", lambda M: reference.relu(M @ W.W_1 + W.b_1)),
        Step("Multiply the hidden vector by W_2, add b_2, and add the vector that left the "
             "attention step.", ("hidden", "M"), "out",
             lambda hidden, M: M + hidden @ W.W_2 + W.b_2),
        Step("Multiply the vector that entered the layer by W_1, add b_1, and apply the "
             "activation.", ("X",), "hidden", lambda X: reference.relu(X[-1] @ W.W_1 + W.b_1),
             decoy="An FFN that reads what entered the layer never sees the left context."),
        Step("Add the hidden vectors of all positions to that of the current token.",
             ("hidden", "X"), "hidden",
             lambda hidden, X: hidden + reference.relu(X @ W.W_1 + W.b_1).sum(axis=0),
             decoy="The FFN works on each position separately: only attention mixes positions."),
    ),
    seed=6,
    read=next_word,
)

PRE_NORM = Ordering(
    given={"X": X},
    words={
        "N_1": "the normed vectors that enter attention",
        "A": "what attention adds",
        "M": "the sum that leaves the attention step",
        "N_2": "the normed sum",
        "hidden": "the hidden vector of the FFN",
        "F": "what the FFN adds",
        "Y": "the vector that leaves the layer",
    },
    goals=("Y",),
    steps=(
        Step("Normalise the vectors that enter the layer.", ("X",), "N_1", norm),
        Step("Let the current token attend, with query, keys and values made of the normed "
             "vectors, and multiply by W_O.", ("N_1",), "A", attends),
        Step("Add what attention has made to the current token's vector as it entered the layer.",
             ("A", "X"), "M", lambda A, X: X[-1] + A),
        Step("Normalise the sum that leaves the attention step.", ("M",), "N_2", norm),
        Step("Multiply the normed sum by W_1, add b_1, and apply the activation.", ("N_2",),
             "hidden", lambda N: reference.relu(N @ W.W_1 + W.b_1)),
        Step("Multiply the hidden vector by W_2 and add b_2.", ("hidden",), "F",
             lambda hidden: hidden @ W.W_2 + W.b_2),
        Step("Add what the FFN has made to the sum that left the attention step.", ("M", "F"),
             "Y", lambda M, F: M + F),
        Step("Let the current token attend, with query, keys and values made of the vectors that "
             "enter the layer, and multiply by W_O.", ("X",), "A", attends,
             decoy="In a pre-norm layer each step reads normed vectors, whatever size the vectors "
                   "on the residual path have."),
        Step("Add what attention has made to the current token's normed vector.", ("A", "N_1"),
             "M", lambda A, N: N[-1] + A,
             decoy="The residual path goes around the norm: a step adds to the vector as it "
                   "entered."),
        Step("Multiply the sum that leaves the attention step by W_1, add b_1, and apply the "
             "activation.", ("M",), "hidden", lambda M: reference.relu(M @ W.W_1 + W.b_1),
             decoy="In a pre-norm layer the FFN too reads a normed vector."),
        Step("Add what the FFN has made to the normed sum.", ("N_2", "F"), "Y",
             lambda N, F: N + F,
             decoy="The residual path goes around the norm: a step adds to the vector as it "
                   "entered."),
    ),
    seed=2,
    read=next_word,
)

# The toy in two layers, as in chapter 4: the first only attends, the second only decides.
FIRST, SECOND = toy.WITHOUT_FFN, toy.WITHOUT_ATTENTION

TO_THE_NEXT_TOKEN = Ordering(
    given={"text": np.array(TEXT.split())},
    words={
        "ids": "the ids of the tokens",
        "X": "the vectors that enter the first layer",
        "X_1": "the output of layer 1",
        "X_2": "the output of layer 2",
        "last": "the normed vector of the last token",
        "logits": "the logits",
        "p": "the probabilities of the next token",
        "token": "the id of the next token",
    },
    goals=("token",),
    steps=(
        Step("Split the text into tokens and look up the id of each.", ("text",), "ids",
             lambda text: np.array([toy.WORDS.index(word) for word in text])),
        Step("Look up the vector of each id in the embedding.", ("ids",), "X",
             lambda ids: np.float64(toy.EMBEDDING[ids])),
        Step("Run layer 1.", ("X",), "X_1", lambda X: reference.layer(X, FIRST)),
        Step("Run layer 2.", ("X_1",), "X_2", lambda X: reference.layer(X, SECOND)),
        Step("Take the last token's row of the output of layer 2, and apply the final norm.",
             ("X_2",), "last", lambda X: norm(X[-1])),
        Step("Multiply by the matrix of the head: one number for each word.", ("last",),
             "logits", lambda last: last @ toy.W_HEAD),
        Step("Apply the softmax to the logits.", ("logits",), "p", reference.softmax),
        Step("Take the most probable word.", ("p",), "token", lambda p: np.array(p.argmax())),
        Step("Take the mean of the outputs of all layers, last row, and apply the final norm.",
             ("X_1", "X_2"), "last",
             lambda X_1, X_2: norm((X_1[-1] + X_2[-1]) / 2),
             decoy="The output of the stack is that of its last layer alone."),
        Step("Take the first token's row of the output of layer 2, and apply the final norm.",
             ("X_2",), "last", lambda X: norm(X[0]),
             decoy="The first row has read its own token alone; the word that comes next follows "
                   "the last one."),
    ),
    seed=8,
    read=lambda token: f"is that of “{toy.WORDS[int(token)]}”",
)

# One more token, with the keys and values of the five before it kept.
DECODING_STEP = Ordering(
    given={
        "x": X[-1],
        "K_old": X[:-1] @ W.W_K,
        "V_old": X[:-1] @ W.W_V,
    },
    words={
        "q": "the query of the new token",
        "k": "the key of the new token",
        "v": "the value of the new token",
        "K": "the cache of keys with the new one in it",
        "V": "the cache of values with the new one in it",
        "alpha": "the weights α",
        "out": "the output of attention",
    },
    goals=("out", "K", "V"),
    steps=(
        Step("Multiply the new token's vector by W_Q.", ("x",), "q", lambda x: x @ W.W_Q),
        Step("Multiply the new token's vector by W_K.", ("x",), "k", lambda x: x @ W.W_K),
        Step("Multiply the new token's vector by W_V.", ("x",), "v", lambda x: x @ W.W_V),
        Step("Append the new key to the cache of keys.", ("K_old", "k"), "K",
             lambda K, k: np.vstack([K, k])),
        Step("Append the new value to the cache of values.", ("V_old", "v"), "V",
             lambda V, v: np.vstack([V, v])),
        Step("Compare the query with every key in the cache, the new one included, and apply the "
             "softmax.", ("q", "K"), "alpha", reference.attention_weights),
        Step("Take the mean of the values in the cache, the new one included, weighted by α.",
             ("alpha", "V"), "out", lambda alpha, V: alpha @ V),
        Step("Put the new key in the place of the last one in the cache.", ("K_old", "k"), "K",
             lambda K, k: np.vstack([K[:-1], k]),
             decoy="The key of the token before is lost, and with it a part of the left context."),
        Step("Take the new token's value as the output.", ("v",), "out", lambda v: v,
             decoy="The output would hold nothing of the left context."),
    ),
    seed=5,
    read=features,
)
# fmt: on

TASKS = [
    Task("01.one_query", "Attention for one query", FORM, 5, 1, ONE_QUERY.judge),
    Task("01.one_layer", "The steps of one layer", FORM, 8, 2, ONE_LAYER.judge),
    Task("01.pre_norm", "The steps of a pre-norm layer", FORM, 6, 2, PRE_NORM.judge),
    Task("01.next_token", "Through the stack to the next token", FORM, 6, 1,
         TO_THE_NEXT_TOKEN.judge),
    Task("01.decoding_step", "One decoding step with a cache", FORM, 8, 2, DECODING_STEP.judge),
]  # fmt: skip
