"""Attention, norms, activations, the layer and the stack of the core, against torch in float64."""

import numpy as np
import pytest

from lib.attention import attend, attend_causal, causal_weights, softmax
from lib.engine.cache import Cache
from lib.engine.llama import LlamaConfig, LlamaWeights, llama_attention
from lib.ffn import activate
from lib.layer import LayerWeights
from lib.norm import layer_norm, rms_norm
from lib.reference import attend_causal as defined_attend_causal
from lib.reference import layer as defined_layer
from lib.reference import rope, stack
from lib.stack import stack_outputs
from tests.witnesses.rounding import EPS, rounding_bound


def attention_bound(Q, K, V):
    # A mean of n values, its weights from scores that are sums of d products; ten roundings for the
    # scale and the exponential (lib/jit.py: three, and one of its argument).
    run = lambda a: defined_attend_causal(a["Q"], a["K"], a["V"])  # noqa: E731
    return rounding_bound(run, {"Q": Q, "K": K, "V": V}, terms=len(K) + K.shape[1] + 10)


@pytest.mark.parametrize("name", ["one", "all", "last", "many"])
def test_attention(operations, name):
    case = operations("attention_cases", name)
    Q, K, V = case["Q"], case["K"], case["V"]
    bound = attention_bound(Q, K, V)
    assert bound < 1e-3 * np.abs(case["out"]).max()
    np.testing.assert_allclose(attend_causal(Q, K, V), case["out"], rtol=0, atol=bound)
    np.testing.assert_allclose(causal_weights(Q, K) @ V, case["out"], rtol=0, atol=bound)
    for i in (0, len(Q) - 1):
        seen = len(K) - len(Q) + i + 1
        found = attend(Q[i], K[:seen], V[:seen])
        np.testing.assert_allclose(found, case["out"][i], rtol=0, atol=bound)


@pytest.mark.parametrize("name", ["logits", "near"])
def test_softmax(operations, name):
    case = operations("attention_cases")
    expected = case[f"{name}.softmax"]
    # The difference to the largest is rounded, and the exponential and the sum add a few.
    bound = (np.ptp(case[name]) + len(expected) + 4) * EPS
    np.testing.assert_allclose(softmax(case[name]), expected, rtol=bound, atol=1e-45)


def test_grouped_heads_with_rotary_positions(operations):
    case = operations("head_cases")
    H, H_kv, d_head = (int(n) for n in case.pop("sizes"))
    base, expected = float(case.pop("base")), case.pop("out")
    n, d = case["X"].shape
    config = LlamaConfig(1, d, H, H_kv, d_head, 1, 1, n, base, 1e-5)
    weights = {name: array for name, array in case.items() if name != "X"}
    weights = LlamaWeights(None, **weights, ffn_gain=None, W_gate=None, W_up=None, W_down=None)

    def run(a):
        turned = [
            rope((a["X"] @ a[name]).reshape(n, -1, d_head), np.arange(n), base)
            for name in ("W_Q", "W_K")
        ]
        Q, K, V = *turned, (a["X"] @ a["W_V"]).reshape(n, H_kv, d_head)
        group = H // H_kv
        heads = [
            defined_attend_causal(Q[:, h], K[:, h // group], V[:, h // group]) for h in range(H)
        ]
        return np.concatenate(heads, axis=1) @ a["W_O"]

    # The longest sum is that over the heads; the definition agrees with torch to float64.
    exact = {name: array.astype(np.float64) for name, array in case.items()}
    np.testing.assert_allclose(run(exact), expected, rtol=0, atol=1e-11)
    bound = rounding_bound(run, exact, terms=H * d_head + 10)
    assert bound < 1e-3 * np.abs(expected).max()
    found = llama_attention(case["X"], weights, Cache(1, H_kv, n, d_head).layers[0], config)
    np.testing.assert_allclose(found, expected, rtol=0, atol=bound)


@pytest.mark.parametrize("name", ["relu", "gelu", "gelu_tanh", "silu"])
def test_activations(operations, name):
    case = operations("elementwise_cases")
    x, right = case["x"].astype(np.float64), case[name]
    # Evaluated in float64 and rounded once; far to the left 1 + erf cancels to a multiple of 1e-16.
    error = EPS * np.abs(right) + 90 * 2.0**-52
    if name == "gelu_tanh":
        # The cube within u = √(2/π) (x + 0.044715 x³) is rounded to float32, at most twice. An
        # error ε of u changes 1 + tanh u by a factor of at most e^2ε.
        error += 2 * EPS * 0.8 * 0.044715 * np.abs(x) ** 3 * np.abs(right)
    assert (np.abs(activate(case["x"], name) - right) <= error).all()


def test_the_two_forms_of_gelu_are_told_apart(operations):
    # Fault 13: at 2.7 they differ by 4.7e-4, far above the tolerance of the test above.
    case = operations("elementwise_cases")
    assert 4e-4 < np.abs(case["gelu"] - case["gelu_tanh"]).max() < 5e-4


@pytest.mark.parametrize("norm", [layer_norm, rms_norm])
def test_norms(operations, norm):
    case = operations("norm_cases")
    arguments = (case["gain"], case["bias"]) if norm is layer_norm else (case["gain"],)
    found = norm(case["X"], *arguments, eps=1e-3)
    # Sums in float64; the four roundings to float32 are relative to what is scaled and added.
    largest = np.sqrt(7) * np.abs(case["gain"]).max() + np.abs(case["bias"]).max()
    np.testing.assert_allclose(found, case[norm.__name__], rtol=0, atol=4 * EPS * largest)


def test_the_layer_and_the_stack_are_torchs_encoder_layers(operations):
    case = operations("encoder_cases")
    X, expected = case.pop("X"), case.pop("out")

    def run(a):
        weights = [LayerLike(**{name: a[name][k] for name in case}) for k in range(len(expected))]
        return stack(a["X"], weights, defined_layer)

    layers = [
        LayerWeights(**{name: w[k] for name, w in case.items()}) for k in range(len(expected))
    ]
    exact = {name: array.astype(np.float64) for name, array in {"X": X, **case}.items()}
    np.testing.assert_allclose(run(exact), expected[-1], rtol=0, atol=1e-10)
    bound = rounding_bound(run, exact, terms=case["W_1"].shape[-1] + 10)
    assert bound < 1e-3 * np.abs(expected[-1]).max()
    for found, right in zip(stack_outputs(X, layers)[1:], expected, strict=True):
        np.testing.assert_allclose(found, right, rtol=0, atol=bound)


class LayerLike:
    """Weights in float64, which `LayerWeights` would round."""

    activation = "gelu"

    def __init__(self, **weights):
        self.__dict__ |= weights
