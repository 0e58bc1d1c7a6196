"""The figures of chapter 2 draw the numbers that they were given."""

import numpy as np
import pytest

from lib.lab.figures import ffn as drawings
from lib.lab.figures.base import COLOURS

W_1 = np.array([[1.0, 0.0, -2.0], [0.0, 3.0, 1.0]])  # (d, d_ff) = (2, 3)
W_2 = np.array([[1.0, 0.0], [0.0, -1.0], [2.0, 0.0]])
X_NAMES, UNITS = ["left", "right"], ["u", "v", "w"]


def texts(axis):
    return [text.get_text() for text in axis.texts]


def colour_of(line):
    return line.get_color().upper()


def test_the_network_shows_every_number_and_every_nonzero_weight():
    axis = drawings.network(
        [1, 0], [1, 0, 0], [1, -0.5], W_1, W_2, X_NAMES, UNITS, ["no", "yes"]
    ).axes[0]
    boxes = ["left  1", "right  0", "u  1", "v  0", "w  0", "no  1", "yes  −0.5"]
    assert [text for text in texts(axis) if "  " in text] == boxes
    wires = [line for line in axis.lines if len(line.get_xdata()) == 2]
    assert len(wires) == 4 + 3
    strong = [line for line in wires if line.get_color() != "#dddddd"]
    # From "left" a positive weight to u and a negative one to w; from u one to the output "no".
    assert [line.get_linestyle() for line in strong] == ["-", "--", "-"]
    heights = [line.get_ydata().tolist() for line in strong]
    np.testing.assert_allclose(heights, [[3 / 4, 5 / 6], [3 / 4, 1 / 6], [5 / 6, 3 / 4]])


def test_planes_print_the_value_at_each_point():
    figure = drawings.planes(
        {"f": lambda a, b: a - 2 * b}, [(0, 0), (1, 0), (0, 1)], ["o", "x", "y"]
    )
    assert texts(figure.axes[0]) == ["o\n0.00", "x\n1.00", "y\n−2.00"]
    grid = figure.axes[0].images[0].get_array()
    # Lower left and upper right of the square from −0.6 to 1.6.
    np.testing.assert_allclose([grid[0, 0], grid[-1, -1]], [0.6, -1.6], atol=1e-12)


def test_curves_hold_their_values():
    x = np.linspace(-1, 1, 30)
    axis = drawings.curves(x, {"f": x**2, "g": -x}).axes[0]
    np.testing.assert_array_equal(axis.lines[0].get_ydata(), x**2)
    np.testing.assert_array_equal(axis.lines[1].get_ydata(), -x)
    assert axis.lines[0].get_marker() != axis.lines[1].get_marker()


def test_the_explorer_draws_three_vectors():
    figure = drawings.explorer([1, -2, 0.5], [1, 0, 0.25], [3, -1], UNITS, X_NAMES)
    widths = [[bar.get_width() for bar in axis.patches] for axis in figure.axes]
    assert widths == [[1, -2, 0.5], [1, 0, 0.25], [3, -1]]
    assert texts(figure.axes[0]) == ["1.00", "−2.00", "0.50"]


def test_walks_have_a_line_of_panels_for_each_activation():
    hidden, out = np.arange(6).reshape(2, 3) / 4, np.array([[-1.0, 2.0], [0.5, 0.0]])
    figure = drawings.walks(
        {"f": (hidden, out), "g": (-hidden, 2 * out)}, ["r", "s"], UNITS, X_NAMES
    )
    assert texts(figure.axes[0]) == ["0", "0.2", "0.5", "0.8", "1.0", "1.2"]
    assert texts(figure.axes[3]) == ["−2.0", "4.0", "1.0", "0"]
    scales = [axis.images[0].get_clim() for axis in figure.axes]
    assert scales == [(-1.25, 1.25), (-4, 4)] * 2


def test_shares_are_of_the_whole():
    axis = drawings.shares({"FFN, here": 3e6, "attention": 1e6}, unit=1e6).axes[0]
    assert texts(axis) == ["3.00   (75.0%)", "1.00   (25.0%)"]
    assert [bar.get_width() for bar in axis.patches] == [3, 1]


@pytest.mark.parametrize("log", [False, True])
def test_costs_keep_the_colours_of_the_steps(log):
    named = {"FFN": [3, 3, 3], "attention": [1, 3, 9], "attention, twice": [1, 2, 4]}
    axis = drawings.costs([1, 2, 4], named, crossing=2, log=log).axes[0]
    lines = axis.lines[:3]
    assert [line.get_ydata().tolist() for line in lines] == list(named.values())
    blue, orange = COLOURS["attention"], COLOURS["ffn"]
    assert [colour_of(line) for line in lines] == [orange, blue, blue]
    assert [line.get_linestyle() for line in lines] == ["-", "-", "--"]
    assert lines[2].get_markerfacecolor() == "white"
    assert axis.lines[3].get_xdata() == [2, 2]
    assert axis.get_xscale() == ("log" if log else "linear")
