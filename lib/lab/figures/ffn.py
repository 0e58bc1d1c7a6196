"""What chapter 2 draws: hidden units as detectors, activations, and what the steps cost."""

import matplotlib as mpl
import numpy as np

from lib.lab.figures.base import COLOURS, CYCLE, FAINT, INK, MARKERS, paint, panels, styled

# The two steps of a layer keep their colours and markers in every plot.
STEPS = {"attention": (COLOURS["attention"], "o"), "FFN": (COLOURS["ffn"], "s")}
POSITIVE, NEGATIVE = "#2166ac", "#b2182b"  # the two ends of the colour map of signed matrices


@styled
def network(x, hidden, out, W_1, W_2, coordinates, units, *, title=""):
    """Draw one token's way through the FFN: (d,), (d_ff,), (d,), with (d, d_ff) and (d_ff, d).

    Each box is a number of the three vectors, each line a weight that is not zero. Lines that carry
    something are drawn strongly: positive weights solid, negative ones dashed.
    """
    figure, axis = panels(height=4.3)
    layers = {"x": (x, coordinates), "hidden": (hidden, units), "out": (out, coordinates)}
    heights = [1 - (np.arange(len(v)) + 0.5) / len(v) for v, _ in layers.values()]
    _wires(axis, 0, x, W_1, heights[0], heights[1])
    _wires(axis, 1, hidden, W_2, heights[1], heights[2])
    for at, (name, (values, labels)) in enumerate(layers.items()):
        axis.text(at, 1.04, f"{name}  ({len(values)},)", ha="center", va="bottom")
        for height, value, label in zip(heights[at], values, labels, strict=True):
            _box(axis, at, height, label, float(value))
    axis.plot([], [], color=POSITIVE, label="positive weight")
    axis.plot([], [], "--", color=NEGATIVE, label="negative weight")
    axis.legend(loc="upper center", ncols=2, bbox_to_anchor=(0.5, 0.02))
    axis.set(xlim=(-0.3, 2.3), ylim=(-0.02, 1.1), title=title)
    axis.axis("off")
    return figure


@styled
def stages(named, rows, columns, *, height=3.7):
    """Draw matrices with the same rows side by side, each with columns of its own.

    ``named`` maps a name to a matrix, ``rows`` labels the rows of all of them, and ``columns``
    holds a list of labels for each.
    """
    widths = [np.shape(array)[1] for array in named.values()]
    figure, axes = panels(len(named), height=height, width_ratios=widths)
    for k, (axis, (name, array)) in enumerate(zip(axes, named.items(), strict=True)):
        paint(axis, array, rows=None if k else rows, columns=columns[k])
        axis.tick_params(axis="x", rotation=90)
        axis.set_title(f"{name}\n{tuple(int(size) for size in np.shape(array))}", loc="center")
    return figure


@styled
def planes(named, points, labels, *, xlabel="", ylabel=""):
    """Draw functions of two numbers as shaded planes, with their values at the points, (m, 2).

    ``named`` maps a title to a function of two arrays. The dashed line borders the region where
    the function is above zero.
    """
    figure, axes = panels(len(named), height=3.2, sharey=True, squeeze=False)
    low, high = -0.4, 1.5
    a, b = np.meshgrid(np.linspace(low, high, 191), np.linspace(low, high, 191))
    for axis, (title, f) in zip(axes[0], named.items(), strict=True):
        values = np.asarray(f(a, b), np.float64)
        colours = {"cmap": "RdBu", "vmin": -2, "vmax": 2, "extent": (low, high, low, high)}
        image = axis.imshow(values, origin="lower", **colours)
        axis.contour(a, b, values, [1e-9], colors=INK, linestyles="--", linewidths=1)
        for (x, y), label in zip(points, labels, strict=True):
            _pin(axis, x, y, f"{label}  {float(f(x, y)):.2f}".replace("-", "−"))
        axis.set(title=title, xlabel=xlabel, xticks=[0, 1], yticks=[0, 1], aspect="equal")
    axes[0][0].set_ylabel(ylabel)
    figure.colorbar(image, ax=axes[0], label="value", shrink=0.8)
    return figure


@styled
def curves(x, named, *, title="", xlabel="", ylabel=""):
    """Draw functions over the same numbers ``x``, each with markers of its own."""
    figure, axis = panels(height=3.2)
    for k, (label, y) in enumerate(named.items()):
        start, every = k * len(x) // (10 * len(named)), len(x) // 10
        axis.plot(
            x,
            y,
            label=label,
            color=CYCLE[k],
            marker=MARKERS[k],
            markersize=5,
            markevery=(start, every),
        )
    axis.axhline(0, color=INK, linewidth=0.8)
    axis.axvline(0, color=FAINT, linewidth=0.8)
    axis.grid(True)
    axis.legend()
    axis.set(title=title, xlabel=xlabel, ylabel=ylabel)
    return figure


@styled
def explorer(pre, hidden, out, units, coordinates):
    """Draw pre-activations, hidden vector and output of one token: (d_ff,), (d_ff,), (d,)."""
    figure, axes = panels(3, height=3.3, width_ratios=[1, 1, 1])
    _sideways(axes[0], pre, units, "pre-activations", COLOURS["plain"])
    _sideways(axes[1], hidden, [""] * len(units), "hidden", COLOURS["ffn"])
    _sideways(axes[2], out, coordinates, "output", COLOURS["out"])
    return figure


