"""Exercise 07: loops that compile, the work they do, and the bytes they wait for."""

import re
from dataclasses import dataclass

import numpy as np

from lib import attention, reference
from lib.exercises.building import Building, Rung
from lib.exercises.building import numbers as _numbers
from lib.exercises.counting import counted
from lib.exercises.judging import Malformed, Task, Wrong
from lib.exercises.t04_build_attention import LN3
from lib.exercises.work import Kernel, Limit


def numbers(seed, *shape):
    """Return signed numbers of two decimals, as float32: what a kernel gets."""
    return _numbers(seed, *shape).astype(np.float32)


def array(*rows):
    """Return the rows as a float32 array."""
    return np.array(rows, np.float32)


# --- One query, and all of them ------------------------------------------------------------------

ONE_QUERY = (
    Rung("what was in out before",
         "There is one token, so its value comes out. The arrays that you write to hold fives, "
         "left from another call.",
         (array(1, -2, 0.5), array([3, 1, 2]), array([5, -7]))),
    Rung("the mean of equal keys",
         "All keys are equal, so all weights are: the output is the plain mean of the values.",
         (array(1, 2, -1), np.tile(array(2, -1, 1), (4, 1)),
          array([4, 0], [0, 8], [2, 2], [6, 6]))),
    Rung("the soft choice",
         "With d = 1 the scores are 0 and ln 3, so the weights are 1/4 and 3/4.",
         (array(1), array([0], [LN3]), array([0, 4, 0], [4, 8, 4]))),
    Rung("the scale",
         "The vectors are 16 wide; the dot products are 0, 4 and 0.",
         (np.full(16, 0.5, np.float32), np.outer(array(0, 0.5, 0), np.ones(16, np.float32)),
          array([0, 0], [1, 2], [0, 0]))),
)  # fmt: skip
LARGE_SCORES = (
    Rung("large scores, the largest last", "The scores are 1000 and 1001.",
         (array(1), array([1000], [1001]), array([1, 0], [0, 1]))),
    Rung("large scores, the largest first", "The scores are 1001 and 1000.",
         (array(1), array([1001], [1000]), array([1, 0], [0, 1]))),
    Rung("scores far apart", "The scores are 0, 2000 and 0: the second takes all.",
         (array(1), array([0], [2000], [0]), array([1, 0], [0, 1], [4, 4]))),
    Rung("scores far below zero", "The scores are −1000 and −1001.",
         (array(-1), array([1000], [1001]), array([1, 0], [0, 1]))),
    Rung("scores that rise and fall",
         "Five keys of width 1, so the keys times the query are the scores: the largest so far "
         "changes three times.",
         (array(2), array([-1], [1], [0.5], [2], [2.5]), numbers(1, 5, 3))),
    Rung("all of it together", "Five tokens, keys of width 3, values of width 4.",
         (numbers(2, 3), numbers(3, 5, 3), numbers(4, 5, 4))),
)  # fmt: skip


def done(*operations):
    """Return a measure: how many of these operations were done."""
    return lambda tally: sum(tally.done[operation] for operation in operations)


def _limits(pairs, d, d_v):
    """Return what attention may do for so many pairs of a query and a key.

    What is allowed beyond the need leaves room for other good ways: a first product that is not
    added to zero, a scale on the query, weights that are normed before the values are mixed.
    """
    products = pairs * (d + d_v)
    return (
        Limit("multiply-adds", done("multiply-adds"), products, products + pairs,
              "Each key that is seen meets the query once, and each value is added once; what the "
              "query does not see is not touched."),
        Limit("exponentials", done("exponentials"), pairs, pairs,
              "One exponential for each key: keep it instead of computing it again."),
        Limit("comparisons", done("comparisons"), pairs, 2 * pairs,
              "The largest score is the same for all keys of a query: find it once, before the "
              "loop that uses it."),
        Limit("other multiplications and divisions", done("multiplications", "divisions"),
              2 * pairs, 6 * pairs,
              "One for the scale and one for the sum, for each key. A factor that all terms of a "
              "sum share belongs outside of its loop."),
        Limit("additions", done("additions"), 2 * pairs, 4 * pairs,
              "The sum of the exponentials is the same for all keys of a query: add it up once."),
    )  # fmt: skip


ATTEND = Kernel(
    values=Building("attend_one", ("q", "K", "V"), reference.attend, ONE_QUERY + LARGE_SCORES),
    buffers={"weights": lambda q, K, V: (len(K),), "out": lambda q, K, V: (V.shape[1],)},
    inputs=(numbers(5, 6), numbers(6, 9, 6), numbers(7, 9, 8)),
    sizes="9 keys of width 6 and values of width 8",
    limits=_limits(9, 6, 8),
)

