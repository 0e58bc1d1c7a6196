"""What chapter 1 draws: weights, and the output among the values."""

import numpy as np

from lib.lab.figures.base import COLOURS, INK, bars, matrix, paint, panels, styled


def weights_of_one(weights, tokens, *, title="weights α of one query"):
    """Draw the weights of one query over the tokens that it sees, (n,)."""
    return bars(
        weights, tokens, title=title, ylabel="weight (sums to 1)", xlabel="key", colour="attention"
    )


def weights_of_all(weights, tokens, *, title="weights α, one row for each query"):
    """Draw the weights of all queries over all keys, (n, n); the future of a query stays grey."""
    past = np.where(np.tri(*np.shape(weights), dtype=bool), weights, np.nan)
    return matrix(
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


@styled
def among_the_values(V, out, tokens, *, title=""):
    """Draw the first two coordinates of the values, their hull and the output, (n, d_v), (d_v,)."""
    figure, axis = panels(height=3.6, width=5.2)
    points = np.unique(np.asarray(V, np.float64)[:, :2], axis=0)
    hull = points[_hull(points)]
    axis.fill(*hull.T, color=COLOURS["value"], alpha=0.12, linewidth=0)
    axis.plot(*np.vstack([hull, hull[:1]]).T, color=COLOURS["value"], linewidth=1)
    axis.plot(*points.T, "o", color=COLOURS["value"])
    for point in points:
        here = [t for t, v in zip(tokens, V, strict=True) if np.array_equal(v[:2], point)]
        outward = 14 * (point - points.mean(axis=0)) / np.linalg.norm(point - points.mean(axis=0))
        axis.annotate(
            " = ".join(here),
            point,
            xytext=outward,
            textcoords="offset points",
            ha="left" if outward[0] > 0 else "right",
            va="center",
        )
    axis.plot(*out[:2], "D", color=COLOURS["out"], markersize=9, markeredgecolor=INK)
    axis.annotate("output", out[:2], xytext=(9, -13), textcoords="offset points", fontweight="bold")
    axis.set(title=title, xlabel="coordinate 0 of a value", ylabel="coordinate 1 of a value")
    axis.grid(True)
    axis.margins(x=0.32, y=0.18)
    return figure


@styled
def explorer(weights, V, out, tokens, seen):
    """Draw one query's weights beside the values that they mix; ``seen`` tokens are visible."""
    figure, (left, right) = panels(2, width=8.0, height=3.4, width_ratios=[1, 1.15])
    left.bar(range(len(tokens)), weights, color=COLOURS["attention"])
    left.axvspan(seen - 0.5, len(tokens) - 0.5, color="#eeeeee", zorder=0)
    if seen < len(tokens):
        left.text((seen + len(tokens) - 1) / 2, 0.93, "not yet seen", ha="center", size=9)
    left.set_xticks(range(len(tokens)), tokens)
    left.set(ylim=(0, 1), xlim=(-0.6, len(tokens) - 0.4), ylabel="weight", xlabel="key")
    left.set_title("weights α")
    mixed = np.vstack([np.asarray(V, np.float64), np.zeros(V.shape[1]), out])
    paint(right, mixed, rows=[*tokens, "", "output"], columns=range(V.shape[1]), form=".2f")
    right.axhspan(len(tokens) - 0.5, len(tokens) + 0.5, color="white", zorder=3)
    for text in right.texts[len(tokens) * V.shape[1] : (len(tokens) + 1) * V.shape[1]]:
        text.set_visible(False)
    right.set(aspect="auto", title="values, and their mean weighted by α")
    return figure


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
