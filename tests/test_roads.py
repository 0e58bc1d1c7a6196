"""Which road a public function of the core takes: its kernel, or without Numba its definition."""

import math

import numpy as np
import pytest

from lib import attention, contract, ffn, jit, layer, norm, reference, rope
from lib.contract import operation
from lib.errors import CourseError

EPS = float(np.finfo(np.float32).eps)


def made(*shapes):
    rng = np.random.default_rng(7)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


Q, K, V, GAIN, BIAS = made((70, 12), (90, 12), (90, 5), (12,), (12,))
W_GATE, W_UP, W_DOWN = made((12, 17), (12, 17), (17, 9))
FACTORS = np.linspace(1, 2, 6, dtype=np.float32)
AT = np.arange(3, 93)

# name: the module, its function, the definition, what both are given
ROADS = {
    "softmax": (attention, "softmax", "softmax", (K,)),
    "attend": (attention, "attend", "attend", (Q[0], K, V)),
    "attention_weights": (attention, "attention_weights", "attention_weights", (Q[0], K)),
    "attend_causal, few": (attention, "attend_causal", "attend_causal", (Q[:3], K, V)),
    "attend_causal, many": (attention, "attend_causal", "attend_causal", (Q, K, V)),
    "causal_weights": (attention, "causal_weights", "causal_weights", (Q, K)),
    "relu": (ffn, "activate", "relu", (K, "relu")),
    "gelu": (ffn, "activate", "gelu", (K, "gelu")),
    "gelu_tanh": (ffn, "activate", "gelu_tanh", (K, "gelu_tanh")),
    "silu": (ffn, "activate", "silu", (K, "silu")),
    "layer_norm": (norm, "layer_norm", "layer_norm", (K, GAIN, BIAS, 1e-3)),
    "rms_norm": (norm, "rms_norm", "rms_norm", (K, GAIN, 1e-3)),
    "rope, interleaved": (rope, "rope", "rope", (K, AT, 100.0, "interleaved", FACTORS)),
    "rope, halves": (rope, "rope", "rope", (K, AT, 100.0, "halves", FACTORS)),
}  # fmt: skip
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu")


def defined(name, arguments):
    given = arguments[:1] if name in ACTIVATIONS else arguments
    return getattr(reference, name)(*given).astype(np.float32)


@pytest.mark.parametrize("road", ROADS)
def test_without_numba_it_is_the_definition_rounded_to_float32(road, monkeypatch):
    module, function, name, arguments = ROADS[road]
    for where in (module, contract):
        monkeypatch.setattr(where, "NUMBA", False, raising=False)
    got = getattr(module, function)(*arguments)
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, defined(name, arguments))


@pytest.mark.parametrize("road", ROADS)
def test_with_numba_the_definition_is_not_asked(road, monkeypatch):
    module, function, name, arguments = ROADS[road]
    right = defined(name, arguments)

    def refuse(*arguments):
        raise AssertionError("the definition ran in the kernel's place")

    monkeypatch.setattr(reference, name, refuse)
    if name in ACTIVATIONS:
        monkeypatch.setitem(reference.ACTIVATIONS, name, refuse)
    got = getattr(module, function)(*arguments)
    # Sums of at most 90 terms of size 4, each with a rounding or two: 1e-4 is ten times that.
    np.testing.assert_allclose(got, right, rtol=0, atol=1e-4)


@pytest.mark.parametrize("numba", [True, False])
def test_swiglu_on_both_roads(numba, monkeypatch):
    right = reference.swiglu(K, W_GATE, W_UP, W_DOWN)
    asked = []
    silu = reference.silu
    monkeypatch.setattr(ffn, "NUMBA", numba)
    monkeypatch.setattr(reference, "silu", lambda x: asked.append(x) or silu(x))
    got = ffn.swiglu(K, W_GATE, W_UP, W_DOWN)
    assert bool(asked) == (not numba)
    size = (abs(K) @ abs(W_GATE)) * (abs(K) @ abs(W_UP)) @ abs(W_DOWN)
    assert (abs(got - right) <= 1.3 * EPS * (2 * 12 + 17 + 12) * size).all()  # as in test_ffn