@styled
def walks(named, rows, units, coordinates):
    """Draw hidden vectors and outputs of a few inputs, one line of panels per activation.

    ``named`` maps the activation's name to (m, d_ff) and (m, d); ``rows`` names the m inputs.
    """
    widths = [len(units), len(coordinates)]
    figure, axes = panels(2, len(named), height=2.3, width_ratios=widths, squeeze=False)
    for line, (name, (hidden, out)) in zip(axes, named.items(), strict=True):
        last = name == list(named)[-1]
        for axis, array, what, columns in (
            (line[0], hidden, "hidden", units),
            (line[1], out, "output", coordinates),
        ):
            labels = rows if what == "hidden" else None
            paint(
                axis, array, rows=labels, columns=columns if last else None, limit=2.5, form=".2f"
            )
            axis.tick_params(axis="x", rotation=90)
            axis.set_title(f"{what}, {name}  {np.shape(array)}", loc="center")
    return figure


@styled
def influences(named, tokens):
    """Draw maps of influence side by side, (n, n) each: entry [i, j], token j upon output i.

    What is zero, up to the error of a measured derivative, stays grey and has no number.
    """
    figure, axes = panels(len(named), height=3.5)
    for axis, (name, array) in zip(axes, named.items(), strict=True):
        shown = np.where(array > 1e-6, array, np.nan)
        paint(axis, shown, rows=tokens, columns=tokens, form=".1f")
        axis.set_title(name, loc="center")
        axis.set(xlabel="token that is moved", ylabel="output of")
    return figure


@styled
def shares(named, *, title="", xlabel="", unit=1.0):
    """Draw amounts as bars, each with its number, in ``unit``, and its share of the whole."""
    figure, axis = panels(height=0.7 + 0.42 * len(named))
    values = np.array(list(named.values()), np.float64)
    colours = [_step(name)[0] for name in named]
    drawn = axis.barh(range(len(named)), values / unit, color=colours, height=0.65)
    texts = [f"{v / unit:.2f}   ({v / values.sum():.1%})" for v in values]
    axis.bar_label(drawn, texts, padding=4)
    axis.set_yticks(range(len(named)), named)
    axis.invert_yaxis()
    axis.set(title=title, xlabel=xlabel, xlim=(0, 1.35 * values.max() / unit))
    return figure


@styled
def costs(n, named, *, title="", ylabel="", crossing=None, log=False):
    """Draw what the steps of a layer cost over n: ``named`` maps a label to the values.

    A label begins with the name of its step, which gives the colour. A label with "by count" in it
    is a prediction: dashed, without markers. ``crossing`` marks an n with a vertical line.
    """
    figure, axis = panels(height=3.2)
    every = max(1, len(n) // 8)  # few markers on a line of many points
    for label, y in named.items():
        colour, marker = _step(label)
        style = {"linestyle": "--"} if "by count" in label else {"marker": marker}
        axis.plot(n, y, label=label, color=colour, markersize=5, markevery=every, **style)
    if log:
        axis.set_xscale("log", base=2)
        axis.set_yscale("log", base=2)
        for ticks in (axis.xaxis, axis.yaxis):
            ticks.set_major_formatter(mpl.ticker.FuncFormatter(lambda v, _: f"{v:g}"))
    else:
        axis.set_ylim(bottom=0)
    if crossing is not None:
        axis.axvline(crossing, color=INK, linestyle=":")
        axis.text(crossing, 0.04, f"  n = {crossing}", transform=axis.get_xaxis_transform())
    axis.grid(True)
    axis.set_axisbelow(True)
    axis.legend()
    axis.set(title=title, xlabel="tokens n", ylabel=ylabel)
    return figure


def _step(label):
    """Return colour and marker of the step whose name begins the label."""
    return STEPS.get(label.split()[0].rstrip(","), (COLOURS["plain"], ""))


def _pin(axis, x, y, text):
    axis.plot(x, y, "o", color=INK, markersize=5)
    axis.annotate(
        text,
        (x, y),
        xytext=(0, 8),
        textcoords="offset points",
        ha="center",
        bbox={
            "boxstyle": "round,pad=0.15",
            "facecolor": "white",
            "edgecolor": "none",
            "alpha": 0.8,
        },
    )


def _wires(axis, at, values, W, left, right):
    for a, b in np.argwhere(np.asarray(W) != 0):
        carries = values[a] != 0
        colour = POSITIVE if W[a][b] > 0 else NEGATIVE
        axis.plot(
            [at + 0.02, at + 0.98],
            [left[a], right[b]],
            color=colour if carries else "#dddddd",
            linestyle="-" if W[a][b] > 0 else "--",
            linewidth=0.8 + (0.6 * abs(float(W[a][b])) if carries else 0),
            zorder=2 if carries else 1,
        )


def _box(axis, at, height, label, value):
    alive = value != 0
    axis.text(
        at,
        height,
        f"{label}  {value:g}".replace("-", "−"),
        ha="center",
        va="center",
        color=INK if alive else "#6b6b6b",
        fontweight="bold" if alive else "normal",
        size=9.5,
        zorder=3,
        bbox={
            "boxstyle": "round",
            "facecolor": "#fdf0d5" if alive else "white",
            "edgecolor": FAINT,
        },
    )


def _sideways(axis, values, labels, title, colour):
    values = np.asarray(values, np.float64)
    drawn = axis.barh(range(len(values)), values, color=colour, height=0.7)
    axis.bar_label(drawn, [f"{v:.2f}".replace("-", "−") for v in values], padding=3, size=9)
    axis.axvline(0, color=INK, linewidth=0.8)
    axis.set_yticks(range(len(values)), labels)
    axis.tick_params(axis="y", length=0)
    axis.invert_yaxis()
    axis.set(xlim=(-5.5, 6.5), title=f"{title}  ({len(values)},)")
