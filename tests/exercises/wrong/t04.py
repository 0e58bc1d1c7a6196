"""Functions for exercise 04: the right ones, and plausible wrong ones with their messages."""

import numpy as np


def scores(q, K):
    return K @ q / np.sqrt(len(q))


def softmax(scores):
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def attend(q, K, V):
    return softmax(scores(q, K)) @ V


def mixing(scale=None, norm=softmax, visible=None, swap=False, fill=-np.inf):
    """A family of causal weights, each member with something of its own."""

    def weights(Q, K):
        (n, d), m = K.shape, len(Q)
        found = (K @ Q.T).T if not swap else K @ Q.T
        found = found / (np.sqrt(d) if scale is None else scale(n, d))
        seen = np.tri(n, dtype=bool)[n - m :] if visible is None else visible(m, n)
        return norm(np.where(seen, found, fill))

    return weights


def naive(scores):
    powers = np.exp(scores)
    return powers / powers.sum(axis=-1, keepdims=True)


def over_axis_0(scores):
    powers = np.exp(scores - scores.max(axis=0))
    return powers / powers.sum(axis=0)


def masked_after(Q, K):
    return softmax(Q @ K.T / np.sqrt(K.shape[1])) * np.tri(len(K))


def unmasked_largest(Q, K):
    """The largest score is taken before the future is masked."""
    found = Q @ K.T / np.sqrt(K.shape[1])
    powers = np.exp(found - found.max(axis=1, keepdims=True))
    powers = powers * np.tri(len(K), dtype=bool)[len(K) - len(Q) :]
    return powers / powers.sum(axis=1, keepdims=True)


def in_place(Q, K):
    Q /= np.sqrt(K.shape[1])
    return mixing(scale=lambda n, d: 1)(Q, K)


def in_float32(function):
    """The same function in float32: still right."""
    return lambda *arrays: function(*(np.float32(a) for a in arrays)).astype(np.float32)


def then_values(weights):
    return lambda Q, K, V: weights(Q, K) @ V


def own_only(Q, K, V):
    return V[len(K) - len(Q) :]


def as_lists(Q, K, V):
    return [list(row) for row in mixing()(Q, K) @ V]


causal_weights = mixing()
attend_causal = then_values(causal_weights)

RIGHT = {
    "04.scores": scores,
    "04.softmax": softmax,
    "04.attend": attend,
    "04.causal_weights": causal_weights,
    "04.attend_causal": attend_causal,
    "04.last_queries": attend_causal,
}

ALSO_RIGHT = {
    "04.scores": [in_float32(scores), lambda q, K: [sum(q * k) / len(q) ** 0.5 for k in K]],
    "04.softmax": [in_float32(softmax), lambda s: softmax(s).tolist()],
    "04.attend": [in_float32(attend)],
    "04.causal_weights": [in_float32(causal_weights)],
    "04.attend_causal": [in_float32(attend_causal), as_lists],
    "04.last_queries": [in_float32(attend_causal), as_lists],
}

SCALE = "fails at the scale"


def add_in_place(q, K):
    q /= np.sqrt(len(q))
    return K @ q


def swapped(V):
    return np.vstack([V[:-2], V[-1:], V[-2:-1]]) if len(V) > 1 else V


def window(m, n):
    return np.tri(n, dtype=bool) & ~np.tri(n, k=-4, dtype=bool)


