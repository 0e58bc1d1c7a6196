"""What chapter 4 shows: pointers followed by attention, predictions read at any depth."""

import sys
from pathlib import Path

import numpy as np
import pytest

from lib import reference
from lib.errors import CourseError
from lib.lab import hops, lens
from lib.lab.figures import stack as pictures
from lib.layer import residual_layer
from lib.stack import stack, stack_outputs

sys.path.insert(0, str(Path(__file__).parents[1] / "engine"))
from tiny_models import ODD, write_tiny

NAMES = ["a", "b", "c", "d", "e"]


def chains(seed, n=5):
    rng = np.random.default_rng(seed)
    return np.array([rng.integers(0, i + 1) for i in range(n)])


def texts(axis):
    return [text.get_text() for text in axis.texts]


# --- hops ---


def test_a_copy_moves_one_block_and_leaves_zeros():
    x = np.arange(1, 13)  # 4 blocks of width 3
    got = x @ hops.copy(3, 4, source=2, target=1)
    np.testing.assert_array_equal(got, [0, 0, 0, 7, 8, 9, 0, 0, 0, 0, 0, 0])


@pytest.mark.parametrize("seed", range(4))
def test_layer_after_layer_goes_one_pointer_further(seed):
    p, L = chains(seed), 3
    X = hops.pointing(p, L)
    assert X.shape == (5, 25)
    layers = [hops.hop_layer(5, L, depth) for depth in (1, 2, 3)]
    stages = stack_outputs(X, layers, residual_layer)
    known = p
    for depth in range(L + 1):
        blocks = stages[depth].reshape(5, 2 + L, 5)
        np.testing.assert_array_equal(blocks[:, hops.NAME], np.eye(5))
        np.testing.assert_array_equal(blocks[:, 1 + depth], np.eye(5)[known])
        np.testing.assert_array_equal(blocks[:, 2 + depth :], 0)  # not written yet
        known = p[known]
    by_definition = reference.stack(X, layers, reference.residual_layer)
    np.testing.assert_array_equal(by_definition, stages[-1])  # weights are exactly 0 and 1


@pytest.mark.parametrize("seed", range(4))
def test_passing_on_what_was_found_doubles_the_steps(seed):
    p = chains(seed)
    layers = [hops.hop_layer(5, 2, depth, values=depth) for depth in (1, 2)]
    got = stack(hops.pointing(p, 2), layers, residual_layer).reshape(5, 4, 5)
    np.testing.assert_array_equal(got[:, 2], np.eye(5)[p[p]])
    np.testing.assert_array_equal(got[:, 3], np.eye(5)[p[p[p[p]]]])


def test_layers_have_equal_shapes_and_differ_in_what_they_read_and_write():
    one, two = (hops.hop_layer(5, 3, depth) for depth in (1, 2))
    differ = [name for name, W in vars(one).items() if not np.array_equal(W, vars(two)[name])]
    assert differ == ["W_Q", "W_O"]


def test_blocks_are_read_as_words():
    X = np.float32([[0, 1, 0, 0], [1, 0, 0.5, 0.5]])
    assert hops.read(X, ["a", "b"]) == [["b", "–"], ["a", "?"]]


@pytest.mark.parametrize("bad", [[0, 2, 1], [0, -1, 0], [0.0, 0.0, 1.0]])
def test_a_pointer_to_the_right_is_refused(bad):
    with pytest.raises(CourseError, match="points_to should hold a position from 0 to i"):
        hops.pointing(bad, 2)


# --- the lens ---


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    from lib.engine.llama import load_model

    return load_model(write_tiny(tmp_path_factory.mktemp("lens") / "tiny.gguf", ODD))


def test_predictions_are_softmax_of_norm_and_head_at_every_depth(model):
    H = model.hidden([5, 40, 7, 90])
    X = np.float64(H)
    rms = np.sqrt((X**2).mean(axis=-1, keepdims=True) + model.config.eps)
    logits = X / rms * model.output_gain @ np.float64(model.W_head)
    right = np.exp(logits - logits.max(axis=-1, keepdims=True))
    right /= right.sum(axis=-1, keepdims=True)
    got = lens.predictions(model, H)
    assert got.shape == (4, 4, model.config.vocabulary)
    # float32 logits of size 10 over 20 terms: 1e-5 of each probability.
    np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(lens.predictions(model, H[-1, -1]), got[-1, -1], rtol=1e-4)


def test_what_the_steps_add_is_what_the_layers_add(model):
    H = model.hidden([5, 40, 7, 90])
    A, F = lens.added(model, H)
    assert A.shape == F.shape == (3, 4, 20)
    np.testing.assert_allclose(H[0] + (A + F).sum(axis=0), H[-1], rtol=1e-4, atol=1e-4)
    for depth, w in enumerate(model.layers):
        middle = H[depth] + A[depth]
        normed = reference.rms_norm(middle, w.ffn_gain, model.config.eps)
        right = reference.swiglu(normed, w.W_gate, w.W_up, w.W_down)
        # F is a difference of float32 vectors of size 10: 1e-6 of that size.
        np.testing.assert_allclose(F[depth], right, rtol=1e-3, atol=1e-4)


