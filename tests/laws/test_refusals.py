"""What is not a finite number is named wherever it stands; what leaves float32 is said in words."""

import re
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import strategies as st

from lib.attention import attend, attend_causal, attention_weights, causal_weights, softmax
from lib.errors import CourseError
from lib.ffn import ACTIVATIONS, activate, ffn, swiglu
from lib.layer import (
    LayerWeights,
    attention_step,
    ffn_step,
    layer,
    random_layer,
    residual_layer,
    two_steps,
)
from lib.norm import layer_norm, rms_norm
from lib.rope import rope
from tests.laws.cases import COMPILED, FORMS, answer, catches, different, law, numbers, plainly
from tests.laws.test_values import LAYER_FORMS, as_32, named

BAD = [np.nan, np.inf, -np.inf]
NAMES = st.sampled_from(list(ACTIVATIONS))


class Operation(NamedTuple):
    """A public function, the shapes of its arrays for four sizes, and its other arguments."""

    function: object
    shapes: object
    others: object = st.just({})


def with_weights(step):
    def call(X):
        return step(X, random_layer(X.shape[1], X.shape[1] + 3, seed=1))

    return call


OPERATIONS = {
    "softmax": Operation(softmax, lambda n, d, f, o: {"scores": (n, d)}),
    "attend": Operation(attend, lambda n, d, f, o: {"q": (d,), "K": (n, d), "V": (n, o)}),
    "attention_weights": Operation(attention_weights, lambda n, d, f, o: {"q": (d,), "K": (n, d)}),
    "attend_causal": Operation(
        attend_causal, lambda n, d, f, o: {"Q": (n, d), "K": (n + f, d), "V": (n + f, o)}
    ),
    "causal_weights": Operation(causal_weights, lambda n, d, f, o: {"Q": (n, d), "K": (n + f, d)}),
    "activate": Operation(
        activate, lambda n, d, f, o: {"X": (n, d)}, st.fixed_dictionaries({"activation": NAMES})
    ),
    "ffn": Operation(
        ffn,
        lambda n, d, f, o: {"X": (n, d), "W_1": (d, f), "b_1": (f,), "W_2": (f, o), "b_2": (o,)},
        st.fixed_dictionaries({"activation": NAMES}),
    ),
    "swiglu": Operation(
        swiglu,
        lambda n, d, f, o: {"X": (n, d), "W_gate": (d, f), "W_up": (d, f), "W_down": (f, o)},
    ),
    "rms_norm": Operation(rms_norm, lambda n, d, f, o: {"X": (n, d), "gain": (d,)}),
    "layer_norm": Operation(
        layer_norm, lambda n, d, f, o: {"X": (n, d), "gain": (d,), "bias": (d,)}
    ),
    "rope": Operation(
        lambda X: rope(X, np.arange(len(X))), lambda n, d, f, o: {"X": (n, f, 2 * d)}
    ),
} | {step.__name__: Operation(with_weights(step), lambda n, d, f, o: {"X": (n, d)})
     for step in LAYER_FORMS}  # fmt: skip


@st.composite
def calls(draw, operation, least=-3, most=3):
    """Draw arguments for an operation, float32 as they are."""
    sizes = draw(different(4, most=11))
    shapes = operation.shapes(*sizes)
    arrays = {
        name: draw(numbers(shape, least, most, plain=True)).X for name, shape in shapes.items()
    }
    return arrays, draw(operation.others)


# --- What comes in --------------------------------------------------------------------------------


@st.composite
def spoiled_calls(draw, operation):
    """One number of one argument is NaN or infinite, anywhere; all are as likely."""
    arrays, others = draw(calls(operation))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    name = list(arrays)[rng.integers(len(arrays))]
    array, bad = arrays[name].copy(), BAD[rng.integers(3)]
    if "K" in arrays and not COMPILED:  # e^-∞ is NaN in a kernel, and 0 in plain Python
        bad = np.nan
    place = np.unravel_index(rng.integers(array.size), array.shape)
    array[place] = bad
    form = draw(st.sampled_from([form for form in FORMS if form != "a list"]))
    index = ", ".join(map(str, map(int, place)))
    message = rf"^{name} should hold finite float32 numbers; at \[{index}\] it holds {bad}"
    return arrays | {name: FORMS[form](array)} | others, message


def check_refused(function, case):
    arguments, message = case
    found = answer(plainly(function), **arguments)
    assert isinstance(found, str), f"no word of it: {found}"
    assert re.match(message, found), f"{found}, and not {message}"


@pytest.mark.parametrize("name", OPERATIONS)
@law(st.data(), share=0.5)
def test_what_is_not_finite_is_named_wherever_it_stands(name, data):
    operation = OPERATIONS[name]
    check_refused(operation.function, data.draw(spoiled_calls(operation)))


def silent_relu(X, W_1, b_1, W_2, b_2, activation):
    """An FFN that looks at the result alone: ReLU hides -∞."""
    X, W_1, b_1, W_2, b_2 = map(as_32, (X, W_1, b_1, W_2, b_2))
    out = np.maximum(X @ W_1 + b_1, 0) @ W_2 + b_2
    if not np.isfinite(out).all():
        return ffn(X, W_1, b_1, W_2, b_2)
    return out