def test_many_queries_go_through_blocks_and_few_do_not(monkeypatch):
    ways = []
    for name in ("_attend_causal", "_attend_blocks"):
        way = getattr(attention, name)
        monkeypatch.setattr(attention, name, lambda *a, n=name, w=way: ways.append(n) or w(*a))
    attention.attend_causal(Q[: attention.MIN_QUERIES_FOR_BLOCKS - 1], K, V)
    attention.attend_causal(Q[: attention.MIN_QUERIES_FOR_BLOCKS], K, V)
    assert ways == ["_attend_causal", "_attend_blocks"]


# --- The Python behind what is compiled -----------------------------------------------------------


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("x", [-3.0, -0.7, 0.0, 0.4, 2.5])
def test_the_python_behind_an_activation(name, x):
    got, right = jit.source_of(ffn.ACTIVATIONS[name])(x), reference.ACTIVATIONS[name](x)
    assert abs(float(got) - right) <= 4 * EPS * abs(right)


@pytest.mark.parametrize(("gate", "up"), [(2.0, 3.0), (-1.5, 0.25), (0.5, -4.0)])
def test_the_python_behind_the_gate(gate, up):
    got = jit.source_of(ffn._gated)(gate, up)
    right = gate / (1 + math.exp(-gate)) * up
    assert abs(float(got) - right) <= 4 * EPS * abs(right)


@pytest.mark.parametrize("x", [0.0, -1e-3, -0.3, -0.4, -1.0, -20.5, -86.99])
def test_the_python_behind_exp(x):
    x = np.float32(x)
    got = jit._exp(x)
    right = math.exp(float(x))
    assert got.dtype == np.float32
    # As in test_jit: three roundings, and one of k ln 2, which is about x.
    assert abs(float(got) - right) <= EPS * (3 + abs(float(x)) / 2) * right


@pytest.mark.parametrize(("x", "right"), [(-88, 0.0), (-3e38, 0.0), (-np.inf, np.nan)])
def test_the_python_behind_exp_below_the_smallest_number(x, right):
    np.testing.assert_array_equal(jit._exp(np.float32(x)), np.float32(right))


@pytest.mark.parametrize(
    "given",
    [
        (Q[0].tolist(), K, V),
        (Q[0].astype(np.float64), K, V),
        (Q[0], np.asfortranarray(K), V),
        (Q[0], K.tolist(), V.astype(">f4")),
    ],
    ids=["list", "float64", "fortran", "big-endian"],
)
def test_bodies_are_given_contiguous_float32(given):
    seen = []

    @operation("(d),(n,d),(n,d_v)->(d_v)")
    def body(q, K, V):
        seen.append((q, K, V))
        return V[0]

    body(*given)
    assert all(X.dtype is np.dtype(np.float32) and X.flags.c_contiguous for X in seen[0])
    fit = (Q[0], K, V)
    body(*fit)
    assert all(X is own for X, own in zip(seen[1], fit, strict=True))


def test_a_call_like_the_last_one_is_checked_too():
    """The contract remembers the shapes that were right, not the arrays."""
    for _ in range(2):
        attention.attend(Q[0], K, V)
        for wrong in ((Q[0], K, V[:-1]), (Q[0, :-1], K, V), (Q[0], K, V[:, :0]), (Q, K, V)):
            with pytest.raises(CourseError, match="should have shape"):
                attention.attend(*wrong)


def test_python_says_which_argument_is_missing_or_too_much():
    given = [((Q[0], K), {}), ((Q[0], K, V, V), {}), ((Q[0], K, V), {"x": 1}), ((K,), {"q": K})]
    for values, named in given:
        with pytest.raises(TypeError, match=r"attend\(\)"):
            attention.attend(*values, **named)


def test_one_layer_searches_its_result_once(monkeypatch):
    searched = []
    finite = contract._finite
    monkeypatch.setattr(contract, "_finite", lambda row: searched.append(1) or finite(row))
    w = layer.random_layer(4, 9, seed=1)
    layer.layer(made((5, 4))[0], w)
    assert len(searched) == 1
    with pytest.raises(CourseError, match="^X should hold finite"):
        layer.layer(np.float32([[1, np.nan, 1, 1]]), w)
