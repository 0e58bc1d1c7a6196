"""What chapter 3 draws: the roads through a layer, its stages, and who moves whom."""

import numpy as np

from lib.lab.figures.base import COLOURS, INK, paint, panels, styled

# Each form of a layer: is there a norm before a step, a residual around it, a norm after it.
FORMS = {
    "two_steps": (False, False, False),
    "residual_layer": (False, True, False),
    "layer": (True, True, False),
    "norm after the sum": (False, True, True),
}
STEPS = [("attention", COLOURS["attention"], "M"), ("FFN", COLOURS["ffn"], "Y")]

# The three rows of the 15 stages of `lib.lab.trace.trace_layer`.
GROUPS = {
    "each token separately": COLOURS["value"],
    "step 1, attention": COLOURS["attention"],
    "step 2, FFN": COLOURS["ffn"],
}


@styled
def roads(*forms):
    """Draw the way from X to Y through each of the ``forms``, names in `FORMS`, one below another.

    What two forms share stands at the same place, so that the eye finds the difference.
    """
    after = any(FORMS[form][2] for form in forms)
    half = 5.0 if after else 4.0
    figure, axis = panels(height=0.35 + 1.0 * len(forms))
    for row, form in enumerate(forms):
        y = -1.25 * row
        axis.text(
            -0.3, y + 0.72, form, family="monospace" if "_" in form or form == "layer" else None
        )
        axis.text(-0.1, y, "X", ha="center", va="center", fontweight="bold")
        for k, step in enumerate(STEPS):
            _half_road(axis, k * half, y, half, step, *FORMS[form])
    axis.set(xlim=(-0.4, 2 * half + 0.25), ylim=(-1.25 * (len(forms) - 1) - 0.45, 1.0))
    axis.axis("off")
    return figure


@styled
def influence_maps(named, tokens):
    """Draw maps of influence, (n, n) each, side by side; what is exactly zero stays grey.

    ``named`` maps a title to what `lib.lab.probes.influence` returned. All share one scale.
    """
    limit = max(np.max(values) for values in named.values())
    figure, axes = panels(len(named), height=3.1, width=2.9 * len(named) + 0.6, squeeze=False)
    for axis, (title, values) in zip(axes[0], named.items(), strict=True):
        shown = np.where(values == 0, np.nan, values)
        paint(axis, shown, rows=tokens, columns=tokens, limit=limit, form=".1f")
        _leave_to_cells(axis)
        axis.tick_params(labelsize=9)
        axis.set_title(title)
        axis.set_xlabel("input of")
    axes[0][0].set_ylabel("output of")
    return figure


@styled
def stages(parts):
    """Draw the 15 stages of a layer in three rows: separately, attention step, FFN step.

    ``parts`` are `lib.lab.figures.Part`s in the order of the trace, with the rows and columns that
    are to be seen. All share a scale of colour, which is full at 4.
    """
    figure, axes = panels(1, 3, height=2.65, width=9.2)
    for axis, k, (name, colour) in zip(axes, (0, 5, 10), GROUPS.items(), strict=True):
        axis.axis("off")
        row = [part._replace(array=_clean(part.array)) for part in parts[k : k + 5]]
        widths = [part.array.shape[1] + 1.0 for part in row]
        grid = axis.get_subplotspec().subgridspec(1, 5, width_ratios=widths)
        for j, part in enumerate(row):
            panel = figure.add_subplot(grid[j])
            _small(panel, part, rows=part.rows if j == 0 else None)
            panel.title.set_backgroundcolor(_tint(colour))
            if j == 0:
                panel.set_ylabel(name, color=INK, size=9.5, labelpad=6)
    for axis in axes:
        axis.remove()
    return figure


@styled
def stage(trace, k, part):
    """Draw stage ``k`` of a layer with its numbers, below a strip that shows where it stands.

    ``part`` is the `lib.lab.figures.Part` of it that is to be seen.
    """
    figure, (strip, axis) = panels(1, 2, height=2.4, width=7.2, height_ratios=[1, 5.2])
    _strip(strip, [one.name for one in trace], k)
    values = _clean(part.array)
    form = ".0f" if _whole(values) else ".2f"
    paint(axis, values, rows=part.rows, columns=part.columns, form=form)
    _leave_to_cells(axis)
    axis.set_title(f"{trace[k].name} = {trace[k].formula}    {trace[k].value.shape}", loc="center")
    return figure