def silent_attend(q, K, V):
    """Attention that looks at the result alone: a weight of zero hides a key of -∞."""
    q, K, V = map(as_32, (q, K, V))
    s = q @ K.T
    a = np.exp(s - s.max())
    out = a / a.sum() @ V
    return out if np.isfinite(out).all() else attend(q, K, V)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        pytest.param("ffn", silent_relu, id="ReLU hides -inf"),
        pytest.param("attend", silent_attend, id="a weight of zero hides a key"),
        pytest.param("rms_norm", lambda X, gain: as_32(np.nan_to_num(as_32(X))), id="NaN to zero"),
    ],
)
def test_the_law_of_finite_arguments_finds(name, wrong):
    operation = OPERATIONS[name]
    if name == "attend" and not COMPILED:
        pytest.skip("only NaN is drawn then, which no weight hides")
    if name == "ffn":
        operation = operation._replace(others=st.just({"activation": "relu"}))
    assert catches(check_refused, wrong, spoiled_calls(operation))


@st.composite
def spoiled_weights(draw):
    d, d_ff = draw(different(2))
    fields = vars(random_layer(d, d_ff, draw(st.integers(0, 99))))
    name = draw(st.sampled_from([name for name in fields if name != "activation"]))
    array = fields[name].copy()
    place = np.unravel_index(draw(st.integers(0, array.size - 1)), array.shape)
    array[place] = draw(st.sampled_from(BAD))
    return fields | {name: array}, name, ", ".join(map(str, map(int, place)))


@law(spoiled_weights())
def test_a_layer_s_weights_are_named_wherever_they_are_not_finite(case):
    fields, name, index = case
    with pytest.raises(CourseError, match=rf"^{name} should hold finite .* at \[{index}\]"):
        LayerWeights(**fields)


@pytest.mark.parametrize("name", OPERATIONS)
@law(st.data(), share=0.2)
def test_numbers_beyond_float32_are_named(name, data):
    operation = OPERATIONS[name]
    arrays, others = data.draw(calls(operation))
    which = data.draw(st.sampled_from(list(arrays)))
    large = arrays[which].astype(np.float64)
    large.flat[-1] = data.draw(st.sampled_from([3.5e38, -1e39, 1e300]))
    message = rf"^{which} should hold finite float32 numbers"
    if operation.function in (ffn, swiglu) and which != "X":  # weights are looked at afterwards
        message += r"|^the result should fit into float32"
    with pytest.raises(CourseError, match=message):
        plainly(operation.function)(**arrays | {which: large} | others)


# --- What comes out -------------------------------------------------------------------------------


def check_no_silence(function, case):
    """A result is finite, or an error says in words that it is not; NumPy warns of nothing."""
    arrays, others = case
    found = answer(function, **arrays, **others)
    if isinstance(found, str):
        assert re.search(r"should (fit into|hold finite) float32", found), found
    else:
        assert np.isfinite(found).all(), found


@pytest.mark.parametrize("name", OPERATIONS)
@law(st.data(), share=0.5)
def test_the_largest_numbers_give_finite_ones_or_words(name, data):
    operation = OPERATIONS[name]
    case = data.draw(calls(operation, least=15, most=38))
    check_no_silence(plainly(operation.function), case)


def test_the_law_of_finite_results_finds():
    def wrong(X, gain):
        X, gain = as_32(X), as_32(gain)
        return gain * X / np.sqrt(np.square(X).mean(-1, keepdims=True) + np.float32(1e-5))

    def unguarded(q, K, V):
        return silent_softmax(q @ K.T) @ V

    def silent_softmax(s):
        return np.exp(s) / np.exp(s).sum()

    operations = OPERATIONS["layer_norm"], OPERATIONS["attend"]
    assert catches(check_no_silence, unguarded, calls(operations[1], 15, 38))
    assert catches(
        check_no_silence, lambda X, gain, bias: wrong(X, gain * 3e38), calls(operations[0], 15, 38)
    )


LARGE = np.float32(3e38)
# The smallest inputs whose results leave float32, one for each operation that can.
BEYOND = {
    "rms_norm": lambda: rms_norm([1.0, 0.0], [LARGE, LARGE]),
    "layer_norm": lambda: layer_norm([1.0, 0.0, 0.0], [LARGE] * 3, [0.0] * 3),
    "rope": lambda: rope([[LARGE, LARGE]], [5]),
    "ffn": lambda: ffn([1e30], [[1e30]], [0], [[1.0]], [0]),
    "attention_step": lambda: attention_step([[1.0]], one_weight(W_V=1e30, W_O=1e30)),
    "ffn_step": lambda: ffn_step([[1.0]], one_weight(W_1=1e30, W_2=1e30)),
    "two_steps": lambda: two_steps([[1.0]], one_weight(W_V=1e30, W_O=1e30)),
    "residual_layer": lambda: residual_layer([[LARGE]], one_weight(b_2=LARGE)),
    "layer": lambda: layer([[1.0], [2.0]], one_weight(bias_1=1.0, W_V=1e30, W_O=1e30)),
}


def one_weight(**values):
    """Return a layer of width 1 whose weights are zero but for those given."""
    names = [name for name in vars(random_layer(1, 1, 0)) if name != "activation"]
    matrices = {name: [[0.0]] if name.startswith("W") else [0.0] for name in names}
    given = {k: [[v]] if k.startswith("W") else [v] for k, v in values.items()}
    return LayerWeights(**matrices | given, activation="relu")


@pytest.mark.parametrize("call", named(BEYOND))
def test_a_result_beyond_float32_is_said_in_words(call):
    with pytest.raises(CourseError, match="^the result should fit into float32"):
        plainly(call)()


def test_angles_beyond_numbers_are_said_in_words():
    with pytest.raises(CourseError, match="^base and factors should give finite angles; base is"):
        rope(np.ones((2, 64)), [1, 2], base=5e-324)


def test_an_eps_that_no_float_holds():
    with pytest.raises(CourseError, match="^eps should be a finite number; it is 1000"):
        rms_norm([1.0, 2.0], [1.0, 1.0], eps=10**400)
