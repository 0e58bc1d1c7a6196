"""Each operation of the core against its definition, within what float32 must round.

Behind each law stand small wrongs that it has to find within the cases of the suite.
"""

import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import strategies as st

from lib import reference
from lib.attention import attend, attend_causal, attention_weights, causal_weights, softmax
from lib.errors import CourseError
from lib.ffn import activate, ffn, swiglu
from lib.layer import (
    attention_step,
    ffn_step,
    layer,
    random_layer,
    residual_layer,
    two_steps,
)
from lib.norm import layer_norm, rms_norm
from lib.rope import rope
from lib.stack import stack, stack_outputs
from tests.laws import bounds
from tests.laws.bounds import LARGEST, assert_near, exact
from tests.laws.cases import answer, catches, different, in_float64, law, numbers, plainly

ACTIVATIONS = ["relu", "gelu", "gelu_tanh", "silu"]
TOO_LARGE = "^the result should fit into float32"


def named(wrongs):
    return [pytest.param(wrong, id=name) for name, wrong in wrongs.items()]


def check_float32(got, right):
    assert got.dtype == np.float32
    assert_near(got, right)


# --- Softmax --------------------------------------------------------------------------------------


@st.composite
def softmax_cases(draw):
    m, n = draw(different(2))
    shape = draw(st.sampled_from([(n,), (m, n)]))
    scores = draw(numbers(shape))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    visible = rng.random(shape) < 0.7
    visible[..., rng.integers(n)] = True
    return scores, draw(st.sampled_from([None, visible]))


def check_softmax(function, case):
    scores, visible = case
    got = plainly(function)(scores.passed, visible)
    right = bounds.softmax(exact(scores.X), True if visible is None else visible)
    check_float32(got, right)
    if visible is not None:
        assert not np.asarray(got)[~visible].any()


@law(softmax_cases())
def test_softmax(case):
    check_softmax(softmax, case)


def softmax_without_shift(s, visible=None):
    e = np.exp(np.float32(s)) * (True if visible is None else visible)
    return (e / e.sum(-1, keepdims=True)).astype(np.float32)


WRONG_SOFTMAX = {
    "overflows": softmax_without_shift,
    "other axis": lambda s, v=None: as_32(
        reference.softmax(np.atleast_2d(s).T, None if v is None else np.atleast_2d(v).T).T.reshape(
            np.shape(s)
        )
    ),
    "masked with -10": lambda s, v=None: as_32(
        reference.softmax(np.where(True if v is None else v, s, -10.0))
    ),
    "half precision": lambda s, v=None: as_32(np.float16(reference.softmax(s, v))),
    "an exponential wrong by 3e-6": lambda s, v=None: as_32(
        reference.softmax(np.float64(s) * (1 + 3e-6), v)
    ),
}


def as_32(X):
    return np.asarray(X).astype(np.float32)


@pytest.mark.parametrize("wrong", named(WRONG_SOFTMAX))
def test_the_law_of_softmax_finds(wrong):
    assert catches(check_softmax, wrong, softmax_cases())


# --- Attention ------------------------------------------------------------------------------------


@st.composite
def attention_cases(draw):
    """Q (m, d), K (n, d), V (n, d_v), m ≤ n; now and then more than a block of 64 queries."""
    n, d, d_v = draw(different(3, most=12))
    n = draw(st.sampled_from([n, n, n, n + 64]))
    m = draw(st.one_of(st.just(n), st.integers(1, n)))
    V = draw(numbers((n, d_v)))
    return draw(numbers((m, d), -45, 20)), draw(numbers((n, d))), V


def check_attend_causal(function, case):
    Q, K, V = case
    got = plainly(function)(Q.passed, K.passed, V.passed)
    _, right = bounds.attention(exact(Q.X), exact(K.X), exact(V.X))
    right = right._replace(value=reference.attend_causal(Q.X, K.X, V.X))
    check_float32(got, right)


