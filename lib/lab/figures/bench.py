"""What chapter 8 and `course bench` draw: engines below the roof of the machine."""

import numpy as np

from lib.lab.figures.base import CYCLE, INK, MARKERS, panels, styled

ROOFS = {"float32": "float32 peak", "int8": "8-bit peak"}


@styled
def roofline(bandwidth, peaks, points, *, title=""):
    """Draw rates of multiply-adds over their intensity, on logarithmic axes.

    Williams, Waterman and Patterson 2009: a program that reads one byte for each k multiply-adds
    can reach k times the bandwidth, and never more than the peak.

    Parameters
    ----------
    bandwidth : float
        Bytes that the machine reads a second.
    peaks : dict of str to float
        Kind of number, ``"float32"`` or ``"int8"`` -> multiply-adds a second at most.
    points : list
        With ``name``, ``intensity`` (multiply-adds per byte) and ``rate`` (multiply-adds a
        second), as `lib.bench.results.Point` has them. A name is "who, what": each who has its
        colour, each what its marker.

    Returns
    -------
    Figure
    """
    figure, axis = panels(height=4.4)
    axis.set(xscale="log", yscale="log", title=title)
    axis.set(xlabel="multiply-adds per byte that must be read", ylabel="multiply-adds a second")
    reach = [point.intensity for point in points] + [peak / bandwidth for peak in peaks.values()]
    beside = 1.4 * max(peaks.values(), default=1) / bandwidth  # right of both slopes
    x = np.geomspace(min(reach, default=1) / 3, max(4 * max(reach, default=100), 8 * beside), 200)
    axis.margins(x=0)
    for style, (kind, peak) in zip(("-", "--"), peaks.items(), strict=False):
        axis.plot(x, np.minimum(bandwidth * x, peak), color=INK, linestyle=style, linewidth=1.4)
        label = f"{ROOFS.get(kind, kind)}: {peak / 1e9:.0f} G/s"
        _write(axis, label, (beside, peak))
    if not peaks:
        axis.plot(x, bandwidth * x, color=INK, linewidth=1.4)
    _write(axis, f"memory: {bandwidth / 1e9:.1f} GB/s", (1.2 * x[0], 12 * bandwidth * x[0]))
    _draw_points(axis, points)
    axis.grid(True, which="major")
    axis.set_axisbelow(True)
    if points:
        figure.legend(fontsize=8.5, loc="outside lower center", ncols=2)
    return figure


def _write(axis, text, place):
    axis.annotate(text, place, (0, 4), textcoords="offset points", size=9, color=INK)


def _draw_points(axis, points):
    whos, whats = (list(dict.fromkeys(parts)) for parts in _split(points))
    for point in points:
        (who,), (what,) = _split([point])
        axis.plot(
            point.intensity,
            point.rate,
            linestyle="",
            marker=MARKERS[whats.index(what) % len(MARKERS)],
            color=CYCLE[whos.index(who) % len(CYCLE)],
            markeredgecolor="white",
            markersize=9,
            label=f"{point.name}: {point.rate / 1e9:.3g} G/s",
        )


def _split(points):
    """Return the two parts of each name: who, what."""
    pairs = [point.name.rpartition(", ")[::2] for point in points]
    return [who for who, _ in pairs], [what for _, what in pairs]
