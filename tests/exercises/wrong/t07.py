"""Kernels for exercise 07: the right ones, and plausible wrong ones with their messages."""

import math

import numpy as np

from lib.jit import kernel


@kernel
def attend_one(q, K, V, weights, out):
    n, d = K.shape
    top = -np.inf
    for j in range(n):
        dot = 0.0
        for c in range(d):
            dot += q[c] * K[j, c]
        weights[j] = dot / np.sqrt(d)
        top = max(top, weights[j])
    total = 0.0
    for j in range(n):
        weights[j] = np.exp(weights[j] - top)
        total += weights[j]
    out[:] = 0.0
    for j in range(n):
        for c in range(V.shape[1]):
            out[c] += weights[j] * V[j, c]
    for c in range(V.shape[1]):
        out[c] /= total


@kernel
def dot(a, b):
    total = a[0] * b[0]
    for c in range(1, len(a)):
        total += a[c] * b[c]
    return total


@kernel
def attend_with_helper(q, K, V, weights, out):
    scale = np.float32(1.0) / math.sqrt(len(q))
    for j in range(len(K)):
        weights[j] = dot(q, K[j]) * scale
    top = weights[0]
    for j in range(1, len(K)):
        if weights[j] > top:
            top = weights[j]
    total = np.float32(0.0)
    for j in range(len(K)):
        weights[j] = math.exp(weights[j] - top)
        total += weights[j]
    out.fill(0.0)
    for j in range(len(K)):
        share = weights[j] / total
        for c in range(V.shape[1]):
            out[c] += share * V[j, c]


@kernel
def attend_all(Q, K, V, weights, out):
    for i in range(len(Q)):
        attend_one(Q[i], K[: i + 1], V[: i + 1], weights[: i + 1], out[i])


@kernel
def attend_online(q, K, V, out):
    scale = 1.0 / np.sqrt(len(q))
    top, total = -np.inf, 0.0
    out[:] = 0.0
    for j in range(len(K)):
        score = 0.0
        for c in range(len(q)):
            score += q[c] * K[j, c]
        score *= scale
        higher = max(top, score)
        fade = np.exp(top - higher)
        power = np.exp(score - higher)
        top = higher
        total = total * fade + power
        for c in range(len(out)):
            out[c] = out[c] * fade + power * V[j, c]
    for c in range(len(out)):
        out[c] /= total


@kernel
def attend_online_branching(q, K, V, out):
    top, total = 0.0, 0.0
    for j in range(len(K)):
        score = dot(q, K[j]) / math.sqrt(len(q))
        if j == 0 or score > top:
            fade = np.exp(top - score) if j > 0 else 0.0
            top = score
            total *= fade
            for c in range(len(out)):
                out[c] = out[c] * fade if j > 0 else 0.0
        power = np.exp(score - top)
        total += power
        for c in range(len(out)):
            out[c] += power * V[j, c]
    for c in range(len(out)):
        out[c] /= total


def multiply_adds(n, d):
    return n * (n + 1) * d


def bytes_of_query(n, d, size):
    return 2 * n * d * size


RIGHT = {
    "07.attend": attend_one,
    "07.causal": attend_all,
    "07.multiply_adds": multiply_adds,
    "07.bytes": bytes_of_query,
    "07.bound": "M M A M A A",
    "07.online": attend_online,
}


ALSO_RIGHT = {
    "07.attend": [attend_with_helper],
    "07.causal": [],
    "07.multiply_adds": [lambda n, d: sum(2 * d * seen for seen in range(1, n + 1))],
    "07.bytes": [lambda n, d, size: np.int64(2 * n * d * size)],
    "07.bound": ["mmamaa", "M, M, A, M, A, A"],
    "07.online": [attend_online_branching],
}

# --- Mutants: one loop with switches, each of which is a mistake ---------------------------------


def one(
    scale=lambda n, d: math.sqrt(d),
    first=lambda s: -np.inf,
    keep=True,
    clear=True,
    norm=True,
    inside=None,
    keys=lambda n: n,
    source="V",
):
    """A loop for one query. ``inside`` names work that is done where it need not be."""

    def attend(q, K, V, weights, out):
        (n, d), d_v = K.shape, V.shape[1]
        mixed = V if source == "V" else K
        if clear:
            for c in range(d_v):
                out[c] = 0.0
        for j in range(keys(n)):
            s = 0.0
            for c in range(d):
                s += q[c] * K[j, c] / scale(n, d) if inside == "scale" else q[c] * K[j, c]
            weights[j] = s if inside == "scale" else s / scale(n, d)
        top = first(weights)
        for j in range(keys(n)):
            top = max(top, weights[j]) if keep else top
        total = 0.0
        if inside != "exp":
            for j in range(keys(n)):
                weights[j] = np.exp(weights[j] - top)
                total += weights[j]
        else:
            for j in range(n):
                total += np.exp(weights[j] - top)
        for j in range(keys(n)):
            if inside == "total":
                total = 0.0
                for k in range(n):
                    total += weights[k]
            if inside == "max":
                again = weights[0]
                for k in range(n):
                    again = max(again, weights[k])
            share = np.exp(weights[j] - top) if inside == "exp" else weights[j]
            for c in range(d_v):
                if inside == "division":
                    out[c] += share / total * mixed[j, c]
                else:
                    out[c] += share * mixed[j, c]
        if norm and inside != "division":
            for c in range(d_v):
                out[c] = out[c] / total

    return attend


