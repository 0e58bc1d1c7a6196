"""What chapter 1 draws: weights, and the output among the values."""

import numpy as np

from lib.lab.figures.base import COLOURS, FAINT, INK, bars, matrix, paint, panels, styled


@styled
def weights_of_one(weights, tokens, *, title="weights α of one query"):
    """Draw the weights of one query over the tokens that it sees, (n,)."""
    return bars(
        weights, tokens, title=title, ylabel="weight (sums to 1)", xlabel="key", colour="attention"
    )


@styled
def weights_of_all(weights, tokens, *, title="weights α, one row for each query"):
    """Draw the weights of all queries over all keys, (n, n); the future of a query stays grey."""
    past = np.where(np.tri(*np.shape(weights), dtype=bool), weights, np.nan)
    figure = matrix(
        past,
        rows=tokens,
        columns=tokens,
        limit=1.0,
        form=".2f",
        title=title,
        ylabel="query",
        xlabel="key",
        bar="weight",
    )
    if len(tokens) * max(map(len, tokens)) > 36:
        figure.axes[0].tick_params(axis="x", rotation=90)
    return figure


@styled
def masked(scores, weights, tokens):
    """Draw how the scores of all queries become weights, both (n, n): mask, then softmax.

    Scores and masked scores share one scale of colour; that of the weights ends at 1.
    """
    past = np.tri(len(tokens), dtype=bool)
    figure, axes = panels(3, height=3.3)
    named = {
        "scores": (scores, np.abs(scores).max()),
        "masked scores": (np.where(past, scores, -np.inf), np.abs(scores).max()),
        "weights": (weights, 1.0),
    }
    for axis, (name, (array, limit)) in zip(axes, named.items(), strict=True):
        paint(axis, array, rows=tokens, columns=tokens, limit=limit)
        for text in axis.texts:
            text.set_size(7.5)
        axis.tick_params(axis="x", rotation=90)
        axis.set_xlabel("key")
        axis.set_title(name, loc="center")
    axes[0].set_ylabel("query")
    for axis, sign in zip(axes[1:], ("mask →", "softmax →"), strict=True):
        axis.text(-0.14, 1.17, sign, ha="center", transform=axis.transAxes, size=9.5)
    return figure


@styled
def arrows(query, keys, names):
    """Draw a query divided by √d, (2,), and keys, {label: (2,)}, as arrows in the plane.

    The dashed line holds the keys that would get the score 0; ``names`` are those of the two
    coordinates.
    """
    figure, axis = panels(height=3.6, width=5.6)
    size = 1.15 * np.abs([query, *keys.values()]).max()
    across = size * np.array([query[1], -query[0]]) / np.linalg.norm(query)
    axis.plot(*np.transpose([-across, across]), "--", color=FAINT, linewidth=1)
    _arrow(axis, query, COLOURS["query"])
    axis.annotate("query / √d", query, xytext=(9, 0), textcoords="offset points", va="center")
    for label, key in keys.items():
        _arrow(axis, key, COLOURS["key"])
        text = f"{label}: score {np.dot(query, key):.0f}"
        axis.annotate(text, key, xytext=(9, 7), textcoords="offset points", va="bottom")
    axis.set(
        xlabel=names[0], ylabel=names[1], aspect="equal", adjustable="box",
        xlim=(-0.4 * size, 1.4 * size), ylim=(-0.25 * size, size),
    )  # fmt: skip
    axis.grid(True)
    return figure


@styled
def among_the_values(
    V, out, tokens, *, path=None, names=("coordinate 0", "coordinate 1"), title=""
):
    """Draw two coordinates of the values, their hull and the output: (n, 2), (2,).

    ``path`` are further outputs, (m, 2), drawn as a line that ends at the last of them.
    """
    figure, axis = panels(height=3.6, width=6.2)
    points = np.unique(np.asarray(V, np.float64)[:, :2], axis=0)
    hull, centre = points[_hull(points)], points.mean(axis=0)
    axis.fill(*hull.T, color=COLOURS["value"], alpha=0.12, linewidth=0)
    axis.plot(*np.vstack([hull, hull[:1]]).T, color=COLOURS["value"], linewidth=1)
    axis.plot(*points.T, "o", color=COLOURS["value"])
    for point in points:
        here = [t for t, v in zip(tokens, V, strict=True) if np.array_equal(v[:2], point)]
        outward = 14 * (point - centre) / np.linalg.norm(point - centre)
        side = "left" if outward[0] > 0 else "right"
        options = {"textcoords": "offset points", "ha": side, "va": "center"}
        axis.annotate(", ".join(dict.fromkeys(here)), point, xytext=outward, **options)
    if path is not None:
        axis.plot(*np.transpose(path), color=COLOURS["out"], marker=".", linewidth=1)
    axis.plot(*out[:2], "D", color=COLOURS["out"], markersize=9, markeredgecolor=INK)
    axis.annotate("output", out[:2], xytext=(-6, 11), textcoords="offset points", weight="bold")
    axis.set(title=title, xlabel=names[0], ylabel=names[1])
    axis.grid(True)
    axis.margins(x=0.32, y=0.18)
    return figure


@styled
def explorer(weights, V, out, tokens, seen, columns=None):
    """Draw one query's weights beside the values that they mix; ``seen`` tokens are visible."""
    figure, (left, right) = panels(2, width=8.0, height=3.4, width_ratios=[1, 1.15])
    left.bar(range(len(tokens)), weights, color=COLOURS["attention"])
    left.axvspan(seen - 0.5, len(tokens) - 0.5, color="#eeeeee", zorder=0)
    if seen < len(tokens):
        middle = (seen + len(tokens) - 1) / 2
        left.text(middle, 0.5, "not yet seen", ha="center", va="center", rotation=90, size=9)
    left.set_xticks(range(len(tokens)), tokens)
    left.set(ylim=(0, 1), xlim=(-0.6, len(tokens) - 0.4), ylabel="weight", xlabel="key")
    left.set_title("weights α")
    mixed = np.vstack([np.asarray(V, np.float64), np.full(V.shape[1], np.nan), out])
    paint(right, mixed, rows=[*tokens, "", "output"], columns=columns, form=".2f")
    right.tick_params(axis="x", rotation=0)
    right.axhspan(len(tokens) - 0.5, len(tokens) + 0.5, color="white", zorder=3)
    right.set(aspect="auto", title="values, and their mean weighted by α")
    return figure


def _arrow(axis, end, colour):
    shape = {"arrowstyle": "-|>", "color": colour, "shrinkA": 0, "shrinkB": 0, "linewidth": 2}
    axis.annotate("", end, xytext=(0, 0), arrowprops=shape)


def _hull(points):
    """Return the indices of the corners of the hull, in order (Andrew 1979, monotone chain)."""
    order = np.lexsort(points.T[::-1])

    def half(indices):
        chain = []
        for k in indices:
            while len(chain) > 1 and _turn(points[chain[-2]], points[chain[-1]], points[k]) <= 0:
                chain.pop()
            chain.append(int(k))
        return chain[:-1]

    return half(order) + half(order[::-1])


def _turn(a, b, c):
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])
