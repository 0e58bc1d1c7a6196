"""What chapter 3 draws is what it was given."""

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from lib.lab.figures import Part
from lib.lab.figures import layer as drawing
from lib.lab.figures.base import COLOURS
from lib.lab.trace import trace_layer
from lib.layer import random_layer

TOKENS = ["an", "old", "man", "sat", "down"]
X = np.random.default_rng(2).standard_normal((5, 4)).astype(np.float32)
TRACE = trace_layer(X, random_layer(4, 7, seed=3))
NAMES = [stage.name for stage in TRACE]


def part(stage):
    square = stage.name in ("scores", "weights")
    columns = TOKENS if square else [f"c{k}" for k in range(stage.value.shape[1])]
    return Part(stage.name, stage.value, TOKENS, columns)


def texts(axis):
    return [text.get_text() for text in axis.texts]


def drawn(axis):
    return np.float64(axis.images[0].get_array().filled(np.nan))


@pytest.mark.parametrize(
    ("form", "boxes"),
    [
        ("two_steps", ["attention", "FFN"]),
        ("residual_layer", ["attention", "+", "FFN", "+"]),
        ("layer", ["norm", "attention", "+", "norm", "FFN", "+"]),
        ("norm after the sum", ["attention", "+", "norm", "FFN", "+", "norm"]),
    ],
)
def test_a_road_has_the_steps_of_its_form_in_their_order(form, boxes):
    axis = drawing.roads(form).axes[0]
    words = [text for text in axis.texts if text.get_text() in ("norm", "attention", "FFN", "+")]
    words.sort(key=lambda text: text.get_position()[0])
    assert [text.get_text() for text in words] == boxes
    ends = [text for text in axis.texts if text.get_text() in ("X", "M", "Y")]
    assert [text.get_text() for text in ends] == ["X", "M", "Y"]
    places = [text.get_position()[0] for text in ends]
    assert places == sorted(places)
    residuals = sum(len(line.get_xdata()) == 4 for line in axis.lines)
    assert residuals == boxes.count("+")


def test_roads_stand_below_each_other_and_share_places():
    axis = drawing.roads("two_steps", "layer").axes[0]
    steps = [text.get_position() for text in axis.texts if text.get_text() == "attention"]
    assert steps[0][0] == steps[1][0]
    assert steps[0][1] > steps[1][1]
    assert {"two_steps", "layer"} <= set(texts(axis))


def test_influence_keeps_zeros_grey_and_shares_one_scale():
    small, large = np.array([[1.0, 0.0], [0.5, 2.0]]), np.array([[4.0, 3.0], [0.0, 0.0]])
    figure = drawing.influence_maps({"one": small, "two": large}, ["a", "b"])
    for axis, values in zip(figure.axes, (small, large), strict=True):
        np.testing.assert_array_equal(drawn(axis), np.where(values == 0, np.nan, values))
        assert axis.images[0].get_clim() == (0, 4.0)
        assert axis.get_xlabel() == "input of"
        assert not any(text.get_in_layout() for text in axis.texts)
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["one", "two"]
    assert [axis.get_ylabel() for axis in figure.axes] == ["output of", ""]
    assert texts(figure.axes[0]) == ["1.0", "0.5", "2.0"]


def test_all_stages_in_three_rows():
    parts = [part(stage) for stage in TRACE]
    parts[0] = parts[0].used(columns=["c3", "c1"])
    figure = drawing.stages(parts)
    assert len(figure.axes) == len(TRACE) == 15
    for axis, shown in zip(figure.axes, parts, strict=True):
        assert axis.get_title(loc="center") == shown.name
        np.testing.assert_array_equal(drawn(axis), np.round(np.float64(shown.array), 6))
        assert [t.get_text() for t in axis.get_xticklabels()] == shown.columns
        assert axis.images[0].get_clim() == (-4, 4)
        assert {text.get_fontsize() for text in axis.texts} <= {6.5}
    assert [figure.axes[k].get_ylabel() for k in (0, 5, 10)] == list(drawing.GROUPS)
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == TOKENS


@pytest.mark.parametrize("name", ["scores", NAMES[0]])
def test_one_stage_below_a_strip_that_marks_it(name):
    k = NAMES.index(name)
    shown = part(TRACE[k])
    strip, axis = drawing.stage(TRACE, k, shown).axes
    bold = [text.get_text() for text in strip.texts if text.get_fontweight() == "bold"]
    assert bold == [name]
    assert [t for t in texts(strip) if t in NAMES] == NAMES
    assert axis.get_title(loc="center").startswith(f"{name} = {TRACE[k].formula}")
    assert [t.get_text() for t in axis.get_xticklabels()] == shown.columns
    np.testing.assert_array_equal(drawn(axis), np.round(np.float64(TRACE[k].value), 6))


def test_shares_are_stacked_parts_of_a_whole():
    n = [8, 16, 32]
    figure = drawing.shares(n, {"a": [1, 1, 1], "b": [1, 2, 5], "c": [2, 1, 4]}, title="parts")
    axis = figure.axes[0]
    tops = []
    for area in axis.collections:
        corners = area.get_paths()[0].vertices
        tops.append([corners[corners[:, 0] == x, 1].max() for x in n])
    np.testing.assert_allclose(tops, [[0.25, 0.25, 0.1], [0.5, 0.75, 0.6], [1, 1, 1]])
    assert texts(axis) == ["a", "b", "c"]
    assert [t.get_text() for t in axis.get_xticklabels()] == ["8", "32"]
    assert axis.get_title(loc="left") == "parts"


def test_a_tint_is_a_third_of_the_colour_on_white():
    for colour in COLOURS.values():
        expected = 1 - 0.35 * (1 - np.array(to_rgb(colour)))
        np.testing.assert_allclose(drawing._tint(colour), expected)


def test_numbers_without_a_minus_zero_and_whole_ones():
    np.testing.assert_array_equal(np.signbit(drawing._clean(np.float32([-1e-9, -0.0]))), False)
    assert drawing._whole(np.array([1.0, np.nan, -3.0]))
    assert not drawing._whole(np.array([1.0, 2.5]))
