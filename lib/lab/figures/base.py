"""The one style of all figures, and the forms that most of them have.

Figures stand on a white card, so that they read the same on a light and on a dark page. Colours are
those of Okabe and Ito (2008), which colour-blind readers can tell apart; what a colour says, a
label, a marker or a number says as well.
"""

from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from lib.lab.figures import words

INK, PALE, FAINT = "#222222", "#767676", "#9a9a9a"  # PALE is as pale as small text may be

# One meaning for one colour, in every chapter.
COLOURS = {
    "query": "#D55E00",
    "key": "#0072B2",
    "value": "#009E73",
    "attention": "#0072B2",
    "ffn": "#E69F00",
    "out": "#CC79A7",
    "plain": "#56B4E9",
}
CYCLE = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"]
MARKERS = ["o", "s", "^", "D", "v", "P"]

STYLE = {
    "figure.dpi": 120,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "figure.constrained_layout.use": True,
    "font.family": "DejaVu Sans",
    "font.size": 10.5,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": mpl.cycler(color=CYCLE),
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": "#e4e4e4",
    "legend.frameon": False,
    "image.interpolation": "nearest",
}
# What a reader's own matplotlibrc may say is left aside, but for how their system works.
_THEIRS = (
    "backend",
    "interactive",
    "toolbar",
    "webagg",
    "savefig.directory",
    "timezone",
    "tk.",
    "svg.",
)
STYLE = {k: v for k, v in mpl.rcParamsDefault.items() if not k.startswith(_THEIRS)} | STYLE


class CourseFigure(Figure):
    """A figure that looks the same everywhere, and says in words what it shows.

    Much of a figure is decided when it is drawn (ticks, text), so the style holds then too. A
    notebook asks it for its picture, whatever Matplotlib's backend is; the words are the picture's
    `alt` text.
    """

    alt = ""  # set by functions whose figure says more than can be read off it

    def draw(self, renderer):
        """Draw in the course's style."""
        with mpl.rc_context(STYLE):
            super().draw(renderer)

    def get_tightbbox(self, *arguments, **options):
        """Measure in the course's style."""
        with mpl.rc_context(STYLE):
            return super().get_tightbbox(*arguments, **options)

    def in_words(self):
        """Return what the figure shows, in words."""
        with mpl.rc_context(STYLE):
            return self.alt or words.describe(self)

    def _repr_mimebundle_(self, include=None, exclude=None):  # IPython asks for this
        from IPython.core.pylabtools import print_figure

        with mpl.rc_context(STYLE):
            picture = print_figure(self, "png", bbox_inches="tight")
        data = {"image/png": picture, "text/plain": repr(self)}
        return data, {"image/png": {"alt": self.in_words()}}


# Matplotlib writes this one's docstring anew for each class, in a markup of its own.
CourseFigure.set.__doc__ = "Set properties, as `matplotlib.figure.Figure.set` does."


def panels(columns=1, rows=1, *, width=7.2, height=3.0, layout=None, **options):
    """Return a figure in the course's style and its axes, as `Figure.subplots` makes them.

    ``height`` is that of one row, in inches. The figure is not on pyplot's list: a notebook shows
    it once, as the value of its cell.
    """
    with mpl.rc_context(STYLE):
        figure = CourseFigure(figsize=(width, height * rows), layout=layout)
        return figure, figure.subplots(rows, columns, **options)


def styled(draw):
    """Let a drawing function run in the course's style, and take ``alt``.

    ``alt`` says in a sentence or two what the figure shows, for those who hear it; without it the
    words are read off what was drawn.
    """

    def drawn(*arguments, alt="", **options):
        with mpl.rc_context(STYLE):
            figure = draw(*arguments, **options)
        if alt:
            figure.alt = alt
        return figure

    drawn.__doc__, drawn.__name__, drawn.__wrapped__ = draw.__doc__, draw.__name__, draw
    return drawn