def check_attend(function, case):
    Q, K, V = case
    q = Q._replace(passed=np.asarray(Q.passed)[-1], X=Q.X[-1])
    _, right = bounds.attention(exact(q.X[None]), exact(K.X), exact(V.X))
    got = plainly(function)(q.passed, K.passed, V.passed)
    check_float32(got, right[0]._replace(value=reference.attend(q.X, K.X, V.X)))


def check_causal_weights(function, case):
    Q, K, V = case
    right, _ = bounds.attention(exact(Q.X), exact(K.X), exact(V.X))
    check_float32(plainly(function)(Q.passed, K.passed), right)
    right = right._replace(value=reference.causal_weights(Q.X, K.X))
    check_float32(plainly(function)(Q.passed, K.passed), right)


@law(attention_cases())
def test_attend_causal(case):
    check_attend_causal(attend_causal, case)


@law(attention_cases())
def test_attend(case):
    check_attend(attend, case)


@law(attention_cases())
def test_causal_weights(case):
    check_causal_weights(causal_weights, case)


@law(attention_cases())
def test_attention_weights(case):
    Q, K, _ = case
    q = np.asarray(Q.passed)[-1]
    right, _ = bounds.attention(exact(Q.X[-1:]), exact(K.X), exact(np.zeros((len(K.X), 1))))
    check_float32(plainly(attention_weights)(q, K.passed), right[0])


def taken(*arrays):
    """Return arguments as float64, rounded to float32 before, as the core takes them."""
    return reference.float64(*map(as_32, arrays))


def attention_like(scale=lambda d, d_v: np.sqrt(d), mask=0, weights=lambda a: a, late=0):
    """Return causal attention with one of its parts replaced."""

    def wrong(Q, K, V):
        Q, K, V = taken(Q, K, V)
        m, n = len(Q), len(K)
        visible = np.arange(n) <= np.arange(n - m, n)[:, None] + mask
        visible[:, 0] = True
        a = weights(reference.softmax(Q @ K.T / scale(K.shape[1], V.shape[1]), visible))
        return as_32(a @ np.roll(V, late, axis=0))

    return wrong


WRONG_ATTENTION = {
    "scale of d_v": attention_like(scale=lambda d, d_v: np.sqrt(d_v)),
    "scale of d": attention_like(scale=lambda d, d_v: d),
    "no scale": attention_like(scale=lambda d, d_v: 1.0),
    "a scale wrong by 1e-5": attention_like(scale=lambda d, d_v: np.sqrt(d) * (1 + 1e-5)),
    "sees the next token": attention_like(mask=1),
    "does not see itself": attention_like(mask=-1),
    "sees everything": attention_like(mask=999),
    "values one late": attention_like(late=1),
    "weights in half precision": attention_like(weights=np.float16),
    "weights that sum to 1.00001": attention_like(weights=lambda a: a * 1.00001),
    "forgets the first key": lambda Q, K, V: attend_causal(Q, np.vstack([0 * np.asarray(K)[:1],
                                                          np.asarray(K)[1:]]), V),
    "values in place of keys, where they fit": lambda Q, K, V: as_32(
        reference.attend_causal(Q, K, np.asarray(V)[::-1])
    ),
    "half precision": lambda Q, K, V: as_32(
        reference.attend_causal(np.float16(np.clip(Q, -6e4, 6e4)), K, V)
    ),
}  # fmt: skip


@pytest.mark.parametrize("wrong", named(WRONG_ATTENTION))
def test_the_law_of_attention_finds(wrong):
    assert catches(check_attend_causal, wrong, attention_cases())


# --- FFN ------------------------------------------------------------------------------------------


@st.composite
def ffn_cases(draw):
    n, d, d_ff, d_out = draw(different(4))
    shapes = {"W_1": (d, d_ff), "b_1": (d_ff,), "W_2": (d_ff, d_out), "b_2": (d_out,)}
    X = draw(numbers(draw(st.sampled_from([(d,), (n, d), (2, n, d)]))))
    weights = {name: draw(numbers(shape, most=20)) for name, shape in shapes.items()}
    return X, weights, draw(st.sampled_from(ACTIVATIONS))


