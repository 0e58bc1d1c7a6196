"""Which tokens go through the layers together: of one text, or of several.

The weights are read once for all tokens of a pass, whoever they belong to. What a text has of its
own is its positions and its pages: its queries meet the keys of its own block table alone.
"""

from collections import namedtuple
from collections.abc import Iterator, Sequence

import numpy as np

from lib.engine.cache import Pages
from lib.engine.kernels import Batch, Sizes

# Tokens of one text in a pass: the text's number, its tokens, and whether they are its last.
Run = namedtuple("Run", "text tokens is_last")


def passes(texts: Sequence[np.ndarray], most: int) -> Iterator[list[Run]]:
    """Cut the tokens of several texts into passes of at most `most` tokens, text by text."""
    runs, room = [], most
    for k, tokens in enumerate(texts):
        at = 0
        while at < len(tokens):
            part = tokens[at : at + room]
            at, room = at + len(part), room - len(part)
            runs.append(Run(k, part, at == len(tokens)))
            if room == 0:
                yield runs
                runs, room = [], most
    if runs:
        yield runs


def positions(runs: Sequence[Run], caches: Sequence) -> np.ndarray:  # -> (tokens,)
    """Return the position of each token of a pass within its own text."""
    starts = [caches[run.text].n for run in runs]
    return np.concatenate(
        [np.arange(n, n + len(run.tokens)) for n, run in zip(starts, runs, strict=True)]
    )


def plan(runs: Sequence[Run], caches: Sequence, sizes: Sizes, wanted: Sequence[int]) -> Batch:
    """Say for a pass where each token's key goes, and which queries meet which pages.

    Parameters
    ----------
    runs : sequence of Run
    caches : sequence of GrowingCache
        Of all texts, with room for their tokens.
    sizes : Sizes
    wanted : sequence of int
        Tokens of the pass whose logits are wanted.
    """
    places, pages, pieces, many = [], [], [], sizes.H // sizes.H_kv
    first = table_at = 0  # of a run: its first token, and the beginning of its block table
    for run in runs:
        cache, m = caches[run.text], len(run.tokens)
        table, p = np.array(cache.table, np.int64), np.arange(cache.n, cache.n + m)
        places.append(Pages.TOKENS * table[p // Pages.TOKENS] + p % Pages.TOKENS)
        pages.append(table)
        last = (first + m) * many - 1  # its last query
        r = np.arange(first * many, last + 1, 4)
        piece = np.empty((len(r), 5), np.int64)
        piece[:, 0], piece[:, 1], piece[:, 2], piece[:, 3] = r, last, cache.n - first, table_at
        piece[:, 4] = piece[:, 2] + np.minimum(r + 3, last) // many  # keys that it meets
        pieces.append(piece)
        first, table_at = first + m, table_at + len(table)
    pieces = np.concatenate(pieces)
    pieces = pieces[np.argsort(-pieces[:, 4], kind="stable"), :4]  # the longest first
    return Batch(
        np.concatenate(places),
        np.concatenate(pages),
        np.ascontiguousarray(pieces).reshape(-1),
        np.array(wanted, np.int64),
    )