CAUSAL = Kernel(
    values=Building(
        name="attend_all",
        parameters=("Q", "K", "V"),
        definition=reference.attend_causal,
        rungs=(
            Rung("what was in out before",
                 "There is one token, so its value comes out. The arrays that you write to hold "
                 "fives, left from another call.",
                 (array([1, -2, 0.5]), array([3, 1, 2]), array([5, -7]))),
            Rung("the first row",
                 "The first token sees only itself, so row 0 is its own value.",
                 (numbers(8, 3, 2), numbers(9, 3, 2), array([1, 2], [30, 40], [-50, 60])),
                 run=lambda call, Q, K, V: call(Q, K, V)[0], part="row 0"),
            Rung("equal scores",
                 "All queries are zero, so row i is the plain mean of the values 0 … i.",
                 (np.zeros((3, 4), np.float32), numbers(10, 3, 4),
                  array([6, 0], [0, 12], [3, 3]))),
            Rung("who asks and who is asked",
                 "Row i is what the query of token i finds. With d = 1 there is no scale.",
                 (array([0], [1], [2]), array([LN3 - 1], [0], [LN3]),
                  array([0, 3], [3, 0], [9, 9]))),
            Rung("large scores", "The scores of the last row are 1000 and 1001.",
                 (array([0], [1]), array([1000], [1001]), array([1, 0], [0, 1]))),
            Rung("scores far apart", "The scores of the last row are 0 and 2000.",
                 (array([0], [1]), array([0], [2000]), array([1, 0], [0, 1]))),
            Rung("all of it together", "Five tokens, keys of width 3, values of width 4.",
                 (numbers(11, 5, 3), numbers(12, 5, 3), numbers(13, 5, 4))),
        ),
    ),
    buffers={"weights": lambda Q, K, V: (len(K),), "out": lambda Q, K, V: (len(Q), V.shape[1])},
    inputs=(numbers(14, 6, 6), numbers(15, 6, 6), numbers(16, 6, 7)),
    sizes="6 tokens, so 21 pairs of a query and a key, keys of width 6 and values of width 7",
    limits=_limits(21, 6, 7),
)  # fmt: skip

# --- Counts on paper, compared with counts of a run ----------------------------------------------


def _run(kernel, **sizes):
    return counted(kernel, {name: np.ones(shape) for name, shape in sizes.items()})


def multiply_adds(n, d):
    """Return the multiply-adds of causal attention: the course's own loop is run and counted."""
    shapes = {"Q": (n, d), "K": (n, d), "V": (n, d), "weights": (n, n), "out": (n, d)}
    return _run(attention._attend_causal, **shapes).done["multiply-adds"]


def bytes_of_query(n, d, size):
    """Return the bytes of keys and values that one query reads: its loop is run and counted."""
    tally = _run(attention._attend, q=(d,), K=(n, d), V=(n, d), weights=(n,), out=(d,))
    return size * sum(name in ("K", "V") for name, _ in tally.reads)


MULTIPLY_ADDS = Building(
    name="multiply_adds",
    parameters=("n", "d"),
    definition=multiply_adds,
    rungs=(
        Rung("one token of width 1",
             "Expected is what the course's own loop did, counted: one multiply-add for the score, "
             "one for the value.", (1, 1)),
        Rung("the width", "One token, five coordinates. The loop was run and counted.", (1, 5)),
        Rung("the left context",
             "Three tokens of width 1: they see one, two and three keys. The loop was run and "
             "counted.", (3, 1)),
        Rung("both", "Six tokens of width 4. The loop was run and counted.", (6, 4)),
    ),
)  # fmt: skip

BYTES = Building(
    name="bytes_of_query",
    parameters=("n", "d", "size"),
    definition=bytes_of_query,
    rungs=(
        Rung("one key and one value",
             "One key of width 1 and one value, 4 bytes for each number. Expected is what the "
             "course's own loop read, counted.", (1, 1, 4)),
        Rung("the keys and values seen", "Three keys and values of width 1.", (3, 1, 4)),
        Rung("the width", "Two keys and values of width 5.", (2, 5, 4)),
        Rung("the size of a number", "The same in float16: 2 bytes for each number.", (2, 5, 2)),
    ),
)  # fmt: skip

# --- The bound: the roofline of Williams, Waterman and Patterson 2009, section 3 -----------------

PEAK, BANDWIDTH = 100e9, 20e9  # multiply-adds and bytes in a second
WIDTHS = 576, 1536


@dataclass(frozen=True)
class Case:
    """Something to compute: multiply-adds, and bytes that must come from memory or go there."""

    words: str
    multiply_adds: int
    bytes: int

    @property
    def seconds(self):
        """The shortest time that arithmetic takes, and the shortest that memory takes."""
        return {"A": self.multiply_adds / PEAK, "M": self.bytes / BANDWIDTH}

    @property
    def bound(self):
        """M where memory takes longer, A where arithmetic does."""
        seconds = self.seconds
        return max(seconds, key=seconds.__getitem__)


