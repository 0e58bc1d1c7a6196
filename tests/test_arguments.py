"""Every public function of the core refuses the same mistakes, in words that name the argument."""

import numpy as np
import pytest

from lib.arguments import (
    all_finite,
    as_float32,
    as_weight,
    check_result,
    positive,
    refuse_infinite,
)
from lib.attention import attend, attend_causal, attention_weights, causal_weights, softmax
from lib.errors import CourseError
from lib.ffn import activate, ffn, swiglu
from lib.layer import LayerWeights, layer, random_layer, residual_layer, two_steps
from lib.norm import layer_norm, rms_norm
from lib.rope import rope
from lib.stack import random_stack, stack, stack_outputs

rng = np.random.default_rng(0)
q, K, V = rng.standard_normal(4), rng.standard_normal((6, 4)), rng.standard_normal((6, 3))
Q = rng.standard_normal((2, 4))
X = rng.standard_normal((5, 4))
W_1, b_1 = rng.standard_normal((4, 7)), rng.standard_normal(7)
W_2, b_2 = rng.standard_normal((7, 4)), rng.standard_normal(4)
gain, bias = rng.standard_normal(4), rng.standard_normal(4)
w = random_layer(4, 7, seed=1)

CALLS = {
    "softmax": (softmax, {"scores": K}),
    "attend": (attend, {"q": q, "K": K, "V": V}),
    "attention_weights": (attention_weights, {"q": q, "K": K}),
    "attend_causal": (attend_causal, {"Q": Q, "K": K, "V": V}),
    "causal_weights": (causal_weights, {"Q": Q, "K": K}),
    "activate": (activate, {"X": X}),
    "ffn": (ffn, {"X": X, "W_1": W_1, "b_1": b_1, "W_2": W_2, "b_2": b_2}),
    "swiglu": (swiglu, {"X": X, "W_gate": W_1, "W_up": W_1, "W_down": W_2}),
    "layer_norm": (layer_norm, {"X": X, "gain": gain, "bias": bias}),
    "rms_norm": (rms_norm, {"X": X, "gain": gain}),
    "rope": (lambda X: rope(X, np.arange(len(X))), {"X": X}),
    "two_steps": (lambda X: two_steps(X, w), {"X": X}),
    "residual_layer": (lambda X: residual_layer(X, w), {"X": X}),
    "layer": (lambda X: layer(X, w), {"X": X}),
}
EACH = [
    pytest.param(function, arguments, name, id=f"{label}-{name}")
    for label, (function, arguments) in CALLS.items()
    for name in arguments
]


@pytest.mark.parametrize(("function", "arguments", "name"), EACH)
class TestEveryArrayArgument:
    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_nan_and_infinity_are_named(self, function, arguments, name, bad):
        spoiled = np.array(arguments[name])
        spoiled.flat[-1] = bad
        with pytest.raises(CourseError, match=rf"^{name} should hold finite .* it holds {bad}"):
            function(**arguments | {name: spoiled})

    @pytest.mark.parametrize("kind", [bool, complex, object, str])
    def test_what_is_not_a_real_number(self, function, arguments, name, kind):
        spoiled = np.ones(arguments[name].shape).astype(kind)
        with pytest.raises(CourseError, match=f"^{name} should hold real numbers; its dtype is "):
            function(**arguments | {name: spoiled})

    def test_an_empty_axis(self, function, arguments, name):
        empty = arguments[name][:0]
        with pytest.raises(CourseError, match=rf"^{name} should have shape .* it has shape \(0,"):
            function(**arguments | {name: empty})

    @pytest.mark.parametrize(
        "form",
        [
            lambda a: a.tolist(),
            lambda a: np.asfortranarray(a),
            lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
            lambda a: a[::-1].copy()[::-1],
            lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),  # read-only
            lambda a: a.astype(np.float32).astype(">f4"),
        ],
        ids=["list", "fortran", "strided", "reversed", "read-only", "big-endian"],
    )
    def test_every_form_of_an_array_gives_the_same(self, function, arguments, name, form):
        plain = {key: value.astype(np.float32) for key, value in arguments.items()}
        other = function(**plain | {name: form(plain[name])})
        np.testing.assert_allclose(other, function(**plain), rtol=1e-6, atol=1e-6)

    def test_the_caller_s_array_is_not_changed(self, function, arguments, name):
        mine = arguments[name].astype(np.float32)
        before = mine.copy()
        function(**arguments | {name: mine})
        np.testing.assert_array_equal(mine, before)

    def test_integers_are_numbers_too(self, function, arguments, name):
        whole = np.rint(arguments[name] * 3).astype(np.int64)
        got = function(**arguments | {name: whole})
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got, function(**arguments | {name: whole.astype(float)}))


