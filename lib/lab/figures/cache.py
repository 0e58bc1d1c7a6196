"""What chapter 5 draws: which keys and values a pass computes, and which it finds."""

import numpy as np
from matplotlib.collections import PatchCollection
from matplotlib.patches import Rectangle

from lib.lab.figures.base import COLOURS, FAINT, INK, paint, panels, styled

COLUMNS = ["query", "key", "value", "output"]
FILLS = {"new": "#3d3d3d", "again": "#b8b8b8", "kept": COLOURS["plain"], "": "white"}


@styled
def passes(named, tokens, *, title=""):
    """Draw several passes side by side: a name -> the states of its rows, (n, 4).

    The states are those of `lib.lab.cache.states`.
    """
    figure, axes = panels(len(named), width=7.6, height=1.1 + 0.34 * len(tokens), squeeze=False)
    for k, (axis, (name, rows)) in enumerate(zip(axes[0], named.items(), strict=True)):
        _grid(axis, rows, None if k else tokens)
        axis.set_title(name, loc="center", size=10)
    axes[0][0].set_ylabel("token")
    if title:
        figure.suptitle(title, x=0.01, ha="left", size=11)
    return figure


@styled
def one_pass(rows, weights, tokens, *, title=""):
    """Draw the rows of one pass beside its attention weights, (n, n), NaN where none are computed.

    The frame is fixed, so that it stands still while a slider moves.
    """
    figure, (left, right) = panels(2, height=3.5, width_ratios=[1, 1.15], layout="none")
    figure.subplots_adjust(left=0.08, right=0.99, bottom=0.2, top=0.8, wspace=0.22)
    _grid(left, rows, tokens)
    left.set_title("rows of this pass", loc="center", size=10)
    left.set_ylabel("token")
    paint(right, weights, rows=tokens, columns=tokens, limit=1, form=".2f")
    right.tick_params(axis="x", rotation=90)
    right.set(xlabel="key", ylabel="query")
    right.set_title("weights that this pass computes", loc="center", size=10)
    figure.suptitle(title, x=0.02, ha="left", size=11)
    return figure


@styled
def changed_keys(moved, tokens, *, title=""):
    """Draw how far the key of each token moves in each layer, (L, n), the first layer lowest."""
    moved = np.asarray(moved, np.float64)
    figure, axis = panels(height=0.95 + 0.4 * len(moved), width=5.6)
    paint(axis, moved[::-1], columns=tokens, form=".1f")
    axis.set_yticks(range(len(moved)), [f"layer {k}" for k in range(len(moved), 0, -1)])
    axis.set(title=title, xlabel="key and value of")
    return figure


@styled
def growing(named, tokens):
    """Draw matrices of a text that grows side by side, (n, d) each; rows to come stay grey."""
    figure, axes = panels(len(named), height=0.75 + 0.36 * len(tokens), squeeze=False)
    limit = max(float(np.abs(array).max()) for array in named.values())
    for axis, (name, array) in zip(axes[0], named.items(), strict=True):
        m, d = array.shape
        padded = np.vstack([array, np.full((len(tokens) - m, d), np.nan)])
        paint(axis, padded, rows=tokens, columns=range(d), limit=limit, form=".1f")
        axis.set_title(f"{name}  ({m}, {d})", loc="center")
        axis.set(xlabel="coordinate")
    return figure


@styled
def queries_over_keys(named, tokens):
    """Draw the weights of the last m queries over n keys, (m, n) each; what is to come is grey."""
    sizes = [array.shape[1] for array in named.values()]
    height = 1.2 + 0.36 * max(len(array) for array in named.values())
    figure, axes = panels(len(named), height=height, width_ratios=sizes, squeeze=False)
    for axis, (name, array) in zip(axes[0], named.items(), strict=True):
        m, n = array.shape
        seen = np.arange(n) <= np.arange(n - m, n)[:, None]
        left = np.where(seen, array, np.nan)
        paint(axis, left, rows=tokens[n - m : n], columns=tokens[:n], limit=1, form=".2f")
        axis.set_title(name, loc="center")
        axis.set(xlabel="key", ylabel="query")
    return figure


def _grid(axis, rows, tokens):
    n, count = len(rows), len(COLUMNS)
    axis.set(xlim=(-0.5, count - 0.5), ylim=(n - 0.5, -0.5))
    boxes, fills = [], []
    for i, row in enumerate(rows):
        for j, state in enumerate(row):
            boxes.append(Rectangle((j - 0.45, i - 0.42), 0.9, 0.84))
            fills.append(FILLS[state])
            if state:
                ink = "white" if state == "new" else INK
                axis.text(j, i, state, ha="center", va="center", size=8, color=ink)
    axis.add_collection(PatchCollection(boxes, facecolor=fills, edgecolor=FAINT, linewidth=0.6))
    axis.set_xticks(range(count), COLUMNS, rotation=90)
    axis.set_yticks(range(n), tokens if tokens is not None else [""] * n)
    axis.tick_params(length=0)
    for spine in axis.spines.values():
        spine.set_visible(False)
