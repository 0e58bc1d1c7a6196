"""What chapter 0 draws: the way of a text through the stack.

The picture of the README is made here:

    python -m lib.lab.figures.overview assets/stack.svg
"""

import io
import re
import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch, Rectangle

from lib.errors import CourseError
from lib.lab import toy
from lib.lab.figures.base import COLOURS, FAINT, INK, panels, styled
from lib.layer import layer

# Heights of what the picture shows, from bottom to top.
TEXT, VECTORS, GATHER, FFN, RESULT, NEXT = 0.0, 0.95, 2.55, 3.45, 4.75, 5.6


@styled
def way_of_a_text(text="the dog saw the bird"):
    """Draw tokens -> vectors -> L × (attention -> FFN) -> probabilities of the next token.

    The vectors and the probabilities are those of the toy, whose L is 1.

    Parameters
    ----------
    text : str
        Words of `lib.lab.toy`.
    """
    X, p = toy.embed(text), toy.next_word(text)  # (n, d), (7,)
    Y = layer(X, toy.WEIGHTS)  # (n, d)
    tokens, (n, d) = text.split(), X.shape
    figure, axis = panels(width=8.6, height=5.9)
    axis.set(xlim=(-0.6, n + 5.15), ylim=(-0.95, 6.7), aspect="equal")
    axis.axis("off")
    _layers(axis, n)
    for low, high in ((TEXT + 0.2, VECTORS), (GATHER + 0.16, FFN), (FFN + 0.22, RESULT)):
        _upward(axis, range(n), low, high - 0.24)
    for i, token in enumerate(tokens):
        weight = "bold" if i == n - 1 else "normal"
        axis.text(i, TEXT, token, ha="center", va="center", weight=weight)
        _cells(axis, i, VECTORS, np.abs(X[i]), COLOURS["plain"])
        _gather(axis, i, n)
        _box(axis, i - 0.36, FFN - 0.22, 0.72, 0.44, COLOURS["ffn"], "FFN")
        _cells(axis, i, RESULT, np.abs(Y[i]) / np.abs(Y).max(), COLOURS["out"])
    _contexts(axis, n)
    _next_token(axis, n - 1, p)
    _notes(axis, n)
    for drawn in axis.get_children():
        drawn.set_clip_on(False)
    figure.alt = (
        f"A text on its way through a transformer, from the bottom up. The tokens {text} become "
        f"vectors of {d} numbers. In each of L layers attention lets every token gather from the "
        "tokens to its left and itself, then the FFN treats each token separately. The vector of "
        f"the last token becomes the probabilities of the next one: {toy.WORDS[p.argmax()]} has "
        f"{p.max():.2f}."
    )
    return figure


def save(path):
    """Write the picture of the README as an SVG file, the same bytes at every run.

    Raises
    ------
    CourseError
        The name does not end in ``.svg``.
    """
    path = Path(path)
    if path.suffix != ".svg":
        raise CourseError(f"path should end in .svg; it is {path.name!r}")
    # Letters as outlines, so that every page shows the same; no date, fixed names inside.
    drawn = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "path", "svg.hashsalt": "left-context"}):
        way_of_a_text().savefig(drawn, format="svg", metadata=dict.fromkeys(("Date", "Creator")))
    # A hundredth of a point is exact enough. With that and without indentation it is half the size.
    text = re.sub(r"[1-9]\d*\.\d{3,}", lambda found: f"{float(found[0]):.2f}", drawn.getvalue())
    text = re.sub(r"\s*\n\s*", "\n", text)
    path.write_text(text, encoding="utf-8", newline="\n")


def _layers(axis, n):
    """Draw the frame of a layer, and behind it the edges of those that follow."""
    for k in (2, 1, 0):
        shift = 0.11 * k
        corner = (-0.5 + shift, GATHER - 0.95 + shift)
        axis.add_patch(
            FancyBboxPatch(
                corner, n, FFN - GATHER + 1.37, boxstyle="round,pad=0,rounding_size=0.15",
                facecolor="#f7f7f7", edgecolor=FAINT, linewidth=1, zorder=0.5 - 0.1 * k,
            )
        )  # fmt: skip


def _gather(axis, i, n):
    """Draw what token i gathers: a line from each token up to itself, arrows for the last."""
    for j in range(i + 1):
        start, end = np.array([j, VECTORS + 0.26]), np.array([i, GATHER])
        if i == n - 1:
            edge = end - 0.17 * (end - start) / np.linalg.norm(end - start)
            _arrow(axis, start, edge, COLOURS["attention"])
        else:
            axis.plot(*np.transpose([start, end]), color=COLOURS["attention"], alpha=0.25, lw=1)
    axis.add_patch(Circle((i, GATHER), 0.15, facecolor=COLOURS["attention"], edgecolor="white"))