WRONG_SHAPES = [
    (attend, (q, K[:, :3], V), r"^K should have shape \(n, 4\); it has shape \(6, 3\)"),
    (attend, (q, K, V[:5]), r"^V should have shape \(6, d_v\); it has shape \(5, 3\)"),
    (attend, (Q, K, V), r"^q should have shape \(d,\); it has shape \(2, 4\)"),
    (attend_causal, (q, K, V), r"^Q should have shape \(m, d\); it has shape \(4,\)"),
    (attend_causal, (K, Q, Q), "^Q should have at most as many rows as K; it has 6, K 2"),
    (causal_weights, (K, Q), "^Q should have at most as many rows as K; it has 6, K 2"),
    (ffn, (X, W_1.T, b_1, W_2, b_2), r"^W_1 should have shape \(4, d_ff\); .* \(7, 4\)"),
    (ffn, (X, W_1, b_2, W_2, b_2), r"^b_1 should have shape \(7,\); it has shape \(4,\)"),
    (ffn, (X, W_1, b_1, W_2.T, b_2), r"^W_2 should have shape \(7, d_out\); .* \(4, 7\)"),
    (ffn, (X, W_1, b_1, W_2, b_1), r"^b_2 should have shape \(4,\); it has shape \(7,\)"),
    (swiglu, (X, W_1, W_1[:, :5], W_2), r"^W_up should have shape \(4, 7\); .* \(4, 5\)"),
    (swiglu, (X, W_1, W_1, W_2.T), r"^W_down should have shape \(7, d_out\); .* \(4, 7\)"),
    (layer_norm, (X, b_1, bias), r"^gain should have shape \(4,\); it has shape \(7,\)"),
    (layer_norm, (X, gain, b_1), r"^bias should have shape \(4,\); it has shape \(7,\)"),
    (rms_norm, (X, b_1), r"^gain should have shape \(4,\); it has shape \(7,\)"),
    (layer, (X[0], w), r"^X should have shape \(n, 4\); it has shape \(4,\)"),
    (layer, (W_2.T, w), r"^X should have shape \(n, 4\); it has shape \(4, 7\)"),
    (softmax, (np.ones((2, 2, 2)),), r"^scores should have shape \(n,\); .* \(2, 2, 2\)"),
    (rope, (X[:, :3], np.arange(5)), "^X should have rows of even width; their width is 3"),
    (rope, (X, np.arange(4)), "^positions should be 5 integers of at least 0"),
    (rope, (X, np.arange(5) - 1), "^positions should be 5 integers of at least 0"),
    (rope, (X, np.arange(5.0)), "^positions should be 5 integers of at least 0"),
]


@pytest.mark.parametrize(("function", "arguments", "message"), WRONG_SHAPES)
def test_a_wrong_shape_says_which_was_expected(function, arguments, message):
    with pytest.raises(CourseError, match=message):
        function(*arguments)


@pytest.mark.parametrize("eps", [0, -1e-5, np.nan, np.inf, "1e-5", None, True])
@pytest.mark.parametrize(
    "norm", [lambda e: layer_norm(X, gain, bias, e), lambda e: rms_norm(X, gain, e)]
)
def test_eps_is_above_zero(norm, eps):
    with pytest.raises(CourseError, match="^eps should be "):
        norm(eps)


def test_unknown_names_list_the_known():
    with pytest.raises(
        CourseError, match="^activation should be one of relu, gelu, gelu_tanh, silu"
    ):
        activate(X, "tanh")
    with pytest.raises(CourseError, match="^activation should be one of relu"):
        random_layer(4, 7, 0, activation="none")
    with pytest.raises(CourseError, match="^pairing should be interleaved or halves; it is 'odd'"):
        rope(X, np.arange(5), pairing="odd")


