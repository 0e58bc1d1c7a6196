"""A layer of the Llama architecture by its definition, with bounds; and tiny models of any shape.

The definition takes what entered a layer and says what leaves it, so that each layer is held to
it by itself and errors do not pile up. A wrong definition is a subclass with one method replaced:
the law has to tell the engines from it.
"""

import atexit
import functools
import itertools
import shutil
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from lib import reference
from lib.engine.llama import load_model
from tests.laws import bounds
from tests.laws.bounds import Near, exact

sys.path.append(str(Path(__file__).parent.parent / "engine"))
from tests.engine.tiny_models import tensors_of, write_tiny

VOCABULARY = 265  # of the byte-level tokenizer of tiny models
CONTEXT = 300


class Facts(NamedTuple):
    """What a tiny model is made from."""

    L: int
    d: int
    H: int
    H_kv: int
    d_head: int
    d_ff: int
    kind: str = "F32"
    untied: bool = False
    seed: int = 0
    scale: float = 1.0  # all matrices times this
    embedded: float = 1.0  # what enters the first layer, times this
    eps: float = 1e-3
    factor: float = 1.0  # positions lie closer by this
    off: str = ""  # the matrix of zeros that ends one of the two steps
    damage: tuple = ()  # (tensor, place, number)

    @property
    def sizes(self):
        """The sizes as `write_tiny` takes them."""
        return {name: getattr(self, name) for name in ("L", "d", "H", "H_kv", "d_head", "d_ff")}


@st.composite
def facts(draw, kinds=("F32",), most=3):
    """Draw a model; in blocks, where the kind asks for it, rows are multiples of 32."""
    kind = draw(st.sampled_from(kinds))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    L, H_kv, group = draw(st.integers(1, most)), rng.integers(1, 4), rng.integers(1, 5)
    if kind == "F32":
        d_head, (d, d_ff) = 2 * rng.integers(1, 6), rng.choice(np.arange(1, 41), 2, replace=False)
    else:
        d_head = 32 // np.gcd(32, H_kv * group) * rng.integers(1, 3)
        d_head += d_head % 2  # H · d_head fills blocks, heads have an even width
        d, d_ff = 32 * rng.choice(np.arange(1, 5), 2, replace=False)
    sizes = [int(x) for x in (L, d, H_kv * group, H_kv, d_head, d_ff)]
    scale = draw(st.sampled_from([1.0, 1.0, 0.01, 3.0]))
    embedded = draw(st.sampled_from([1.0, 1.0, 1e-20, 1e17])) if kind == "F32" else 1.0
    eps, factor = draw(st.sampled_from([1e-5, 1e-3, 0.3])), draw(st.sampled_from([1.0, 2.5]))
    seed = int(rng.integers(2**16))
    untied = draw(st.booleans()) or embedded != 1.0  # a tied head would share that size
    return Facts(*sizes, kind, untied, seed, scale, embedded, eps, factor)


@st.composite
def texts(draw, most=11):
    """Draw 1 to `most` tokens, or now and then more than a block of 64 keys."""
    n = draw(st.one_of(st.integers(1, most), st.sampled_from([most, 64 + most])))
    return np.random.default_rng(draw(st.integers(0, 2**16))).integers(0, VOCABULARY, n)


