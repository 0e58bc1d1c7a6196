"""What a figure shows, in words, for those who hear it: read off what was drawn.

Each panel gives its kind, its axes, and what stands out: the ends of a line, the largest cell of a
matrix, the height of each bar. A drawing of boxes and arrows gives the words in it.
"""

import re

import numpy as np

MOST = 9  # things of one kind that are told one by one


def describe(figure):
    """Return the text alternative of a figure: one or more sentences for each panel."""
    axes = [axis for axis in figure.axes if axis.get_visible() and axis.get_label() != "<colorbar>"]
    told = [_panel(axis) for axis in axes]
    told = [words for words in told if words]
    if figure.get_suptitle():
        told.insert(0, f"{_plain(figure.get_suptitle())}.")
    if len(told) > 1 and len(axes) > 1:
        told.insert(0, f"{len(axes)} panels.")
    return " ".join(told)


def _panel(axis):
    title = _plain(" ".join(filter(None, map(axis.get_title, ("left", "center", "right")))))
    parts = []
    if axis.axison:  # otherwise lines are arrows and frames
        parts = [*_images(axis), *_bars(axis), *_lines(axis), *_points(axis)]
    parts = parts or [*_drawing(axis)]
    if not parts and not title:
        return ""
    sides = [
        f"{side}: {_plain(label)}"
        for side, label in (("across", axis.get_xlabel()), ("up", axis.get_ylabel()))
        if label
    ]
    head = f"{title}: " if title else ""
    body = "; ".join(parts) + (f" ({'; '.join(sides)})" if sides else "")
    return f"{head}{body}.".replace("..", ".")


def _images(axis):
    for image in axis.images:
        cells = np.ma.filled(np.ma.asarray(image.get_array(), np.float64), np.nan)
        if cells.ndim != 2 or not np.isfinite(cells).any():
            continue
        rows, columns = _names(axis.yaxis, len(cells)), _names(axis.xaxis, cells.shape[1])
        sizes = np.where(np.isfinite(cells), np.abs(cells), -1)
        i, j = np.unravel_index(sizes.argmax(), cells.shape)
        words = f"matrix of {len(cells)} × {cells.shape[1]}"
        words += f", rows {_list(rows)}" if rows else ""
        words += f", columns {_list(columns)}" if columns else ""
        if cells.size <= 12:
            known = (" ".join(map(_number, row)) for row in cells)
            yield f"{words}, holding {' / '.join(known)}"
            continue
        where = f"row {rows[i] if rows else i}, column {columns[j] if columns else j}"
        low, high = np.nanmin(cells), np.nanmax(cells)
        span = f"numbers from {_number(low)} to {_number(high)}"
        yield f"{words}, {span}, the largest in size at {where}"


def _bars(axis):
    for bars in axis.containers:
        heights = getattr(bars, "datavalues", None)
        if heights is None or not len(heights):
            continue
        side = axis.yaxis if getattr(bars, "orientation", "") == "horizontal" else axis.xaxis
        names = _names(side, len(heights)) or [str(k) for k in range(len(heights))]
        label = "" if str(bars.get_label()).startswith("_") else f" {_plain(bars.get_label())}"
        if len(heights) <= MOST:
            pairs = [f"{n} {_number(h)}" for n, h in zip(names, heights, strict=False)]
            yield f"bars{label}: {', '.join(pairs)}"
        else:
            top = int(np.nanargmax(heights))
            name = names[top] if top < len(names) else top
            span = f"{_number(np.nanmin(heights))} to {_number(np.nanmax(heights))}"
            yield f"{len(heights)} bars{label} from {span}, the highest at {name}"


def _lines(axis):
    drawn = [
        line
        for line in axis.lines
        if len(line.get_xdata()) > 1 and not str(line.get_label()).startswith("_")
    ] or [line for line in axis.lines if len(np.unique(line.get_xdata())) > 2]
    for line in drawn[:MOST]:
        x, y = (np.asarray(data, np.float64) for data in line.get_data())
        known = np.isfinite(x) & np.isfinite(y)
        if not known.any():
            continue
        x, y = x[known], y[known]
        label = str(line.get_label())
        name = "line" if label.startswith("_") else f"line “{_plain(label)}”"
        way = "rises" if y[-1] > y[0] else "falls" if y[-1] < y[0] else "goes"
        ends = f"{_number(y[0])} at {_number(x[0])} to {_number(y[-1])} at {_number(x[-1])}"
        words = f"{name} {way} from {ends}"
        inside = max(y[0], y[-1]), min(y[0], y[-1])
        if y.max() > inside[0]:
            words += f", with {_number(y.max())} at {_number(x[y.argmax()])} between"
        elif y.min() < inside[1]:
            words += f", with {_number(y.min())} at {_number(x[y.argmin()])} between"
        yield words
    if len(drawn) > MOST:
        yield f"{len(drawn) - MOST} more lines"


def _points(axis):
    for points in axis.collections:
        places = np.ma.filled(np.ma.asarray(points.get_offsets(), np.float64), np.nan)
        if points.get_visible() and len(places) > 1 and np.isfinite(places).all(axis=1).sum() > 1:
            x, y = places[np.isfinite(places).all(axis=1)].T
            label = str(points.get_label())
            name = "points" if label.startswith("_") else f"points “{_plain(label)}”"
            yield (
                f"{len(x)} {name}, {_number(x.min())} to {_number(x.max())} across and "
                f"{_number(y.min())} to {_number(y.max())} up"
            )


def _drawing(axis):
    """Return the words of a drawing, from top to bottom as they are read."""
    texts = [t for t in axis.texts if t.get_visible() and t.get_text().strip()]
    texts.sort(key=lambda t: (-round(float(t.get_position()[1]), 1), float(t.get_position()[0])))
    words = list(dict.fromkeys(_plain(t.get_text()) for t in texts))
    if words:
        yield f"drawing with the words, from top to bottom: {_list(words, 30)}"


def _names(side, count):
    """Return the labels of the ticks, if there is one for each of ``count`` things."""
    names = [_plain(label.get_text()) for label in side.get_ticklabels()]
    return names if len(names) == count and all(names) else []


def _list(words, most=MOST):
    words = list(map(str, words))
    return ", ".join(words if len(words) <= most else [*words[: most - 1], "…", words[-1]])


def _number(value):
    if not np.isfinite(value):
        return "none"
    text = f"{value:,.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.3g}"
    return text.replace("-", "−")


def _plain(text):
    """Return a label without the marks of mathematical text and in one line."""
    text = re.sub(r"\\(?:mathrm|mathsf|text|mathbf)\s*\{([^}]*)\}", r"\1", str(text))
    return " ".join(re.sub(r"[$\\{}]", "", text).split())