def within_float32(function, right, largest):
    """Assert that a result is right; where numbers may leave float32, an error is right too."""
    got = answer(function)
    if isinstance(got, str):
        assert re.match(TOO_LARGE, got), got
        assert largest > LARGEST / 2, f"an error although no number is above {largest}"
    else:
        check_float32(got, right)


def near_rows(X, bound):
    """Apply a bound for (n, d) to (…, d)."""
    right, largest = bound(exact(X.reshape(-1, X.shape[-1])))
    return right.reshape(*X.shape[:-1], -1), largest


def check_ffn(function, case):
    X, w, name = case
    weights = {key: exact(value.X) for key, value in w.items()}
    right, largest = near_rows(X.X, lambda rows: bounds.ffn(rows, **weights, name=name))
    right = right._replace(
        value=reference.ffn(X.X, **{k: v.X for k, v in w.items()}, activation=name)
    )
    passed = {key: value.passed for key, value in w.items()}
    within_float32(lambda: function(X.passed, **passed, activation=name), right, largest)


@law(ffn_cases())
def test_ffn(case):
    check_ffn(ffn, case)


def ffn_like(X, W_1, b_1, W_2, b_2, activation, phi=None, bias=True, order=1):
    X, W_1, b_1, W_2, b_2 = taken(X, W_1, b_1, W_2, b_2)
    phi = phi or reference.ACTIVATIONS[activation]
    hidden = phi(X @ W_1 + b_1)[..., ::order]
    return fitting(hidden @ W_2 + bias * b_2)


def fitting(X):
    if np.abs(X).max() > LARGEST:
        raise CourseError("the result should fit into float32")
    return as_32(X)


def leaky(x):
    return np.where(x > 0, x, 1e-4 * x)


WRONG_FFN = {
    "no activation": partial(ffn_like, phi=lambda x: x),
    "always ReLU": partial(ffn_like, phi=reference.relu),
    "the tanh form for GELU": lambda *a, activation, **w: ffn_like(
        *a, **w, activation="gelu_tanh" if activation == "gelu" else activation
    ),
    "a leak": partial(ffn_like, phi=leaky),
    "no second bias": partial(ffn_like, bias=False),
    "hidden units reversed": partial(ffn_like, order=-1),
    "half precision between": lambda X, W_1, b_1, W_2, b_2, activation: ffn_like(
        X, W_1, b_1, W_2, b_2, "", lambda h: np.float16(reference.ACTIVATIONS[activation](h))
    ),
}


@pytest.mark.parametrize("wrong", named(WRONG_FFN))
def test_the_law_of_the_ffn_finds(wrong):
    assert catches(check_ffn, wrong, ffn_cases())


@st.composite
def activation_cases(draw):
    shape = draw(st.sampled_from([(1,), (7,), (2, 5), (3, 1, 4)]))
    return draw(numbers(shape, most=38)), draw(st.sampled_from(ACTIVATIONS))


def check_activate(function, case):
    X, name = case
    check_float32(function(X.passed, name), bounds.activation(exact(X.X), name))


@law(activation_cases())
def test_activate(case):
    check_activate(activate, case)


WRONG_ACTIVATIONS = {
    "sigmoid(1.702 x) for Φ": lambda x, name: as_32(reference.silu(1.702 * as_32(x)) / 1.702),
    "an erf wrong by 1e-6": lambda x, name: as_32(
        reference.ACTIVATIONS[name](as_32(x)) + 0.5e-6 * as_32(x)
    ),
    "SiLU in half precision": lambda x, name: as_32(
        np.float16(reference.ACTIVATIONS[name](as_32(x)))
    ),
}


@pytest.mark.parametrize("wrong", named(WRONG_ACTIVATIONS))
def test_the_law_of_activations_finds(wrong):
    assert catches(check_activate, wrong, activation_cases())


@st.composite
def swiglu_cases(draw):
    n, d, d_ff, d_out = draw(different(4))
    X = draw(numbers(draw(st.sampled_from([(d,), (n, d), (2, n, d)]))))
    shapes = [(d, d_ff), (d, d_ff), (d_ff, d_out)]
    return X, [draw(numbers(shape, most=20)) for shape in shapes]