def _contexts(axis, n):
    """Bracket the tokens: the left context of the last one, and itself."""
    for left, right, words in ((0, n - 2, "left context"), (n - 1, n - 1, "current token")):
        y, ends = TEXT - 0.3, (left - 0.36, right + 0.36)
        axis.plot(np.repeat(ends, 2), [y, y - 0.12, y - 0.12, y], color=FAINT, lw=1)
        axis.text((left + right) / 2, y - 0.36, words, ha="center", va="center", size=9.5)


def _cells(axis, x, y, sizes, colour):
    """Draw a token's vector, (d,), as two rows of small cells: what it means, and which word."""
    width, height = 0.72 / (len(sizes) / 2), 0.2
    for row, half in enumerate(np.split(np.clip(sizes, 0, 1), 2)):
        for c, size in enumerate(half):
            shade = mpl.colors.to_rgba(colour, 0.15 + 0.85 * float(size))
            corner = (x - 0.36 + c * width, y - row * height)
            axis.add_patch(
                Rectangle(corner, width, height, facecolor=shade, edgecolor=INK, linewidth=0.5)
            )


def _next_token(axis, i, p):
    """Draw the probabilities, (7,), as bars above the last result, and name the likeliest word."""
    _upward(axis, [i], RESULT + 0.24, NEXT - 0.12)
    lefts = i + 0.15 * (np.arange(len(p)) - len(p) / 2)
    for left, height in zip(lefts, 0.62 * p, strict=True):
        axis.add_patch(Rectangle((left, NEXT), 0.12, height, facecolor=COLOURS["out"]))
    axis.plot([i - 0.6, i + 0.6], [NEXT, NEXT], color=INK, linewidth=0.8)
    best = int(p.argmax())
    here = (lefts[best] + 0.06, NEXT + 0.62 * p[best] + 0.2)
    axis.text(*here, toy.WORDS[best], ha="center", va="center", weight="bold")


def _notes(axis, n):
    """Write what each height of the picture is, with its shape."""
    blue, orange, purple = COLOURS["attention"], "#9a6200", "#a2497c"  # dark enough for letters
    notes = (
        (TEXT, INK, "tokens", "(n,)", "words or parts of words"),
        (VECTORS, blue, "vectors that enter", "(n, d)", "one for each token"),
        (GATHER - 0.25, blue, "1  self-attention", "(n, d)", "from the left context and itself"),
        (FFN, orange, "2  FFN", "(n, d)", "the same function for each token"),
        (RESULT, purple, "output of layer L", "(n, d)", "each token in its context"),
        (NEXT + 0.25, purple, "next token", "(vocabulary,)", "probabilities, from the last row"),
    )
    left, right = n + 0.85, n + 5.05
    for y, colour, name, shape, words in notes:
        axis.text(left, y + 0.16, name, color=colour, weight="bold", va="center")
        axis.text(right, y + 0.16, shape, size=9.5, ha="right", va="center")
        axis.text(left, y - 0.18, words, size=9.5, va="center")
    axis.text(n - 0.15, (GATHER + FFN) / 2 - 0.1, "× L", size=15, weight="bold", va="center")


def _box(axis, x, y, width, height, colour, text):
    axis.add_patch(
        FancyBboxPatch(
            (x, y), width, height, boxstyle="round,pad=0,rounding_size=0.08",
            facecolor=colour, edgecolor="none",
        )
    )  # fmt: skip
    axis.text(x + width / 2, y + height / 2, text, ha="center", va="center", size=9)


def _upward(axis, columns, low, high):
    """Draw an arrow upward in each column."""
    axis.vlines(columns, low, high - 0.05, color=INK, linewidth=0.9)
    axis.plot(columns, [high - 0.05] * len(columns), "^", color=INK, markersize=4)


def _arrow(axis, start, end, colour):
    shape = {"arrowstyle": "-|>", "mutation_scale": 8, "shrinkA": 0, "shrinkB": 0}
    axis.add_patch(FancyArrowPatch(start, end, color=colour, linewidth=1.6, **shape))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m lib.lab.figures.overview FILE.svg")
    try:
        save(sys.argv[1])
    except (CourseError, OSError) as error:
        sys.exit(str(error))
