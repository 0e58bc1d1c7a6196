"""What chapter 2 draws: hidden units as detectors, activations, and what the steps cost."""

import matplotlib as mpl
import numpy as np

from lib.lab.figures.base import COLOURS, CYCLE, FAINT, INK, MARKERS, paint, panels, styled

# The two steps of a layer keep their colours and markers in every plot.
STEPS = {"attention": (COLOURS["attention"], "o"), "FFN": (COLOURS["ffn"], "s")}
POSITIVE, NEGATIVE = "#2166ac", "#b2182b"  # the two ends of the colour map of signed matrices


@styled
def network(x, hidden, out, W_1, W_2, inputs, units, outputs, *, title=""):
    """Draw one token's way through the FFN: (d,), (d_ff,), (m,), with (d, d_ff) and (d_ff, m).

    Each box is a number of the three vectors, each line a weight that is not zero. Lines that carry
    at least 0.05 are drawn strongly: positive weights solid, negative ones dashed.
    """
    figure, axis = panels(height=4.3)
    layers = {"in": (x, inputs), "hidden": (hidden, units), "votes": (out, outputs)}
    heights = [1 - (np.arange(len(v)) + 0.5) / len(v) for v, _ in layers.values()]
    _wires(axis, 0, x, W_1, heights[0], heights[1])
    _wires(axis, 1, hidden, W_2, heights[1], heights[2])
    for at, (name, (values, labels)) in enumerate(layers.items()):
        axis.text(at, 1.04, name, ha="center", va="bottom")
        for height, value, label in zip(heights[at], values, labels, strict=True):
            _box(axis, at, height, label, float(value))
    axis.plot([], [], color=POSITIVE, label="positive weight")
    axis.plot([], [], "--", color=NEGATIVE, label="negative weight")
    axis.legend(loc="upper center", ncols=2, bbox_to_anchor=(0.5, 0.02))
    axis.set(xlim=(-0.3, 2.3), ylim=(-0.02, 1.1), title=title)
    axis.axis("off")
    return figure


@styled
def planes(named, points, labels, *, xlabel="", ylabel=""):
    """Draw functions of two numbers as shaded planes, with their values at the points, (m, 2).

    ``named`` maps a title to a function of two arrays. The dashed line borders the region where
    the function is above zero.
    """
    figure, axes = panels(len(named), height=3.2, sharey=True, squeeze=False)
    low, high = -0.6, 1.6
    a, b = np.meshgrid(np.linspace(low, high, 191), np.linspace(low, high, 191))
    for axis, (title, f) in zip(axes[0], named.items(), strict=True):
        values = np.asarray(f(a, b), np.float64)
        colours = {"cmap": "RdBu", "vmin": -2, "vmax": 2, "extent": (low, high, low, high)}
        image = axis.imshow(values, origin="lower", **colours)
        axis.contour(a, b, values, [1e-9], colors=INK, linestyles="--", linewidths=1)
        for (x, y), label in zip(points, labels, strict=True):
            _pin(axis, x, y, f"{label}\n{float(f(x, y)):.2f}".replace("-", "−"))
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
def explorer(pre, hidden, votes, units, words):
    """Draw pre-activations, hidden vector and votes of one token: (d_ff,), (d_ff,), (m,)."""
    figure, axes = panels(3, height=3.3, width_ratios=[1, 1, 1])
    _sideways(axes[0], pre, units, "pre-activations", COLOURS["plain"], limit=3.2)
    _sideways(axes[1], hidden, [""] * len(units), "hidden", COLOURS["ffn"], limit=3.2)
    _sideways(axes[2], votes, words, "votes", COLOURS["out"], limit=19)
    return figure


@styled
def walks(named, rows, units, words):
    """Draw hidden vectors and votes of a few inputs, one line of panels per activation.

    ``named`` maps the activation's name to (m, d_ff) and (m, words); ``rows`` names the m inputs.
    Panels below one another share a scale of colour.
    """
    figure, axes = panels(
        2, len(named), height=1.9, width_ratios=[len(units), len(words)], squeeze=False
    )
    pairs = list(named.values())
    for side, (what, columns) in enumerate({"hidden": units, "votes": words}.items()):
        limit = max(np.abs(pair[side]).max() for pair in pairs)
        for line, (name, pair) in zip(axes, named.items(), strict=True):
            labels = {"rows": None if side else rows}
            labels["columns"] = columns if name == list(named)[-1] else None
            paint(line[side], pair[side], **labels, limit=limit, signed=True, form=".1f")
            line[side].tick_params(axis="x", rotation=90)
            line[side].set_title(f"{what}, {name}", loc="center")
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

    A label begins with the name of its step, which gives the colour; a second line of one step has
    hollow markers. ``crossing`` marks an n with a vertical line.
    """
    figure, axis = panels(height=3.2)
    every = max(1, len(n) // 8)  # few markers on a line of many points
    drawn = set()
    for label, y in named.items():
        colour, marker = _step(label)
        style = {"markerfacecolor": "white", "linestyle": "--"} if colour in drawn else {}
        drawn.add(colour)
        style = {"color": colour, "marker": marker, "markersize": 5, "markevery": every} | style
        axis.plot(n, y, label=label, **style)
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
        carries = abs(values[a]) >= 0.05
        colour = POSITIVE if W[a][b] > 0 else NEGATIVE
        axis.plot(
            [at + 0.02, at + 0.98],
            [left[a], right[b]],
            color=colour if carries else "#dddddd",
            linestyle="-" if W[a][b] > 0 else "--",
            linewidth=0.8 + (min(4, 0.6 * abs(float(W[a][b]))) if carries else 0),
            zorder=2 if carries else 1,
        )


def _box(axis, at, height, label, value):
    alive = abs(value) >= 0.05
    axis.text(
        at,
        height,
        f"{label}  {value:.3g}".replace("-", "−"),
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


def _sideways(axis, values, labels, title, colour, limit):
    values = np.asarray(values, np.float64)
    drawn = axis.barh(range(len(values)), values, color=colour, height=0.7)
    axis.bar_label(drawn, [f"{v:.2f}".replace("-", "−") for v in values], padding=3, size=9)
    axis.axvline(0, color=INK, linewidth=0.8)
    axis.set_yticks(range(len(values)), labels)
    axis.tick_params(axis="y", length=0)
    axis.invert_yaxis()
    axis.set(xlim=(-limit, limit), title=f"{title}  ({len(values)},)")