def check_swiglu(function, case):
    X, weights = case
    given = [exact(W.X) for W in weights]
    right, largest = near_rows(X.X, lambda rows: bounds.swiglu(rows, *given))
    right = right._replace(value=reference.swiglu(X.X, *(W.X for W in weights)))
    within_float32(lambda: function(X.passed, *(W.passed for W in weights)), right, largest)


@law(swiglu_cases())
def test_swiglu(case):
    check_swiglu(swiglu, case)


def swiglu_like(X, W_gate, W_up, W_down, gate=reference.silu):
    X, W_gate, W_up, W_down = taken(X, W_gate, W_up, W_down)
    return fitting((gate(X @ W_gate) * (X @ W_up)) @ W_down)


WRONG_SWIGLU = {
    "the other matrix gates": lambda X, G, U, D: swiglu_like(X, U, G, D),
    "a GELU gate": partial(swiglu_like, gate=reference.gelu),
    "a sigmoid gate": partial(swiglu_like, gate=lambda x: 1 / (1 + np.exp(-x))),
    "no gate": partial(swiglu_like, gate=lambda x: 1.0),
    "a gate in half precision": partial(swiglu_like, gate=lambda x: np.float16(reference.silu(x))),
}


@pytest.mark.parametrize("wrong", named(WRONG_SWIGLU))
def test_the_law_of_swiglu_finds(wrong):
    assert catches(check_swiglu, wrong, swiglu_cases())


# --- Norms ----------------------------------------------------------------------------------------


@st.composite
def norm_cases(draw):
    n, d = draw(different(2))
    X = draw(numbers(draw(st.sampled_from([(d,), (n, d), (2, n, d)]))))
    gain, bias = (draw(numbers((d,))) for _ in range(2))
    return X, gain, bias, draw(st.sampled_from([1e-5, 1e-6, 1e-12, 1e-300, 0.5, 3, 1e30]))


def check_rms_norm(function, case):
    X, gain, _, eps = case
    right = bounds.rms_norm(exact(X.X), exact(gain.X).value, eps)
    check_float32(function(X.passed, gain.passed, eps), right)


def check_layer_norm(function, case):
    X, gain, bias, eps = case
    right = bounds.layer_norm(exact(X.X), exact(gain.X).value, exact(bias.X).value, eps)
    check_float32(function(X.passed, gain.passed, bias.passed, eps), right)


@law(norm_cases())
def test_rms_norm(case):
    check_rms_norm(rms_norm, case)


@in_float64
@law(norm_cases())
def test_layer_norm(case):
    check_layer_norm(layer_norm, case)


def norm_like(X, gain, *bias, centred=True, root=lambda v, eps, d: np.sqrt(v + eps), gains=1.0):
    """Return a norm with one of its parts replaced; the last argument is eps."""
    *bias, eps = bias
    X, gain = taken(X, gain)
    X = X - X.mean(-1, keepdims=True) if bias and centred else X
    N = root((X**2).mean(-1, keepdims=True), eps, X.shape[-1])
    return as_32((gain + (gains - 1.0)) * X / N + (taken(bias[0]) if bias else 0.0))


WRONG_NORMS = {
    "eps outside the root": {"root": lambda v, eps, d: np.sqrt(v) + eps},
    "eps on the sum": {"root": lambda v, eps, d: np.sqrt(v + eps / d)},
    "no eps": {"root": lambda v, eps, d: np.sqrt(v)},
    "the sum for the mean": {"root": lambda v, eps, d: np.sqrt(v * d + eps)},
    "no root": {"root": lambda v, eps, d: v + eps},
    "1 + gain": {"gains": 2.0},
    "d - 1 for d": {"root": lambda v, eps, d: np.sqrt(v * d / max(d - 1, 1) + eps)},
    "a root wrong by 1e-6": {"root": lambda v, eps, d: np.sqrt(v + eps) * (1 + 1e-6)},
}


