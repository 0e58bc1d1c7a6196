"""Figures: what they draw is what they were given, and the same picture twice is the same bytes."""

import base64
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from lib.lab import example, figures, widgets
from lib.lab.figures import attention, base

A = np.array([[1.0, -2.0, 0.5], [0.25, np.nan, 3.0]])


def texts(axis):
    return [text.get_text() for text in axis.texts]


def test_a_matrix_carries_its_numbers_labels_and_names():
    figure = figures.matrix(A, rows=["r", "s"], columns=["x", "y", "z"], title="A", bar="size")
    axis = figure.axes[0]
    assert texts(axis) == ["1.00", "−2.00", "0.50", "0.25", "3.00"]  # NaN stays without a number
    assert [t.get_text() for t in axis.get_yticklabels()] == ["r", "s"]
    assert [t.get_text() for t in axis.get_xticklabels()] == ["x", "y", "z"]
    assert axis.get_title(loc="left") == "A"
    assert figure.axes[1].get_ylabel() == "size"
    np.testing.assert_array_equal(axis.images[0].get_array().filled(np.nan), A)


def test_matrices_are_titled_with_their_shapes():
    figure = figures.matrices({"q": np.arange(3), "K": A[:, :2]}, rows=["r", "s"])
    titles = [axis.get_title(loc="center") for axis in figure.axes]
    assert titles == ["q  (3,)", "K  (2, 2)"]


def test_an_equation_has_its_signs_its_names_and_one_scale_of_colour():
    x = figures.Part("x", np.array([1.0, 0.0, 2.0]), [""], ["a", "b", "c"])
    W = figures.Part("W", np.array([[1.0, 0], [0, 1], [-4, 0]]), ["a", "b", "c"], ["y", "z"])
    y = figures.Part("y", x.array @ W.array, [""], ["y", "z"])
    figure = figures.equation(x, "×", W, "=", y, alt="x times W is y")
    assert [axis.get_title(loc="center") for axis in figure.axes] == [
        "x\n(3,)", "", "W\n(3, 2)", "", "y\n(2,)",
    ]  # fmt: skip
    assert texts(figure.axes[1]) + texts(figure.axes[3]) == ["×", "="]
    assert {axis.images[0].get_clim() for axis in figure.axes[::2]} == {(-7.0, 7.0)}
    np.testing.assert_array_equal(figure.axes[4].images[0].get_array(), [[-7, 0]])
    assert figure.in_words() == "x times W is y"


def test_a_part_of_a_matrix_is_chosen_by_the_names_of_its_rows_and_columns():
    whole = figures.Part("A", A, ["r", "s"], ["x", "y", "z"])
    part = whole.used(rows=["s"], columns=["z", "x"])
    assert (part.rows, part.columns) == (["s"], ["z", "x"])
    np.testing.assert_array_equal(part.array, [[3.0, 0.25]])


def test_bars_and_lines_hold_their_values():
    axis = figures.bars([0.5, -1.0], ["a", "b"], ylabel="y").axes[0]
    assert [bar.get_height() for bar in axis.patches] == [0.5, -1.0]
    assert texts(axis) == ["0.50", "−1.00"]
    axis = figures.lines([1, 2, 4], {"f": [3, 4, 5], "g": [1, 1, 1]}, log="x", dashed={"g"}).axes[0]
    np.testing.assert_array_equal(axis.lines[0].get_ydata(), [3, 4, 5])
    assert [line.get_linestyle() for line in axis.lines] == ["-", "--"]
    assert axis.get_xscale() == "log"
    assert [t.get_text() for t in axis.get_legend().get_texts()] == ["f", "g"]


def test_the_future_of_a_query_is_not_drawn_as_a_number():
    axis = attention.weights_of_all(np.tri(3) / 3, ["a", "b", "c"]).axes[0]
    assert len(axis.texts) == 6


def test_minus_infinity_is_written_and_has_no_colour():
    axis = figures.matrix([[1.0, -np.inf], [2.0, np.nan]]).axes[0]
    assert texts(axis) == ["1", "−∞", "2"]
    assert axis.images[0].get_array().mask.tolist() == [[False, True], [False, True]]
    assert axis.images[0].get_clim() == (0.0, 2.0)


