"""Functions for exercise 05: the right ones, and plausible wrong ones with their messages."""

import math
from dataclasses import replace

import numpy as np

from tests.exercises.wrong.t04 import causal_weights, in_float32, mixing

erf = np.vectorize(math.erf, otypes=[float])


def gelu(x):
    return x * (1 + erf(x / math.sqrt(2))) / 2


def relu(x):
    return np.maximum(x, 0)


def tanh_gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def silu(x):
    return x / (1 + np.exp(-x))


def ffn(X, W_1, b_1, W_2, b_2, activation=gelu):
    return activation(X @ W_1 + b_1) @ W_2 + b_2


def layer_norm(X, gain, bias, eps=1e-5):
    centred = X - X.mean(axis=-1, keepdims=True)
    variance = (centred**2).mean(axis=-1, keepdims=True)
    return gain * centred / np.sqrt(variance + eps) + bias


def residual_layer(X, attention_step, ffn_step):
    H = X + attention_step(X)
    return H + ffn_step(H)


def attention(A, w, weights=causal_weights):
    return weights(A @ w.W_Q, A @ w.W_K) @ (A @ w.W_V) @ w.W_O


def feed(B, w):
    return ffn(B, w.W_1, w.b_1, w.W_2, w.b_2)


def norm_1(X, w):
    return layer_norm(X, w.gain_1, w.bias_1)


def norm_2(X, w):
    return layer_norm(X, w.gain_2, w.bias_2)


def layer(X, w):
    H = X + attention(norm_1(X, w), w)
    return H + feed(norm_2(H, w), w)


def layer_with(**changes):
    """The right layer with some weights taken for others."""
    return lambda X, w: layer(X, replace(w, **{k: change(w) for k, change in changes.items()}))


def with_weights(weights):
    def f(X, w):
        H = X + attention(norm_1(X, w), w, weights)
        return H + feed(norm_2(H, w), w)

    return f


def post_norm(X, w):
    H = norm_1(X + attention(X, w), w)
    return norm_2(H + feed(H, w), w)


def parallel(X, w):
    return X + attention(norm_1(X, w), w) + feed(norm_2(X, w), w)


def ffn_first(X, w):
    H = X + feed(norm_2(X, w), w)
    return H + attention(norm_1(H, w), w)


def normed_residual(X, w):
    A = norm_1(X, w)
    H = A + attention(A, w)
    B = norm_2(H, w)
    return B + feed(B, w)


def without_first_norm(X, w):
    H = X + attention(X, w)
    return H + feed(norm_2(H, w), w)


def without_second_norm(X, w):
    H = X + attention(norm_1(X, w), w)
    return H + feed(H, w)


def ffn_reads_first_norm(X, w):
    A = norm_1(X, w)
    H = X + attention(A, w)
    return H + feed(A, w)


def no_residuals(X, w):
    return feed(norm_2(attention(norm_1(X, w), w), w), w)


def second_adds_X(X, w):
    return X + feed(norm_2(X + attention(norm_1(X, w), w), w), w)


def in_place_layer(X, w):
    X += attention(norm_1(X, w), w)
    return X + feed(norm_2(X, w), w)


RIGHT = {
    "05.gelu": gelu,
    "05.ffn": ffn,
    "05.layer_norm": layer_norm,
    "05.residual_layer": residual_layer,
    "05.layer": layer,
}


def float32_layer(X, w):
    return layer(np.float32(X), w).astype(np.float32)


ALSO_RIGHT = {
    "05.gelu": [in_float32(gelu)],
    "05.ffn": [in_float32(ffn), lambda X, *w: [ffn(x, *w).tolist() for x in X]],
    "05.layer_norm": [in_float32(layer_norm), lambda X, *w: [layer_norm(x, *w) for x in X]],
    "05.residual_layer": [lambda X, a, f: (X + a(X) + f(X + a(X))).astype(np.float32)],
    "05.layer": [float32_layer],
}


