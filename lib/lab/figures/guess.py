"""What chapter 9 draws: passes and what they yield, and what a width gains."""

from collections.abc import Sequence

import numpy as np
from matplotlib.patches import FancyBboxPatch

from lib.engine.guess import gain
from lib.lab.figures.base import COLOURS, CYCLE, FAINT, INK, panels, styled

WIDTH = 0.105  # of a character, in inches


@styled
def passes(rows: Sequence[tuple], *, title=""):
    """Draw one line for each pass: guesses that were right, the model's own token, wrong guesses.

    Parameters
    ----------
    rows : sequence of tuple
        For each pass the words of its right guesses, the word that the model said after them, and
        the words of the guesses that were dropped.
    """
    figure, axis = panels(height=0.5 + 0.28 * len(rows), layout="none")
    figure.subplots_adjust(left=0.08, right=0.99, bottom=0.02, top=1 - 0.3 / figure.get_figheight())
    colours = COLOURS["plain"], COLOURS["ffn"], "#ececec"
    for row, parts in enumerate(rows):
        right, own, wrong = parts
        x = 0.0
        for words, colour in zip((right, [own], wrong), colours, strict=True):
            for word in words:
                x = _box(axis, x, row, word, colour, INK if colour != colours[2] else FAINT)
        axis.text(-0.1, row, f"{row + 1}", ha="right", va="center", size=8)
    axis.set(xlim=(0, 6.5), ylim=(len(rows) - 0.4, -0.6), title=title)
    axis.axis("off")
    figure.alt = f"{title}. " + " ".join(map(_in_words, range(1, len(rows) + 1), rows))
    return figure


def _box(axis, x, row, word, colour, ink):
    width = WIDTH * (len(word) + 0.6)
    style = "round,pad=0,rounding_size=0.06"
    axis.add_patch(FancyBboxPatch((x, row - 0.38), width, 0.76, style, fc=colour, ec="white"))
    options = {"ha": "center", "va": "center", "size": 7.5, "family": "DejaVu Sans Mono"}
    axis.text(x + width / 2, row, word, color=ink, clip_on=True, parse_math=False, **options)
    return x + width + 0.03


def _in_words(number, parts):
    right, own, wrong = parts
    return (
        f"Pass {number}: {len(right)} right guesses ({' '.join(right) or 'none'}), then {own}; "
        f"{len(wrong)} dropped."
    )


@styled
def gains(shares: Sequence[float], cost: float, *, most=15, chosen=None, title=""):
    """Draw the tokens of a pass over its cost, against the width, for each share of right guesses.

    ``chosen`` is a width that is marked on the first line.
    """
    figure, axis = panels(height=3.0, layout="none")
    figure.subplots_adjust(left=0.1, right=0.8, bottom=0.17, top=0.88)
    widths = np.arange(most + 1)
    for k, share in enumerate(shares):
        line = [gain(share, width, cost) for width in widths]
        axis.plot(widths, line, color=CYCLE[k % len(CYCLE)], label=f"{share:.0%} right")
        if k == 0 and chosen is not None:
            axis.plot(chosen, line[chosen], "o", color=CYCLE[0], markersize=9)
    axis.axhline(1, color=INK, linestyle="--", linewidth=0.9, label="no guesses")
    axis.set(xlabel="guesses a pass", ylabel="tokens / cost", title=title, ylim=(0, 5))
    axis.grid(True)
    axis.legend(loc="upper left", bbox_to_anchor=(1, 1))
    return figure


@styled
def shares(named: dict[str, Sequence[float]], labels: Sequence[str], *, title=""):
    """Draw probabilities beside each other: ``named`` maps a name to one number for each label."""
    figure, axis = panels(height=2.6)
    step = 0.8 / len(named)
    for k, (name, values) in enumerate(named.items()):
        places = np.arange(len(labels)) + (k - (len(named) - 1) / 2) * step
        drawn = axis.bar(places, values, 0.92 * step, color=CYCLE[k % len(CYCLE)], label=name)
        axis.bar_label(drawn, [f"{v:.2f}" for v in values], padding=1, size=8)
    axis.set_xticks(range(len(labels)), labels)
    axis.set(ylabel="probability", title=title)
    axis.margins(y=0.15)
    axis.legend()
    return figure
