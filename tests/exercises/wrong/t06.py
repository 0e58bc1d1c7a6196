"""Functions for exercise 06: the right ones, and plausible wrong ones with their messages."""

import numpy as np

from lib import attention as library
from tests.exercises.wrong import t04
from tests.exercises.wrong.t04 import attend, softmax


def stack(X, layers, step):
    for w in layers:
        X = step(X, w)
    return X


def predictions(X, layers, step, head):
    found = [int(np.argmax(head(X[-1])))]
    for w in layers:
        X = step(X, w)
        found.append(int(np.argmax(head(X[-1]))))
    return found


def next_token(logits, temperature, u):
    if temperature == 0:
        return int(np.argmax(logits))
    so_far = 0.0
    for token, p in enumerate(softmax(np.asarray(logits) / temperature)):
        so_far += p
        if u < so_far:
            return token
    return len(logits) - 1


def decode_step(x, K_cache, V_cache, W_Q, W_K, W_V):
    K = np.concatenate([K_cache, [x @ W_K]])
    V = np.concatenate([V_cache, [x @ W_V]])
    return attend(x @ W_Q, K, V), K, V


# --- stack ---


def in_place_stack(X, layers, step):
    for w in layers:
        X[:] = step(X, w)
    return X


def always_from_X(X, layers, step):
    for w in layers:
        H = step(X, w)
    return H


def all_stages(X, layers, step):
    stages = []
    for w in layers:
        X = step(X, w)
        stages.append(X)
    return stages


def returns_too_early(X, layers, step):
    for w in layers:
        return step(X, w)


# --- predictions ---


def stages(X, layers, step):
    found = [X]
    for w in layers:
        found.append(step(found[-1], w))
    return found


def predictions_by(read, choose=np.argmax):
    """A family that reads a stage and chooses a token in its own way."""

    def f(X, layers, step, head):
        return [int(choose(head(read(stage)))) for stage in stages(X, layers, step)]

    return f


def each_from_X(X, layers, step, head):
    return [int(np.argmax(head(s[-1]))) for s in [X, *(step(X, w) for w in layers)]]


def head_goes_on(X, layers, step, head):
    found = [int(np.argmax(head(X[-1])))]
    for w in layers:
        X = head(step(X, w))
        found.append(int(np.argmax(X[-1])))
    return found


def without_head(X, layers, step, head):
    return [int(np.argmax(s[-1])) for s in stages(X, layers, step)]


# --- next token ---


def draw(probabilities, u, side="right"):
    return min(int(np.searchsorted(np.cumsum(probabilities), u, side=side)), len(probabilities) - 1)


def drawing(probabilities, side="right"):
    """A family with probabilities of its own, greedy at temperature 0."""

    def f(logits, temperature, u):
        if temperature == 0:
            return int(np.argmax(logits))
        return draw(probabilities(logits, temperature), u, side)

    return f


def naive(logits, temperature):
    return t04.naive(logits / temperature)


def without_guard(logits, temperature, u):
    if temperature == 0:
        return int(np.argmax(logits))
    return int(np.searchsorted(np.cumsum(softmax(logits / temperature)), u, side="right"))


def first_above(logits, temperature, u):
    if temperature == 0:
        return int(np.argmax(logits))
    return int(np.argmax(np.cumsum(softmax(logits / temperature)) > u))  # 0 where none is above


def most_likely_first(logits, temperature, u):
    if temperature == 0:
        return int(np.argmax(logits))
    order = np.argsort(-logits, kind="stable")
    return int(order[draw(softmax(logits[order] / temperature), u)])


def last_of_equals(logits, temperature, u):
    if temperature == 0:
        return len(logits) - 1 - int(np.argmax(logits[::-1]))
    return next_token(logits, temperature, u)


# --- decode step ---


def decoding(attention=attend, keep=lambda cache, row: np.vstack([cache, row]), see=None):
    """A family of steps: how it attends, what it keeps, and what it sees."""

    def f(x, K_cache, V_cache, W_Q, W_K, W_V):
        K, V = keep(K_cache, x @ W_K), keep(V_cache, x @ W_V)
        seen_K, seen_V = (K, V) if see is None else (see(K), see(V))
        return attention(x @ W_Q, seen_K, seen_V), K, V

    return f


def first_never_stored(cache, row):
    return np.vstack([cache, row if len(cache) else 0 * row])


def overwritten(cache, row):
    return np.vstack([cache[:-1], row, row]) if len(cache) else row[None]


def own_left_out(x, K_cache, V_cache, W_Q, W_K, W_V):
    _, K, V = decode_step(x, K_cache, V_cache, W_Q, W_K, W_V)
    return (attend(x @ W_Q, K_cache, V_cache) if len(K_cache) else V[-1]), K, V


def keeps_x(x, K_cache, V_cache, W_Q, W_K, W_V):
    return decode_step(x, K_cache, V_cache, W_Q, np.eye(len(x)), W_V)


def swaps_caches(*arguments):
    out, K, V = decode_step(*arguments)
    return out, V, K


