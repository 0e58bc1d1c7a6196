"""A model of the Llama architecture, through the functions of the core.

Touvron et al. 2023, section 2.2, says how it differs from the first transformer: RMSNorm before
each step, SwiGLU in the FFN, rotary positions; Ainslie et al. 2023 adds grouped key-value heads.
The layer is `llama_layer`; `lib.stack.stack` runs L of them. `lib.engine.config` reads the sizes.
"""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path

import numpy as np

from lib.arguments import all_finite
from lib.attention import attend_causal
from lib.engine.cache import Cache, LayerCache
from lib.engine.config import (
    LlamaConfig,
    check_tokens,
    layer_shapes,
    open_model,
    read_config,
    read_tokenizer,
)
from lib.engine.gguf import GGUF
from lib.errors import CourseError, ModelError
from lib.ffn import swiglu
from lib.norm import rms_norm
from lib.rope import rope
from lib.stack import stack, stack_outputs


@dataclass(frozen=True)
class LlamaWeights:
    """The weights of one layer, float32, oriented for `X @ W`: a transposed view of the file's."""

    attention_gain: np.ndarray  # (d,)
    W_Q: np.ndarray  # (d, H · d_head)
    W_K: np.ndarray  # (d, H_kv · d_head)
    W_V: np.ndarray  # (d, H_kv · d_head)
    W_O: np.ndarray  # (H · d_head, d)
    ffn_gain: np.ndarray  # (d,)
    W_gate: np.ndarray  # (d, d_ff)
    W_up: np.ndarray  # (d, d_ff)
    W_down: np.ndarray  # (d_ff, d)


