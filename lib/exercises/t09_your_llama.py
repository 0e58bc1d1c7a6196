"""Exercise 09: the layer of a Llama and the next token, each function between two of the file's.

Touvron et al. 2023, section 2.2; Su et al. 2021, section 3.2.2; Ainslie et al. 2023; Holtzman et
al. 2020, section 3.1, for top-p; Nguyen et al. 2024, section 3, for min-p.
"""

import numpy as np

from lib import reference
from lib.exercises.building import Building, Rung, numbers
from lib.exercises.judging import Task
from lib.exercises.t04_build_attention import LN3, array

# --- The parts of a layer ------------------------------------------------------------------------


def rotate(X, first, base):
    """Return each head turned by its position, the first token's being `first`; neighbours pair."""
    return reference.rope(X, np.arange(first, first + len(X)), base)


def attend_grouped(Q, K, V):
    """Return causal attention of the last m of n tokens, with keys and values shared by groups."""
    H = Q.shape[1]
    group = H // K.shape[1]
    heads = [reference.attend_causal(Q[:, h], K[:, h // group], V[:, h // group]) for h in range(H)]
    return np.stack(heads, axis=1)


def layer(X, w, K_cache, V_cache, H, eps, base):
    """Return what leaves a layer, and the caches with the keys and values of the new tokens."""
    n, first, d_head = len(X), len(K_cache), w["W_Q"].shape[1] // H
    normed = reference.rms_norm(X, w["attention_gain"], eps)
    Q = rotate((normed @ w["W_Q"]).reshape(n, H, d_head), first, base)
    K = rotate((normed @ w["W_K"]).reshape(n, -1, d_head), first, base)
    K = np.concatenate([K_cache, K])
    V = np.concatenate([V_cache, (normed @ w["W_V"]).reshape(n, -1, d_head)])
    X = X + attend_grouped(Q, K, V).reshape(n, -1) @ w["W_O"]
    normed = reference.rms_norm(X, w["ffn_gain"], eps)
    return X + reference.swiglu(normed, w["W_gate"], w["W_up"], w["W_down"]), K, V


def logits(X, gain, embedding, eps):
    """Return the logits of the token that follows the last one; the head is the embedding."""
    return reference.rms_norm(X[-1:], gain, eps)[0] @ embedding.T


RMS_NORM = Building(
    name="rms_norm",
    parameters=("X", "gain", "eps"),
    definition=reference.rms_norm,
    rungs=(
        Rung("the size", "The mean of the squares of (1, 7) is 25, so the row is divided by 5.",
             (array([1, 7]), np.ones(2), 0.0)),
        Rung("the mean stays",
             "Nothing is subtracted: a row of equal numbers becomes a row of ones.",
             (array([4, 4, 4]), np.ones(3), 0.0)),
        Rung("each row for itself", "Two tokens of different sizes; each is divided by its own.",
             (array([1, 7], [10, 70], [-3, 3]), np.ones(2), 0.0)),
        Rung("the gain", "Each coordinate is stretched by its own gain.",
             (array([1, 7, 1, 7]), array(1, 2, -3, 0), 0.0)),
        Rung("the place of eps",
             "eps is as large as 7 here, and the mean of the squares is 9. The root is taken of "
             "their sum, 16.",
             (array([3, -3]), np.ones(2), 7.0)),
        Rung("a row of zeros", "eps keeps the division from being one by zero.",
             (np.zeros((1, 3)), np.ones(3), 1e-5)),
        Rung("all of it together", "Four tokens of width 3.",
             (numbers(1, 4, 3), numbers(2, 3), 1e-5)),
    ),
)  # fmt: skip


def _one_head(*rows):
    return array(*rows)[:, None, :]


ROTATE = Building(
    name="rotate",
    parameters=("X", "first", "base"),
    definition=rotate,
    rungs=(
        Rung("position 0", "The angle of position 0 is 0: nothing is turned.",
             (_one_head([1, 2, 3, 4]), 0, 10000.0)),
        Rung("the direction",
             "With d_head = 2 there is one pair, and at position 1 its angle is 1. (1, 0) becomes "
             "(cos 1, sin 1).",
             (_one_head([1, 0]), 1, 10000.0)),
        Rung("the pairing",
             "Neighbours are pairs: (1, 2) and (3, 4), not (1, 3) and (2, 4). In this model's file "
             "the pairs are neighbours. The base is 1, so at position 1 every angle is 1.",
             (_one_head([1, 2, 3, 4]), 1, 1.0)),
        Rung("the angle of each pair",
             "Pair k turns by base^(−2k / d_head) for each position. With base 10000 and d_head 4 "
             "that is 1 for pair 0 and 0.01 for pair 1.",
             (_one_head([1, 0, 1, 0]), 1, 10000.0)),
        Rung("the exponent", "With d_head 6 and base 1000, the pairs turn by 1, 0.1 and 0.01.",
             (_one_head([1, 0, 1, 0, 1, 0]), 1, 1000.0)),
        Rung("the position of each token", "Three tokens, at the positions 0, 1 and 2.",
             (_one_head([1, 0], [1, 0], [1, 0]), 0, 10000.0)),
        Rung("the offset of a cached position",
             "Five tokens are in the cache already, so these two are at the positions 5 and 6.",
             (_one_head([1, 0], [1, 0]), 5, 10000.0)),
        Rung("the same for all heads", "Two tokens of three heads: the angle depends on the token.",
             (np.tile(array([1, 0]), (2, 3, 1)), 1, 10000.0)),
        Rung("all of it together", "Four tokens of three heads of width 6, after seven others.",
             (numbers(3, 4, 3, 6), 7, 500.0)),
    ),
)  # fmt: skip

_V_GROUPS = np.array([[[1.0, 1], [2, 2]]])  # one token: key-value head 0 holds ones, head 1 twos

ATTEND_GROUPED = Building(
    name="attend_grouped",
    parameters=("Q", "K", "V"),
    definition=attend_grouped,
    rungs=(
        Rung("the values", "One token, one head: its value comes out.",
             (numbers(4, 1, 1, 2), numbers(5, 1, 1, 2), array([5, -7])[None])),
        Rung("the order of the groups",
             "Four heads share two key-value heads: heads 0 and 1 use the first, heads 2 and 3 the "
             "second. There is one token, so the values come out: 1, 1, 2, 2.",
             (numbers(6, 1, 4, 2), numbers(7, 1, 2, 2), _V_GROUPS)),
        Rung("the future",
             "All queries are zero: row i of each head is the plain mean of the values 0 … i.",
             (np.zeros((3, 2, 4)), numbers(8, 3, 1, 4),
              array([6, 0, 0, 3], [0, 12, 3, 0], [3, 3, 3, 3])[:, None])),
        Rung("the last of the positions",
             "Two queries of zero belong to the last two of five tokens: the first sees four "
             "tokens, the second all five.",
             (np.zeros((2, 1, 2)), numbers(9, 5, 1, 2),
              array([4, 0], [0, 8], [4, 0], [0, 8], [12, -6])[:, None])),
        Rung("the scale", "The heads are 16 wide; the dot products are 8, 0, 0. The scale is the "
             "root of d_head, not of all heads together.",
             (np.ones((1, 2, 16)), np.outer([0.5, 0, 0], np.ones(16))[:, None],
              np.pad(array([1, 2], [0, 0], [0, 0]), ((0, 0), (0, 14)))[:, None])),
        Rung("the keys of each group", "One query, two heads with two key-value heads: head 0 "
             "finds the first key of its group, head 1 the second of its own.",
             (np.ones((1, 2, 1)), np.array([[[LN3], [0]], [[0], [LN3]]]),
              np.array([[[0.0], [0]], [[4], [4]]]))),
        Rung("large scores", "The scores are 1000 and 1001.",
             (np.ones((1, 1, 1)), np.array([[[1000.0]], [[1001]]]), np.array([[[0.0]], [[1]]]))),
        Rung("scores far apart", "Both tokens find the first with a score of 0 and the second with "
             "2000; the first token does not see the second.",
             (np.ones((2, 1, 1)), np.array([[[0.0]], [[2000]]]),
              np.array([[[1.0]], [[3]]]))),
        Rung("all of it together", "Three of five tokens, six heads, two key-value heads.",
             (numbers(10, 3, 6, 4), numbers(11, 5, 2, 4), numbers(12, 5, 2, 4))),
    ),
)  # fmt: skip

_EYE = np.eye(2)

SWIGLU = Building(
    name="swiglu",
    parameters=("X", "W_gate", "W_up", "W_down"),
    definition=reference.swiglu,
    rungs=(
        Rung("the way up and down",
             "The gate is 30, where SiLU changes nothing. What is left is 30 X W_up W_down.",
             (array([1, 2]), array([30, 0], [0, 15]), array([1, 2], [0, 1]),
              array([0, 1], [1, 0]))),
        Rung("a closed gate", "The gate is −40: nothing passes.",
             (array([1, 1]), -40 * _EYE, _EYE, _EYE)),
        Rung("what is gated",
             "SiLU acts on X W_gate alone. Here X W_up is −40, and it must pass as it is; the gate "
             "is 1, and SiLU of 1 is 0.731.",
             (array([1, 1]), _EYE, -40 * _EYE, _EYE)),
        Rung("the kind of activation", "SiLU(x) = x / (1 + exp(−x)); the gate is 2 and −1.",
             (array([2, -1]), _EYE, array([0, 1], [0, 1]), _EYE)),
        Rung("a gate far from zero", "The gates are −1000 and 1000, whose exponentials no float "
             "holds: nothing passes on the left, all on the right.",
             (array([1, 1]), np.diag([-1000.0, 1000]), _EYE, _EYE)),
        Rung("each row for itself", "Three tokens; the first is changed, the others stay.",
             (numbers(13, 3, 2), numbers(14, 2, 3), numbers(15, 2, 3), numbers(16, 3, 2)),
             run=lambda call, X, *w: call(X * [[2], [1], [1]], *w)[1:] - call(X, *w)[1:],
             part="how far the others move"),
        Rung("all of it together", "Four tokens of width 3, hidden width 5.",
             (numbers(17, 4, 3), numbers(18, 3, 5), numbers(19, 3, 5), numbers(20, 5, 3))),
    ),
)  # fmt: skip

# --- The layer -----------------------------------------------------------------------------------


def weights(rng, d=4, H=4, H_kv=2, d_head=6, d_ff=5):
    """Return random weights of a layer, as a dict of the nine arrays."""
    shapes = {
        "attention_gain": (d,), "W_Q": (d, H * d_head), "W_K": (d, H_kv * d_head),
        "W_V": (d, H_kv * d_head), "W_O": (H * d_head, d), "ffn_gain": (d,), "W_gate": (d, d_ff),
        "W_up": (d, d_ff), "W_down": (d_ff, d),
    }  # fmt: skip
    return {name: (0.7 * rng.normal(size=shape)).round(2) for name, shape in shapes.items()}


_W = weights(np.random.default_rng(21))
_EMPTY = np.zeros((0, 2, 6))
_REST = (4, 1e-5, 100.0)  # H, eps, base
_NO_FFN = {"W_down": np.zeros((5, 4))}
_NO_ATTENTION = {"W_O": np.zeros((24, 4))}


def step_by_step(call, X, w, K, V, *rest):
    """Return what leaves a layer for each token, fed one after the other: (n, d)."""
    out = []
    for k in range(len(X)):
        x, K, V = call(X[k : k + 1], w, K, V, *rest)
        out.append(x[0])
    return np.array(out)


def _out(call, *given):
    return call(*given)[0]


LAYER = Building(
    name="llama_layer",
    parameters=("X", "w", "K_cache", "V_cache", "H", "eps", "base"),
    definition=layer,
    results=("out", "K", "V"),
    rungs=(
        Rung("the residuals", "W_O and W_down are zero, so both steps add nothing: X is left.",
             (numbers(22, 2, 4), _W | _NO_FFN | _NO_ATTENTION, _EMPTY, _EMPTY, *_REST),
             run=_out, part="out"),
        Rung("the values that are stored",
             "The cache is empty. V holds the values of the new tokens, of the normed vectors, cut "
             "into the two key-value heads; values are not turned.",
             (numbers(23, 2, 4), _W, _EMPTY, _EMPTY, *_REST),
             run=lambda call, *a: call(*a)[2], part="V"),
        Rung("the keys that are stored",
             "The keys are turned to the positions 0 and 1 before they are stored.",
             (numbers(23, 2, 4), _W, _EMPTY, _EMPTY, *_REST),
             run=lambda call, *a: call(*a)[1], part="K"),
        Rung("the offset of a cached position",
             "Three tokens are in the cache. The new token is at position 3, and its key is turned "
             "to that; the cached keys have been turned already, and stay.",
             (numbers(24, 1, 4), _W, numbers(25, 3, 2, 6), numbers(26, 3, 2, 6), *_REST),
             run=lambda call, *a: call(*a)[1], part="K"),
        Rung("values and their way out",
             "One token alone, so attention passes on its own value, through W_V and then W_O. The "
             "FFN adds nothing.",
             (numbers(27, 1, 4), _W | _NO_FFN, _EMPTY, _EMPTY, *_REST), run=_out, part="out"),
        Rung("queries and keys", "Three tokens, no cache; the FFN adds nothing.",
             (numbers(28, 3, 4), _W | _NO_FFN, _EMPTY, _EMPTY, *_REST), run=_out, part="out"),
        Rung("the left context in the cache",
             "One token, after three in the cache, which it sees. The FFN adds nothing.",
             (numbers(29, 1, 4), _W | _NO_FFN, numbers(25, 3, 2, 6), numbers(26, 3, 2, 6), *_REST),
             run=_out, part="out"),
        Rung("the FFN and its norm", "Attention adds nothing; the FFN reads its own norm of X.",
             (numbers(30, 2, 4), _W | _NO_ATTENTION, _EMPTY, _EMPTY, *_REST), run=_out, part="out"),
        Rung("what the FFN reads", "One token. The FFN must see what attention has added.",
             (numbers(31, 1, 4), _W, _EMPTY, _EMPTY, *_REST), run=_out, part="out"),
        Rung("the place of eps", "eps is 2 here, in both norms.",
             (numbers(32, 1, 4), _W, _EMPTY, _EMPTY, 4, 2.0, 100.0), run=_out, part="out"),
        Rung("cached against uncached",
             "Four tokens, one after the other, from an empty cache. X is each row in turn; the "
             "outputs must be those of all four at once.",
             (numbers(33, 4, 4), _W, _EMPTY, _EMPTY, *_REST), run=step_by_step,
             part="the four outputs"),
    ),
)  # fmt: skip

LOGITS = Building(
    name="logits",
    parameters=("X", "gain", "embedding", "eps"),
    definition=logits,
    rungs=(
        Rung("the head is the embedding",
             "One token of size 1. Its logits are its dot products with the row of each token of "
             "the vocabulary.",
             (array([1, -1]), np.ones(2), array([1, 0], [0, 1], [2, 2], [3, -1]), 0.0)),
        Rung("the last token", "The token that follows is predicted from the last row.",
             (array([1, 1], [-1, 1]), np.ones(2), array([1, 0], [0, 1], [2, 5]), 0.0)),
        Rung("the norm", "The vector is ten times as large as in the first input; the logits are "
             "the same.",
             (array([10, -10]), np.ones(2), array([1, 0], [0, 1], [2, 2], [3, -1]), 0.0)),
        Rung("the mean stays", "Nothing is subtracted: (4, 4) becomes (1, 1).",
             (array([4, 4]), np.ones(2), array([1, 0], [0, 1], [2, 2], [3, -1]), 0.0)),
        Rung("the gain", "The gain stretches the vector before the head reads it.",
             (array([1, -1]), array(2, -3), array([1, 0], [0, 1], [2, 2]), 0.0)),
        Rung("the place of eps", "eps is 7, and the mean of the squares is 9.",
             (array([3, -3]), np.ones(2), array([1, 0], [0, 1], [2, 2]), 7.0)),
        Rung("all of it together", "Three tokens of width 4, a vocabulary of 6.",
             (numbers(34, 3, 4), numbers(35, 4), numbers(36, 6, 4), 1e-5)),
    ),
)  # fmt: skip

# --- The next token ------------------------------------------------------------------------------


def top_p(p, share):
    """Return the fewest most likely tokens whose shares reach `share`, rescaled to sum to 1."""
    order = np.argsort(-p, kind="stable")
    before = np.cumsum(p[order]) - p[order]
    kept = np.zeros_like(p)
    chosen = order[before < share * (1 - 1e-12)]
    kept[chosen] = p[chosen]
    return kept / kept.sum()


def min_p(p, ratio):
    """Return the tokens of at least `ratio` times the largest probability, rescaled to sum to 1."""
    kept = np.where(p >= ratio * p.max(), p, 0.0)
    return kept / kept.sum()


def sample(logits, temperature, share, ratio, seed):
    """Return the token that a seed draws: temperature, then min-p, then top-p."""
    if temperature == 0:
        return np.argmax(logits)
    p = reference.softmax(logits / temperature)
    p = top_p(min_p(p, ratio), share)
    u = np.random.default_rng(seed).random()
    return min(np.searchsorted(np.cumsum(p), u, side="right"), np.nonzero(p)[0][-1])


TOP_P = Building(
    name="top_p",
    parameters=("p", "share"),
    definition=top_p,
    rungs=(
        Rung("the most likely alone", "The first token has 0.6 of 0.5 that are asked for.",
             (array(0.6, 0.3, 0.1), 0.5)),
        Rung("the token that crosses the line",
             "0.5 is not enough for 0.7, so the next token is kept too, whole.",
             (array(0.5, 0.3, 0.2), 0.7)),
        Rung("the order of likelihood", "The most likely tokens are kept, wherever they are.",
             (array(0.1, 0.2, 0.4, 0.3), 0.6)),
        Rung("what is reached exactly", "0.5 reaches 0.5: the next token is not needed.",
             (array(0.5, 0.25, 0.25), 0.5)),
        Rung("all of them", "A share of 1 keeps every token.", (array(0.25, 0.5, 0.25), 1.0)),
        Rung("equals", "Of equal tokens the first ones are kept.",
             (array(0.25, 0.25, 0.25, 0.25), 0.4)),
        Rung("a small share", "The most likely token is kept even where it alone is too much.",
             (array(0.2, 0.5, 0.3), 0.01)),
        Rung("all of it together", "Seven tokens.",
             (array(0.05, 0.3, 0.1, 0.2, 0.02, 0.25, 0.08), 0.8)),
    ),
)  # fmt: skip

MIN_P = Building(
    name="min_p",
    parameters=("p", "ratio"),
    definition=min_p,
    rungs=(
        Rung("relative to the largest",
             "The largest is 0.5, so 0.5 times that is 0.25: 0.3 stays, and 0.2 goes.",
             (array(0.3, 0.5, 0.2), 0.5)),
        Rung("the sum", "What is left is rescaled to sum to 1.", (array(0.4, 0.4, 0.2), 0.9)),
        Rung("exactly the ratio", "0.25 is exactly half of 0.5: it stays.",
             (array(0.5, 0.25, 0.125, 0.125), 0.5)),
        Rung("none goes", "A ratio of 0 keeps every token.", (array(0.6, 0.3, 0.1), 0.0)),
        Rung("only the largest", "A ratio of 1 keeps the largest alone, and those that equal it.",
             (array(0.2, 0.4, 0.4), 1.0)),
        Rung("a flat distribution", "No token is likely, and all are kept: the largest is small.",
             (np.full(8, 1 / 8), 0.3)),
        Rung("all of it together", "Six tokens.", (array(0.02, 0.4, 0.06, 0.25, 0.24, 0.03), 0.1)),
    ),
)  # fmt: skip

SEEDS = tuple(range(12))


def _draws(call, logits, temperature, share, ratio, _):
    return np.array([call(logits, temperature, share, ratio, seed) for seed in SEEDS])


_DRAWN = {"run": _draws, "part": "the tokens of the seeds 0 … 11"}

SAMPLE = Building(
    name="sample",
    parameters=("logits", "temperature", "share", "ratio", "seed"),
    definition=sample,
    rungs=(
        Rung("temperature 0", "Nothing is drawn: the largest logit wins, whatever the seed.",
             (array(1, 3, 2), 0, 1.0, 0.0, 5)),
        Rung("the seed",
             "u is np.random.default_rng(seed).random(). Lay the probabilities side by side from 0 "
             "to 1: the token in whose piece u lies is drawn.",
             (array(0, 1, 0.5, 0), 1, 1.0, 0.0, 0), **_DRAWN),
        Rung("the temperature", "The logits are divided by 0.25 before the softmax.",
             (array(0, 1, 0.8, 0.5), 0.25, 1.0, 0.0, 0), **_DRAWN),
        Rung("a high temperature", "The logits are divided by 4: nearly all are equally likely.",
             (array(0, 4, 3, 1), 4, 1.0, 0.0, 0), **_DRAWN),
        Rung("min-p", "Probabilities below 0.4 of the largest are out.",
             (array(0, 1, 0.8, 0.4), 1, 1.0, 0.4, 0), **_DRAWN),
        Rung("top-p", "The share is 0.6.", (array(0, 1, 0.8, 0.4), 1, 0.6, 0.0, 0), **_DRAWN),
        Rung("temperature before the filters",
             "At temperature 3 the tokens are nearly equally likely, so the filters keep more.",
             (array(0, 3, 2, 1), 3, 0.8, 0.3, 0), **_DRAWN),
        Rung("min-p before top-p", "The probabilities are 0.4, 0.3, 0.2 and 0.1. min-p takes out "
             "the last one; top-p then looks at what is left, rescaled.",
             (np.log([0.4, 0.3, 0.2, 0.1]), 1, 0.72, 0.3, 0), **_DRAWN),
        Rung("large logits", "The logits are 1000 and more. Only their differences matter.",
             (array(1000, 1001, 1000.5), 1, 1.0, 0.0, 0), **_DRAWN),
        Rung("all of it together", "Eight tokens.",
             (2 * numbers(37, 8), 0.8, 0.9, 0.05, 0), **_DRAWN),
    ),
)  # fmt: skip

# --- Inputs that nobody has seen; see the hidden rungs of a grader -------------------------------


def _norm(r):
    n, d = r.sizes(2)
    return 3 * r(n, d), r(d), float(r.rng.choice([0.3, 7.0]))


def _turned(r):
    n, H, k = r.sizes(3)
    return r(n, H, 2 * k), r.whole(2, 30), float(r.rng.choice([100.0, 500.0, 2000.0]))


def _grouped(m=0, far=1):
    def draw(r):
        n, d_head, group = r.sizes(3)
        k = min(m or n, n)
        return far * r(k, 2 * group, d_head), r(n, 2, d_head), r(n, 2, d_head)

    return draw


def _far_scores(r):
    """Scores that rise by some thousands, and are exact in float32."""
    n = r.whole(4, 8)
    K = np.cumsum(r.rng.integers(800, 1200, n))[:, None, None] * np.ones((1, 2, 1))
    return np.ones((n, 4, 1)), K, r(n, 2, 1)


def _swiglu(scale):
    def draw(r):
        n, d, d_ff = r.sizes(3)
        return scale * r(n, d), r(d, d_ff), r(d, d_ff), r(d_ff, d)

    return draw


def _layer(cached):
    def draw(r):
        n, d, d_ff, d_head = r.whole(2, 4), *r.sizes(2), 2 * r.whole(2, 4)
        w = weights(r.rng, d, 6, 2, d_head, d_ff)
        K, V = r(cached, 2, d_head), r(cached, 2, d_head)
        return r(n, d), w, K, V, 6, float(r.rng.choice([0.3, 2.0])), 200.0

    return draw


def _head(r):
    n, d, vocabulary = r.sizes(3)
    return 3 * r(n, d), r(d), r(vocabulary, d), float(r.rng.choice([0.3, 7.0]))


def _shares(r):
    p = r.rng.permutation(r.rng.dirichlet(np.full(9, 0.8)) + 0.01)
    return p / p.sum(), float(r.rng.uniform(0.2, 0.9))


def _equal_shares(r):
    return np.full(8, 1 / 8), r.whole(1, 7) / 8  # exact sums


def _ratios(r):
    p, share = _shares(r)
    return p, share * 0.5


def _drawing(r):
    return (
        2 * r(8), float(r.rng.choice([0.4, 0.7, 1.6, 3.0])), float(r.rng.choice([0.6, 0.8, 1.0])),
        float(r.rng.choice([0.0, 0.1, 0.3])), r.whole(0, 10**6),
    )  # fmt: skip


def _order_decides(r):
    """Arguments for which another token is drawn where top-p comes before min-p."""
    while True:
        p, share = _shares(r)
        ratio, seed = float(r.rng.uniform(0.2, 0.6)), r.whole(0, 10**6)
        other = min_p(top_p(p, share), ratio)
        u = np.random.default_rng(seed).random()
        if sample(np.log(p), 1, share, ratio, seed) != np.searchsorted(np.cumsum(other), u):
            return np.log(p), 1, share, ratio, seed


def _greedy(r):
    return r(9), 0, 0.7, 0.1, r.whole(0, 10**6)


def _drawing_large(r):
    return r.far() + r.quarters(8), 1, 1.0, 0.0, r.whole(0, 10**6)


HIDDEN = {
    "rms_norm": (_norm,) * 4,
    "rotate": (_turned,) * 3,
    "attend_grouped": (_grouped(), _grouped(1), _grouped(2), _far_scores),
    "swiglu": (_swiglu(1), _swiglu(3), _swiglu(20), _swiglu(1000)),
    "llama_layer": (_layer(0), _layer(0), _layer(3), _layer(5)),
    "logits": (_head,) * 4,
    "top_p": (*[_shares] * 6, *[_equal_shares] * 3),
    "min_p": (lambda r: (np.array([0.5, 0.25, 0.25]), r.whole(1, 3) / 2), *[_ratios] * 6),
    "sample": (*[_drawing] * 40, *[_order_decides] * 3, *[_greedy] * 3, *[_drawing_large] * 3),
}

TASKS = [
    Task("09.rms_norm", "The norm", RMS_NORM.form, 5, 1, RMS_NORM.judge),
    Task("09.rotate", "Rotary positions", ROTATE.form, 15, 3, ROTATE.judge),
    Task("09.attend_grouped", "Heads in groups", ATTEND_GROUPED.form, 15, 2, ATTEND_GROUPED.judge),
    Task("09.swiglu", "The gated FFN", SWIGLU.form, 5, 1, SWIGLU.judge),
    Task("09.layer", "A layer of the real model", LAYER.form, 20, 3, LAYER.judge),
    Task("09.logits", "The head", LOGITS.form, 5, 1, LOGITS.judge),
    Task("09.top_p", "The likeliest, up to a share", TOP_P.form, 10, 2, TOP_P.judge),
    Task("09.min_p", "Likely enough", MIN_P.form, 5, 1, MIN_P.judge),
    Task("09.sample", "The next token", SAMPLE.form, 10, 2, SAMPLE.judge),
]