@pytest.mark.parametrize("wrong", named(WRONG_NORMS))
@pytest.mark.parametrize("check", [check_rms_norm, check_layer_norm])
def test_the_laws_of_norms_find(check, wrong):
    assert catches(check, partial(norm_like, **wrong), norm_cases())


def test_the_law_of_layer_norm_finds_a_mean_that_stays():
    assert catches(check_layer_norm, partial(norm_like, centred=False), norm_cases())


def test_the_law_of_layer_norm_finds_a_mean_in_float32():
    def wrong(X, gain, bias, eps):
        X = as_32(X)
        return norm_like(X - X.mean(-1, keepdims=True, dtype=np.float32), gain, bias, eps,
                         centred=False)  # fmt: skip

    assert catches(check_layer_norm, wrong, norm_cases())


# --- Rotary positions -----------------------------------------------------------------------------


@st.composite
def rope_cases(draw):
    n, H, pairs = draw(different(3, most=6))
    X = draw(numbers(draw(st.sampled_from([(n, 2 * pairs), (n, H, 2 * pairs)]))))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    most = draw(st.sampled_from([1, 10, 1000, 2**31 - 2]))
    dtype = draw(st.sampled_from(["int64", "uint32", "int32"]))
    positions = rng.integers(0, most + 1, n).astype(dtype)
    factors = draw(st.sampled_from([None, np.float32(10.0 ** rng.uniform(-2, 3, pairs))]))
    base = draw(st.sampled_from([10000.0, 500, 1e6, 1.5, 1e-3]))
    pairing = draw(st.sampled_from(["interleaved", "halves"]))
    return X, (positions, base, pairing, factors)


def check_rope(function, case):
    X, (positions, base, pairing, factors) = case
    given = 1.0 if factors is None else factors
    angles = reference.rope_angles(positions, X.X.shape[-1], base, given)
    right = bounds.rope(exact(X.X).reshape(len(X.X), -1, X.X.shape[-1]), angles, pairing)
    right = right.reshape(*X.X.shape)
    expected = reference.rope(X.X, positions, base, pairing, given)
    # The definition turns complex numbers: the same products, another way to write them.
    assert_near(expected, right)
    check_float32(function(X.passed, positions, base, pairing, factors), right)


@law(rope_cases())
def test_rope(case):
    check_rope(rope, case)


def rope_like(X, positions, base, pairing, factors, change):
    factors = 1.0 if factors is None else taken(factors)
    return as_32(reference.rope(*change(taken(X), positions, base, pairing, factors)))


OTHER = {"halves": "interleaved", "interleaved": "halves"}
WRONG_ROPE = {
    "the other pairing": lambda X, p, b, pairing, f: (X, p, b, OTHER[pairing], f),
    "one position late": lambda X, p, b, pairing, f: (X, p.astype(float) + 1, b, pairing, f),
    "turned back": lambda X, p, b, pairing, f: (X, -p.astype(float), b, pairing, f),
    "always 10000": lambda X, p, b, pairing, f: (X, p, 10000.0, pairing, f),
    "factors forgotten": lambda X, p, b, pairing, f: (X, p, b, pairing, 1.0),
    "factors upside down": lambda X, p, b, pairing, f: (X, p, b, pairing, 1 / f),
    "angles in float32": lambda X, p, b, pairing, f: (X, p, b, pairing, f * (1 + 1e-7)),
}


@pytest.mark.parametrize("change", named(WRONG_ROPE))
def test_the_law_of_rope_finds(change):
    assert catches(check_rope, partial(rope_like, change=change), rope_cases())


# --- One layer, and several -----------------------------------------------------------------------

LAYER_FORMS = [attention_step, ffn_step, two_steps, residual_layer, layer]


@st.composite
def layer_cases(draw):
    n, d, d_ff = draw(different(3, most=12))
    X = draw(numbers((n, d), -40, 4))
    return X, random_layer(d, d_ff, draw(st.integers(0, 99)), draw(st.sampled_from(ACTIVATIONS)))


def check_layer(name, function, case):
    X, w = case
    right = getattr(bounds, name)(exact(X.X), w)
    expected = getattr(reference, name)(X.X, w)
    # The bound's own pass over the definition is the definition.
    np.testing.assert_allclose(right.value, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())
    check_float32(plainly(function)(X.passed, w), right)


