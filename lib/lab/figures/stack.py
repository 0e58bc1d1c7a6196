"""What chapter 4 draws: ways through the stack, and predictions after each layer."""

import numpy as np

from lib.lab.figures.base import COLOURS, FAINT, INK, lines, paint, panels, styled


@styled
def ways(weights, tokens, words, *, follow=None, title=""):
    """Draw which tokens each layer reads from: the weights are L matrices, (n, n).

    Layers run upwards. Each box is a token's vector at one depth, with its word from ``words``,
    (L + 1) lists of n. Grey lines are the residual stream; arrows are attention, as wide as the
    weight, from the token that is read. Those that lead to token ``follow`` are drawn solid.
    """
    L, n = len(weights), len(tokens)
    figure, axis = panels(height=1.0 + 0.85 * (L + 1))
    for depth, layer in enumerate(np.asarray(weights, np.float64)):
        axis.plot([range(n)] * 2, [[depth] * n, [depth + 1] * n], color="#dddddd", lw=4, zorder=0)
        for i, j in np.argwhere(layer > 0.02):
            _arrow(axis, (j, depth + 0.17), (i, depth + 0.8), layer[i, j], strong=i == follow)
    box = {"boxstyle": "round,pad=0.25", "facecolor": "white", "edgecolor": FAINT}
    for depth, row in enumerate(words):
        for i, word in enumerate(row):
            axis.text(i, depth, word, ha="center", va="center", size=9.5, bbox=box)
    axis.set_xticks(range(n), tokens)
    axis.set_yticks(range(L + 1), ["what enters", *(f"after layer {k}" for k in range(1, L + 1))])
    axis.set(xlim=(-0.6, n - 0.4), ylim=(-0.4, L + 0.4), title=title, xlabel="token")
    axis.tick_params(length=0)
    for spine in axis.spines.values():
        spine.set_visible(False)
    return figure


def _arrow(axis, start, end, weight, strong):
    look = {"arrowstyle": "->", "color": COLOURS["query" if strong else "attention"]}
    look["lw"] = (2.6 if strong else 1.4) * weight
    look["linestyle"] = "-" if strong else (0, (4, 2))
    axis.annotate("", xy=end, xytext=start, arrowprops=look)


@styled
def block_weights(layers, blocks, *, names=("W_Q", "W_K", "W_V", "W_O")):
    """Draw which block each weight matrix copies to which: one row of panels for each layer.

    The weights are made of square blocks of equal width; ``blocks`` names them.
    """
    figure, axes = panels(len(names), len(layers), height=2.15, squeeze=False)
    for k, (row, w) in enumerate(zip(axes, layers, strict=True), start=1):
        for axis, name in zip(row, names, strict=True):
            rows = blocks if axis is row[0] else None
            columns = blocks if w is layers[-1] else None
            _blocks_of(axis, getattr(w, name), len(blocks), rows, columns)
            axis.set_title(f"{name} of layer {k}", loc="center", size=10)
        row[0].set_ylabel("from block")
    figure.supxlabel("to block", size=10.5)
    return figure