@functools.cache
def _folder():
    folder = Path(tempfile.mkdtemp(prefix="left-context-laws-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


_numbers = itertools.count()


@functools.lru_cache(maxsize=128)
def file_of(model):
    """Write a model, and return its path."""
    rng = np.random.default_rng(model.seed)
    tensors = tensors_of(model.sizes, VOCABULARY, model.untied, rng)
    tensors = {k: v * np.float32(model.scale if v.ndim > 1 else 1) for k, v in tensors.items()}
    if model.off:
        for layer in range(model.L):
            tensors[f"blk.{layer}.{model.off}.weight"][:] = 0
    tensors["token_embd.weight"] *= np.float32(model.embedded)
    for name, place, number in model.damage:
        tensors[name].flat[place % tensors[name].size] = number
    metadata = {
        "llama.attention.layer_norm_rms_epsilon": model.eps,
        "llama.rope.scaling.factor": model.factor,
        "llama.context_length": CONTEXT,
    }
    path = _folder() / f"{next(_numbers)}.gguf"
    return write_tiny(
        path, model.sizes, model.kind, model.untied, metadata=metadata, tensors=tensors
    )


@functools.lru_cache(maxsize=128)
def plain(model):
    """Return the model as `lib.engine.llama` runs it."""
    return load_model(file_of(model))


@functools.lru_cache(maxsize=128)
def fast(model, threads=1, cache_type="float32"):
    """Return the model as `lib.engine.fast` runs it."""
    from lib.engine.fast import load_fast

    return load_fast(file_of(model), threads, cache_type)


class Definition:
    """What leaves a layer, and the head, by definition and with bounds.

    Parameters
    ----------
    model : Llama
        Gives the weights, as float32 numbers.
    kind : str
        Of the weights; in blocks of 8 and 4 bits the fast engine rounds what meets them.
    halves : bool
        Whether keys and values are kept as float16.
    """

    def __init__(self, model, kind="F32", halves=False):
        self.config, self.weights, self.model = model.config, model.layers, model
        self.kind, self.halves = kind, halves

    def enter(self, X):
        """Round what meets a matrix of blocks."""
        return X if self.kind == "F32" else bounds.to_8_bits(X)

    def product(self, X, W):
        """X W. A block of 4 bits is d q + m, which may cancel: of size 3 times its largest."""
        size = np.abs(W)
        if self.kind.startswith("Q4"):
            blocks = size.reshape(-1, 32, W.shape[1])
            size = np.repeat(3 * blocks.max(1), 32, axis=0)
        return bounds.multiply(self.enter(X), exact(W), 1, size)

    def norm(self, X, gain):
        """RMSNorm; in the fast engine 16 lanes add up squares in float32."""
        return bounds.rms_norm(
            X, reference.float64(gain), self.config.eps, X.value.shape[1] // 16 + 8
        )

    def turn(self, X):
        """Rotate heads (n, H, d_head) to positions 0 … n - 1."""
        c, factors = self.config, self.config.rope_factors
        factors = 1.0 if factors is None else np.array(factors)
        angles = reference.rope_angles(self.positions(len(X.value)), c.d_head, c.rope_base, factors)
        return bounds.rope(X, angles)

    def positions(self, n):
        """Return the positions of n tokens."""
        return np.arange(n)

    def heads(self, X, H):
        """Cut (n, H · d_head) into (n, H, d_head)."""
        return X.reshape(len(X.value), H, -1)

    def served(self, h):
        """Return the key-value head that serves head h."""
        return h // (self.config.H // self.config.H_kv)

    def attend(self, Q, K, V):
        """Attention of one head."""
        return bounds.attention(Q, K, V, bounds.streamed(len(Q.value)))[1]

    def attention(self, X, w):
        """The first step, without norm and residual."""
        c = self.config
        Q = self.turn(self.heads(self.product(X, w.W_Q), c.H))
        K = self.turn(self.heads(self.product(X, w.W_K), c.H_kv))
        V = self.heads(self.product(X, w.W_V), c.H_kv)
        if self.halves:
            K, V = bounds.to_halves(K), bounds.to_halves(V)
        heads = [self.attend(Q[:, h], K[:, self.served(h)], V[:, self.served(h)])
                 for h in range(c.H)]  # fmt: skip
        return self.product(self.merge(heads), w.W_O)

    def merge(self, heads):
        """Lay heads side by side."""
        return Near(*(np.concatenate(part, axis=1) for part in zip(*heads, strict=True)))

    def ffn(self, X, w):
        """The second step, without norm and residual."""
        hidden = bounds.gated(self.product(X, w.W_gate), self.product(X, w.W_up))
        return self.product(hidden, w.W_down)

    def add(self, X, step):
        """The residual connection."""
        return bounds.add(X, step)

    def layer(self, X, index):
        """Return what leaves a layer: (n, d) -> (n, d)."""
        w = self.weights[index]
        X = self.add(X, self.attention(self.norm(X, w.attention_gain), w))
        return self.add(X, self.ffn(self.norm(X, w.ffn_gain), w))

    def head(self, X):
        """Return the logits. What meets a head of 8 bits is not rounded."""
        X = self.norm(X, self.model.output_gain)
        if self.kind == "Q8_0":
            return bounds.multiply(X, exact(self.model.W_head), 1)
        return self.product(X, self.model.W_head)
