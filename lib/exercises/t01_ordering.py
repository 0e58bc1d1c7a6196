"""Exercise 01: put the steps in order."""

import math

import numpy as np

from lib import reference
from lib.exercises.judging import Task
from lib.exercises.ordering import Ordering, Step
from lib.lab import example
from lib.layer import random_layer
from lib.stack import random_stack

FORM = 'letters in order, in one string, such as "A B C"'
D = 4
W = random_layer(D, 8, seed=1)

# fmt: off
ONE_QUERY = Ordering(
    given={"q": (example.X @ example.W_Q)[-1], "K": example.X, "V": example.X @ example.W_V},
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
             lambda dots: dots / math.sqrt(D)),
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
        Step("Divide the dot products by d.", ("dots",), "scores", lambda dots: dots / D,
             decoy="The dot product of two random vectors of width d has size √d, not d."),
    ),
    seed=11,
)

# The seed of the course: from the token vectors that enter a layer to the vector that leaves it.
ONE_LAYER = Ordering(
    given={"X": example.X},
    words={
        "q": "the query of the current token",
        "K": "the keys",
        "V": "the values",
        "alpha": "the weights α",
        "mixed": "the weighted mean of the values",
        "H": "the vector that leaves the attention step",
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
             ("mixed", "X"), "H", lambda mixed, X: X[-1] + mixed @ W.W_O),
        Step("Multiply the vector that left the attention step by W_1, add b_1, and apply the "
             "activation.", ("H",), "hidden", lambda H: reference.gelu(H @ W.W_1 + W.b_1)),
        Step("Multiply the hidden vector by W_2, add b_2, and add the vector that left the "
             "attention step.", ("hidden", "H"), "out",
             lambda hidden, H: H + hidden @ W.W_2 + W.b_2),
        Step("Multiply the vector that entered the layer by W_1, add b_1, and apply the "
             "activation.", ("X",), "hidden", lambda X: reference.gelu(X[-1] @ W.W_1 + W.b_1),
             decoy="An FFN that reads what entered the layer never sees the left context."),
        Step("Add the hidden vectors of all positions to that of the current token.",
             ("hidden", "X"), "hidden",
             lambda hidden, X: hidden + reference.gelu(X @ W.W_1 + W.b_1).sum(axis=0),
             decoy="The FFN works on each position by itself: only attention mixes positions."),
    ),
    seed=6,
)

# A vocabulary of six words, a stack of two layers, a tied head: the smallest language model.
VOCABULARY = ["the", "dog", "saw", "bird", "fly", "."]
EMBEDDING = np.random.default_rng(3).standard_normal((len(VOCABULARY), D))
FIRST, SECOND = random_stack(2, D, 8, seed=2)
GAIN, BIAS = np.ones(D), np.zeros(D)

TO_THE_NEXT_TOKEN = Ordering(
    given={"text": np.array(["the", "dog", "saw", "the", "bird"])},
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
             lambda text: np.array([VOCABULARY.index(word) for word in text])),
        Step("Look up the vector of each id in the embedding.", ("ids",), "X",
             lambda ids: EMBEDDING[ids]),
        Step("Run layer 1.", ("X",), "X_1", lambda X: reference.layer(X, FIRST)),
        Step("Run layer 2.", ("X_1",), "X_2", lambda X: reference.layer(X, SECOND)),
        Step("Take the last token's row of the output of layer 2, and apply the final norm.",
             ("X_2",), "last", lambda X: reference.layer_norm(X[-1], GAIN, BIAS)),
        Step("Multiply by the embedding, transposed: one number for each word.", ("last",),
             "logits", lambda last: last @ EMBEDDING.T),
        Step("Apply the softmax to the logits.", ("logits",), "p", reference.softmax),
        Step("Take the most probable word.", ("p",), "token", lambda p: np.array(p.argmax())),
        Step("Take the mean of the outputs of all layers, last row, and apply the final norm.",
             ("X_1", "X_2"), "last",
             lambda X_1, X_2: reference.layer_norm((X_1[-1] + X_2[-1]) / 2, GAIN, BIAS),
             decoy="The output of the stack is that of its last layer alone."),
        Step("Take the first token's row of the output of layer 2, and apply the final norm.",
             ("X_2",), "last", lambda X: reference.layer_norm(X[0], GAIN, BIAS),
             decoy="The first row has only its own token in its left context; the word that "
                   "comes next follows the last one."),
    ),
    seed=8,
)

# One more token, with the keys and values of the five before it kept.
DECODING_STEP = Ordering(
    given={
        "x": example.X[-1],
        "K_old": example.X[:-1] @ W.W_K,
        "V_old": example.X[:-1] @ W.W_V,
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
)
# fmt: on

TASKS = [
    Task("01.one_query", "Attention for one query", FORM, 5, 1, ONE_QUERY.judge),
    Task("01.one_layer", "The steps of one layer", FORM, 8, 2, ONE_LAYER.judge),
    Task("01.next_token", "Through the stack to the next token", FORM, 6, 1,
         TO_THE_NEXT_TOKEN.judge),
    Task("01.decoding_step", "One decoding step with a cache", FORM, 8, 2, DECODING_STEP.judge),
]  # fmt: skip
