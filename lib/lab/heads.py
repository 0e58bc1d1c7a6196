"""What the heads of a real model look at: their weights, and scores that rank them.

Layers and heads are counted from 0, as in a model file.
"""

import numpy as np

from lib.attention import causal_weights
from lib.engine import llama
from lib.errors import CourseError
from lib.norm import rms_norm


def queries_keys_values(X, weights, config):
    """Make what the heads of a layer attend with, as `lib.engine.llama.llama_attention` does.

    Parameters
    ----------
    X : ndarray, (n, d)
        The vectors that enter the layer, of a text from its first token on.
    weights : LlamaWeights
    config : LlamaConfig

    Returns
    -------
    tuple of ndarray
        Q, (n, H, d_head), and K, (n, H_kv, d_head), both turned to their positions; and
        V, (n, H_kv, d_head).
    """
    normed = rms_norm(X, weights.attention_gain, config.eps)
    return llama.queries_keys_values(normed, weights, config)


def head_weights(model, hidden):
    """Return the attention weights of every head in every layer.

    Parameters
    ----------
    model : Llama
    hidden : ndarray, (L + 1, n, d)
        What `model.hidden` returned for a text.

    Returns
    -------
    ndarray, float32, (L, heads, n, n)
        Entry [l, h, i, j] is what token i, as a query of head h in layer l, gives to token j.
    """
    group = model.config.H // model.config.H_kv
    maps = []  # L lists of one (n, n) for each head
    for X, weights in zip(hidden[:-1], model.layers, strict=True):
        Q, K, _ = queries_keys_values(X, weights, model.config)
        every = range(model.config.H)
        maps.append([causal_weights(Q[:, h], K[:, h // group]) for h in every])
    return np.float32(maps)


def direction(model, hidden, targets):
    """Return what turns a vector that is added to the stream into a change of a token's logit.

    The final norm divides each row of the stream by its size, which is taken as it is. A logit
    counts by how far it lies above the mean of all tokens' (Elhage et al. 2021, direct logit
    attribution).

    Parameters
    ----------
    model : Llama
    hidden : ndarray, (L + 1, n, d)
        What `model.hidden` returned for a text.
    targets : sequence of int, n long
        The token whose logit is meant, at each position.

    Returns
    -------
    ndarray, (n, d)
        The product of a row with a vector at that position is what the vector adds.
    """
    W = model.W_head[:, targets].T - model.W_head.mean(axis=1)
    size = np.sqrt(np.square(hidden[-1]).mean(axis=1, keepdims=True) + model.config.eps)
    return W * model.output_gain / size


def written(model, hidden, targets):
    """Return what each head adds to the logit of a token at each position: (L, heads, n).

    Parameters are those of `direction`.
    """
    c, towards = model.config, direction(model, hidden, targets)
    weights, group = head_weights(model, hidden), model.config.H // model.config.H_kv
    found = np.empty(weights.shape[:3])
    for k, layer in enumerate(model.layers):
        V = queries_keys_values(hidden[k], layer, c)[2]
        for h in range(c.H):
            W_O = layer.W_O[h * c.d_head : (h + 1) * c.d_head]
            found[k, h] = (weights[k, h] @ V[:, h // group] @ W_O * towards).sum(axis=1)
    return found


def mean_weight(weights, queries, keys):
    """Return the mean weight that the queries give to their keys: (…, n, n) -> float64 (…).

    Parameters
    ----------
    weights : ndarray, (…, n, n)
    queries, keys : array_like of int, (m,)
        Query ``queries[k]`` is read at key ``keys[k]``.

    Raises
    ------
    CourseError
        Not as many queries as keys, none at all, or a position that the text lacks.
    """
    queries, keys, n = np.asarray(queries), np.asarray(keys), weights.shape[-1]
    if queries.shape != keys.shape or queries.ndim != 1 or not queries.size:
        raise CourseError(
            "queries and keys should be equally long lists of positions; "
            f"they have the shapes {queries.shape} and {keys.shape}"
        )
    for name, positions in (("queries", queries), ("keys", keys)):
        if positions.min() < 0 or positions.max() >= n:
            raise CourseError(
                f"{name} should be positions from 0 to {n - 1}; they run from "
                f"{positions.min()} to {positions.max()}"
            )
    return weights[..., queries, keys].mean(axis=-1, dtype=np.float64)


def on_the_first(weights):
    """Return the mean weight on the first token, over all queries but its own: (…, n, n) -> (…)."""
    queries = np.arange(1, weights.shape[-1])
    return mean_weight(weights, queries, 0 * queries)


def on_the_previous(weights):
    """Return the mean weight on the token just before: (…, n, n) -> (…).

    The queries start at position 2: to the second token, the previous one is the first, which many
    heads look at for other reasons.
    """
    queries = np.arange(2, weights.shape[-1])
    return mean_weight(weights, queries, queries - 1)


def on_the_next_of_the_last_time(weights, period):
    """Return the mean weight on the token that came next when this one was read last: a copier's.

    For a text that repeats itself after ``period`` tokens: the score of an induction head (Olsson
    et al. 2022, "prefix matching").
    """
    queries = np.arange(period, weights.shape[-1])
    return mean_weight(weights, queries, queries - period + 1)


def ranked(scores, k):
    """Return the k highest of scores by layer and head: (L, heads) -> list of (layer, head, score).

    Equal scores stay in the order of layers and heads.
    """
    order = np.argsort(-np.ravel(scores), kind="stable")[:k]
    layers, heads = np.unravel_index(order, np.shape(scores))
    places = zip(layers.tolist(), heads.tolist(), strict=True)
    return [(layer, head, float(scores[layer, head])) for layer, head in places]
