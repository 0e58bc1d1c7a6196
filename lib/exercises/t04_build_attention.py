"""Exercise 04: build attention, from one dot product to the last m queries of a text."""

import math

import numpy as np

from lib import reference
from lib.exercises.building import Building, Rung, numbers
from lib.exercises.judging import Task

LN2, LN3, LN5 = math.log(2), math.log(3), math.log(5)


def array(*rows):
    """Return the rows as a float64 array."""
    return np.array(rows, np.float64)


def scores(q, K):
    """Return q Kᵀ / √d: (d,), (n, d) -> (n,)."""
    return q @ K.T / math.sqrt(len(q))


def _ratios(call, q, K):
    found = call(q, K)
    with np.errstate(all="ignore"):
        return found / found[0]


SCORES = Building(
    name="scores",
    parameters=("q", "K"),
    definition=scores,
    rungs=(
        Rung("one score for each key",
             "With d = 1 a dot product is one product, and √d is 1.",
             (array(2), array([1], [3], [-2]))),
        Rung("the dot product",
             "Each score counts all coordinates of the query and of one key. "
             "Only the ratios to the first score are compared, so the scale plays no part.",
             (array(1, 2, -3), array([1, 0, 0], [0, 1, 0], [0, 0, 1], [2, 1, 1])),
             run=_ratios, part="scores / the first score"),
        Rung("the scale",
             "The vectors are 16 wide; the dot products are 16, 8 and −16.",
             (np.ones(16), np.outer([1, 0.5, -1], np.ones(16)))),
        Rung("other shapes", "Seven coordinates, two keys.", (numbers(1, 7), numbers(2, 2, 7))),
    ),
)  # fmt: skip

SOFTMAX = Building(
    name="softmax",
    parameters=("scores",),
    definition=reference.softmax,
    rungs=(
        Rung("weights that sum to one", "Four scores of 0 are equal, so each gets a quarter.",
             (array(0, 0, 0, 0),)),
        Rung("the exponential",
             "The scores are the logarithms of 1, 2 and 5, so the weights stand 1 to 2 to 5.",
             (array(0, LN2, LN5),)),
        Rung("scores of both signs", "A low score gets a small weight, also below zero.",
             (array(0.5, -1, -2, 0.25),)),
        Rung("each row for itself",
             "Two queries of three keys each: every row is a softmax of its own.",
             (array([0, LN2, LN5], [LN3, 0, 0]),)),
        Rung("large scores", "The exponential of 1000 is beyond every float. "
             "Only differences between scores matter: here 1, 0 and 2.",
             (array(1001, 1000, 1002),)),
        Rung("scores far below zero", "The exponential of −1000 is zero in floats. "
             "Only differences between scores matter: here 1 and 0.",
             (array(-1000, -1001),)),
        Rung("scores far apart", "One score is larger than all others by 3000, so it takes all.",
             (array(0, 0, 3000, 0, 0),)),
        Rung("rows of different size", "Both rows have the same differences. "
             "What one row holds must not spoil the other.",
             (array([0, 1], [2000, 2001]),)),
    ),
)  # fmt: skip

ATTEND = Building(
    name="attend",
    parameters=("q", "K", "V"),
    definition=reference.attend,
    rungs=(
        Rung("the values",
             "There is one token, so its weight is 1 and its value comes out, "
             "whatever the query and the key are.",
             (array(1, -2, 0.5), array([3, 1, 2]), array([5, -7]))),
        Rung("the mean of equal keys",
             "All keys are equal, so all weights are: the output is the plain mean of the values.",
             (array(1, 2, -1), np.tile([2.0, -1, 1], (4, 1)),
              array([4, 0], [0, 8], [2, 2], [6, 6]))),
        Rung("a key that fits",
             "One key fits far better than all others: its own value comes out.",
             (array(60), array([0], [0], [1], [0]), array([1, 0], [2, 0], [10, 20], [4, 0]))),
        Rung("the soft choice",
             "With d = 1 the scores are 0 and ln 3, so the weights are 1/4 and 3/4.",
             (array(1), array([0], [LN3]), array([0, 4, 0], [4, 8, 4]))),
        Rung("the scale",
             "The vectors are 16 wide; the dot products are 0, 4 and 0.",
             (np.full(16, 0.5), np.outer([0, 0.5, 0], np.ones(16)), array([0, 0], [1, 2], [0, 0]))),
        Rung("large scores",
             "The scores are 1001 and 1000. Only their difference matters.",
             (array(0, 0, 2, 0), array([0, 0, 1001, 0], [0, 0, 1000, 0]), array([1, 0], [0, 1]))),
        Rung("all of it together", "Five tokens, keys of width 3, values of width 4.",
             (numbers(3, 3), numbers(4, 5, 3), numbers(5, 5, 4))),
    ),
)  # fmt: skip

