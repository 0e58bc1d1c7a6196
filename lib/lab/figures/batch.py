"""What chapter 10 draws: who runs in which pass, and what a text sees of others."""

from collections.abc import Sequence

import numpy as np

from lib.lab.figures.base import CYCLE, panels, styled


@styled
def timelines(named: dict[str, Sequence[Sequence[int | None]]], *, title=""):
    """Draw which text takes each place in each pass.

    Parameters
    ----------
    named : dict of str to sequence
        For each way of working its passes: the number of the text in each place, or None.
    """
    longest = max(map(len, named.values()))
    figure, axes = panels(rows=len(named), height=1.5, sharex=True, squeeze=False)
    said = []
    for axis, (name, passes) in zip(axes[:, 0], named.items(), strict=True):
        for k, places in enumerate(passes):
            for place, text in enumerate(places):
                if text is None:
                    continue
                colour = CYCLE[text % len(CYCLE)]
                axis.barh(place, 1, left=k, height=0.8, color=colour, edgecolor="white")
                if k == 0 or passes[k - 1][place] != text:
                    axis.text(
                        k + 0.5, place, str(text), ha="center", va="center", size=8, color="w"
                    )
        axis.set(title=name, ylabel="place", xlim=(0, longest), yticks=range(len(passes[0])))
        axis.invert_yaxis()
        taken = sum(text is not None for places in passes for text in places)
        share = taken / (len(passes) * len(passes[0]))
        said.append(f"{name}: {len(passes)} passes, {share:.0%} of the places taken.")
    axes[-1, 0].set(xlabel="pass", xticks=range(0, longest + 1, 2))
    figure.suptitle(title, x=0.01, ha="left", fontsize="medium")
    figure.alt = f"{title}. {' '.join(said)}"
    return figure


@styled
def throughput(sizes, tokens_a_second, milliseconds, *, title=""):
    """Draw against the number of texts what all get together, and how long each waits."""
    figure, (left, right) = panels(2, height=2.6)
    for axis, values, ylabel, colour in (
        (left, tokens_a_second, "tokens a second, all texts", CYCLE[0]),
        (right, milliseconds, "milliseconds a pass", CYCLE[1]),
    ):
        axis.plot(sizes, values, "o-", color=colour)
        axis.set(xlabel="texts at once", ylabel=ylabel, ylim=(0, 1.1 * float(np.max(values))))
        axis.set_xscale("log", base=2)
        axis.set_xticks(sizes, [str(size) for size in sizes])
    left.set_title(title)
    return figure
