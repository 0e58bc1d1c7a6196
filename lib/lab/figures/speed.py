"""What chapter 8 draws: rounding to steps, rows that lie interleaved, pieces that threads took."""

import numpy as np
from matplotlib.collections import PatchCollection
from matplotlib.patches import Rectangle

from lib.lab.figures.base import COLOURS, CYCLE, FAINT, INK, panels, styled

PALE = "#ececec"


@styled
def rounding(w, codes, d, m, *, title=""):
    """Draw a block's weights among the values that it may take, and the errors below.

    Parameters
    ----------
    w, codes : ndarray, (32,)
        The weights, and the whole numbers that they became.
    d, m : float
        Scale and offset: a weight has become d · code + m.
    """
    figure, (top, bottom) = panels(rows=2, height=2.3, sharex=True)
    back, places = d * codes.astype(np.float64) + m, np.arange(len(w))
    for level in range(int(codes.max()) + 1):
        top.axhline(d * level + m, color=PALE if level % 5 else FAINT, linewidth=0.9, zorder=0)
    top.plot(places, w, "o", color=COLOURS["attention"], markersize=5, label="weight")
    top.plot(places, back, "_", color=COLOURS["query"], markersize=10, label="d c + m")
    top.set(ylabel="weight", title=title)
    top.legend(loc="upper left", bbox_to_anchor=(1, 1))
    bottom.bar(places, back - w, color=COLOURS["out"], width=0.7)
    for edge in (-d / 2, d / 2):
        bottom.axhline(edge, color=INK, linestyle="--", linewidth=0.9)
    bottom.text(len(w) + 0.2, d / 2, "+ d / 2", va="center", size=9)
    bottom.text(len(w) + 0.2, -d / 2, "− d / 2", va="center", size=9)
    bottom.set(ylabel="error", xlabel="place in the block", xlim=(-1, len(w)))
    return figure


@styled
def layout(rows=16, chosen=2):
    """Draw where the bytes of one block of 4 bits lie for 16 rows, in the file and for vectors.

    A cell is two bytes. The bytes of one row are in colour: its scale, its offset, its 16 bytes of
    numbers, cut into four words of 4 bytes.
    """
    figure, axes = panels(2, width=8.4, height=3.5, width_ratios=[1, 1.6], layout="none")
    figure.subplots_adjust(left=0.07, right=0.99, bottom=0.12, top=0.86, wspace=0.3)
    left, right = axes
    parts = ["d", "m", *(f"v{v}" for v in range(4))]
    widths = [1, 1, 2, 2, 2, 2]  # cells of two bytes
    starts = np.cumsum([0, *widths[:-1]])
    file = [
        (start, row, width, part, row == chosen)
        for row in range(rows)
        for start, width, part in zip(starts, widths, parts, strict=True)
    ]
    _cells(left, file)
    left.set(xlim=(0, 10), ylim=(rows, 0), title="in the file: a row after the other")
    left.set(ylabel="row", xlabel="20 bytes of a row")
    left.set_yticks(np.arange(rows) + 0.5, range(rows))
    lanes = [
        (row * width, 1.4 * k, width, f"{row}", row == chosen)
        for k, width in enumerate(widths)
        for row in range(rows)
    ]
    _cells(right, lanes)
    right.set(xlim=(0, 2 * rows), ylim=(1.4 * len(parts), -0.2))
    right.set(title="for vectors: a lane is a row", xlabel="up to 64 bytes: one vector a line")
    right.set_yticks(1.4 * np.arange(len(parts)) + 0.5, parts)
    for axis in axes:
        axis.set_xticks([])
        axis.tick_params(length=0)
        for spine in axis.spines.values():
            spine.set_visible(False)
    return figure


