"""What chapter 5 shows: a layer that keeps its keys and values, and which rows a pass computes."""

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from lib import reference
from lib.errors import CourseError
from lib.lab import cache as lab
from lib.lab.figures import cache as pictures
from lib.stack import random_stack, stack

N, D, D_FF, L = 7, 5, 9, 3


def made(seed=0):
    X = np.random.default_rng(seed).standard_normal((N, D)).astype(np.float32)
    return X, random_stack(L, D, D_FF, seed)


def run(X, layers, caches):
    return stack(X, list(zip(layers, caches, strict=True)), lab.cached_layer)


@pytest.mark.parametrize("parts", [[7], [6, 1], [1] * 7, [2, 3, 2], [4, 3]])
@pytest.mark.parametrize("seed", [0, 1])
def test_any_parts_give_the_outputs_of_the_whole(parts, seed):
    X, layers = made(seed)
    caches = lab.new_caches(layers, N)
    outputs = [run(part, layers, caches) for part in np.split(X, np.cumsum(parts)[:-1])]
    expected = reference.stack(X, layers)  # float64; float32 rounds to about 1e-6 of numbers near 1
    np.testing.assert_allclose(np.concatenate(outputs), expected, atol=2e-5)
    assert [c.n for c in caches] == [N] * L


def test_the_cache_holds_the_keys_and_values_of_every_position():
    X, layers = made()
    caches = lab.new_caches(layers, N + 2)
    for part in (X[:4], X[4:5], X[5:]):
        run(part, layers, caches)
    w, Z = layers[0], reference.layer_norm(X, layers[0].gain_1, layers[0].bias_1)
    np.testing.assert_allclose(caches[0].keys[0, :N], Z @ w.W_K, atol=1e-5)
    np.testing.assert_allclose(caches[0].values[0, :N], Z @ w.W_V, atol=1e-5)
    assert (caches[0].keys[0, N:] == 0).all()  # room that nobody has used


def test_what_was_stored_stays_the_same_bits():
    X, layers = made()
    caches = lab.new_caches(layers, N)
    run(X[:4], layers, caches)
    before = [c.keys[:, :4].copy() for c in caches]
    run(X[4:], layers, caches)
    assert all((c.keys[:, :4] == b).all() for c, b in zip(caches, before, strict=True))


def test_too_many_tokens_or_bad_vectors_are_refused_and_store_nothing():
    X, layers = made()
    caches = lab.new_caches(layers, 5)
    run(X[:4], layers, caches)
    with pytest.raises(CourseError, match="context of 5; 4 are in it and 3 more came"):
        run(X[4:], layers, caches)
    with pytest.raises(CourseError, match=r"X should have shape \(m, 5\)"):
        run(X[4:, :3], layers, caches)
    with pytest.raises(CourseError, match="X should hold finite"):
        run(np.full((1, D), np.nan), layers, caches)
    assert [c.n for c in caches] == [4] * L
    with pytest.raises(CourseError, match="capacity should be at least 1 token; it is 0"):
        lab.new_caches(layers, 0)


def test_states_of_a_pass_with_and_without_a_cache():
    old, new, none = ["", "kept", "kept", ""], ["new"] * 4, [""] * 4
    assert lab.states(5, 2, 1) == [old, old, new, none, none]
    assert lab.states(5, 0, 3) == [new, new, new, none, none]
    assert lab.states(5, 2, 1, keep=False) == [["again"] * 4] * 2 + [new, none, none]


@pytest.mark.parametrize(("start", "m"), [(0, 0), (3, 3), (-1, 2)])
def test_a_pass_outside_the_text_is_refused(start, m):
    with pytest.raises(CourseError, match="start and m should name tokens of a text of 5"):
        lab.states(5, start, m)


def words(axis):
    return [text.get_text() for text in axis.texts]


def test_the_pictures_say_what_they_were_given():
    rows, tokens = lab.states(3, 1, 1), ["a", "b", "c"]
    flat = [state for row in rows for state in row if state]
    figure = pictures.passes({"decode": rows, "again": lab.states(3, 1, 1, keep=False)}, tokens)
    assert words(figure.axes[0]) == flat
    assert words(figure.axes[1])[:4] == ["again"] * 4
    fills = figure.axes[0].collections[0].get_facecolors()[:, :3]
    expected = [to_rgb(pictures.FILLS[state]) for row in rows for state in row]
    np.testing.assert_allclose(fills, expected)
    weights = np.full((3, 3), np.nan)
    weights[1, :2] = 0.25, 0.75
    left, right = pictures.one_pass(rows, weights, tokens).axes
    assert words(left) == flat
    assert words(right) == ["0.25", "0.75"]
    axis = pictures.changed_keys([[0, 0, 1.5], [0, 0, 2.5]], tokens).axes[0]
    assert words(axis) == ["0", "0", "2.5", "0", "0", "1.5"]  # the first layer lowest
    assert [t.get_text() for t in axis.get_yticklabels()] == ["layer 2", "layer 1"]


def test_a_growing_text_and_its_future_have_no_numbers():
    tokens = ["a", "b", "c"]
    K = np.float32([[1, -2], [3, 4], [5, 6]])
    left, right = pictures.growing({"two": K[:2], "three": K}, tokens).axes
    assert words(left) == ["1.0", "−2.0", "3.0", "4.0"]
    assert words(right) == ["1.0", "−2.0", "3.0", "4.0", "5.0", "6.0"]
    assert left.get_title(loc="center") == "two  (2, 2)"
    weights = np.float32([[0.5, 0.5, 0], [0.25, 0.25, 0.5]])
    axis = pictures.queries_over_keys({"m = 2": weights}, tokens).axes[0]
    assert words(axis) == ["0.50", "0.50", "0.25", "0.25", "0.50"]
    assert [t.get_text() for t in axis.get_yticklabels()] == ["b", "c"]
