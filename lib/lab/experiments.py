"""Experiments that tell the steps of a layer apart: one layer, six tokens, small instruments.

All is in float64 and without norms, so that what should be zero is zero. Numbers that say how far
something moves are the largest difference of any coordinate.
"""

import math
from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np

from lib import reference
from lib.lab import example, hops, toy
from lib.lab.probes import movement, movements, nonlinearity
from lib.layer import random_layer
from lib.stack import random_stack

D, D_FF = 4, 16  # d_ff = 4 d, as in most models
X = np.float64(example.X)  # (n, d) = (6, 4): the dog saw the bird fly
W = random_layer(D, D_FF, seed=4)


def attention(X):
    """Take the first step of the layer, without its residual: (n, d) -> (n, d)."""
    return reference.attention_step(X, W)


def ffn(X):
    """Take the second step of the layer, without its residual: (n, d) -> (n, d)."""
    return reference.ffn_step(X, W)


def layer(X):
    """Run both steps, each added to what entered it: (n, d) -> (n, d)."""
    return reference.residual_layer(X, W)


# --- One step, seen from outside; each takes `attention` or `ffn` ---


def moved(step, j):
    """Change token j and tell how far each output moves: (n,)."""
    return movement(step, X, j)


def others_move(step):
    """Change each token in turn and tell how far an output at another position moves at most."""
    reach = movements(step, X)  # row i, column j: output i when token j changes
    return float((reach - np.diag(reach.diagonal())).max())


def own_moves(step):
    """Change each token in turn and tell how far its own output moves at least."""
    return float(movements(step, X).diagonal().min())


def earlier_move(step):
    """Change each token in turn and tell how far an output to its left moves at most."""
    return float(np.triu(movements(step, X), 1).max())


def later_move(step):
    """Change each token in turn and tell how far an output to its right moves at most."""
    return float(np.tril(movements(step, X), -1).max())


def together(step):
    """Tell what two features of the only token do together, beyond the sum of their effects."""
    a, b = X[1:2], X[5:6]  # (1, d) each
    return nonlinearity(step, a, b)


def shuffle_gap(step):
    """Shuffle the rows before the step, and after it, and tell how far the two results differ."""
    order = [4, 0, 5, 2, 1, 3]
    return _gap(step(X[order]), step(X)[order])


def context_shuffled(step):
    """Put the tokens before the last one into another order; tell how far the last output moves."""
    order = [4, 2, 0, 1, 3, 5]
    return _gap(step(X[order])[-1], step(X)[-1])


def run_alone(step):
    """Run the step on the last token's vector alone; tell how far its output is from the usual."""
    return _gap(step(X[-1:])[0], step(X)[-1])


def equal_tokens(step):
    """Tell how far apart the two “the”, tokens 0 and 3, are after the step."""
    return _gap(step(X)[0], step(X)[3])


def not_additive(step):
    """Tell how far the result for a sum of two inputs is from the sum of the two results."""
    return nonlinearity(step, X, X[::-1])


def run_twice(step):
    """Run the step twice on the same vectors and tell how far the two results differ."""
    return _gap(step(X), step(X))


WEIGHTS = {attention: ("W_Q", "W_K", "W_V", "W_O"), ffn: ("W_1", "b_1", "W_2", "b_2")}


def share_of_parameters(step):
    """Return the share of the layer's parameters that belong to the step."""
    size = {s: sum(getattr(W, name).size for name in names) for s, names in WEIGHTS.items()}
    return size[step] / sum(size.values())


def share_of_work(step):
    """Return the share of the layer's multiply-adds that the step takes, for six tokens."""
    counts = multiply_adds(X)[0]
    in_ffn = counts["FFN"] / counts.total()
    return in_ffn if step is ffn else 1 - in_ffn


def growth_of_work(step):
    """Return by which factor the step's work for a new token grows, from 100 tokens to 200."""
    parts = ["FFN"] if step is ffn else ["projections", "scores and mean"]
    once, twice = zip(*(work_for_a_token(part) for part in parts), strict=True)
    return sum(twice) / sum(once)