def keeps_the_query(x, K_cache, V_cache, W_Q, W_K, W_V):
    return decode_step(x, K_cache, V_cache, W_Q, W_Q, W_V)


def query_forgotten(x, K_cache, V_cache, W_Q, W_K, W_V):
    return decode_step(x, K_cache, V_cache, np.eye(len(x)), W_K, W_V)


def transposed(x, K_cache, V_cache, W_Q, W_K, W_V):
    return decode_step(x, K_cache, V_cache, W_Q, W_K.T, W_V.T)


def projected_again(x, K_cache, V_cache, W_Q, W_K, W_V):
    K, V = np.vstack([K_cache @ W_K, x @ W_K]), np.vstack([V_cache, x @ W_V])
    return attend(x @ W_Q, K, V), K, V


def unscaled(q, K, V):
    return softmax(K @ q) @ V


def scaled_by_n(q, K, V):
    return softmax(K @ q / np.sqrt(len(K))) @ V


def naive_attend(q, K, V):
    return t04.naive(K @ q / np.sqrt(len(q))) @ V


def in_place_step(x, K_cache, V_cache, W_Q, W_K, W_V):
    V_cache *= 1.5
    return decode_step(x, K_cache, V_cache, W_Q, W_K, W_V)


# --- the real model ---


def windowed(Q, K, V):
    """Right as long as no token sees more than six."""
    m, n = len(Q), len(K)
    seen = np.tri(m, n, k=n - m, dtype=bool) & ~np.tri(m, n, k=n - m - 6, dtype=bool)
    return softmax(np.where(seen, Q @ K.T / np.sqrt(K.shape[1]), -np.inf)) @ V


def narrow(Q, K, V):
    if K.shape[1] > 16:
        raise ValueError("too wide")
    return t04.attend_causal(Q, K, V)


def loops(Q, K, V):
    m, n, d = len(Q), len(K), len(K[0])
    out = []
    for i in range(m):
        seen = n - m + i + 1
        scores = [sum(Q[i][c] * K[j][c] for c in range(d)) / d**0.5 for j in range(seen)]
        powers = [np.exp(s - max(scores)) for s in scores]
        out.append(
            [sum(p * V[j][c] for j, p in enumerate(powers)) / sum(powers) for c in range(len(V[0]))]
        )
    return out


RIGHT = {
    "06.stack": stack,
    "06.predictions": predictions,
    "06.next_token": next_token,
    "06.decode_step": decode_step,
    "06.real_model": t04.attend_causal,
}

ALSO_RIGHT = {
    "06.stack": [lambda X, layers, step: np.float32(stack(X, layers, step)).tolist()],
    "06.predictions": [lambda *a: np.array(predictions(*a)), lambda *a: tuple(predictions(*a))],
    "06.next_token": [
        drawing(lambda s, t: softmax(s / t)),
        lambda *a: np.int64(next_token(*map(np.float32, a))),
    ],
    "06.decode_step": [
        decoding(),
        lambda *a: list(decode_step(*map(np.float32, a))),
        decoding(library.attend),
    ],
    "06.real_model": [],
}