def test_the_masked_scores_stand_between_the_scores_and_the_weights():
    scores, weights = np.array([[1.0, 5.0], [2.0, 3.0]]), np.array([[1.0, 0.0], [0.25, 0.75]])
    axes = attention.masked(scores, weights, ["a", "b"]).axes
    assert [axis.get_title(loc="center") for axis in axes] == ["scores", "masked scores", "weights"]
    assert texts(axes[1]) == ["1", "−∞", "2", "3", "mask →"]
    assert axes[0].images[0].get_clim() == axes[1].images[0].get_clim() == (0.0, 5.0)
    assert texts(axes[2])[:4] == ["1.00", "0", "0.25", "0.75"]


def test_the_arrows_name_the_score_of_each_key():
    axis = attention.arrows([0.0, 4.0], {"a": [1.0, 0.0], "b": [0.0, 1.0]}, ["x", "y"]).axes[0]
    shown = [text for text in texts(axis) if text]
    assert shown == ["query / √d", "a: score 0", "b: score 4"]
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("x", "y")


def test_the_hull_has_the_corners_and_no_inner_point():
    square = np.array([[0, 0], [2, 0], [2, 2], [0, 2], [1, 1], [1, 0]], float)
    assert sorted(attention._hull(square)) == [0, 1, 2, 3]


def test_a_picture_is_the_same_bytes_twice():
    V = example.X @ example.W_V
    first, second = (
        widgets.png(attention.among_the_values(V, V.mean(axis=0), example.TOKENS)) for _ in range(2)
    )
    assert first == second
    assert first.startswith(b"\x89PNG")


def test_figures_do_not_stay_open_and_stand_on_a_white_card():
    figure = figures.bars([1.0], ["a"])
    assert plt.get_fignums() == []
    assert figure.get_facecolor() == (1.0, 1.0, 1.0, 1.0)


def luminance(colour):
    channels = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return np.dot([0.2126, 0.7152, 0.0722], channels)


@pytest.mark.parametrize("colour", [base.INK])
def test_text_has_contrast_enough_on_the_card(colour):
    assert 1.05 / (luminance(colour) + 0.05) > 7  # WCAG 2.1, level AAA


def test_the_explorer_redraws_and_reports_mistakes_in_words():
    from lib.errors import CourseError

    drawn = []

    def draw(k):
        drawn.append(k)
        if k == 3:
            raise CourseError("k should not be 3; it is 3")
        return figures.bars([k], ["k"])

    slider = widgets.slider("k", 0, 5, 1)
    box = widgets.explorer(draw, k=slider)
    message, picture = box.children[-2:]
    before = picture.value
    slider.value = 2
    assert drawn == [1, 2]
    assert picture.value != before
    slider.value = 3
    assert message.value == "k should not be 3; it is 3"
    slider.value = 4
    assert message.value == ""
    width = re.search(r'<img width="(\d+)"', picture.value)[1]
    sent = base64.b64decode(re.search(r"base64,([^\"]+)", picture.value)[1])
    assert int.from_bytes(sent[16:20], "big") == 2 * int(
        width
    )  # a PNG's width: sharp on any screen
    assert 'alt="bars: k 4."' in picture.value
    without_kernel = box._repr_mimebundle_()["text/html"]
    assert picture.value in without_kernel
    assert "Run this cell" in without_kernel


def test_weights_of_one_query_are_bars_over_its_keys():
    axis = attention.weights_of_one([0.75, 0.25], ["a", "b"]).axes[0]
    assert [bar.get_height() for bar in axis.patches] == [0.75, 0.25]
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("key", "weight (sums to 1)")


@pytest.mark.parametrize("seen", [2, 3])
def test_the_explorer_of_chapter_1_shows_weights_values_and_their_mean(seen):
    V, weights = np.array([[1.0, -2.0], [3.0, 4.0], [5.0, 0.5]]), np.array([0.5, 0.5, 0.0])
    left, right = attention.explorer(weights, V, weights @ V, ["a", "b", "c"], seen).axes
    assert [bar.get_height() for bar in left.patches[:3]] == [0.5, 0.5, 0.0]
    assert ("not yet seen" in texts(left)) == (seen < 3)
    drawn = np.float64(right.images[0].get_array())
    np.testing.assert_array_equal(drawn, [*V, [np.nan, np.nan], [2, 1]])
    shown = texts(right)
    assert shown[-2:] == ["2.00", "1.00"]
    assert len(shown) == 8  # the row between values and mean has no numbers
    assert [t.get_text() for t in right.get_yticklabels()] == ["a", "b", "c", "", "output"]


