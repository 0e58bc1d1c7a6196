"""Taking parts out of a real model, and reading the damage.

A step adds its result to the residual stream. Where the last matrix of a step holds zeros, it adds
nothing: the step is gone, and all others run as before. Layers and heads are counted from 0, as in
a model file.
"""

from copy import copy
from dataclasses import replace
from functools import partial

import numpy as np

from lib.engine.cache import Cache
from lib.engine.llama import llama_attention, llama_layer
from lib.errors import CourseError
from lib.ffn import swiglu
from lib.norm import rms_norm
from lib.stack import stack


def without(model, attention=(), ffn=(), heads=()):
    """Return the model without some of its parts; the model itself is not changed.

    Parameters
    ----------
    model : Llama
    attention, ffn : iterable of int
        The layers whose attention, or whose FFN, adds nothing.
    heads : iterable of (int, int)
        Layer and number of each head that adds nothing.

    Returns
    -------
    Llama
        It shares all other weights with the model.

    Raises
    ------
    CourseError
        There is no such layer or head.
    """
    other = copy(model)
    other.layers = list(model.layers)
    for k in attention:
        W_O = _layer(other, "attention", k).W_O
        other.layers[k] = replace(other.layers[k], W_O=np.zeros_like(W_O))
    for k in ffn:
        W_down = _layer(other, "ffn", k).W_down
        other.layers[k] = replace(other.layers[k], W_down=np.zeros_like(W_down))
    for k, h in heads:
        W_O = np.array(_layer(other, "heads", k).W_O)
        W_O[_rows(model.config, h)] = 0.0
        other.layers[k] = replace(other.layers[k], W_O=W_O)
    return other


def leave(model, hidden, first):
    """Run the layers from ``first`` on over what a text had become by then.

    Parameters
    ----------
    model : Llama
    hidden : ndarray, (L + 1, n, d)
        What `model.hidden` returned for the text; only depth ``first`` is read.
    first : int
        The first layer that runs.

    Returns
    -------
    ndarray, (n, d)
        What leaves the last layer.
    """
    caches = model.new_cache(hidden.shape[1]).layers
    layers = list(zip(model.layers, caches, strict=True))[first:]
    return stack(
        hidden[first], layers, partial(llama_layer, config=model.config, parts=model.parts)
    )


def one_by_one(model, hidden, parts):
    """Take parts out one at a time, and return what leaves the last layer each time.

    Layers below the part that is gone would compute what `hidden` holds already, so they don't run.
    All streams pass a layer together: the weights of its FFN are then read once for all of them.

    Parameters
    ----------
    model : Llama
    hidden : ndarray, (L + 1, n, d)
        What `model.hidden` returned for a text.
    parts : sequence of dict
        Each names what is gone, as the arguments of `without` do: ``{"ffn": [8]}``.

    Returns
    -------
    ndarray, (len(parts), n, d)
    """
    models = [without(model, **part) for part in parts]
    starts = [
        min(k[0] if name == "heads" else k for name in part for k in part[name]) for part in parts
    ]
    X = hidden[starts]  # (B, n, d), a copy
    for k in range(len(model.layers)):
        begun = [b for b, start in enumerate(starts) if start <= k]
        if begun:
            X[begun] = _layer_of_all(X[begun], [models[b].layers[k] for b in begun], model, k)
    return X


def _layer_of_all(X, variants, model, k):  # (B, n, d) -> (B, n, d)
    """Run layer k on several streams, each with its own variant of the layer's weights."""
    weights, config = model.layers[k], model.config
    normed = rms_norm(X, weights.attention_gain, config.eps)
    for b, variant in enumerate(variants):
        cache = Cache(1, config.H_kv, X.shape[1], config.d_head).layers[0]
        X[b] += llama_attention(normed[b], variant, cache, config)
    rows = rms_norm(X, weights.ffn_gain, config.eps).reshape(-1, config.d)  # (B · n, d)
    F = swiglu(rows, weights.W_gate, weights.W_up, weights.W_down).reshape(X.shape)
    F[[b for b, variant in enumerate(variants) if variant.W_down is not weights.W_down]] = 0.0
    return X + F


def every_step(L):
    """Return the parts for `one_by_one` that are a step of one of L layers: attention, then FFN."""
    return [{name: [k]} for name in ("attention", "ffn") for k in range(L)]


def _layer(model, name, k):
    if not (isinstance(k, (int, np.integer)) and 0 <= k < len(model.layers)):
        last = len(model.layers) - 1
        raise CourseError(f"{name} should name layers from 0 to {last}; one is {k!r}")
    return model.layers[k]


def _rows(config, h):
    if not (isinstance(h, (int, np.integer)) and 0 <= h < config.H):
        raise CourseError(f"heads should name heads from 0 to {config.H - 1}; one is {h!r}")
    return slice(h * config.d_head, (h + 1) * config.d_head)
