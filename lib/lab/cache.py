"""A layer that keeps its keys and values: the layer of `lib.layer`, with one change.

What enters are the vectors of the new tokens alone. Their keys and values are put under those
that are kept, and the queries of the new tokens attend to all of them. Incremental inference of
Shazeer 2019, section 2.4.
"""

import numpy as np

from lib import layer as core
from lib.arguments import as_float32
from lib.attention import attend_causal
from lib.engine.cache import LayerCache
from lib.errors import CourseError


def new_caches(layers, capacity):
    """Return an empty cache for each layer, with room for some tokens.

    Parameters
    ----------
    layers : sequence of LayerWeights, length L
    capacity : int
        Tokens that there is room for, at least 1.

    Returns
    -------
    list of LayerCache, length L
        Keys and values of one head, each (1, capacity, d).

    Raises
    ------
    CourseError
        The capacity is below 1.
    """
    if capacity < 1:
        raise CourseError(f"capacity should be at least 1 token; it is {capacity}")
    shapes = [(1, capacity, w.d) for w in layers]
    return [LayerCache(np.zeros(s, np.float32), np.zeros(s, np.float32)) for s in shapes]


def remembering(cache):
    """Return attention that puts new keys and values into a cache and reads all that it holds."""

    def attend(Q, K, V):  # each (m, d)
        K, V = cache.append(K[None], V[None])  # each (1, n, d): all tokens so far, in one head
        return attend_causal(Q, K[0], V[0])

    return attend


def cached_attention(X, w, cache):  # (m, d), LayerWeights, LayerCache -> (m, d)
    """Take the attention step for the tokens that follow those in the cache.

    Parameters
    ----------
    X : array_like, (m, d)
        The vectors of the m new tokens.
    w : LayerWeights
    cache : LayerCache
        Takes up the keys and values of the new tokens.

    Returns
    -------
    ndarray, float32, (m, d)

    Raises
    ------
    CourseError
        X is not (m, d), holds NaN or infinity, or does not fit into the cache; nothing is stored
        then.
    """
    X = as_float32("X", X, ("m", w.d))  # before anything is stored
    return core.attention_step(X, w, remembering(cache))


def cached_layer(X, layer):  # (m, d), (LayerWeights, LayerCache) -> (m, d)
    """Run one layer on the tokens that follow those in its cache.

    Parameters
    ----------
    X : array_like, (m, d)
    layer : tuple of LayerWeights and LayerCache
        One of the entries of ``zip(layers, caches)``, which is what `lib.stack.stack` takes.

    Returns
    -------
    ndarray, float32, (m, d)
        The last m rows of what `lib.layer.layer` returns for the whole text.

    Raises
    ------
    CourseError
        As for `cached_attention`.
    """
    w, cache = layer
    X = as_float32("X", X, ("m", w.d))  # before anything is stored
    return core.layer(X, w, core.Parts(attend=remembering(cache)))


def states(n, start, m, keep=True):
    """Tell what one pass does with the query, key, value and output of each token of a text.

    Parameters
    ----------
    n : int
        Tokens of the text.
    start : int
        Tokens that were read before this pass.
    m : int
        Tokens that this pass reads, at least 1.
    keep : bool
        Whether keys and values are kept between passes.

    Returns
    -------
    list of list of str, (n, 4)
        ``"new"`` is computed for the first time, ``"again"`` once more, ``"kept"`` is read from the
        cache, and ``""`` is not there: it does not exist yet, or nothing asks for it.

    Raises
    ------
    CourseError
        The pass reads no token, or more than the text has.
    """
    if start < 0 or m < 1 or start + m > n:
        raise CourseError(
            f"start and m should name tokens of a text of {n}; they are {start} and {m}"
        )
    before = ["", "kept", "kept", ""] if keep else ["again"] * 4
    rows = [before] * start + [["new"] * 4] * m + [[""] * 4] * (n - start - m)
    return [list(row) for row in rows]