def test_controls_hold_what_they_were_given():
    slider = widgets.slider("k", 0, 5, 1)
    label, button = widgets.player(slider, 700).children
    assert label.value == "play k"
    assert (button.min, button.max, button.value, button.interval) == (0, 5, 1, 700)
    box = widgets.choice("layer", [("first", 1), ("last", 9)], value=9)
    assert (box.value, box.description) == (9, "layer")
    assert widgets.choice("layer", ["a", "b"]).value == "a"
    assert isinstance(widgets.slider("t", 0.0, 1.0, 0.5, 0.25).step, float)


RC = ["image.origin: lower", "axes.grid: True", "xtick.labelsize: 30", "text.usetex: True"]


@pytest.mark.parametrize("line", RC)
def test_a_reader_s_own_settings_change_no_figure(line):
    from lib.lab.widgets import png

    def draw():
        figure, axes = figures.panels(2)
        base.paint(axes[0], [[1, 2], [3, 4]])
        axes[1].plot([1, 2])
        return figure

    name, value = line.split(": ")
    right = png(draw())
    with mpl.rc_context({name: value}):
        assert png(draw()) == right


@pytest.mark.parametrize("backend", ["Agg", "svg", "module://matplotlib_inline.backend_inline"])
def test_a_notebook_shows_a_figure_with_its_words_on_any_backend(backend):
    code = (
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "from lib.lab.figures import base\n"
        "shell = InteractiveShell.instance()\n"
        "data, about = shell.display_formatter.format(base.bars([1, 2], ['a', 'b'], title='t'))\n"
        "assert data['image/png'][:4] == b'\\x89PNG'\n"
        "assert about['image/png'] == {'alt': 't: bars: a 1, b 2.'}, about\n"
    )
    env = os.environ | {"MPLBACKEND": backend}
    subprocess.run([sys.executable, "-c", code], check=True, env=env)


def test_words_tell_what_lines_matrices_and_drawings_show():
    figure = figures.lines([1, 10, 2000], {"ours": [2, 9, 4], "theirs": [5, 5, 5]}, xlabel="n")
    assert figure.in_words() == (
        "line “ours” rises from 2 at 1 to 4 at 2,000, with 9 at 10 between; "
        "line “theirs” goes from 5 at 1 to 5 at 2,000 (across: n)."
    )
    names = [f"t{k}" for k in range(4)]
    figure = figures.matrix(np.arange(16).reshape(4, 4) - 20, rows=names, title="$Q K^{T}$")
    assert figure.in_words() == (
        "Q K^T: matrix of 4 × 4, rows t0, t1, t2, t3, numbers from −20 to −5, "
        "the largest in size at row t0, column 0."
    )
    figure, axis = figures.panels()
    axis.axis("off")
    axis.text(0, 0, "below")
    axis.text(0, 1, "above")
    assert figure.in_words() == "drawing with the words, from top to bottom: above, below."


STORED = sorted(Path(__file__).parents[2].glob("notebooks/*.ipynb"))


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_every_stored_figure_has_words_of_its_own(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    outputs = [out for cell in cells for out in cell.get("outputs", [])]
    pictures = [out for out in outputs if "image/png" in out.get("data", {})]
    said = [out["metadata"]["image/png"]["alt"] for out in pictures]
    assert len(said) >= 5
    assert len(set(said)) == len(said)
    assert all(len(words) > 30 and ".png" not in words for words in said)


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_every_stored_explorer_leaves_its_picture(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    codes = [cell for cell in cells if cell["cell_type"] == "code"]
    boards = [cell for cell in codes if "widgets.explorer(" in "".join(cell["source"])]
    assert boards
    for cell in boards:
        shown = "".join(out for o in cell["outputs"] for out in o["data"].get("text/html", ""))
        assert '<img width="' in shown, cell["id"]