def mean_gap():
    """Tell how far the attention step is from the weighted mean of the values, times W_O."""
    weights = reference.causal_weights(X @ W.W_Q, X @ W.W_K)
    return _gap(weights @ (X @ W.W_V) @ W.W_O, attention(X))


def extreme_weights():
    """Return the smallest and the largest weight that the last query gives to a key."""
    weights = reference.attention_weights(X[-1] @ W.W_Q, X @ W.W_K)
    return float(weights.min()), float(weights.max())


def stages(X):
    """Run the layer and keep every intermediate: a dict, in the order in which they are made."""
    Q, K, V = X @ W.W_Q, X @ W.W_K, X @ W.W_V  # each (n, d)
    scores = np.tril(Q @ K.T / math.sqrt(D))  # (n, n); those of the future are never used
    weights = reference.causal_weights(Q, K)
    O = weights @ V  # noqa: E741
    A = O @ W.W_O
    M = X + A
    hidden = reference.gelu(M @ W.W_1 + W.b_1)  # (n, d_ff)
    F = hidden @ W.W_2 + W.b_2
    return {"X": X, "Q": Q, "K": K, "V": V, "scores": scores, "weights": weights, "O": O, "A": A,
            "M": M, "hidden": hidden, "F": F, "Y": M + F}  # fmt: skip


def intermediates(j, row):
    """Change token j and tell how far this row of each intermediate of the layer moves: a dict."""
    changed = X.copy()
    changed[j] += 1
    before, after = stages(X), stages(changed)
    return {name: _gap(after[name][row], before[name][row]) for name in before}


# --- Attention for one query, with something changed ---

Q_LAST, K, V = X[-1] @ W.W_Q, X @ W.W_K, X @ W.W_V  # (d,), (n, d), (n, d)
ORDER = [4, 0, 5, 2, 1, 3]
SHIFT = np.array([1, -2, 3, 1])


def pairs_shuffled(q, K, V):
    """Put the pairs into another order, each key with its value."""
    return q, K[ORDER], V[ORDER]


def keys_shuffled(q, K, V):
    """Put the keys into another order, and leave the values where they are."""
    return q, K[ORDER], V


def keys_shifted(q, K, V):
    """Add the same vector to every key."""
    return q, K + SHIFT, V


def values_shifted(q, K, V):
    """Add the same vector to every value."""
    return q, K, V + SHIFT


def pairs_twice(q, K, V):
    """Let every pair be there twice."""
    return q, np.vstack([K, K]), np.vstack([V, V])


def last_pair_twice(q, K, V):
    """Let the last pair be there twice."""
    return q, np.vstack([K, K[-1:]]), np.vstack([V, V[-1:]])


def query_doubled(q, K, V):
    """Multiply the query by 2."""
    return 2 * q, K, V


def query_doubled_keys_halved(q, K, V):
    """Multiply the query by 2 and every key by 1/2."""
    return 2 * q, K / 2, V


def output_moves(change):
    """Tell how far the output of the last query moves with a change of q, K and V."""
    return _gap(reference.attend(*change(Q_LAST, K, V)), reference.attend(Q_LAST, K, V))


# --- The toy without one of its steps ---

TOYS = {"attention": toy.WITHOUT_ATTENTION, "FFN": toy.WITHOUT_FFN}


def toy_says(text, without):
    """Return the probability of each word to come next, where a step of the toy adds nothing."""
    found = toy.next_word(text, [TOYS[without]])
    return {word: round(float(p), 4) for word, p in zip(toy.WORDS, found, strict=True)}


# --- Stacks; what is asked is how far the last token's vector moves after each layer ---

LAYERS = random_stack(3, D, D_FF, seed=2)


def silence(layers, without_attention=(), without_ffn=()):
    """Return the layers with a step that adds nothing in those that are named, counted from 1."""
    zeros = np.zeros_like
    layers = [replace(w, W_O=zeros(w.W_O)) if k in without_attention else w
              for k, w in enumerate(layers, 1)]  # fmt: skip
    return [replace(w, W_2=zeros(w.W_2), b_2=zeros(w.b_2)) if k in without_ffn else w
            for k, w in enumerate(layers, 1)]  # fmt: skip


