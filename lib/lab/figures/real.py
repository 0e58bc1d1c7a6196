"""What chapter 7 draws: a file's parts, maps of all heads, damage by layer, distributions."""

import numpy as np

from lib.lab.figures.base import COLOURS, CYCLE, FAINT, INK, MARKERS, paint, panels, styled


@styled
def parts(named, *, title=""):
    """Draw bars side by side: a panel's label maps to a dict of part -> size; parts are shared."""
    names = list(next(iter(named.values())))
    figure, axes = panels(len(named), height=0.9 + 0.32 * len(names), squeeze=False, sharey=True)
    for axis, (label, sizes) in zip(axes[0], named.items(), strict=True):
        values = [sizes[name] for name in names]
        drawn = axis.barh(range(len(names)), values, color=COLOURS["plain"], height=0.7)
        axis.bar_label(drawn, [f"{value:.1f}" for value in values], padding=3, size=9)
        axis.set(xlim=(0, 1.2 * max(values)), xlabel=label)
        axis.set_yticks(range(len(names)), names)
    axes[0][0].invert_yaxis()
    figure.suptitle(title, x=0.01, ha="left", size=11)
    return figure


@styled
def sentence_maps(named, tokens=None, *, title=""):
    """Draw attention maps of one text side by side, (n, n) each; the future stays grey.

    ``tokens`` label both axes; without them, every eighth position does.
    """
    figure, axes = panels(len(named), height=3.5, squeeze=False)
    for axis, (name, weights) in zip(axes[0], named.items(), strict=True):
        n = len(weights)
        left = np.where(np.tri(n, dtype=bool), weights, np.nan)
        image = paint(axis, left, limit=1.0, numbers=False)
        places = range(n) if tokens else range(0, n, 8)
        axis.set_xticks(places, tokens or places, size=8, rotation=90 if tokens else 0)
        axis.set_yticks(places, tokens or places, size=8)
        axis.tick_params(axis="y", labelleft=axis is axes[0][0])
        axis.set_title(name, loc="center", size=10)
        axis.set_xlabel("key")
    axes[0][0].set_ylabel("query")
    figure.colorbar(image, ax=axes[0], label="weight", shrink=0.6)
    figure.suptitle(title, x=0.01, ha="left", size=11)
    return figure


@styled
def contact_sheet(weights, *, title=""):
    """Draw the maps of all heads small: weights (L, heads, n, n), layers across, heads down."""
    layers, heads, n, _ = weights.shape
    sheet = np.full((heads * (n + 2), layers * (n + 2)), np.nan)
    for layer, head in np.ndindex(layers, heads):
        left = np.where(np.tri(n, dtype=bool), weights[layer, head], np.nan)
        sheet[head * (n + 2) :, layer * (n + 2) :][:n, :n] = left
    figure, axis = panels(height=0.9 + 6.6 * heads / layers)
    image = paint(axis, sheet, limit=1.0, numbers=False)
    middle = (n - 1) / 2
    axis.set_xticks(middle + (n + 2) * np.arange(layers), range(layers), size=7.5)
    axis.set_yticks(middle + (n + 2) * np.arange(heads), range(heads), size=8)
    axis.set(title=title, xlabel="layer", ylabel="head")
    figure.colorbar(image, ax=axis, label="weight", shrink=0.6, pad=0.01, aspect=14)
    return figure


@styled
def by_head(named, *, title="", limit=1.0, bar="mean weight"):
    """Draw one number for each head: a name -> (L, heads); layers across, heads down."""
    figure, axes = panels(1, len(named), height=1.85, squeeze=False, sharex=True)
    for axis, (name, scores) in zip(axes[:, 0], named.items(), strict=True):
        layers, heads = np.shape(scores)
        image = paint(axis, np.transpose(scores), limit=limit, numbers=False)
        axis.set_aspect("auto")
        axis.set_xticks(range(layers), range(layers), size=7.5)
        axis.set_yticks(range(heads), range(heads), size=7.5)
        axis.set_ylabel("head")
        axis.set_title(name, size=10)
    axes[-1][0].set_xlabel("layer")
    figure.suptitle(title, x=0.01, ha="left", size=11)
    figure.colorbar(image, ax=axes[:, 0], label=bar, shrink=min(1.0, 1.2 / len(named)), pad=0.01)
    return figure