def nothing(*arrays):
    return None


def returns_it(q, K, V, weights, out):
    s = K @ q / np.sqrt(len(q))
    p = np.exp(s - s.max())
    return p @ V / p.sum()


def whole_arrays(q, K, V, weights, out):
    weights[:] = np.dot(K, q) / np.sqrt(len(q))
    weights[:] = np.exp(weights - weights.max())
    out[:] = np.dot(weights, V) / weights.sum()


def operators(q, K, V, weights, out):
    weights[:] = K @ q / math.sqrt(len(q))
    weights[:] = np.exp(weights - max(weights))
    out[:] = weights @ V / sum(weights)


def squares_keys(q, K, V, weights, out):
    for c in range(len(q)):
        q[c] = q[c] / math.sqrt(len(q))
    one(scale=lambda n, d: 1)(q, K, V, weights, out)


def twice(q, K, V, weights, out):
    one()(q, K, V, weights, out)
    one()(q, K, V, weights, out)


def past_the_end(q, K, V, weights, out):
    for j in range(len(K) + 1):
        weights[j] = K[j, 0]


def plain_dot(a, b):
    total = 0.0
    for c in range(len(a)):
        total += a[c] * b[c]
    return total


@kernel
def helper_not_compiled(q, K, V, weights, out):
    for j in range(len(K)):
        weights[j] = plain_dot(q, K[j]) / np.sqrt(len(q))
    top = weights[0]
    for j in range(len(K)):
        top = max(top, weights[j])
    total = 0.0
    for j in range(len(K)):
        weights[j] = np.exp(weights[j] - top)
        total += weights[j]
    out[:] = 0.0
    for j in range(len(K)):
        for c in range(len(out)):
            out[c] += weights[j] * V[j, c]
    for c in range(len(out)):
        out[c] /= total


def every(attend, seen=lambda i, n: i + 1, rows=lambda n: n):
    """All queries, each with a loop for one."""

    def attend_all(Q, K, V, weights, out):
        for i in range(rows(len(Q))):
            k = seen(i, len(K))
            attend(Q[i], K[:k], V[:k], weights[:k], out[i])

    return attend_all


def square(scores_only=False, values_only=False):
    """All queries over all keys; the future is masked where it has been computed."""

    def attend_all(Q, K, V, weights, out):
        (n, d), d_v = K.shape, V.shape[1]
        for i in range(n):
            seen = i + 1 if values_only else n
            for j in range(seen):
                s = 0.0
                for c in range(d):
                    s += Q[i, c] * K[j, c]
                weights[j] = s / math.sqrt(d) if j <= i else -np.inf
            top = weights[0]
            for j in range(1, i + 1):
                top = max(top, weights[j])
            total = 0.0
            for j in range(i + 1 if scores_only else seen):
                weights[j] = np.exp(weights[j] - top)
                total += weights[j]
            for c in range(d_v):
                out[i, c] = 0.0
            for j in range(i + 1 if scores_only else n):
                share = weights[j] if j <= i else 0.0
                for c in range(d_v):
                    out[i, c] += share * V[j, c]
            for c in range(d_v):
                out[i, c] /= total

    return attend_all


def transposed(Q, K, V, weights, out):
    every(one())(K, Q, V, weights, out)


def online(
    start=-np.inf,
    fade_total=True,
    fade_out=True,
    upside_down=False,
    update=True,
    scale=lambda d: math.sqrt(d),
    norm=True,
    inside=None,
):
    """A loop of one pass, with switches."""

    def attend(q, K, V, out):
        top, total = start, 0.0
        for c in range(len(out)):
            out[c] = 0.0
        for j in range(len(K)):
            s = 0.0
            for c in range(len(q)):
                s += q[c] * K[j, c]
            s = s / scale(len(q))
            higher = max(top, s)
            fade = np.exp(higher - top) if upside_down else np.exp(top - higher)
            power = np.exp(s - higher)
            top = higher if update else top
            total = total * fade + power if fade_total else total + power
            for c in range(len(out)):
                if inside == "exp":
                    out[c] = out[c] * np.exp(fade * 0) * fade + power * V[j, c]
                elif inside == "division":  # after each step out is the mean so far
                    before = (total - power) / total * out[c] if j else 0.0
                    out[c] = before + power / total * V[j, c]
                else:
                    out[c] = out[c] * (fade if fade_out else 1) + power * V[j, c]
        if norm and inside != "division":
            for c in range(len(out)):
                out[c] = out[c] / total

    return attend


