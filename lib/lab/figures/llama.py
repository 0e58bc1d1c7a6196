"""What chapter 6 draws: the weights of several heads, and pairs that turn with their positions."""

import numpy as np

from lib.errors import CourseError
from lib.lab.figures.base import COLOURS, CYCLE, FAINT, INK, panels, styled
from lib.rope import rope


@styled
def heads_of_one(named, tokens, *, title=""):
    """Draw the weights of one token's heads side by side: ``named`` maps a name to (n,)."""
    figure, axes = panels(len(named), height=2.6, sharey=True, squeeze=False)
    for axis, (name, weights) in zip(axes[0], named.items(), strict=True):
        drawn = axis.bar(range(len(tokens)), weights, color=COLOURS["attention"], width=0.75)
        axis.bar_label(drawn, [f"{w:.2f}" for w in weights], padding=2, size=8)
        axis.set_xticks(range(len(tokens)), tokens, size=9)
        axis.set(ylim=(0, 1), xlabel="key")
        axis.set_title(name, loc="center")
    axes[0, 0].set_ylabel("weight (sums to 1)")
    figure.suptitle(title, x=0.01, ha="left", size=11)
    return figure


@styled
def turning(q, k, i, j, *, base, span=24):
    """Draw a query at position i and a key at position j, pair by pair, and their score.

    Parameters
    ----------
    q, k : ndarray, (d_head,)
        Before they are turned; d_head is even.
    i, j : int
        Their positions.
    base : float
        Of the rotary positions.
    span : int
        The score is drawn for the distances 0 … span − 1; beyond that there is a CourseError, as
        there is for a key to the right of the query.
    """
    if not 0 <= i - j < span:
        raise CourseError(
            f"The key should be at or to the left of the query, fewer than {span} tokens away; "
            f"the query is at {i}, the key at {j}"
        )
    pairs = len(q) // 2
    figure, axes = panels(pairs + 1, height=2.7, width_ratios=[1] * pairs + [1.25])
    _draw_pairs(axes[:pairs], q, k, i, j, base)
    scores = [score(q, k, distance, 0, base) for distance in range(span)]
    axis = axes[pairs]
    axis.plot(range(span), scores, color=COLOURS["attention"], marker="o", markersize=3)
    axis.plot(i - j, scores[i - j], "D", color=COLOURS["out"], markersize=9, markeredgecolor=INK)
    axis.set(xlabel="distance i − j, in tokens", ylabel="score", ylim=_around(scores))
    axis.set_title(f"score {_number(scores[i - j])} at distance {i - j}")
    axis.grid(True)
    return figure


@styled
def stops(q, k, positions, *, base):
    """Draw `turning` at several places, a column for each (i, j), a row for each pair."""
    figure, axes = panels(len(positions), len(q) // 2, height=2.35, squeeze=False)
    for column, (i, j) in zip(axes.T, positions, strict=True):
        _draw_pairs(column, q, k, i, j, base)
        value = _number(score(q, k, i, j, base))
        column[0].set_title(f"q at {i}, k at {j}: score {value}\npair 0", loc="center", size=9.5)
    return figure


@styled
def by_distance(measured, predicted, *, every=8, title=""):
    """Draw scores over the distance 0, 1, 2 …, and predictions as rings at every eighth.

    Both map a label to (distances,); a prediction takes the colour of the measurement whose place
    in the order it has.
    """
    figure, axis = panels()
    for colour, (label, scores) in zip(CYCLE, measured.items(), strict=False):
        axis.plot(scores, color=colour, label=label)
    for colour, (label, scores) in zip(CYCLE, predicted.items(), strict=False):
        at = np.arange(0, len(scores), every)
        ring = {"markerfacecolor": "white", "markersize": 5, "linestyle": ""}
        axis.plot(at, scores[at], "o", color=colour, label=label, **ring)
    axis.set(title=title, xlabel="distance in tokens", ylabel="q·k, where |q| = |k| = 1")
    axis.grid(True)
    axis.legend(ncols=2)
    return figure


def score(q, k, i, j, base):  # (d_head,), (d_head,) -> float
    """Return q kᵀ / √d_head with q turned to position i and k to position j."""
    turned = rope(np.array([q, k]), np.array([i, j]), base)
    return float(turned[0] @ turned[1] / np.sqrt(len(q)))


def _draw_pairs(axes, q, k, i, j, base):
    turned = rope(np.array([q, k]), np.array([i, j]), base)  # (2, d_head)
    reach = 1.3 * np.sqrt(np.square([q, k]).reshape(2, -1, 2).sum(axis=2).max())
    for pair, axis in enumerate(axes):
        here = slice(2 * pair, 2 * pair + 2)
        for name, plain, now, other in (("query", q, *turned), ("key", k, *turned[::-1])):
            _arrow(axis, plain[here], FAINT, 1.2)
            _arrow(axis, now[here], COLOURS[name], 2.4)
            apart = now[here] - other[here]
            at = 1.08 * now[here] + 0.1 * reach * apart / (np.linalg.norm(apart) + 1e-9)
            axis.text(*at, name[0], ha="center", va="center", fontweight="bold")
        axis.axhline(0, color="#e4e4e4", zorder=0)
        axis.axvline(0, color="#e4e4e4", zorder=0)
        axis.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
        axis.set(xlabel=f"coordinate {2 * pair}", ylabel=f"coordinate {2 * pair + 1}")
        axis.set_title(f"pair {pair}", loc="center")


def _arrow(axis, end, colour, width):
    look = {"arrowstyle": "-|>", "color": colour, "lw": width, "shrinkA": 0, "shrinkB": 0}
    axis.annotate("", xy=end, xytext=(0, 0), arrowprops=look)


def _around(values):
    room = 0.12 * (max(values) - min(values)) + 0.05
    return min(values) - room, max(values) + room


def _number(value):
    return f"{value:.2f}".replace("-", "−")