CAUSAL_WEIGHTS = Building(
    name="causal_weights",
    parameters=("Q", "K"),
    definition=reference.causal_weights,
    rungs=(
        Rung("the own token", "There is one token. It sees itself, and gives itself weight 1.",
             (array([2, -1]), array([1, 3]))),
        Rung("the sum of each row", "A row holds the weights of one query: together they are 1.",
             (numbers(6, 4, 2), numbers(7, 4, 2)),
             run=lambda call, Q, K: call(Q, K).sum(axis=1), part="sum of each row"),
        Rung("what a token may see",
             "All queries are zero, so all scores are equal: row i is shared evenly by the "
             "tokens 0 … i, and the future gets exactly nothing.",
             (np.zeros((4, 2)), numbers(8, 4, 2))),
        Rung("who asks and who is asked",
             "Row i is the query of token i, column j the key of token j. "
             "With d = 1 there is no scale.",
             (array([0], [1], [2]), array([LN2], [0], [LN3]))),
        Rung("the scale", "The vectors are 16 wide; the dot products in the last row are 8, 0, 0.",
             (np.outer([0, 0, 1.0], np.ones(16)), np.outer([0.5, 0, 0], np.ones(16)))),
        Rung("large scores", "The scores of the last row are 1000 and 1001.",
             (array([0], [1]), array([1000], [1001]))),
        Rung("a score lower than any mask",
             "The first token finds itself with a score of −3 · 10⁹. The future is still closed.",
             (array([1], [1]), array([-3e9], [0]))),
        Rung("a loud future",
             "The first token finds itself with a score of 0 and the second with 2000. It does not "
             "see the second: all of its weight is its own.",
             (array([1], [1]), array([0], [2000]))),
        Rung("all of it together", "Five tokens of width 3.",
             (numbers(9, 5, 3), numbers(10, 5, 3))),
    ),
)  # fmt: skip

ATTEND_CAUSAL = Building(
    name="attend_causal",
    parameters=("Q", "K", "V"),
    definition=reference.attend_causal,
    rungs=(
        Rung("the values", "There is one token, so its value comes out.",
             (array([1, -2, 0.5]), array([3, 1, 2]), array([5, -7]))),
        Rung("the first row",
             "The first token has no left context. It sees only itself, so row 0 is its own value, "
             "whatever the queries and keys are.",
             (numbers(11, 3, 2), numbers(12, 3, 2), array([1, 2], [30, 40], [-50, 60])),
             run=lambda call, Q, K, V: call(Q, K, V)[0], part="row 0"),
        Rung("equal scores",
             "All queries are zero, so row i is the plain mean of the values 0 … i.",
             (np.zeros((3, 4)), numbers(13, 3, 4), array([6, 0], [0, 12], [3, 3]))),
        Rung("who asks and who is asked",
             "Row i is what the query of token i finds. With d = 1 there is no scale.",
             (array([0], [1], [2]), array([LN2], [0], [LN3]), array([0, 3], [3, 0], [9, 9]))),
        Rung("the scale", "The vectors are 16 wide; the dot products in the last row are 8, 0, 0.",
             (np.outer([0, 0, 1.0], np.ones(16)), np.outer([0.5, 0, 0], np.ones(16)),
              array([1, 2], [0, 0], [0, 0]))),
        Rung("large scores", "The scores of the last row are 1000 and 1001.",
             (array([0], [1]), array([1000], [1001]), array([1, 0], [0, 1]))),
        Rung("the future stays out",
             "The last token is very loud. Nothing before it may move.",
             (numbers(14, 4, 2), np.vstack([numbers(15, 3, 2), [[90, -90]]]),
              np.vstack([numbers(16, 3, 3), [[1e4, -1e4, 1e4]]])),
             run=lambda call, Q, K, V: call(Q, K, V)[:-1], part="the rows before the last"),
        Rung("a loud future",
             "The first token finds itself with a score of 0 and the second with 2000. It does not "
             "see the second: its own value comes out.",
             (array([1], [1]), array([0], [2000]), array([1, 2], [30, 40]))),
        Rung("all of it together", "Five tokens, keys of width 3, values of width 4.",
             (numbers(17, 5, 3), numbers(18, 5, 3), numbers(19, 5, 4))),
    ),
)  # fmt: skip