@np.errstate(over="ignore", invalid="ignore")  # a damaged weight: the core names it, in words
def llama_attention(
    X: np.ndarray,
    weights: LlamaWeights,
    cache: LayerCache,
    config: LlamaConfig,
    attend: Callable = attend_causal,
) -> np.ndarray:  # (n, d) -> (n, d)
    """Attend with H heads, each to the keys and values of its group, causally.

    Parameters and result are those of `llama_layer`, without norm and residual.
    """
    Q, K, V = queries_keys_values(X, weights, config, first=cache.n)
    K, V = cache.append(K.swapaxes(0, 1), V.swapaxes(0, 1))  # (H_kv, all tokens so far, d_head)
    group = config.H // config.H_kv  # heads 0 … group - 1 share key-value head 0, and so on
    heads = [attend(Q[:, h], K[h // group], V[h // group]) for h in range(config.H)]
    return merge_heads(heads) @ weights.W_O


def queries_keys_values(
    X: np.ndarray, weights: LlamaWeights, config: LlamaConfig, first: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # (n, d) -> (n, H, d_head), twice (n, H_kv, d_head)
    """Project n tokens, the first of them at position `first`; queries and keys are turned."""
    turn = partial(
        rope,
        positions=np.arange(first, first + len(X)),
        base=config.rope_base,
        pairing="interleaved",
        factors=config.rope_factors,
    )
    Q = turn(split_heads(X @ weights.W_Q, config.H))
    K = turn(split_heads(X @ weights.W_K, config.H_kv))
    return Q, K, split_heads(X @ weights.W_V, config.H_kv)


def llama_ffn(X: np.ndarray, weights: LlamaWeights) -> np.ndarray:  # (n, d) -> (n, d)
    """Run the FFN, SwiGLU, on each token."""
    return swiglu(X, weights.W_gate, weights.W_up, weights.W_down)


def split_heads(X: np.ndarray, H: int) -> np.ndarray:  # (n, H · d_head) -> (n, H, d_head)
    """Cut each token's vector into H heads; a view."""
    return X.reshape(len(X), H, -1)


def merge_heads(heads: Sequence[np.ndarray]) -> np.ndarray:  # H × (n, d_head) -> (n, H · d_head)
    """Lay each token's heads side by side, head 0 first."""
    return np.concatenate(heads, axis=1)


@dataclass(frozen=True)
class Parts:
    """The functions that a layer is made of. `Llama.using` exchanges them, to change or to watch.

    Fields
    ------
    attend : callable
        One head, ``attend(Q, K, V)``: (m, d_head), (n, d_head), (n, d_head) -> (m, d_head).
    attention, ffn : callable
        The two steps, with the parameters of `llama_attention` and `llama_ffn`.
    layer : callable, optional
        In the place of `llama_layer` and all that it calls, with its parameters.
    head : callable, optional
        In the place of norm and head: (d,) -> (vocabulary,), for one vector or several.
    """

    attend: Callable = attend_causal
    attention: Callable = llama_attention
    ffn: Callable = llama_ffn
    layer: Callable | None = None
    head: Callable | None = None


def llama_layer(X, layer, config, parts=Parts()):  # (n, d), (LlamaWeights, LayerCache) -> (n, d)
    """Run one layer: attention, then the FFN, each on a normed copy and added to its input.

    Parameters
    ----------
    X : ndarray, (n, d)
        The vectors that enter, of n tokens that follow those in the cache.
    layer : tuple of LlamaWeights and LayerCache
        The cache takes up the keys and values of the n tokens.
    config : LlamaConfig
    parts : Parts
        What computes attention and the FFN; by default the functions of this file.

    Returns
    -------
    ndarray, (n, d)
    """
    weights, cache = layer
    normed = rms_norm(X, weights.attention_gain, config.eps)
    X = X + parts.attention(normed, weights, cache, config, parts.attend)
    return X + parts.ffn(rms_norm(X, weights.ffn_gain, config.eps), weights)


class Llama:
    """A model that is ready to run.

    Attributes
    ----------
    config : LlamaConfig
    tokenizer : Tokenizer
    layers : list of LlamaWeights
        The weights of the L layers.
    embedding : ndarray, (vocabulary, d)
        The vector of each token.
    output_gain : ndarray, (d,)
        The gain of the norm after the last layer.
    W_head : ndarray, (d, vocabulary)
        The output head; the transposed embedding where the file has no head of its own.
    parts : Parts
        The functions that its layers are made of.
    """

    def __init__(self, config, tokenizer, layers, embedding, output_gain, W_head):
        self.config = config
        self.tokenizer = tokenizer
        self.layers = layers
        self.embedding = embedding
        self.output_gain = output_gain
        self.W_head = W_head
        self.parts = Parts()

    @classmethod
    def load(cls, path: str | Path | None = None) -> "Llama":
        """Read a model file; see `load_model`."""
        return cls.of(*open_model(path))

    @classmethod
    def of(cls, file: GGUF, config: LlamaConfig | None = None) -> "Llama":
        """Return the model of a file that is open already; see `load_model`."""
        config = read_config(file) if config is None else config
        tokenizer = read_tokenizer(file, config)
        embedding = read_weight(file, "token_embd.weight", (config.vocabulary, config.d))
        W_head = embedding.T
        if "output.weight" in file.tensors:
            W_head = read_weight(file, "output.weight", (config.vocabulary, config.d)).T
        layers = [read_layer(file, config, index) for index in range(config.L)]
        gain = read_weight(file, "output_norm.weight", (config.d,))
        return cls(config, tokenizer, layers, embedding, gain, W_head)

    def using(self, **parts: Callable) -> "Llama":
        """Return a model of the same weights whose layers are made of other functions.

        Parameters
        ----------
        **parts : callable
            Fields of `Parts`: ``model.using(attend=my_attention)``.

        Raises
        ------
        CourseError
            If a layer has no such part.
        """
        known = [field.name for field in fields(Parts)]
        if unknown := sorted(parts.keys() - known):
            raise CourseError(f"a layer has the parts {', '.join(known)}; got {unknown[0]!r}")
        other = copy(self)
        other.parts = replace(self.parts, **parts)
        return other

    def new_cache(self, capacity: int | None = None) -> Cache:
        """Return an empty cache with room for `capacity` tokens, the whole context by default."""
        config = self.config
        capacity = config.context if capacity is None else min(capacity, config.context)
        return Cache(config.L, config.H_kv, capacity, config.d_head)

    def embed(self, tokens: Sequence[int]) -> np.ndarray:
        """Return the vectors that enter the first layer, one per token: (n, d).

        Raises
        ------
        CourseError
            If there are no tokens, or one is not in the vocabulary.
        """
        return self.embedding[check_tokens(tokens, self.config)]

    @np.errstate(over="ignore", invalid="ignore")
    def head(self, X: np.ndarray) -> np.ndarray:
        """Return the logits for vectors that leave a layer: (…, d) -> (…, vocabulary).

        Norm and head follow the last layer; after an earlier one they read off what the model
        would say if it stopped there.
        """
        if self.parts.head:
            return self.parts.head(X)
        return rms_norm(X, self.output_gain, self.config.eps) @ self.W_head

    def logits(
        self, tokens: Sequence[int], cache: Cache | None = None, all: bool = False
    ) -> np.ndarray:
        """Return the logits of the token that follows.

        Parameters
        ----------
        tokens : sequence of int, (n,)
            The tokens that follow those in the cache.
        cache : Cache, optional
            Holds the left context; takes up the new tokens. Without it the tokens are the whole
            text.
        all : bool
            Whether to return the logits after each token instead of the last alone.

        Returns
        -------
        ndarray, (vocabulary,), or (n, vocabulary) with `all`

        Raises
        ------
        CourseError
            If there are no tokens, one is not in the vocabulary, or they don't fit into the
            context. Nothing is computed or stored then.
        """
        ids = check_tokens(tokens, self.config)
        cache = self.new_cache(len(ids)) if cache is None else cache
        X = stack(*self._start(ids, cache))  # (n, d)
        cache.n += len(ids)
        return self.head(X if all else X[-1])

    def hidden(self, tokens: Sequence[int]) -> np.ndarray:
        """Return what enters the first layer and what leaves each layer: (L + 1, n, d).

        Parameters and errors are those of `logits`.
        """
        ids = check_tokens(tokens, self.config)
        return np.stack(stack_outputs(*self._start(ids, self.new_cache(len(ids)))))

    def _start(self, ids: np.ndarray, cache: Cache):
        """Return the arguments of the stack: vectors, layers, and the function of a layer."""
        cache.check_room(len(ids))
        cache.truncate(cache.n)  # drop what a pass left behind that was broken off midway
        layers = list(zip(self.layers, cache.layers, strict=True))
        step = partial(self.parts.layer or llama_layer, config=self.config, parts=self.parts)
        return self.embedding[ids], layers, step


def load_model(path: str | Path | None = None) -> Llama:
    """Read a GGUF file of the Llama architecture into a model.

    Parameters
    ----------
    path : str or Path, optional
        The file; by default the model that comes with the course.

    Returns
    -------
    Llama
        Its weights dequantised to float32: four bytes for each parameter.

    Raises
    ------
    ModelError
        If the file is missing, damaged, or of a kind that would not run as it was trained; the
        message names the file and the reason.
    """
    return Llama.load(path)


def read_layer(file: GGUF, config: LlamaConfig, index: int) -> LlamaWeights:
    """Read the weights of layer `index`, from 0; the file keeps them as (out, in)."""
    shapes = layer_shapes(config)
    read = {name: read_weight(file, f"blk.{index}.{name}.weight", shapes[name]) for name in shapes}
    return LlamaWeights(
        attention_gain=read["attn_norm"],
        W_Q=read["attn_q"].T,
        W_K=read["attn_k"].T,
        W_V=read["attn_v"].T,
        W_O=read["attn_output"].T,
        ffn_gain=read["ffn_norm"],
        W_gate=read["ffn_gate"].T,
        W_up=read["ffn_up"].T,
        W_down=read["ffn_down"].T,
    )


def read_weight(file: GGUF, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Read a tensor as float32, having seen that its shape is right and its numbers are finite.

    Raises
    ------
    ModelError
        If the tensor is missing, has another shape, or holds NaN or infinity.
    """
    weight = file.tensor(name, shape)
    if not all_finite(weight):
        raise ModelError(f"The tensor `{name}` of {file.path} is damaged: it holds NaN or infinity")
    return weight
