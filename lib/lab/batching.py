"""Instruments of chapter 10: schedules on paper, and attention that forgets."""

from collections.abc import Callable, Sequence

import numpy as np

from lib import reference


def in_groups(lengths: Sequence[int], places: int) -> list[list[int | None]]:
    """Return the passes of groups that start together: a group waits for its longest text.

    Parameters
    ----------
    lengths : sequence of int
        Tokens that each text needs.
    places : int
        Texts at once.

    Returns
    -------
    list of list
        For each pass the text in each place, or None.
    """
    passes = []
    for start in range(0, len(lengths), places):
        group = range(start, min(start + places, len(lengths)))
        for step in range(max(lengths[text] for text in group)):
            row = [text if step < lengths[text] else None for text in group]
            passes.append(row + [None] * (places - len(row)))
    return passes


def as_they_come(lengths: Sequence[int], places: int) -> list[list[int | None]]:
    """Return the passes where a text that is done hands its place to the next at once.

    Iteration-level scheduling, Yu et al. 2022, section 3.1.
    """
    left, waiting = dict(enumerate(lengths)), list(range(len(lengths)))
    row: list[int | None] = [None] * places
    passes = []
    while True:
        for place, text in enumerate(row):
            if text is None and waiting:
                row[place] = waiting.pop(0)
        if not any(text is not None for text in row):
            return passes
        passes.append(list(row))
        for place, text in enumerate(row):
            if text is not None:
                left[text] -= 1
                if left[text] == 0:
                    row[place] = None


def attend_to(window: int, sinks: int) -> Callable:
    """Return attention that sees the last `window` tokens and the first `sinks` alone.

    Xiao et al. 2024, section 3.2. It takes the place of `attend_causal` in `Llama.using`.
    """

    def attend(Q, K, V):  # (m, d_head), (n, d_head), (n, d_head) -> (m, d_head)
        m, n = len(Q), len(K)
        i, j = np.arange(n - m, n)[:, None], np.arange(n)
        visible = (j <= i) & ((j > i - window) | (j < sinks))
        scores = Q @ K.T / np.sqrt(K.shape[1])
        return (reference.softmax(scores, visible) @ V).astype(np.float32)

    return attend


def surprise(logits: np.ndarray, tokens: Sequence[int]) -> np.ndarray:
    """Return −ln p of each token after the first: (n, vocabulary), (n,) -> (n − 1,)."""
    rows = np.float64(logits[:-1])
    rows -= rows.max(axis=1, keepdims=True)
    total = np.log(np.exp(rows).sum(axis=1))
    return total - rows[np.arange(len(rows)), tokens[1:]]