@styled
def paint(
    axis, array, *, rows=None, columns=None, limit=None, signed=None, numbers=True, form=None
):
    """Draw a matrix on an axis, (m, n), with the numbers in its cells, and return the image.

    ``rows`` and ``columns`` label the two axes; ``form`` is a format such as ``".2f"``;
    ``limit`` is the size at which the colour is full. Positive numbers are blue and negative ones
    red; ``signed`` says whether the scale has room for both, if the array does not. What is NaN
    stays grey and has no number; −∞ is grey and is written.
    """
    array = np.atleast_2d(np.asarray(array, np.float64))
    known = array[np.isfinite(array)]
    signed = bool((known < 0).any()) if signed is None else signed
    limit = limit or max(float(np.abs(known).max()), 1e-12)
    colours = mpl.colormaps["RdBu" if signed else "Blues"].with_extremes(bad="#e8e8e8")
    finite = np.where(np.isfinite(array), array, np.nan)
    image = axis.imshow(finite, cmap=colours, vmin=-limit if signed else 0, vmax=limit)
    for spine in axis.spines.values():
        spine.set_visible(False)
    _label(axis.set_yticks, rows, array.shape[0])
    _label(axis.set_xticks, columns, array.shape[1])
    axis.tick_params(length=0)
    if _upright(columns):
        axis.tick_params(axis="x", rotation=90)
    if numbers:
        form = form or (".0f" if np.array_equal(known, np.round(known)) else ".2f")
        size = 9 if array.shape[1] <= 8 else 7.5
        for (i, j), value in np.ndenumerate(array):
            if np.isfinite(value):
                ink = "white" if abs(value) > 0.6 * limit else INK if value else PALE
                text = format(value, form).replace("-", "−") if value else "0"
                axis.text(j, i, text, ha="center", va="center", color=ink, size=size)
            elif value == -np.inf:
                axis.text(j, i, "−∞", ha="center", va="center", color=INK, size=size)
    return image


@styled
def matrix(array, *, rows=None, columns=None, title="", ylabel="", xlabel="", bar="", **options):
    """Draw one matrix, with a colour bar named ``bar`` if that is given."""
    array = np.atleast_2d(array)
    height = _height(array) + (0.09 * max(map(len, columns)) if _upright(columns) else 0)
    figure, axis = panels(width=min(7.2, 2.2 + 0.62 * array.shape[1]), height=height)
    image = paint(axis, array, rows=rows, columns=columns, **options)
    axis.set(title=title, ylabel=ylabel, xlabel=xlabel)
    if bar:
        figure.colorbar(image, ax=axis, label=bar, shrink=0.8)
    return figure


@styled
def matrices(named, *, rows=None, columns=None, **options):
    """Draw matrices side by side: ``named`` maps a name to a vector or a matrix.

    Each is titled with its name and shape. ``rows`` labels the rows of those that have as many.
    """
    arrays = {name: np.atleast_2d(array) for name, array in named.items()}
    widths = [array.shape[1] + 1.2 for array in arrays.values()]
    height = max(_height(array) for array in arrays.values())
    figure, axes = panels(len(arrays), height=height, width=7.2, width_ratios=widths, squeeze=False)
    for axis, (name, array) in zip(axes[0], arrays.items(), strict=True):
        labels = rows if rows is not None and len(rows) == len(array) else None
        paint(axis, array, rows=labels, columns=columns, **options)
        axis.set_title(f"{name}  {tuple(int(k) for k in np.shape(named[name]))}", loc="center")
    return figure


class Part(NamedTuple):
    """A matrix of an equation, with the names of its rows and columns."""

    name: str
    array: np.ndarray  # (m, n), or (n,) for a row vector
    rows: list | None = None
    columns: list | None = None

    def used(self, rows=None, columns=None):
        """Return the part with these rows and columns alone, given by name."""
        array, kept = np.atleast_2d(self.array), [self.rows, self.columns]
        for side, names in enumerate((rows, columns)):
            if names is not None:
                array = array.take([kept[side].index(name) for name in names], axis=side)
                kept[side] = list(names)
        return Part(self.name, array, *kept)