LAST_QUERIES = Building(
    name="attend_last",
    parameters=("Q", "K", "V"),
    definition=reference.attend_causal,
    rungs=(
        Rung("as many queries as keys",
             "Three tokens, three queries of zero: row i is the plain mean of the values 0 … i.",
             (np.zeros((3, 2)), numbers(20, 3, 2), array([6, 0], [0, 12], [3, 3]))),
        Rung("one query, the whole left context",
             "The query belongs to the last of four tokens, and it is zero: "
             "the output is the plain mean of all four values.",
             (np.zeros((1, 2)), numbers(21, 4, 2), array([4, 0], [0, 8], [2, 2], [6, 6]))),
        Rung("the last of the positions",
             "Two queries of zero belong to the last two of five tokens: the first sees four "
             "tokens, the second all five.",
             (np.zeros((2, 3)), numbers(22, 5, 3),
              array([4, 0], [0, 8], [4, 0], [0, 8], [12, -6]))),
        Rung("who asks and who is asked",
             "Row i is what query i finds. With d = 1 there is no scale.",
             (array([1], [2]), array([LN2], [0], [LN3], [0]),
              array([0, 3], [3, 0], [9, 9], [1, 5]))),
        Rung("the scale", "The vectors are 16 wide; the dot products are 8, 0, 0.",
             (np.ones((1, 16)), np.outer([0.5, 0, 0], np.ones(16)), array([1, 2], [0, 0], [0, 0]))),
        Rung("large scores", "The scores are 1000 and 1001, and then 1000, 1001 and 1000.",
             (array([1], [1]), array([1000], [1001], [1000]), array([1, 0], [0, 1], [1, 1]))),
        Rung("a loud future",
             "Two queries, the last two of three tokens. The first of them does not see the last "
             "token, whose score would be 2000: it finds two scores of 0.",
             (array([1], [1]), array([0], [0], [2000]), array([2, 0], [4, 2], [9, 9]))),
        Rung("all of it together", "Three queries, six tokens, keys of width 2, values of width 5.",
             (numbers(23, 3, 2), numbers(24, 6, 2), numbers(25, 6, 5))),
    ),
)  # fmt: skip

TASKS = [
    Task("04.scores", "The scores of one query", SCORES.form, 5, 1, SCORES.judge),
    Task("04.softmax", "A softmax that holds", SOFTMAX.form, 10, 2, SOFTMAX.judge),
    Task("04.attend", "Attention for one query", ATTEND.form, 5, 1, ATTEND.judge),
    Task("04.causal_weights", "All queries, no future", CAUSAL_WEIGHTS.form, 10, 2,
         CAUSAL_WEIGHTS.judge),
    Task("04.attend_causal", "Causal attention", ATTEND_CAUSAL.form, 5, 1, ATTEND_CAUSAL.judge),
    Task("04.last_queries", "The last queries of a text", LAST_QUERIES.form, 10, 3,
         LAST_QUERIES.judge),
]  # fmt: skip