@styled
def shares(n, named, *, title="", xlabel="tokens n", ylabel="share of the multiply-adds"):
    """Draw what part of a whole each of ``named`` is, stacked over ``n`` on a logarithmic axis."""
    figure, axis = panels(height=3.0)
    parts = np.array(list(named.values()), np.float64)
    parts /= parts.sum(axis=0)
    colours = [COLOURS["plain"], COLOURS["attention"], COLOURS["ffn"]]
    middle = len(n) // 2
    base = np.zeros(len(n))
    for (name, part), colour in zip(zip(named, parts, strict=True), colours, strict=False):
        axis.fill_between(n, base, base + part, color=colour, linewidth=0)
        place = (n[middle], base[middle] + part[middle] / 2)
        white = {"facecolor": "white", "edgecolor": "none", "boxstyle": "round,pad=0.25"}
        axis.text(*place, name, ha="center", va="center", bbox=white)
        base = base + part
    axis.set_xscale("log", base=2)
    axis.set_xticks(n[::2], [f"{k:,}" for k in n[::2]])
    axis.set(xlim=(n[0], n[-1]), ylim=(0, 1), title=title, xlabel=xlabel, ylabel=ylabel)
    return figure


def _leave_to_cells(axis, size=None):
    """Keep the numbers in the cells out of the layout, which is slow over hundreds of texts."""
    for text in axis.texts:
        text.set_in_layout(False)
        if size:
            text.set_fontsize(size)


def _small(axis, part, rows):
    """Draw a part with small numbers, in a scale of colour that is full at 4."""
    form = ".0f" if _whole(part.array) else ".1f"
    paint(axis, part.array, rows=rows, columns=part.columns, limit=4, signed=True, form=form)
    _leave_to_cells(axis, size=6.5)
    axis.tick_params(labelsize=7.5)
    axis.tick_params(axis="x", rotation=90)
    axis.set_title(part.name, loc="center", size=9.5)


def _strip(axis, names, k):
    """Write the names of the 15 stages in a row, with number ``k`` marked."""
    widths = np.array([1.6 + 0.32 * max(0, len(name) - 1) for name in names])
    places = np.cumsum(widths) - widths / 2
    for i, (group, colour) in enumerate(GROUPS.items()):
        axis.text(places[5 * i : 5 * i + 5].mean(), 1.1, group, ha="center", va="center", size=9)
        for j in range(5 * i, 5 * i + 5):
            frame = {"facecolor": _tint(colour), "edgecolor": colour, "boxstyle": "round,pad=0.3"}
            weight = "normal"
            if j == k:
                frame |= {"edgecolor": INK, "linewidth": 2.2}
                weight = "bold"
            at = {"ha": "center", "va": "center"}
            axis.text(places[j], 0, names[j], size=9, fontweight=weight, bbox=frame, **at)
    axis.set(xlim=(0, widths.sum()), ylim=(-0.7, 1.5))
    axis.axis("off")


def _half_road(axis, x, y, half, step, before, residual, after):
    """Draw one step of a road, from the vector that enters it at ``x`` to the one it makes."""
    name, colour, result = step
    _arrow(axis, (x + 0.1, y), (x + half - 0.35, y))
    if residual:
        branch, plus = x + 0.32, x + 3.2
        axis.plot(
            [branch, branch, plus, plus], [y, y + 0.52, y + 0.52, y], color=INK, linewidth=1.2
        )
        axis.plot(branch, y, "o", color=INK, markersize=4)
    if before:
        _box(axis, x + 0.95, y, "norm", "white")
    _box(axis, x + 2.2, y, name, _tint(colour))
    if residual:
        round_ = {"boxstyle": "circle,pad=0.1", "facecolor": "white", "edgecolor": INK}
        axis.text(plus, y, "+", ha="center", va="center", bbox=round_)
    if after:
        _box(axis, x + 3.95, y, "norm", "white")
    axis.text(x + half - 0.12, y, result, ha="center", va="center", fontweight="bold")


def _box(axis, x, y, name, colour):
    frame = {"boxstyle": "round,pad=0.35", "facecolor": colour, "edgecolor": INK}
    axis.text(x, y, name, ha="center", va="center", size=10, bbox=frame)


def _arrow(axis, start, end):
    style = {"arrowstyle": "-|>", "color": INK, "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0}
    axis.annotate("", xy=end, xytext=start, arrowprops=style, zorder=0)


def _tint(colour):
    """Return the colour mixed with white, light enough for dark text on it."""
    parts = np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    return tuple(1 - 0.35 * (1 - parts))


def _clean(values):
    return np.round(np.float64(values), 6) + 0.0  # the sum turns −0 into 0


def _whole(values):
    known = values[np.isfinite(values)]
    return np.array_equal(known, np.round(known))