def test_ragged_lists_and_numbers_beyond_float32():
    with pytest.raises(CourseError, match="^K should be an array of numbers; its rows differ"):
        attend(q, [[1, 2, 3, 4], [1, 2]], V)
    with pytest.raises(
        CourseError, match=r"^q should hold finite float32 numbers; at \[1\] .* 1e\+39"
    ):
        attend([1, 1e39, 0, 0], K, V)


def test_a_result_beyond_float32_is_an_error_and_not_infinity():
    with pytest.raises(CourseError, match="^the result should fit into float32"):
        ffn(X, W_1 * 1e30, b_1, W_2 * 1e30, b_2, "relu")


def test_a_layer_s_weights_are_checked_when_they_are_made():
    fields = {name: getattr(w, name) for name in w.__dataclass_fields__}
    with pytest.raises(
        CourseError, match=r"^W_2 should have shape \(7, 4\); it has shape \(4, 7\)"
    ):
        LayerWeights(**fields | {"W_2": w.W_2.T})
    with pytest.raises(CourseError, match=r"^W_O should hold finite float32 numbers; at \[0, 0\]"):
        LayerWeights(**fields | {"W_O": w.W_O * np.nan})
    with pytest.raises(CourseError, match=r"^W_Q should have shape"):
        LayerWeights(**fields | {"W_Q": 3.0})
    for name, width in [("W_Q", 4), ("W_1", 7)]:  # their last axes say what every shape should be
        with pytest.raises(CourseError, match=rf"^{name} should .* \(4, {width}\); .* \(2, 4, "):
            LayerWeights(**fields | {name: np.stack([getattr(w, name)] * 2)})


@pytest.mark.parametrize("function", [stack, stack_outputs])
def test_a_stack_has_layers(function):
    with pytest.raises(CourseError, match="^layers should hold at least one layer; it holds none"):
        function(X, [])
    with pytest.raises(CourseError, match=r"^X should have shape \(n, 4\)"):
        function(W_2.T, random_stack(2, 4, 7, seed=0))


def test_checks_by_themselves():
    strided = np.zeros((4, 6), np.float32).T
    assert as_weight("W", strided, (6, 4)) is strided
    assert as_float32("W", strided, (6, 4)).flags.c_contiguous
    assert positive("eps", np.float32(0.5)) == 0.5
    assert positive("t", 0, zero=True) == 0.0
    with pytest.raises(CourseError, match="^t should be at least zero; it is -1"):
        positive("t", -1, zero=True)
    single = np.float32(gain)
    assert check_result(single, W=np.array([np.nan])) is single
    assert check_result(gain).dtype == np.float32
    np.testing.assert_array_equal(check_result(gain), single)
    with pytest.raises(CourseError, match="^the result should fit into float32"):
        check_result(np.array([1.0, 1e39]))  # finite as it comes, but not in float32


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_finite(bad):
    large = np.float32([[3e38, -3e38, 1e-45], [0, 1, 2]])  # squares of these are infinite
    assert all_finite(large)
    refuse_infinite(large=large)
    for k in range(6):
        spoiled = large.copy()
        spoiled.flat[k] = bad
        assert not all_finite(spoiled)
        assert not all_finite(spoiled.T)
        message = rf"^spoiled should hold .* at \[{k // 3}, {k % 3}\] it holds {bad}"
        with pytest.raises(CourseError, match=message):
            refuse_infinite(large=large, spoiled=spoiled)


def test_an_empty_axis_in_front_is_an_error_too():
    with pytest.raises(
        CourseError, match=r"^X should have shape .* every size at least 1; .* \(0, 4"
    ):
        layer_norm(np.ones((0, 4)), gain, bias)


def test_axes_in_front_are_free_and_the_others_are_not():
    for shape in [(3,), (2, 3), (5, 2, 3)]:
        assert as_float32("X", np.ones(shape), ("…", 3)).shape == shape
    for shape, wanted in [((3, 4), ("…", 3)), ((), ("…", "d")), ((3,), ("…", 2, 3))]:
        spelled = ", ".join(map(str, wanted))
        message = (
            rf"^X should have shape \({spelled}\); it has shape \({', '.join(map(str, shape))}"
        )
        with pytest.raises(CourseError, match=message):
            as_float32("X", np.ones(shape), wanted)