@pytest.mark.parametrize("form", LAYER_FORMS)
@law(layer_cases(), share=0.5)
def test_layer(form, case):
    check_layer(form.__name__, form, case)


def layer_like(X, w, norm=reference.layer_norm, first=1.0, second=1.0, swap=False, late=False):
    X = taken(X)
    steps = [(reference.attention_step, w.gain_1, w.bias_1, first)]
    steps.append((reference.ffn_step, w.gain_2, w.bias_2, second))
    for step, gain, bias, kept in reversed(steps) if swap else steps:
        X = kept * X + (norm(step(X, w), gain, bias) if late else step(norm(X, gain, bias), w))
    return as_32(X)


def other_weights(**changes):
    return lambda X, w: layer(X, replace(w, **{k: getattr(w, v) for k, v in changes.items()}))


WRONG_LAYERS = {
    "no residual around attention": partial(layer_like, first=0.0),
    "no residual around the FFN": partial(layer_like, second=0.0),
    "steps swapped": partial(layer_like, swap=True),
    "norm after the step": partial(layer_like, late=True),
    "no norm": partial(layer_like, norm=lambda X, gain, bias: X),
    "RMSNorm": partial(layer_like, norm=lambda X, gain, bias: reference.rms_norm(X, gain) + bias),
    "another eps": partial(
        layer_like, norm=lambda X, gain, bias: reference.layer_norm(X, gain, bias, 1e-3)
    ),
    "W_Q for W_K": other_weights(W_K="W_Q"),
    "W_V for W_O": other_weights(W_O="W_V"),
    "one gain for both norms": other_weights(gain_2="gain_1"),
    "one bias for both norms": other_weights(bias_2="bias_1"),
    "W_Q transposed": lambda X, w: layer(X, replace(w, W_Q=w.W_Q.T)),
}


@pytest.mark.parametrize("wrong", named(WRONG_LAYERS))
def test_the_law_of_the_layer_finds(wrong):
    assert catches(partial(check_layer, "layer"), wrong, layer_cases())


@st.composite
def stack_cases(draw):
    L, n, d, d_ff = draw(different(4, most=6))
    seed = draw(st.integers(0, 99))
    return draw(numbers((n, d), -40, 3)), [random_layer(d, d_ff, [seed, k]) for k in range(L)]


@law(stack_cases(), share=0.5)
def test_stack(case):
    """Each stage against the definition of its layer on the stage before: errors don't pile up."""
    X, layers = case
    stages = plainly(stack_outputs)(X.X, layers)
    for before, after, w in zip(stages[:-1], stages[1:], layers, strict=True):
        check_float32(after, bounds.layer(exact(before), w))
    np.testing.assert_array_equal(plainly(stack)(X.passed, layers), stages[-1])


# --- The wrongs are caught for what is wrong in them ---------------------------------------------

# What the wrongs were made from, with nothing changed.
UNCHANGED = {
    "softmax": (
        check_softmax, lambda s, *v: as_32(reference.softmax(taken(s), *v)), softmax_cases()
    ),
    "attention": (check_attend_causal, attention_like(), attention_cases()),
    "ffn": (check_ffn, ffn_like, ffn_cases()),
    "activations": (
        check_activate, lambda x, name: as_32(reference.ACTIVATIONS[name](as_32(x))),
        activation_cases(),
    ),
    "swiglu": (check_swiglu, swiglu_like, swiglu_cases()),
    "rms_norm": (check_rms_norm, norm_like, norm_cases()),
    "layer_norm": (check_layer_norm, norm_like, norm_cases()),
    "rope": (check_rope, partial(rope_like, change=lambda *a: a), rope_cases()),
    "layer": (partial(check_layer, "layer"), layer_like, layer_cases()),
}  # fmt: skip


@pytest.mark.parametrize("name", UNCHANGED)
def test_a_law_finds_nothing_in_the_definition_itself(name):
    assert not catches(*UNCHANGED[name], most=20)
