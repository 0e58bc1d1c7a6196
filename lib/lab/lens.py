"""Reading a model's prediction after each of its layers.

The final norm and the head are made for what leaves the last layer. Applied after an earlier one,
they tell what the model would say if it stopped there: the logit lens (nostalgebraist 2020).
"""

import numpy as np

from lib.attention import softmax
from lib.engine.llama import llama_attention
from lib.errors import CourseError
from lib.norm import rms_norm

# Tokens hold spaces and line ends, which a table or a figure has to show.
VISIBLE = str.maketrans({" ": "␣", "\n": "⏎", "\r": "⏎", "\t": "⇥", "\xa0": "⍽"})


def predictions(model, X):
    """Return the probabilities of the next token, read off vectors of any depth.

    Parameters
    ----------
    model : Llama
        Only its final norm and head are used.
    X : ndarray, (…, d)
        Such as what `model.hidden` returns, (L + 1, n, d).

    Returns
    -------
    ndarray, float32, (…, vocabulary)
    """
    logits = model.head(X)
    rows = logits.reshape(-1, logits.shape[-1])  # softmax takes matrices
    return softmax(rows).reshape(logits.shape)


def added(model, stream):
    """Take what each layer adds to the residual stream apart into its two steps.

    Parameters
    ----------
    model : Llama
    stream : ndarray, (L + 1, n, d)
        What `model.hidden` returned for a text.

    Returns
    -------
    tuple of ndarray, each (L, n, d)
        What attention adds, and the rest of the layer's addition, which is that of the FFN.
    """
    caches = model.new_cache(stream.shape[1]).layers
    steps = []
    for X, weights, cache in zip(stream[:-1], model.layers, caches, strict=True):
        normed = rms_norm(X, weights.attention_gain, model.config.eps)
        steps.append(llama_attention(normed, weights, cache, model.config))
    A = np.stack(steps)
    return A, np.diff(stream, axis=0) - A


def patched(model, layer, position, vector):
    """Return the model with another vector in the place of what one attention step adds.

    Activation patching (Vig et al. 2020, section 3; Meng et al. 2022, section 2.1): a vector taken
    from the run of one text is put into the run of another, and the change of the prediction tells
    what it carried.

    Parameters
    ----------
    model : Llama
    layer : int
        The layer whose attention is overruled, from 1 to L.
    position : int
        The token at which it is, from 0.
    vector : ndarray, (d,)
        What is added there.

    Raises
    ------
    CourseError
        The model has no such layer.
    """
    if not 1 <= layer <= model.config.L:
        raise CourseError(f"layer should be from 1 to {model.config.L}; it is {layer!r}")
    overruled = model.layers[layer - 1]

    def attention(X, weights, cache, config, attend):
        A = model.parts.attention(X, weights, cache, config, attend)
        if weights is overruled:
            A[position] = vector
        return A

    return model.using(attention=attention)


def rank(p, token):
    """Return the place of a token among all by probability, 1 for the likeliest: (…, V) -> (…,)."""
    return 1 + (p > p[..., token, None]).sum(axis=-1)


def top(p, k):
    """Return the k most likely tokens, most likely first: (vocabulary,) -> ids, probabilities."""
    order = np.argsort(-p, kind="stable")[:k]
    return order.tolist(), p[order].astype(float).tolist()


def spell(model, token):
    """Return the text of a token with its spaces and line ends made visible."""
    return model.tokenizer.decode([token]).translate(VISIBLE)


def token_of(model, text):
    """Return the one token that a text is.

    Raises
    ------
    CourseError
        The text is more than one token.
    """
    tokens = model.tokenizer.encode(text)
    if len(tokens) != 1:
        raise CourseError(f"text should be one token; {text!r} is {len(tokens)}")
    return tokens[0]