def _cells(axis, cells):
    """Draw boxes (x, y, width, text, whether it is in colour)."""
    for inside, fill in ((False, PALE), (True, COLOURS["plain"])):
        boxes = [Rectangle((x, y), w, 1) for x, y, w, _, here in cells if here == inside]
        axis.add_collection(PatchCollection(boxes, facecolor=fill, edgecolor="white"))
    for x, y, w, text, here in cells:
        ink = INK if here else "#6a6a6a"
        axis.text(
            x + w / 2,
            y + 0.5,
            text,
            ha="center",
            va="center",
            size=7 if w > 1 or len(text) < 2 else 5,
            color=ink,
        )


@styled
def pieces(who, threads, *, title=""):
    """Draw which thread took each piece of a matrix, in the order in which the pieces lie."""
    who = np.asarray(who)
    figure, axis = panels(height=0.9 + 0.3 * threads)
    for thread in range(threads):
        taken = np.flatnonzero(who == thread)
        colour = CYCLE[thread % len(CYCLE)]
        axis.bar(taken, 0.8, 0.9, bottom=thread - 0.4, color=colour)
    axis.set(xlim=(-0.6, len(who) - 0.4), ylim=(threads - 0.4, -0.6), title=title)
    axis.set(xlabel="piece: 64 rows of the matrix", ylabel="thread")
    axis.set_yticks(range(threads))
    return figure


@styled
def one_pass(bandwidth, peak, intensity, *, title=""):
    """Draw one pass on the roof, in a frame that stands still while a control moves.

    Parameters
    ----------
    bandwidth, peak : float
        Bytes and multiply-adds a second, at most.
    intensity : float
        Multiply-adds of the pass for each byte that it must read.
    """
    figure, axis = panels(height=3.2, layout="none")
    figure.subplots_adjust(left=0.1, right=0.97, bottom=0.17, top=0.88)
    x = np.array([0.1, peak / bandwidth, 400])
    roof = np.minimum(bandwidth * x, peak) / 1e9
    axis.loglog(x, roof, color=INK, linewidth=1.4)
    rate = min(bandwidth * intensity, peak) / 1e9
    axis.plot(intensity, rate, "o", color=COLOURS["out"], markersize=11, markeredgecolor=INK)
    axis.annotate(f"{rate:.3g} G/s", (intensity, rate), (12, -14), textcoords="offset points")
    axis.text(0.12, 0.3 * bandwidth / 1e9, f"{bandwidth / 1e9:.0f} GB/s", size=9)
    axis.set(xlim=(0.1, 400), ylim=(0.5, 2000), title=title)
    axis.set(xlabel="multiply-adds per byte", ylabel="G multiply-adds a second")
    axis.minorticks_off()
    axis.grid(True)
    return figure


@styled
def parts_of_a_token(spent, least):
    """Draw the time of a token as a bar of its parts, and below it what their bytes take at least.

    Parameters
    ----------
    spent, least : dict of str to float
        Seconds by part.
    """
    figure, axis = panels(height=1.9)
    for row, parts in enumerate((least, spent)):
        left = 0.0
        for k, (name, seconds) in enumerate(parts.items()):
            width = 1e3 * seconds
            colour = CYCLE[k % len(CYCLE)]
            axis.barh(row, width, left=left, color=colour, label=name if row else None, height=0.6)
            if width > 0.25:
                middle = left + width / 2
                axis.text(middle, row, f"{width:.1f}", ha="center", va="center", size=9, color="w")
            left += width
        axis.text(left, row, f" {left:.1f} ms", va="center", size=9)
    axis.set_yticks([0, 1], ["reading alone", "measured"])
    axis.set(xlabel="milliseconds of one token", title="where the time of a token goes")
    axis.margins(x=0.12)
    axis.legend(loc="upper left", bbox_to_anchor=(1, 1))
    said = []
    for title, parts in (("Measured", spent), ("Reading alone", least)):
        words = ", ".join(f"{name} {1e3 * seconds:.2f} ms" for name, seconds in parts.items())
        said.append(f"{title}: {words}.")
    figure.alt = " ".join(said)
    return figure
