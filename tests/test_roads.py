"""Which road a public function of the core takes: its kernel, or without Numba its definition."""

import math

import numpy as np
import pytest

from lib import attention, ffn, jit, norm, reference, rope

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
    monkeypatch.setattr(module, "NUMBA", False)
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
    attention.attend_causal(Q[: attention.FEW - 1], K, V)
    attention.attend_causal(Q[: attention.FEW], K, V)
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


def test_arrays_that_the_kernels_can_take_as_they_are():
    q = Q[0]
    assert attention._ready(q, K, V, axes=1)
    assert attention._ready(Q, K, V, axes=2)
    for given in (
        (q.tolist(), K, V, 1),
        (q.astype(np.float64), K, V, 1),
        (q, np.asfortranarray(K), V, 1),
        (q, K, V[:-1], 1),
        (q[:-1], K, V, 1),
        (q, K, V[:, 0].copy(), 1),
        (Q, K, V, 1),
        (q, K, V, 2),
        (Q[:0], K, V, 2),
        (q, K, V[:, :0].copy(), 1),
    ):
        assert not attention._ready(*given)