@styled
def equation(*parts, limit=None, width=7.2, form=None, title=""):
    """Draw matrices in a row with the signs between them: each is a `Part` or a string.

    All share one scale of colour, so that what looks equal is equal; ``limit`` sets its end.
    """
    arrays = [np.atleast_2d(part.array) for part in parts if isinstance(part, Part)]
    limit = limit or max(np.nanmax(np.abs(array)) for array in arrays)
    signed = any((array < 0).any() for array in arrays)
    widths = [0.9 if isinstance(p, str) else np.atleast_2d(p.array).shape[1] for p in parts]
    cell = min(0.42, (width - 0.9 * len(arrays)) / sum(widths))
    height = 1.5 + cell * max(map(len, arrays))
    figure, axes = panels(len(parts), height=height, width=width, width_ratios=widths)
    for axis, part in zip(axes, parts, strict=True):
        if isinstance(part, str):
            axis.axis("off")
            axis.text(0.5, 0.5, part, ha="center", va="center", size=13, transform=axis.transAxes)
            continue
        labels = {"rows": part.rows, "columns": part.columns}
        paint(axis, part.array, **labels, limit=limit, signed=signed, form=form)
        axis.tick_params(axis="x", rotation=90)
        axis.set_title(f"{part.name}\n{np.shape(part.array)}", loc="center")
    figure.suptitle(title)
    return figure


@styled
def bars(values, labels, *, title="", ylabel="", xlabel="", colour="plain", form=".2f"):
    """Draw one bar for each value, with its number on top."""
    figure, axis = panels(height=2.6, width=min(7.2, 1.6 + 0.85 * len(values)))
    values = np.asarray(values, np.float64)
    drawn = axis.bar(range(len(values)), values, color=COLOURS.get(colour, colour), width=0.7)
    axis.bar_label(drawn, [format(v, form).replace("-", "−") for v in values], padding=2, size=9)
    axis.axhline(0, color=INK, linewidth=0.8)
    axis.set_xticks(range(len(labels)), labels)
    axis.set(title=title, ylabel=ylabel, xlabel=xlabel)
    axis.margins(y=0.15)
    return figure


@styled
def lines(x, named, *, title="", xlabel="", ylabel="", log="", dashed=(), height=3.0):
    """Draw lines over ``x``: ``named`` maps a label to the values.

    ``log`` is ``"x"``, ``"y"`` or ``"xy"``. Those in ``dashed`` are predictions or limits, drawn
    without markers.
    """
    figure, axis = panels(height=height)
    for k, (label, y) in enumerate(named.items()):
        plain = label in dashed
        axis.plot(
            x,
            y,
            label=label,
            color=CYCLE[k % len(CYCLE)],
            linestyle="--" if plain else "-",
            marker="" if plain or len(x) > 40 else MARKERS[k % len(MARKERS)],
            markersize=5,
        )
    if "x" in log:
        axis.set_xscale("log", base=2)
        axis.xaxis.set_major_formatter(mpl.ticker.FuncFormatter(lambda v, _: f"{v:g}"))
    if "y" in log:
        axis.set_yscale("log")
    axis.set(title=title, xlabel=xlabel, ylabel=ylabel)
    axis.grid(True)
    axis.set_axisbelow(True)
    if len(named) > 1:
        axis.legend()
    return figure


def _height(array):
    return 0.75 + 0.4 * len(array)


def _upright(columns):
    """Tell whether the names of the columns are too long to stand side by side."""
    return columns is not None and max(len(str(c)) for c in columns) > 80 / (len(columns) + 2)


def _label(setter, labels, count):
    if labels is None:
        setter([])
    else:
        setter(range(count), labels)