WRONG = {
    "06.stack": [
        ("reversed",
         lambda X, layers, step: stack(X, layers[::-1], step), "the order of the layers"),
        ("the last layer forgotten", lambda X, layers, step: stack(X, layers[:-1], step),
         "fails at one layer"),
        ("the first layer forgotten", lambda X, layers, step: stack(X, layers[1:], step),
         "fails at one layer"),
        ("the first weights for all",
         lambda X, layers, step: stack(X, [layers[0]] * len(layers), step),
         "fails at every layer once"),
        ("the last weights for all",
         lambda X, layers, step: stack(X, [layers[-1]] * len(layers), step),
         "fails at every layer once"),
        ("every layer from X", always_from_X, "fails at every layer once"),
        ("returns after the first layer", returns_too_early, "fails at every layer once"),
        ("all stages", all_stages, r"should have shape \(3, 2\); it has shape \(1, 3, 2\)"),
        ("every layer twice", lambda X, layers, step: stack(stack(X, layers, step), layers, step),
         "fails at one layer"),
        ("the first layer twice", lambda X, layers, step: stack(step(X, layers[0]), layers, step),
         "fails at one layer"),
        ("X added at the end", lambda X, layers, step: X + stack(X, layers, step),
         "fails at one layer"),
        ("the last token only", lambda X, layers, step: stack(X, layers, step)[-1],
         r"it has shape \(2,\)"),
        ("swapped arguments", lambda X, layers, step: stack(X, layers, lambda a, w: step(w, a)),
         "stack raises ValueError"),
        ("a swapped pair", lambda X, layers, step: stack(X, layers[:-2] + layers[-2:][::-1], step),
         "fails at the order of the layers"),
        ("in place", in_place_stack, "changes its argument X in place"),
    ],
    "06.predictions": [
        ("without what enters", lambda *a: predictions(*a)[1:], r"it has shape \(3,\)"),
        ("without the last layer", lambda *a: predictions(*a)[:-1], r"it has shape \(3,\)"),
        ("the last one only", lambda *a: predictions(*a)[-1], r"it has shape \(\)"),
        ("the first token", predictions_by(lambda s: s[0]), "fails at the last token"),
        ("the mean of the tokens", predictions_by(lambda s: s.mean(axis=0)), "at the last token"),
        ("the largest of all tokens", predictions_by(lambda s: s.max(axis=0)), "at the last token"),
        ("the smallest logit",
         predictions_by(lambda s: s[-1], np.argmin), "fails at one prediction"),
        ("the largest in size", predictions_by(lambda s: np.abs(s[-1])), "at the largest logit"),
        ("logits for tokens", predictions_by(lambda s: s[-1], np.max), "fails at one prediction"),
        ("each layer on X", each_from_X, "fails at one prediction for each stage"),
        ("the head's result goes on", head_goes_on, "predictions raises ValueError"),
        ("no head", without_head, "fails at the head"),
        ("reversed", lambda *a: predictions(*a)[::-1], "not in their places"),
        ("counted from 1", lambda *a: [p + 1 for p in predictions(*a)], "off by 1"),
    ],
    "06.next_token": [
        ("always greedy", lambda logits, t, u: int(np.argmax(logits)), "the share of each token"),
        ("no case for temperature 0", lambda logits, t, u: draw(softmax(logits / t), u),
         "fails at temperature 0"),
        ("the smallest logit", lambda logits, t, u: int(np.argmin(logits)), "at temperature 0"),
        ("the last of equals", last_of_equals, "fails at the choice among equals"),
        ("the temperature ignored", drawing(lambda s, t: softmax(s)), "fails at the temperature"),
        ("multiplied by the temperature", drawing(lambda s, t: softmax(s * t)),
         "fails at the temperature"),
        ("the temperature on the probabilities",
         drawing(lambda s, t: softmax(s) / t / (softmax(s) / t).sum()), "fails at the temperature"),
        ("no maximum subtracted", drawing(naive), "fails at large logits"),
        ("u reversed",
         lambda logits, t, u: next_token(logits, t, 1 - u), "the share of each token"),
        ("the most likely first", most_likely_first, "fails at the share of each token"),
        ("one too far",
         lambda logits, t, u: min(next_token(logits, t, u) + (t > 0), len(logits) - 1),
         "fails at the share of each token"),
        ("probability zero is drawn", drawing(lambda s, t: softmax(s / t), side="left"),
         "fails at a token of probability zero"),
        ("beyond the last token", without_guard, "fails at the last token"),
        ("the first one where none is above u", first_above, "fails at the last token"),
        ("a number of its own for u", lambda logits, t, u: next_token(logits, t, 0.5),
         "fails at the share of each token"),
        ("the probabilities", lambda logits, t, u: softmax(logits), r"should have shape \(\)"),
    ],
    "06.decode_step": [
        ("the first key never stored",
         decoding(keep=first_never_stored), "fails at what is stored"),
        ("nothing stored", lambda x, K, V, *w: (decode_step(x, K, V, *w)[0], K, V),
         r"K_cache should have shape \(1, 2\); it has shape \(0, 2\)"),
        ("the new token before the others", decoding(keep=lambda c, row: np.vstack([row, c])),
         r"fails at the left context in the cache"),
        ("the last row overwritten", decoding(keep=overwritten), "the left context in the cache"),
        ("the old rows projected again", projected_again, "fails at the left context in the cache"),
        ("vectors stored for keys", keeps_x, "fails at what is stored"),
        ("queries stored for keys", keeps_the_query, "fails at what is stored"),
        ("caches swapped", swaps_caches, "fails at what is stored"),
        ("matrices transposed", transposed, "fails at what is stored"),
        ("the own token left out", own_left_out, "fails at who is seen"),
        ("only the new token", decoding(see=lambda rows: rows[-1:]), "fails at who is seen"),
        ("the first token forgotten", decoding(see=lambda rows: rows[-2:]), "fails at who is seen"),
        ("no scale", decoding(unscaled), "fails at the query and the keys"),
        ("√n for √d", decoding(scaled_by_n), "fails at the query and the keys"),
        ("no maximum subtracted", decoding(naive_attend), "fails at large scores"),
        ("W_Q forgotten", query_forgotten, "fails at who is seen"),
        ("a window of four",
         decoding(see=lambda rows: rows[-4:]), "fails at cached against uncached"),
        ("the output alone", lambda *a: decode_step(*a)[0], "should return 3 things"),
        ("in place", in_place_step, "changes its argument V_cache in place"),
    ],
    "06.real_model": [
        *t04.WRONG["04.last_queries"],
        ("a window of six tokens", windowed,
         r"my_attention holds on small arrays, but in layer 1, head \d of the real model, with 1 "
         r"queries and 7 keys of width 64, row 0 should .*With it the model says: “Once upon"),
        ("narrow keys only", narrow, "in layer 1, head 1 of the real model.*ValueError: too wide"),
    ],
}  # fmt: skip