def _product(words, tokens, size):
    d, d_ff = WIDTHS
    return Case(words, tokens * d * d_ff, size * d * d_ff + 4 * tokens * (d + d_ff))


def _cases():
    n, d = 4096, 64
    return (
        Case("one query over 4096 keys and values of width 64, in float32", 2 * n * d, 8 * n * d),
        _product("one token through W_1, 576 × 1536, in float32", 1, 4),
        Case("causal attention of 4096 tokens of width 64, in float32; Q, K, V are read once and "
             "the output is written once", n * (n + 1) * d, 16 * n * d),
        _product("one token through W_1, with 8 bits for each weight", 1, 1),
        _product("256 tokens through W_1, in float32; W_1 is read once", 256, 4),
        _product("16 tokens through W_1, with 8 bits for each weight; W_1 is read once", 16, 1),
    )  # fmt: skip


CASES = _cases()
BOUND_FORM = 'a letter for each case, M or A, in one string, such as "A M A M A M"'


def judge_bound(answer):
    """Judge a letter for each case; the first wrong one is answered with the two times."""
    if type(answer) is not str:
        raise Malformed(
            f"the answer should be {BOUND_FORM}; it is of type {type(answer).__name__}."
        )
    letters = re.sub(r"[\s,;]", "", answer).upper()
    if set(letters) - {"A", "M"} or len(letters) != len(CASES):
        raise Malformed(f"the answer should be {BOUND_FORM}; it is {answer!r}.")
    for number, (letter, case) in enumerate(zip(letters, CASES, strict=True), 1):
        if letter != case.bound:
            arithmetic, memory = (f"{1e3 * case.seconds[key]:.3f} ms" for key in "AM")
            raise Wrong(
                f"case {number}, {case.words}: you say {letter}. It takes {case.multiply_adds:,} "
                f"multiply-adds, at the peak {arithmetic}; and it moves {case.bytes:,} bytes, at "
                f"the memory's speed {memory}. What takes longer is the bound."
            )
    return "What does little with each byte waits for the memory; what reuses its bytes does not."


# --- Online softmax: Milakov and Gimelshein 2018, algorithm 3 ------------------------------------

N, D, D_V = 9, 4, 6


def _reads(name):
    return lambda tally: sum(read == name for read, _ in tally.reads)


def one_pass(tally):
    """Say where a key was read before the value of the key before it was used, if anywhere."""
    used = -1
    for name, place in tally.reads:
        if name == "V":
            used = max(used, place // D_V)
        if name == "K" and place // D > used + 1:
            key = place // D
            return (
                f"It reads key {key} before it has used value {key - 1}, so the scores of several "
                "keys are kept at once: of all of them in two passes, of a block of them where "
                "keys are taken in blocks. Here nothing is kept of a key once its value is used."
            )
    return ""


ONLINE = Kernel(
    values=Building("attend_online", ("q", "K", "V"), reference.attend, ONE_QUERY + LARGE_SCORES),
    buffers={"out": lambda q, K, V: (V.shape[1],)},
    inputs=(numbers(17, D), numbers(18, N, D), numbers(19, N, D_V)),
    sizes=f"{N} keys of width {D} and values of width {D_V}",
    limits=(
        Limit("reads of K", _reads("K"), N * D, N * D,
              "Each key is read once: compute its score, use it, and go on."),
        Limit("reads of V", _reads("V"), N * D_V, N * D_V,
              "Each value is read once, right after the score of its key."),
        Limit("exponentials", done("exponentials"), 2 * N, 2 * N,
              "Two for each key are enough: one for the key, one for what was summed up before it. "
              "The second is the same for the sum and for all coordinates of out."),
        Limit("multiply-adds", done("multiply-adds"), N * (D + D_V), N * (D + D_V + 2),
              "Each key meets the query once, and each value is added once."),
        Limit("other multiplications and divisions", done("multiplications", "divisions"),
              N * (D_V + 1), N * (D_V + 4),
              "For each key one for the scale, and one for each coordinate of out. The division by "
              "the sum belongs after the loop."),
    ),
    order=one_pass,
)  # fmt: skip

TASKS = [
    Task("07.attend", "Attention as a loop", ATTEND.form, 15, 2, ATTEND.judge),
    Task("07.causal", "All queries, and no wasted work", CAUSAL.form, 10, 2, CAUSAL.judge),
    Task("07.multiply_adds", "The work on paper", MULTIPLY_ADDS.form, 5, 1, MULTIPLY_ADDS.judge),
    Task("07.bytes", "The bytes of one query", BYTES.form, 5, 1, BYTES.judge),
    Task("07.bound", "Memory or arithmetic", BOUND_FORM, 8, 2, judge_bound),
    Task("07.online", "One pass", ONLINE.form, 15, 3, ONLINE.judge),
]  # fmt: skip