def two_passes(q, K, V, out):
    one()(q, K, V, np.empty(len(K), np.float32), out)


def max_first(q, K, V, out):
    top = -np.inf
    for j in range(len(K)):
        top = max(top, plain_dot(q, K[j]) / math.sqrt(len(q)))
    out[:] = 0.0
    total = 0.0
    for j in range(len(K)):
        power = np.exp(plain_dot(q, K[j]) / math.sqrt(len(q)) - top)
        total += power
        for c in range(len(out)):
            out[c] += power * V[j, c]
    for c in range(len(out)):
        out[c] /= total


def values_twice(q, K, V, out):
    online()(q, K, V, out)
    for j in range(len(V)):
        for c in range(len(out)):
            V[j, c] > 0  # noqa: B015


MORE = "gives the right values, but does more than it has to"
MEAN = "fails at the mean of equal keys"
SCALE = "fails at the scale"

WRONG = {
    "07.attend": [
        ("nothing yet", nothing, "writes nothing into out yet"),
        ("returned", returns_it, "should write it into out"),
        ("not a function", "attend_one", "it is of type str"),
        ("out not cleared", one(clear=False), r"what was in out before[\s\S]*came = \[10., -2.\]"),
        ("not normed", one(norm=False), rf"{MEAN}[\s\S]*Every number is 4 times"),
        ("keys mixed", one(source="K"), "IndexError|fails at what was in out before"),
        ("no scale", one(scale=lambda n, d: 1), SCALE),
        ("divided by d", one(scale=lambda n, d: d), SCALE),
        ("√n for √d", one(scale=lambda n, d: math.sqrt(n)), "fails at the soft choice"),
        ("naive softmax", one(first=lambda s: 0.0, keep=False), "fails at large scores"),
        ("maximum from zero", one(first=lambda s: 0.0), "fails at scores far below zero"),
        ("first score as the maximum", one(first=lambda s: s[0], keep=False),
         "fails at scores far apart"),
        ("last key forgotten", one(keys=lambda n: max(1, n - 1)), MEAN),
        ("off the end", past_the_end, "raises IndexError"),
        ("query changed", squares_keys, "changes its argument q in place"),
        ("all done twice", twice, rf"{MORE}[\s\S]*multiply-adds: 252 done, 126 needed"),
        ("exponentials twice", one(inside="exp"), rf"{MORE}[\s\S]*exponentials: 18 done, 9 needed"),
        ("maximum in the loop", one(inside="max"), rf"{MORE}. The largest score is the same"),
        ("sum in the loop", one(inside="total"), rf"{MORE}. The sum of the exponentials is the"),
        ("division in the loop", one(inside="division"), rf"{MORE}. One for the scale"),
        ("scale in the loop", one(inside="scale"), rf"{MORE}. One for the scale"),
        ("NumPy for the loop", whole_arrays, "cannot be counted: CourseError: dot is not"),
        ("operators for the loop", operators, "cannot be counted: TypeError"),
        ("not compiled", one(), "but it is plain Python. Put @kernel"),
        ("helper not compiled", helper_not_compiled, "does not compile: .*plain_dot"),
    ],
    "07.causal": [
        ("nothing yet", nothing, "writes nothing into out yet"),
        ("no mask", every(one(), seen=lambda i, n: n), "fails at the first row"),
        ("itself unseen", every(one(), seen=lambda i, n: max(1, i)), "fails at equal scores"),
        ("one too many", every(one(), seen=lambda i, n: min(n, i + 2)), "fails at the first row"),
        ("from the other end", every(one(), seen=lambda i, n: n - i), "fails at the first row"),
        ("last row forgotten", every(one(), rows=lambda n: n - 1),
         "writes nothing|fails at what was in out before"),
        ("out not cleared", every(one(clear=False)), "fails at what was in out before"),
        ("no scale", every(one(scale=lambda n, d: 1)), "fails at all of it together"),
        ("√n for √d", every(one(scale=lambda n, d: math.sqrt(n))),
         "fails at who asks and who is asked"),
        ("keys ask", transposed, "fails at who asks and who is asked"),
        ("naive softmax", every(one(first=lambda s: 0.0, keep=False)), "fails at large scores"),
        ("the full square", square(), rf"{MORE}[\s\S]*what the query does not see is not touched"),
        ("scores of the square", square(scores_only=True), rf"{MORE}[\s\S]*363 done, 273 needed"),
        ("values of the square", square(values_only=True), rf"{MORE}[\s\S]*378 done, 273 needed"),
        ("exponentials twice", every(one(inside="exp")), rf"{MORE}. One exponential for each key"),
        ("maximum in the loop", every(one(inside="max")), rf"{MORE}. The largest score"),
        ("not compiled", every(one()), "but it is plain Python"),
    ],
    "07.multiply_adds": [
        ("nothing yet", lambda n, d: None, "returns nothing yet"),
        ("a number", 12, "Hand it over by its name"),
        ("the full square", lambda n, d: 2 * n * n * d, r"fails at the left context[\s\S]*= 18"),
        ("scores alone", lambda n, d: n * (n + 1) // 2 * d, "fails at one token of width 1"),
        ("half the square", lambda n, d: n * n * d, "fails at one token of width 1"),
        ("itself unseen", lambda n, d: n * (n - 1) * d, "fails at one token of width 1"),
        ("one query", lambda n, d: 2 * n * d, "fails at the left context"),
        ("width forgotten", lambda n, d: n * (n + 1), "fails at the width"),
        ("width squared", lambda n, d: n * (n + 1) * d * d, "fails at the width"),
        ("flops", lambda n, d: 2 * n * (n + 1) * d, "Every|fails at one token of width 1"),
        ("right for n = d only", lambda n, d: d * (d + 1) * n, "fails at the width"),
        ("text", lambda n, d: "12", "returns something of type str"),
        ("an error", lambda n, d: n / 0, "raises ZeroDivisionError"),
    ],
    "07.bytes": [
        ("nothing yet", lambda n, d, size: None, "returns nothing yet"),
        ("a number", 8, "Hand it over by its name"),
        ("numbers, not bytes", lambda n, d, size: 2 * n * d, "fails at one key and one value"),
        ("bits", lambda n, d, size: 16 * n * d * size, "fails at one key and one value"),
        ("keys alone", lambda n, d, size: n * d * size, "fails at one key and one value"),
        ("always four", lambda n, d, size: 8 * n * d, "fails at the size of a number"),
        ("one of them alone", lambda n, d, size: 2 * d * size, "fails at the keys and values seen"),
        ("width forgotten", lambda n, d, size: 2 * n * size, "fails at the width"),
        ("all queries", lambda n, d, size: n * (n + 1) * d * size,
         "fails at the keys and values seen"),
        ("with the query", lambda n, d, size: (2 * n + 1) * d * size,
         "fails at one key and one value"),
        ("size squared", lambda n, d, size: 2 * n * d * size**2, "fails at one key and one value"),
    ],
    "07.bound": [
        ("a list", list("MMAMAA"), "it is of type list"),
        ("too few", "M M A", "a letter for each case"),
        ("other letters", "M M C M C C", "a letter for each case"),
        ("reversed", "A A M A M M", "case 1, one query .* 524,288 multiply-adds"),
        ("all memory", "M M M M M M", "case 3, causal attention"),
        ("all arithmetic", "A A A A A A", "case 1, one query"),
        ("the smaller file computes", "M M A A A A", "case 4, one token through W_1, with 8 bits"),
        ("many tokens wait", "M M A M M A", "case 5, 256 tokens"),
        ("8 bits wait", "M M A M A M", "case 6, 16 tokens"),
        ("big matrices compute", "M A A M A A", "case 2, one token through W_1"),
        ("alternating", "M A M A M A", "case 2, one token through W_1"),
    ],
    "07.online": [
        ("nothing yet", nothing, "writes nothing into out yet"),
        ("the sum does not fade", online(fade_total=False), "fails at the soft choice"),
        ("out does not fade", online(fade_out=False), "fails at the soft choice"),
        ("the factor upside down", online(upside_down=True), r"NaN|fails at"),
        ("maximum never updated", online(update=False), "fails at"),
        ("maximum from zero", online(start=0.0), "fails at scores far below zero"),
        ("no scale", online(scale=lambda d: 1), SCALE),
        ("divided by d", online(scale=lambda d: d), SCALE),
        ("not normed", online(norm=False), MEAN),
        ("scores kept", two_passes, rf"{MORE}. It reads key 1 before it has used value 0"),
        ("maximum first", max_first, rf"{MORE}. Each key is read once"),
        ("values read twice", values_twice, rf"{MORE}. Each value is read once"),
        ("exponential for each coordinate", online(inside="exp"), rf"{MORE}. Two for each key"),
        ("normed at each step", online(inside="division"), rf"{MORE}. For each key one for the"),
        ("not compiled", online(), "but it is plain Python"),
    ],
}  # fmt: skip
