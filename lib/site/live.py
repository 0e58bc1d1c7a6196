"""The front page's instrument: the real model on a dozen sentences, stored at the build.

For each sentence the page knows its tokens, what one head attends to, and what the model would say
next after some of its layers. Nothing runs there: a visitor sees these numbers at once.
"""

from __future__ import annotations

import json
from pathlib import Path

from lib.engine.llama import Llama
from lib.lab import heads, lens

SENTENCES = (
    "The bird that the dog saw flew away",
    "The capital of France is",
    "The capital of Italy is",
    "The opposite of hot is",
    "Water is made of hydrogen and",
    "The keys to the old house were lost",
    "Monday, Tuesday, Wednesday,",
    "She opened the letter and read the",
    "One, two, three, four,",
    "The sun rises in the",
    "My brother, who lives in Spain, has a",
    "A model predicts the next",
)
STATIC = Path(__file__).parent / "static" / "pages"  # where its script and its looks are
LAYER, HEAD = 14, 9  # counted from 1: the one of chapter 1, whose verbs look at their subjects
DEPTHS = (0, 5, 10, 15, 20, 25, 28, 30)  # layers that have run
WORDS = 3  # likeliest ones that are kept


def numbers(model: Llama, sentences: tuple[str, ...] = SENTENCES) -> dict:
    """Return what the page shows.

    Parameters
    ----------
    model : Llama
    sentences : tuple of str

    Returns
    -------
    dict
        ``layer`` and ``depths``; ``texts``, each with its ``tokens``, ``weights`` (percent, a row
        for each token over itself and those before it) and ``said``: for each token and depth the
        likeliest words with their percent.
    """
    return {
        "layer": LAYER,
        "depths": DEPTHS,
        "texts": [_text(model, sentence) for sentence in sentences],
    }


def _text(model: Llama, sentence: str) -> dict:
    tokens = model.tokenizer.encode(sentence)
    hidden = model.hidden(tokens)  # (L + 1, n, d)
    weights = heads.head_weights(model, hidden)[LAYER - 1, HEAD - 1]  # (n, n)
    p = lens.predictions(model, hidden[list(DEPTHS)])  # (depths, n, vocabulary)
    best = (-p).argpartition(WORDS, axis=-1)[..., :WORDS]
    return {
        "tokens": [model.tokenizer.decode([token]) for token in tokens],
        "weights": [[round(100 * float(w)) for w in row[: k + 1]] for k, row in enumerate(weights)],
        "said": [
            [_words(model, p[depth, k], best[depth, k]) for depth in range(len(DEPTHS))]
            for k in range(len(tokens))
        ],
    }


def _words(model: Llama, p, tokens) -> list:
    ordered = sorted(tokens.tolist(), key=lambda token: -p[token])
    return [[lens.spell(model, token), round(100 * float(p[token]))] for token in ordered]


def script(found: dict) -> str:
    """Return the numbers as a script, which a page can load from a disk, too."""
    text = json.dumps(found, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")
    return f"window.courseLive = {text};\n"


PLACE = """\
<div id="live" role="group" aria-label="The real model on a sentence">
<noscript>With JavaScript this shows the real model on a sentence: its tokens, what a head looks
at, and the next word after each layer.</noscript>
</div>
<script src="_static/live-data.js"></script>
<script src="_static/live.js"></script>
"""