WRONG = {
    "04.scores": [
        ("no scale", lambda q, K: K @ q, rf"{SCALE}[\s\S]* is 4 times what it should be"),
        ("divided by d", lambda q, K: K @ q / len(q), rf"{SCALE}[\s\S]*0.25 times"),
        ("√n for √d", lambda q, K: K @ q / np.sqrt(len(K)), "fails at one score for each key"),
        ("times √d", lambda q, K: K @ q * np.sqrt(len(q)), rf"{SCALE}[\s\S]* 16 times"),
        ("cosines", lambda q, K: K @ q / (np.linalg.norm(K, axis=1) * np.linalg.norm(q)),
         "fails at one score for each key"),
        ("the last coordinate forgotten", lambda q, K: K[:, :2] @ q[:2] / np.sqrt(len(q)),
         "fails at the dot product"),
        ("the largest product for the sum", lambda q, K: (K * q).max(axis=1) / np.sqrt(len(q)),
         "fails at the dot product"),
        ("absolute values", lambda q, K: np.abs(scores(q, K)), "fails at one score for each key"),
        ("keys reversed", lambda q, K: scores(q, K)[::-1], "not in their places"),
        ("the last key forgotten", lambda q, K: scores(q, K[:-1]), r"should have shape \(3,\); it"),
        ("weights for scores", lambda q, K: softmax(scores(q, K)),
         "fails at one score for each key"),
        ("K not transposed", lambda q, K: q @ K / np.sqrt(len(q)), "scores raises ValueError"),
        ("a column", lambda q, K: scores(q, K)[:, None], r"it has shape \(3, 1\)"),
        ("in place", add_in_place, "changes its argument q in place"),
        ("whole numbers", lambda q, K: scores(q, K).astype(int), "fails at the dot product"),
        ("right for up to 16 coordinates", lambda q, K: scores(q, K) * (len(q) != 7),
         "fails at other shapes"),
        ("called", scores(np.ones(2), np.ones((3, 2))), "Hand it over by its name"),
    ],
    "04.softmax": [
        ("not divided by the sum", lambda s: np.exp(s - s.max(axis=-1, keepdims=True)),
         r"fails at weights that sum to one[\s\S]* is 4 times"),
        ("no exponential", lambda s: s / s.sum(axis=-1, keepdims=True),
         r"fails at weights that sum to one[\s\S]*NaN comes of"),
        ("powers of two", lambda s: naive(s * np.log(2)), "fails at the exponential"),
        ("squared exponential", lambda s: softmax(2 * s), "fails at the exponential"),
        ("absolute scores", lambda s: softmax(np.abs(s)), "fails at scores of both signs"),
        ("negative scores cut off", lambda s: softmax(np.maximum(s, 0)), "scores of both signs"),
        ("over axis 0", lambda s: over_axis_0(s), "fails at each row for itself"),
        ("one sum for all rows", lambda s: np.exp(s - s.max()) / np.exp(s - s.max()).sum(),
         "fails at each row for itself"),
        ("no maximum subtracted", naive, r"fails at large scores[\s\S]*NaN comes of"),
        ("the minimum subtracted", lambda s: naive(s - s.min(axis=-1, keepdims=True)),
         "fails at scores far apart"),
        ("the mean subtracted", lambda s: naive(s - s.mean(axis=-1, keepdims=True)),
         "fails at scores far apart"),
        ("the largest absolute value subtracted",
         lambda s: naive(s - np.abs(s).max(axis=-1, keepdims=True)),
         "fails at scores far below zero"),
        ("scores clipped", lambda s: naive(np.clip(s, -500, 500)), "fails at large scores"),
        ("one maximum for all rows", lambda s: naive(s - s.max()),
         "fails at rows of different size"),
        ("sorted", lambda s: np.sort(softmax(s)), "fails at scores of both signs"),
        ("the logarithm", lambda s: np.log(softmax(s)), "fails at weights that sum to one"),
        ("hard", lambda s: (s == s.max(axis=-1, keepdims=True)) * 1.0,
         "fails at weights that sum to one"),
        ("float16", lambda s: softmax(s).astype(np.float16), "returns float16"),
        ("a matrix", lambda s: np.matrix(softmax(s)), "array of the class matrix"),
    ],
    "04.attend": [
        ("keys for values", lambda q, K, V: softmax(scores(q, K)) @ K, "fails at the values"),
        ("weights for the output", lambda q, K, V: softmax(scores(q, K)), "fails at the values"),
        ("the query added", lambda q, K, V: attend(q, K, V) + q.sum(), "fails at the values"),
        ("no softmax", lambda q, K, V: scores(q, K) @ V, "fails at the values"),
        ("not divided by the sum", lambda q, K, V: np.exp(scores(q, K)) @ V, "fails at the values"),
        ("the plain mean", lambda q, K, V: V.mean(axis=0), "fails at a key that fits"),
        ("the last value", lambda q, K, V: V[-1], "fails at the mean of equal keys"),
        ("values reversed", lambda q, K, V: attend(q, K, V[::-1]), "fails at a key that fits"),
        ("a swapped pair", lambda q, K, V: attend(q, K, swapped(V)), "fails at a key that fits"),
        ("the sign turned", lambda q, K, V: softmax(-scores(q, K)) @ V, "fails at a key that fits"),
        ("the best key alone", lambda q, K, V: V[np.argmax(K @ q)],
         "fails at the mean of equal keys"),
        ("no scale", lambda q, K, V: softmax(K @ q) @ V, SCALE),
        ("divided by d", lambda q, K, V: softmax(K @ q / len(q)) @ V, SCALE),
        ("√n for √d", lambda q, K, V: softmax(K @ q / len(K) ** 0.5) @ V, "at the soft choice"),
        ("sqrt of the values' width", lambda q, K, V: softmax(K @ q / V.shape[1] ** 0.5) @ V,
         "fails at the soft choice"),
        ("no maximum subtracted", lambda q, K, V: naive(scores(q, K)) @ V, "fails at large scores"),
        ("a row", lambda q, K, V: attend(q, K, V)[None], r"it has shape \(1, 2\)"),
        ("right for square V only", lambda q, K, V: V.T @ softmax(scores(q, K))
         if V.shape != (5, 4) else V[:4] @ V[0], "fails at all of it together"),
    ],
    "04.causal_weights": [
        ("no mask", mixing(visible=lambda m, n: np.ones((m, n), bool)), "what a token may see"),
        ("mask leaves out the own token", mixing(visible=lambda m, n: np.tri(n, k=-1, dtype=bool)),
         r"fails at the own token[\s\S]*NaN comes of"),
        ("the same with −10⁹", mixing(visible=lambda m, n: np.tri(n, k=-1, dtype=bool), fill=-1e9),
         "fails at what a token may see"),
        ("mask one too far", mixing(visible=lambda m, n: np.tri(n, k=1, dtype=bool)),
         "fails at what a token may see"),
        ("the past masked", mixing(visible=lambda m, n: np.tri(n, dtype=bool).T),
         "fails at what a token may see"),
        ("mask after the softmax", masked_after, "fails at the sum of each row"),
        ("masked scores set to zero", mixing(fill=0.0), "fails at what a token may see"),
        ("mask of −10⁹", mixing(fill=-1e9), "fails at a score lower than any mask"),
        ("softmax over axis 0", mixing(norm=over_axis_0), "fails at the sum of each row"),
        ("queries and keys swapped", mixing(swap=True), "fails at who asks and who is asked"),
        ("no scale", mixing(scale=lambda n, d: 1), SCALE),
        ("divided by d", mixing(scale=lambda n, d: d), SCALE),
        ("√n for √d", mixing(scale=lambda n, d: n**0.5), "fails at who asks"),
        ("no maximum subtracted", mixing(norm=naive), r"fails at large scores[\s\S]*NaN"),
        ("not normalised", mixing(norm=lambda s: np.exp(s - s.max(axis=1, keepdims=True))),
         "fails at the sum of each row"),
        ("transposed", lambda Q, K: causal_weights(Q, K).T, "fails at the sum of each row"),
        ("the largest score of the whole row", unmasked_largest,
         "fails at (a score lower than any mask|a loud future)"),
        ("in place", in_place, "changes its argument Q in place"),
    ],
    "04.attend_causal": [
        ("no mask", then_values(mixing(visible=lambda m, n: np.ones((m, n), bool))),
         "fails at the first row"),
        ("mask leaves out the own token",
         then_values(mixing(visible=lambda m, n: np.tri(n, k=-1, dtype=bool), fill=-1e9)),
         "fails at the first row"),
        ("mask one too far", then_values(mixing(visible=lambda m, n: np.tri(n, k=1, dtype=bool))),
         "fails at the first row"),
        ("the past masked", then_values(mixing(visible=lambda m, n: np.tri(n, dtype=bool).T)),
         "fails at the first row"),
        ("mask after the softmax", then_values(masked_after), "fails at the first row"),
        ("masked scores set to zero", then_values(mixing(fill=0.0)), "fails at the first row"),
        ("softmax over axis 0", then_values(mixing(norm=over_axis_0)), "fails at the first row"),
        ("only the own value", own_only, "fails at equal scores"),
        ("keys for values", lambda Q, K, V: causal_weights(Q, K) @ K, r"it has shape \(1, 3\)"),
        ("weights for the output", lambda Q, K, V: causal_weights(Q, K), r"it has shape \(1, 1\)"),
        ("queries and keys swapped", lambda Q, K, V: attend_causal(K, Q, V), "fails at who asks"),
        ("no scale", then_values(mixing(scale=lambda n, d: 1)), SCALE),
        ("divided by d", then_values(mixing(scale=lambda n, d: d)), SCALE),
        ("sqrt of the values' width",
         lambda Q, K, V: mixing(scale=lambda n, d: V.shape[1] ** 0.5)(Q, K) @ V,
         "fails at who asks and who is asked"),
        ("no maximum subtracted", then_values(mixing(norm=naive)), "fails at large scores"),
        ("values centred over all tokens", lambda Q, K, V: attend_causal(Q, K, V - V.mean(axis=0)),
         "fails at the values"),
        ("the last row only", lambda Q, K, V: attend(Q[-1], K, V), r"it has shape \(2,\)"),
        ("a window of four tokens",
         then_values(mixing(visible=window)),
         "fails at all of it together"),
        ("the largest score of the whole row", then_values(unmasked_largest),
         "fails at a loud future"),
    ],
    "04.last_queries": [
        ("the largest score of the whole row", then_values(unmasked_largest),
         "fails at a loud future"),
        ("mask from the first position",
         then_values(mixing(visible=lambda m, n: np.tri(m, n, dtype=bool))),
         "fails at one query, the whole left context"),
        ("no mask", then_values(mixing(visible=lambda m, n: np.ones((m, n), bool))),
         "fails at as many queries as keys"),
        ("mask one too short", then_values(
            mixing(visible=lambda m, n: np.tri(m, n, k=n - m - 1, dtype=bool), fill=-1e9)),
         "fails at as many queries as keys"),
        ("mask one too far",
         then_values(mixing(visible=lambda m, n: np.tri(m, n, k=n - m + 1, dtype=bool))),
         "fails at as many queries as keys"),
        ("all keys where there are fewer queries", then_values(mixing(
            visible=lambda m, n: np.tri(n, dtype=bool) if m == n else np.ones((m, n), bool))),
         "fails at the last of the positions"),
        ("only its own key", own_only, "fails at as many queries as keys"),
        ("as many queries as keys only", lambda Q, K, V: softmax(
            np.where(np.tri(len(K), dtype=bool), Q @ K.T, -np.inf)) @ V,
         r"it has shape \(4, 2\)"),
        ("queries reversed", lambda Q, K, V: attend_causal(Q[::-1], K, V),
         "fails at who asks and who is asked"),
        ("the first keys", lambda Q, K, V: attend_causal(Q, K[: len(Q)], V[: len(Q)]),
         "fails at one query, the whole left context"),
        ("the last keys", lambda Q, K, V: attend_causal(Q, K[-len(Q) :], V[-len(Q) :]),
         "fails at one query, the whole left context"),
        ("no scale", then_values(mixing(scale=lambda n, d: 1)), SCALE),
        ("divided by d", then_values(mixing(scale=lambda n, d: d)), SCALE),
        ("√n for √d", then_values(mixing(scale=lambda n, d: n**0.5)), "fails at who asks"),
        ("no maximum subtracted", then_values(mixing(norm=naive)), "fails at large scores"),
        ("softmax over axis 0", then_values(mixing(norm=over_axis_0)), "as many queries as keys"),
        ("one query forgotten", lambda Q, K, V: attend_causal(Q, K, V)[1:], "should have shape"),
    ],
}  # fmt: skip