def _blocks_of(axis, W, count, rows, columns):
    parts = W.reshape(count, len(W) // count, count, -1)
    filled = (np.abs(parts).max(axis=(1, 3)) > 0).astype(float)  # (count, count)
    paint(axis, filled, numbers=False, limit=1.2, rows=rows, columns=columns)
    axis.tick_params(axis="x", rotation=90)
    edges = np.arange(count + 1) - 0.5
    axis.set_xticks(edges, minor=True)
    axis.set_yticks(edges, minor=True)
    axis.grid(True, which="minor", color="#cccccc", linewidth=0.6)
    axis.tick_params(which="minor", length=0)


@styled
def maps(named, tokens, *, ylabel="", xlabel="", form=".2f"):
    """Draw maps from tokens to tokens side by side, (n, n) each; the future stays grey."""
    past = np.tri(len(tokens), dtype=bool)
    limit = max(float(np.max(array)) for array in named.values())
    figure, axes = panels(len(named), height=0.9 + 0.34 * len(tokens), squeeze=False)
    for k, (axis, (name, array)) in enumerate(zip(axes[0], named.items(), strict=True)):
        left = np.where(past, array, np.nan)
        rows = None if k else tokens
        paint(axis, left, rows=rows, columns=tokens, limit=limit, form=form)
        axis.tick_params(axis="x", rotation=90)
        axis.set_title(name, loc="center")
        axis.set_xlabel(xlabel)
    axes[0][0].set_ylabel(ylabel)
    return figure


def along(named, *, first=0, xlabel="depth (layers passed)", **options):
    """Draw lines along the stack: ``named`` maps a label to one value for each depth or layer.

    The first value belongs to number ``first``; the options are those of `figures.lines`.
    """
    length = len(next(iter(named.values())))
    return lines(range(first, first + length), named, xlabel=xlabel, **options)


def ranks(named, *, title="", **options):
    """Draw the rank of tokens along the stack, 1 on top; the options are those of `along`."""
    figure = along(
        named, title=title, ylabel="rank among all tokens (1 = likeliest)", log="y", **options
    )
    axis = figure.axes[0]
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axis.invert_yaxis()
    return figure


@styled
def patches(change, needed, *, title="", ylabel=""):
    """Draw what a vector from another run changes, put into one layer after the other, (L,).

    The dashed line is the change that is needed for another word to win.
    """
    figure, axis = panels(height=2.8)
    layers = range(1, len(change) + 1)
    axis.bar(layers, change, color=COLOURS["attention"], width=0.75)
    axis.axhline(0, color=INK, linewidth=0.8)
    axis.axhline(needed, color=INK, linewidth=1, linestyle="--")
    axis.annotate(
        f"needed: {needed:.1f}", (1, needed), xytext=(0, 4), textcoords="offset points", size=9
    )
    top = int(np.argmax(change))
    axis.annotate(
        f"{change[top]:.1f}", (top + 1, change[top]), xytext=(0, 2), textcoords="offset points",
        ha="center", size=9,
    )  # fmt: skip
    axis.set_xticks([1, *range(5, len(change) + 1, 5)])
    axis.set(title=title, xlabel="layer whose vector is exchanged", ylabel=ylabel)
    return figure


def times(layers, named, **options):
    """Draw milliseconds over the number of layers, on logarithmic axes."""
    labels = {"xlabel": "layers L", "ylabel": "milliseconds"}
    return lines(layers, named, log="xy", **labels, **options)


@styled
def prediction_grid(words, p, tokens, *, title=""):
    """Draw the most likely next token at each depth and position, the last layer on top.

    Parameters
    ----------
    words : list of list of str, (L + 1, n)
        The most likely next token.
    p : array_like, (L + 1, n)
        Its probability.
    tokens : list of str, (n,)
        The text.
    title : str
    """
    p = np.asarray(p, np.float64)
    depths, n = p.shape
    figure, axis = panels(height=0.9 + 0.2 * depths)
    image = axis.imshow(p, cmap="Blues", vmin=0, vmax=1, aspect="auto", origin="lower")
    for (depth, i), value in np.ndenumerate(p):
        ink = "white" if value > 0.6 else INK
        text = f"{words[depth][i]}  {value:.2f}"
        axis.text(i, depth, text, ha="center", va="center", color=ink, size=8)
    axis.set_xticks(range(n), tokens)
    ticks = sorted({0, depths - 1, *range(0, depths, 5)})
    axis.set_yticks(ticks, ["0, what enters" if k == 0 else str(k) for k in ticks])
    axis.set(title=title, xlabel="the text, token by token", ylabel="after layer")
    for spine in axis.spines.values():
        spine.set_visible(False)
    figure.colorbar(image, ax=axis, label="probability of the token shown", shrink=0.5)
    return figure


@styled
def top_tokens(named):
    """Draw the most likely tokens as bars, one panel each: a name -> (words, probabilities)."""
    count = max(len(words) for words, _ in named.values())
    figure, axes = panels(len(named), height=0.9 + 0.26 * count, squeeze=False, sharex=True)
    for axis, (name, (words, p)) in zip(axes[0], named.items(), strict=True):
        _token_bars(axis, words, p, name)
    return figure


@styled
def scrubber(words, p, *, title=""):
    """Draw the most likely tokens at one depth.

    The frame is fixed, so that it stands still while a slider moves; that also saves the time of
    laying it out.
    """
    figure, axis = panels(height=0.9 + 0.26 * len(words), layout="none")
    figure.subplots_adjust(left=0.2, right=0.97, bottom=0.17, top=0.89)
    _token_bars(axis, words, p, title)
    return figure


def _token_bars(axis, words, p, title):
    drawn = axis.barh(range(len(p)), p, color=COLOURS["out"], height=0.7)
    axis.bar_label(drawn, [f"{value:.2f}" for value in p], padding=2, size=9)
    axis.set_yticks(range(len(p)), words)
    axis.set(xlim=(0, 1.18), xticks=[0, 0.5, 1], xlabel="probability")
    axis.invert_yaxis()
    axis.set_title(title, loc="left", size=10.5)