def test_a_patched_step_adds_the_other_vector_in_its_layer_and_place_alone(model):
    one, other = [5, 40, 7, 90], [5, 41, 7, 90]
    A, _ = lens.added(model, model.hidden(one))
    mixed = lens.patched(model, 2, 3, A[1, 3])
    before, after = model.hidden(other), mixed.hidden(other)
    np.testing.assert_array_equal(after[:2], before[:2])  # depths 0 and 1
    np.testing.assert_array_equal(after[:, :3], before[:, :3])  # tokens to the left
    weights = model.layers[1]
    middle = before[1, 3] + A[1, 3]
    normed = reference.rms_norm(middle, weights.ffn_gain, model.config.eps)
    right = middle + reference.swiglu(normed, weights.W_gate, weights.W_up, weights.W_down)
    np.testing.assert_allclose(after[2, 3], right, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(model.hidden(other), before)  # the model is as it was


def test_a_step_patched_with_its_own_vector_changes_nothing(model):
    text = [5, 40, 7, 90]
    A, _ = lens.added(model, model.hidden(text))
    for layer in (1, 2, 3):
        same = lens.patched(model, layer, -1, A[layer - 1, -1])
        np.testing.assert_allclose(same.logits(text), model.logits(text), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layer", [0, 4, -1])
def test_a_layer_that_is_not_there_cannot_be_patched(model, layer):
    with pytest.raises(CourseError, match=f"layer should be from 1 to 3; it is {layer}"):
        lens.patched(model, layer, 0, np.zeros(20))


def test_ranks_count_from_the_likeliest():
    p = np.array([[0.1, 0.6, 0.3], [0.5, 0.25, 0.25]])
    assert lens.rank(p, 2).tolist() == [2, 2]
    assert lens.rank(p, 1).tolist() == [1, 2]
    assert lens.rank(p[0], 0) == 3


def test_the_top_is_sorted_and_ties_keep_their_order():
    ids, p = lens.top(np.float32([0.125, 0.5, 0.125, 0.25]), 3)
    assert ids == [1, 3, 0]
    assert p == [0.5, 0.25, 0.125]


def test_tokens_are_spelled_visibly(model):
    token = lens.token_of(model, " w")
    assert lens.spell(model, token) == "␣w"
    assert lens.spell(model, lens.token_of(model, "\n")) == "⏎"
    with pytest.raises(CourseError, match="text should be one token; 'xyz' is 3"):
        lens.token_of(model, "xyz")


# --- figures ---


def test_ways_carry_the_words_and_one_arrow_for_each_weight():
    weights = [np.float32([[1, 0, 0], [0.5, 0.5, 0], [0, 1, 0]])] * 2
    words = [["p", "q", "r"], ["s", "t", "u"], ["v", "w", "x"]]
    axis = pictures.ways(weights, ["a", "b", "c"], words, follow=2).axes[0]
    assert [word for word in texts(axis) if word] == list("pqrstuvwx")
    arrows = [text for text in axis.texts if getattr(text, "arrow_patch", None)]
    assert [(a.xyann[0], a.xy[0]) for a in arrows[:4]] == [(0, 0), (0, 1), (1, 1), (1, 2)]
    assert len(arrows) == 8
    solid = [a for a in arrows if a.arrow_patch.get_linestyle() == "-"]
    assert [(a.xyann[0], a.xy[0]) for a in solid] == [(1, 2), (1, 2)]


def test_block_weights_show_what_is_copied_where():
    w = hops.hop_layer(5, 3, depth=2)
    figure = pictures.block_weights([w], ["n", "x", "1", "2", "3"])
    filled = [np.argwhere(axis.images[0].get_array() > 0).tolist() for axis in figure.axes]
    assert filled == [[[2, 0]], [[0, 0]], [[1, 1]], [[1, 3]]]


def test_maps_leave_the_future_without_numbers_and_share_one_scale():
    figure = pictures.maps({"f": np.full((3, 3), 2.0), "g": np.eye(3)}, NAMES[:3], form=".0f")
    assert [texts(axis) for axis in figure.axes] == [["2"] * 6, ["1", "0", "1", "0", "0", "1"]]
    assert [axis.images[0].get_clim() for axis in figure.axes] == [(0, 2), (0, 2)]


def test_lines_along_the_stack_begin_at_their_first_number():
    line = pictures.along({"f": [5, 6, 7]}, first=1).axes[0].lines[0]
    np.testing.assert_array_equal(line.get_xydata(), [[1, 5], [2, 6], [3, 7]])


def test_the_first_rank_is_on_top():
    axis = pictures.ranks({"f": [1000, 10, 1]}).axes[0]
    assert axis.yaxis_inverted()
    assert axis.get_yscale() == "log"
    np.testing.assert_array_equal(axis.lines[0].get_ydata(), [1000, 10, 1])


def test_patches_are_bars_by_layer_beside_what_is_needed():
    axis = pictures.patches([0.5, 7.0, -1.0], 4.0).axes[0]
    assert [bar.get_height() for bar in axis.patches] == [0.5, 7.0, -1.0]
    assert [bar.get_x() + bar.get_width() / 2 for bar in axis.patches] == [1, 2, 3]
    assert axis.lines[1].get_ydata()[0] == 4.0
    assert texts(axis) == ["needed: 4.0", "7.0"]


def test_the_grid_has_the_last_layer_on_top():
    axis = pictures.prediction_grid(
        [["x", "y"], ["z", "w"]], [[0.25, 1], [0, 0.5]], ["a", "b"]
    ).axes[0]
    assert texts(axis) == ["x  0.25", "y  1.00", "z  0.00", "w  0.50"]
    assert axis.images[0].origin == "lower"


@pytest.mark.parametrize(
    "figure",
    [
        pictures.top_tokens({"after layer 1": (["a", "b"], [0.75, 0.2])}),
        pictures.scrubber(["a", "b"], [0.75, 0.2], title="after layer 1"),
    ],
)
def test_bars_of_tokens_have_the_most_likely_on_top(figure):
    axis = figure.axes[0]
    assert axis.get_title(loc="left") == "after layer 1"
    assert [bar.get_width() for bar in axis.patches] == [0.75, 0.2]
    assert [t.get_text() for t in axis.get_yticklabels()] == ["a", "b"]
    assert axis.yaxis_inverted()