def moved_at_depths(without_attention=(), without_ffn=()):
    """Change token 1 and tell how far the last token's vector moves after each layer: (L,)."""
    layers = silence(LAYERS, without_attention, without_ffn)
    return _last_moved(layers, X, 1, 1.0)


def _last_moved(layers, X, j, change):
    stacks = [partial(reference.stack, layers=layers[:depth], step=reference.residual_layer)
              for depth in range(1, len(layers) + 1)]  # fmt: skip
    return np.array([movement(stack, X, j, change)[-1] for stack in stacks])


NAMES = ["Ann", "Bob", "Cid", "Dee", "Eve", "Fay", "Gus"]
POINTS_TO = [0, 0, 1, 0, 2, 3, 4]  # the position of the person whom each one knows


def pointer_wiped(name):
    """Wipe out whom a person knows; tell how far the last vector moves after each of 3 layers."""
    n, L, j = len(NAMES), 3, NAMES.index(name)
    people = np.float64(hops.pointing(POINTS_TO, L))
    wipe = np.zeros(people.shape[1])
    wipe[n : 2 * n] = -people[j, n : 2 * n]  # the block `next`
    layers = [hops.hop_layer(n, L, depth) for depth in (1, 2, 3)]
    return _last_moved(layers, people, j, wipe)


WINDOW = 3
LONG = np.random.default_rng(9).standard_normal((8, D))  # eight tokens


def windowed(Q, K, V):
    """Attend to the query's own token and the two before it: (n, d), (n, d), (n, d) -> (n, d)."""
    n, d = K.shape
    visible = np.tri(n, dtype=bool) & ~np.tri(n, k=-WINDOW, dtype=bool)
    return reference.softmax(Q @ K.T / math.sqrt(d), visible) @ V


def windowed_layer(X, w):
    """Run a layer whose queries see their own token and the two before it: (n, d) -> (n, d)."""
    return reference.residual_layer(X, w, attend=windowed)


def moved_in_window(depth):
    """Change token 1 of eight; tell how far each output of so many windowed layers moves: (8,)."""
    stack = partial(reference.stack, layers=LAYERS[:depth], step=windowed_layer)
    return movement(stack, LONG, 1)


# --- Work ---


def multiply_adds(X, cached=0):
    """Run the layer token by token and count the multiply-adds of its products, by part.

    Parameters
    ----------
    X : ndarray, (n, d)
    cached : int
        So many tokens have been here before: their keys and values are in the cache.

    Returns
    -------
    Counter
        By part: projections, scores and mean, FFN.
    ndarray, (n − cached, d)
        The outputs of the tokens that are not cached.
    """
    counts, outputs = Counter(), []
    K, V = np.empty_like(X), np.empty_like(X)
    K[:cached], V[:cached] = X[:cached] @ W.W_K, X[:cached] @ W.W_V  # not counted

    def product(part, a, B):  # (m,), (m, k) -> (k,)
        counts[part] += B.size
        return a @ B

    for i in range(cached, len(X)):
        q, K[i], V[i] = (product("projections", X[i], M) for M in (W.W_Q, W.W_K, W.W_V))
        scores = product("scores and mean", q, K[: i + 1].T) / math.sqrt(D)
        mean = product("scores and mean", reference.softmax(scores), V[: i + 1])
        m = X[i] + product("projections", mean, W.W_O)
        hidden = reference.gelu(product("FFN", m, W.W_1) + W.b_1)
        outputs.append(m + product("FFN", hidden, W.W_2) + W.b_2)
    return counts, np.array(outputs)


def work_for_a_text(part):
    """Return the multiply-adds of a part for texts of 100 and of 200 tokens, without a cache."""
    return tuple(multiply_adds(_text(n))[0][part] for n in (100, 200))


def work_for_a_token(part):
    """Return the multiply-adds of a part for token number 100 and 200, the others in the cache."""
    return tuple(multiply_adds(_text(n), cached=n - 1)[0][part] for n in (100, 200))


def _text(n):
    return np.random.default_rng(n).standard_normal((n, D))


def _gap(a, b):
    return float(np.abs(a - b).max())