@styled
def damage(p, rows, *, title="", xlabel="layer that loses the step"):
    """Draw a strip of probabilities, (rows, L), each in per cent."""
    p = np.asarray(p, np.float64)
    figure, axis = panels(height=0.95 + 0.42 * len(p))
    image = paint(axis, 100 * p, rows=rows, columns=range(p.shape[1]), limit=100, numbers=False)
    axis.set_aspect("auto")
    for (i, layer), value in np.ndenumerate(p):
        ink = "white" if value > 0.6 else INK
        axis.text(layer, i, f"{100 * value:.0f}", ha="center", va="center", color=ink, size=8)
    axis.tick_params(axis="x", labelsize=8)
    axis.set(title=title, xlabel=xlabel)
    figure.colorbar(image, ax=axis, label="per cent", pad=0.01, aspect=8)
    return figure


@styled
def rank_and_probability(ranks, p, *, title=""):
    """Draw rank and probability of one token for each text after each layer: name -> (L + 1,)."""
    figure, (left, right) = panels(2, height=3.4)
    for k, name in enumerate(ranks):
        look = {"color": CYCLE[k], "marker": MARKERS[k], "markersize": 4, "label": name}
        left.plot(ranks[name], **look)
        right.plot(p[name], **look)
    left.set_yscale("log")
    left.invert_yaxis()
    left.set_yticks([1, 10, 100, 1000, 10000], ["1", "10", "100", "1000", "10 000"])
    left.set(xlabel="depth (layers passed)", ylabel="rank (1 is the most likely)")
    right.set(xlabel="depth (layers passed)", ylabel="probability", ylim=(-0.03, 1.03))
    for axis in (left, right):
        axis.grid(True)
        axis.set_axisbelow(True)
    figure.suptitle(title, x=0.01, ha="left", size=11)
    right.legend(loc="upper left", fontsize=8)
    return figure


@styled
def head_bars(values, *, intact, title="", ylabel=""):
    """Draw one bar for each head of a layer, and a line for what is measured with all of them."""
    figure, axis = panels(height=2.7)
    drawn = axis.bar(range(len(values)), values, color=COLOURS["attention"], width=0.7)
    words = [f"{value:.2f}" for value in values]
    axis.bar_label(drawn, words, label_type="center", color="white", size=9.5)
    axis.axhline(intact, color=INK, linestyle="--", linewidth=1, label=f"intact: {intact:.2f}")
    axis.set_xticks(range(len(values)))
    axis.set(title=title, xlabel="head that is gone", ylabel=ylabel)
    axis.margins(y=0.15)
    axis.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


@styled
def sampling(p, plain, words, *, title=""):
    """Draw a distribution over some tokens beside the one without changes: (k,), (k,), k words.

    The frame is fixed, so that it stands still while a slider moves; that also saves the time of
    laying it out.
    """
    figure, axis = panels(height=3.3, layout="none")
    figure.subplots_adjust(left=0.09, right=0.98, bottom=0.27, top=0.9)
    _distribution(axis, p, plain, words)
    axis.set_ylabel("probability")
    axis.legend(loc="upper right")
    axis.set_title(title)
    return figure


@styled
def samplings(named, plain, words):
    """Draw several distributions, as `sampling` draws one: a name -> (k,)."""
    rows = -(-len(named) // 2)
    figure, axes = panels(2, rows, height=2.1, sharex=True, sharey=True, squeeze=False)
    for axis, (name, p) in zip(axes.flat, named.items(), strict=False):
        _distribution(axis, p, plain, words)
        axis.set_title(name, size=10)
    for axis in axes[:, 0]:
        axis.set_ylabel("probability")
    axes[0][0].legend(loc="upper right", fontsize=8)
    return figure


def _distribution(axis, p, plain, words):
    places = np.arange(len(words))
    axis.bar(places, p, color=COLOURS["out"], width=0.75, label="what is drawn from")
    axis.step(
        np.append(places - 0.5, len(words) - 0.5),
        np.append(plain, plain[-1]),
        where="post",
        color=INK,
        linewidth=1,
        label="the model's own",
    )
    for k in np.flatnonzero(np.asarray(p) == 0):
        axis.plot(k, 0.012, "x", color=FAINT, markersize=4)
    axis.set_xticks(places, words, rotation=90, size=8.5)
    axis.set(ylim=(0, 1), xlim=(-0.7, len(words) - 0.3))
