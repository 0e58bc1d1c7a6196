"""Words that point to words: a task in which information has to hop from token to token.

A token's vector is made of blocks of width n, each a one-hot name or empty:
``[name | next | found 1 | … | found L]``. It carries its own name and its pointer, the name of a
token at or to the left of its place. The weights are made by hand: layer number ``depth`` goes one
pointer further and writes what it finds into block ``found depth``. The job needs no FFN, so that
of every layer gives zero, and no norms.
"""

import numpy as np

from lib.errors import CourseError
from lib.layer import LayerWeights

NAME, NEXT = 0, 1  # the blocks that a token brings along; block 1 + depth is found by a layer

HARD = 1000.0  # the score of the key that fits: e^(0 − 1000) is exactly zero, in float64 too


def pointing(points_to, L):
    """Return the vectors of the tokens, with empty blocks for what L layers find.

    Parameters
    ----------
    points_to : sequence of int, (n,)
        The position that each token points to: its own, or one to its left.
    L : int

    Returns
    -------
    ndarray, float32, (n, d)
        With d = (2 + L) n.

    Raises
    ------
    CourseError
        A pointer that is not a position, or that leads to the right.
    """
    pointers = np.asarray(points_to)
    n = len(pointers)
    if pointers.dtype.kind not in "iu" or not ((pointers >= 0) & (pointers <= np.arange(n))).all():
        raise CourseError(
            f"points_to should hold a position from 0 to i for token i; it is {pointers.tolist()}"
        )
    names = np.eye(n, dtype=np.float32)  # row i is the name of token i
    return np.hstack([names, names[pointers], np.zeros((n, L * n), np.float32)])


def copy(n, blocks, source, target):
    """Return the W for which x @ W holds block `source` of x at block `target`, else zeros."""
    where = np.zeros((blocks, blocks), np.float32)
    where[source, target] = 1
    return np.kron(where, np.eye(n, dtype=np.float32))  # (d, d), d = blocks · n


def hop_layer(n, L, depth, values=NEXT):
    """Return the weights of layer number `depth`, 1 to L, which goes one pointer further."""
    blocks = 2 + L
    scale = HARD * np.sqrt(blocks * n)  # attention divides by √d
    return LayerWeights(
        W_Q=scale * copy(n, blocks, depth, NAME),  # look for what the layer before has found,
        W_K=copy(n, blocks, NAME, NAME),  # be found by your name,
        W_V=copy(n, blocks, values, NEXT),  # pass on your pointer,
        W_O=copy(n, blocks, NEXT, depth + 1),  # and let it stand in block `found depth`
        **_idle(blocks * n),
    )


def read(X, names):
    """Return what stands in each block of each row, as words: (n, d) -> n lists.

    An empty block is read as "–", and a mixture of several names as "?".
    """
    blocks = np.asarray(X).reshape(len(names), -1, len(names))  # (n, 2 + L, n)
    return [[_word(block, names) for block in row] for row in blocks]


def _word(block, names):
    if not block.any():
        return "–"
    return names[int(block.argmax())] if np.array_equal(block, block == block.max()) else "?"


def _idle(d):
    """Return an FFN that gives zero, and norms that are not used."""
    nothing, gain = np.zeros(d), np.ones(d)
    ffn = {"W_1": np.zeros((d, 2)), "b_1": np.zeros(2), "W_2": np.zeros((2, d)), "b_2": nothing}
    return ffn | {"gain_1": gain, "bias_1": nothing, "gain_2": gain, "bias_2": nothing}