def shift_in_place(X, gain, bias, eps):
    X -= X.mean(axis=1, keepdims=True)
    return layer_norm(X, gain, bias, eps)


def first_in_place(X, attention_step, ffn_step):
    X += attention_step(X)
    return X + ffn_step(X)


def whole(X, gain, bias, eps):
    return gain * (X - X.mean()) / np.sqrt(X.var() + eps) + bias


def over_rows(X, gain, bias, eps):
    return gain * (X - X.mean(axis=0)) / np.sqrt(X.var(axis=0) + eps) + bias


def parts(X):
    centred = X - X.mean(axis=1, keepdims=True)
    return centred, (centred**2).mean(axis=1, keepdims=True)


def norm_with(scale, d_of=lambda d: d):
    def f(X, gain, bias, eps):
        centred, variance = parts(X)
        return gain * centred * scale(variance * X.shape[1] / d_of(X.shape[1]), eps) + bias

    return f


WRONG = {
    "05.gelu": [
        ("ReLU", relu, "fails at the bend"),
        ("SiLU", silu, "fails at the bend"),
        ("the tanh form", tanh_gelu,
         r"fails at the exact form[\s\S]*difference is 4.7e-04: more than rounding explains"),
        ("the sigmoid form", lambda x: x / (1 + np.exp(-1.702 * x)), "fails at the bend"),
        ("without x", lambda x: (1 + erf(x / math.sqrt(2))) / 2, "fails at far to the right"),
        ("without the half", lambda x: x * (1 + erf(x / math.sqrt(2))),
         r"fails at far to the right[\s\S]* is 2 times"),
        ("erf of x, not of x/√2", lambda x: x * (1 + erf(x)) / 2, "fails at the bend"),
        ("erf alone", lambda x: x * erf(x / math.sqrt(2)), "fails at far to the left"),
        ("the sign turned", lambda x: gelu(-x), "fails at far to the right"),
        ("the density for the distribution", lambda x: x * np.exp(-x * x / 2) / 2.5066,
         "fails at far to the right"),
        ("math.erf of an array", lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
         "gelu raises TypeError"),
        ("flattened",
         lambda x: gelu(x).ravel(), r"should have shape \(3, 2\); it has shape \(6,\)"),
        ("absolute value", np.abs, "fails at far to the left"),
    ],
    "05.ffn": [
        ("b_1 forgotten", lambda X, W_1, b_1, W_2, b_2: ffn(X, W_1, 0, W_2, b_2), "the first bias"),
        ("b_2 forgotten", lambda X, W_1, b_1, W_2, b_2: ffn(X, W_1, b_1, W_2, 0),
         r"fails at the last bias[\s\S]*came = \[\[0"),
        ("no activation", lambda *a: ffn(*a, activation=lambda Z: Z), "fails at the activation"),
        ("ReLU", lambda *a: ffn(*a, activation=relu), "fails at the kind of activation"),
        ("the tanh form", lambda *a: ffn(*a, activation=tanh_gelu), "the kind of activation"),
        ("the activation last", lambda X, W_1, b_1, W_2, b_2: gelu((X @ W_1 + b_1) @ W_2 + b_2),
         "fails at the last bias"),
        ("b_1 after the activation",
         lambda X, W_1, b_1, W_2, b_2: (gelu(X @ W_1) + b_1) @ W_2 + b_2,
         "fails at the activation"),
        ("b_1 subtracted", lambda X, W_1, b_1, W_2, b_2: ffn(X, W_1, -b_1, W_2, b_2),
         "fails at the first bias"),
        ("W_1 transposed", lambda X, W_1, b_1, W_2, b_2: ffn(X, W_1.T, b_1, W_2, b_2),
         "ffn raises ValueError"),
        ("W_1 of the wrong order", lambda X, W_1, b_1, W_2, b_2: ffn(
            X, W_1.T.reshape(W_1.shape), b_1, W_2, b_2), "fails at the two products"),
        ("W_2 of the wrong order", lambda X, W_1, b_1, W_2, b_2: ffn(
            X, W_1, b_1, W_2.T.reshape(W_2.shape), b_2), "fails at the first bias"),
        ("the vectors added", lambda X, *w: X + ffn(X, *w), "fails at the last bias"),
        ("positions mixed", lambda X, *w: ffn((X + X.mean(axis=0)) / 2, *w),
         "fails at each row for itself"),
        ("the first row for all", lambda X, *w: np.tile(ffn(X[:1], *w), (len(X), 1)),
         "fails at each row for itself"),
        ("rows reversed", lambda X, *w: ffn(X, *w)[::-1], "fails at each row for itself"),
        ("the hidden vector",
         lambda X, W_1, b_1, W_2, b_2: gelu(X @ W_1 + b_1), "should have shape"),
        ("the activation twice", lambda *a: ffn(*a, activation=lambda Z: gelu(gelu(Z))),
         "fails at the kind of activation"),
    ],
    "05.layer_norm": [
        ("the whole array", whole, "fails at each row for itself"),
        ("over the tokens", over_rows, "fails at each row for itself"),
        ("no centring",
         lambda X, g, b, eps: g * X / np.sqrt((X**2).mean(1, keepdims=True) + eps) + b,
         "fails at the centre"),
        ("no division", norm_with(lambda variance, eps: 1), "fails at the spread"),
        ("divided by the variance", norm_with(lambda variance, eps: 1 / (variance + eps)),
         r"fails at the spread[\s\S]*0.333 times"),
        ("d − 1 for d", norm_with(lambda v, eps: 1 / np.sqrt(v + eps), lambda d: d - 1),
         r"fails at the spread[\s\S]*0.707 times"),
        ("√ of the sum of squares", norm_with(lambda v, eps: 1 / np.sqrt(v + eps), lambda d: 1),
         "fails at the spread"),
        ("gain forgotten", lambda X, g, b, eps: layer_norm(X, 1, b, eps), "fails at the gain"),
        ("one gain for all", lambda X, g, b, eps: layer_norm(X, g[0], b, eps), "fails at the gain"),
        ("1 + gain",
         lambda X, g, b, eps: layer_norm(X, 1 + g, b, eps), r"at the spread[\s\S]* 2 times"),
        ("bias forgotten", lambda X, g, b, eps: layer_norm(X, g, 0, eps), "fails at the bias"),
        ("bias stretched",
         lambda X, g, b, eps: g * (layer_norm(X, 1, b, eps)), "fails at the bias"),
        ("gain and bias swapped",
         lambda X, g, b, eps: layer_norm(X, b, g, eps), "fails at the centre"),
        ("no eps", lambda X, g, b, eps: layer_norm(X, g, b, 0),
         r"fails at a row of equal numbers[\s\S]*NaN comes of"),
        ("an eps of its own",
         lambda X, g, b, eps: layer_norm(X, g, b), "fails at the place of eps"),
        ("eps outside the root", norm_with(lambda v, eps: 1 / (np.sqrt(v) + eps)),
         "fails at the place of eps"),
        ("eps squared",
         lambda X, g, b, eps: layer_norm(X, g, b, eps**2), "fails at the place of eps"),
        ("in place", shift_in_place, "changes its argument X in place"),
    ],
    "05.residual_layer": [
        ("no residuals", lambda X, a, f: f(a(X)), "fails at two steps that add nothing"),
        ("the first residual lost", lambda X, a, f: a(X) + f(a(X)),
         "fails at two steps that add nothing"),
        ("the second residual lost", lambda X, a, f: f(X + a(X)),
         "fails at two steps that add nothing"),
        ("X added at the second step", lambda X, a, f: X + f(X + a(X)), "fails at the first sum"),
        ("X added twice", lambda X, a, f: 2 * X + a(X) + f(X + a(X)),
         r"fails at two steps that add nothing[\s\S]* 2 times"),
        ("attention added twice",
         lambda X, a, f: X + 2 * a(X) + f(X + a(X)), "fails at the first sum"),
        ("means for sums", lambda X, a, f: ((X + a(X)) / 2 + f((X + a(X)) / 2)) / 2,
         "fails at two steps that add nothing"),
        ("side by side", lambda X, a, f: X + a(X) + f(X), "fails at what the FFN reads"),
        ("the FFN first", lambda X, a, f: residual_layer(X, f, a), "fails at what the FFN reads"),
        ("the FFN reads attention alone", lambda X, a, f: X + a(X) + f(a(X)),
         "fails at what the FFN reads"),
        ("the FFN forgotten", lambda X, a, f: X + a(X), "fails at the second sum"),
        ("attention forgotten", lambda X, a, f: X + f(X), "fails at the first sum"),
        ("differences for sums", lambda X, a, f: X - a(X) - f(X - a(X)), "fails at the first sum"),
        ("attention after attention", lambda X, a, f: X + a(X + a(X)) + f(X + a(X)),
         "fails at what attention reads"),
        ("in place", first_in_place, "changes its argument X in place"),
    ],
    "05.layer": [
        ("no residuals", no_residuals, "fails at the residuals"),
        ("norms after the steps", post_norm, "fails at the residuals"),
        ("the normed vectors passed on", normed_residual, "fails at the residuals"),
        ("X added at the second step", second_adds_X, "fails at the first norm"),
        ("no first norm", without_first_norm, "fails at the first norm"),
        ("norms swapped", layer_with(gain_1=lambda w: w.gain_2, bias_1=lambda w: w.bias_2),
         "fails at the first norm"),
        ("W_O forgotten", layer_with(W_O=lambda w: np.eye(w.d)), "fails at the residuals"),
        ("W_V forgotten", layer_with(W_V=lambda w: np.eye(w.d)), "fails at values and their way"),
        ("W_O transposed", layer_with(W_O=lambda w: w.W_O.T), "fails at values and their way"),
        ("keys for values", layer_with(W_V=lambda w: w.W_K), "fails at the first norm"),
        ("no mask", with_weights(mixing(visible=lambda m, n: np.ones((m, n), bool))),
         "fails at the left context"),
        ("only the own token", with_weights(lambda Q, K: np.eye(len(Q))), "at the left context"),
        ("W_Q and W_K swapped", layer_with(W_Q=lambda w: w.W_K, W_K=lambda w: w.W_Q),
         "fails at queries and keys"),
        ("W_Q transposed", layer_with(W_Q=lambda w: w.W_Q.T), "fails at queries and keys"),
        ("no scale", with_weights(mixing(scale=lambda n, d: 1)), "fails at queries and keys"),
        ("sqrt of d_ff",
         lambda X, w: with_weights(mixing(scale=lambda n, d: len(w.b_1) ** 0.5))(X, w),
         "fails at queries and keys"),
        ("no second norm", without_second_norm, "fails at the second norm"),
        ("the first norm's gain for both", layer_with(gain_2=lambda w: w.gain_1),
         "fails at the second norm"),
        ("b_1 forgotten", layer_with(b_1=lambda w: 0 * w.b_1), "fails at the second norm"),
        ("b_2 forgotten", layer_with(b_2=lambda w: 0 * w.b_2), "fails at the second norm"),
        ("side by side", parallel, "fails at what the FFN reads"),
        ("the FFN first", ffn_first, "fails at what the FFN reads"),
        ("the FFN reads the first norm", ffn_reads_first_norm, "fails at the second norm"),
        ("no FFN", lambda X, w: X + attention(norm_1(X, w), w), "fails at the second norm"),
        ("ReLU", lambda X, w: (H := X + attention(norm_1(X, w), w))
         + ffn(norm_2(H, w), w.W_1, w.b_1, w.W_2, w.b_2, relu), "fails at the FFN"),
        ("in place", in_place_layer, "changes its argument X in place"),
    ],
}  # fmt: skip
