"""A model of the Llama architecture, through the functions of the core.

Touvron et al. 2023, section 2.2, says how it differs from the first transformer: RMSNorm before
each step, SwiGLU in the FFN, rotary positions; Ainslie et al. 2023 adds grouped key-value heads.
The layer is `llama_layer`; `lib.stack.stack` runs L of them. Everything else here is reading.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from lib.arguments import all_finite
from lib.attention import attend_causal
from lib.engine.cache import Cache, LayerCache
from lib.engine.gguf import GGUF, find_model, read_gguf, shown
from lib.engine.tokenizer import Tokenizer
from lib.errors import CourseError, ModelError
from lib.ffn import swiglu
from lib.norm import rms_norm
from lib.rope import rope
from lib.stack import stack, stack_outputs


@dataclass(frozen=True)
class LlamaConfig:
    """The sizes and constants of a model."""

    L: int  # layers
    d: int  # width of a token's vector
    H: int  # heads
    H_kv: int  # key-value heads; each serves H / H_kv heads
    d_head: int  # width of a head
    d_ff: int  # width of the FFN's hidden vector
    vocabulary: int  # tokens
    context: int  # the longest text, in tokens
    rope_base: float
    eps: float  # of the RMSNorm
    # (d_head / 2,): each pair turns slower by its factor, in models stretched to longer texts
    rope_factors: tuple[float, ...] | None = None


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


def llama_layer(X, layer, config):  # (n, d), (LlamaWeights, LayerCache) -> (n, d)
    """Run one layer: attention, then the FFN, each on a normed copy and added to its input.

    Parameters
    ----------
    X : ndarray, (n, d)
        The vectors that enter, of n tokens that follow those in the cache.
    layer : tuple of LlamaWeights and LayerCache
        The cache takes up the keys and values of the n tokens.
    config : LlamaConfig

    Returns
    -------
    ndarray, (n, d)
    """
    weights, cache = layer
    X = X + llama_attention(rms_norm(X, weights.attention_gain, config.eps), weights, cache, config)
    normed = rms_norm(X, weights.ffn_gain, config.eps)
    return X + swiglu(normed, weights.W_gate, weights.W_up, weights.W_down)


@np.errstate(over="ignore", invalid="ignore")  # a damaged weight: the core names it, in words
def llama_attention(
    X: np.ndarray, weights: LlamaWeights, cache: LayerCache, config: LlamaConfig
) -> np.ndarray:  # (n, d) -> (n, d)
    """Attend with H heads, each to the keys and values of its group, causally.

    Parameters and result are those of `llama_layer`, without norm and residual.
    """
    positions = np.arange(cache.n, cache.n + len(X))  # the first token's position is cache.n
    turn = partial(
        rope,
        positions=positions,
        base=config.rope_base,
        pairing="interleaved",
        factors=config.rope_factors,
    )
    Q = turn(split_heads(X @ weights.W_Q, config.H))  # (n, H, d_head)
    K = turn(split_heads(X @ weights.W_K, config.H_kv))  # (n, H_kv, d_head)
    V = split_heads(X @ weights.W_V, config.H_kv)  # (n, H_kv, d_head)
    K, V = cache.append(K.swapaxes(0, 1), V.swapaxes(0, 1))  # (H_kv, all tokens so far, d_head)
    group = config.H // config.H_kv  # heads 0 … group - 1 share key-value head 0, and so on
    heads = [attend_causal(Q[:, h], K[h // group], V[h // group]) for h in range(config.H)]
    return merge_heads(heads) @ weights.W_O


def split_heads(X: np.ndarray, H: int) -> np.ndarray:  # (n, H · d_head) -> (n, H, d_head)
    """Cut each token's vector into H heads; a view."""
    return X.reshape(len(X), H, -1)


def merge_heads(heads: Sequence[np.ndarray]) -> np.ndarray:  # H × (n, d_head) -> (n, H · d_head)
    """Lay each token's heads side by side, head 0 first."""
    return np.concatenate(heads, axis=1)


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
    """

    def __init__(self, config, tokenizer, layers, embedding, output_gain, W_head):
        self.config = config
        self.tokenizer = tokenizer
        self.layers = layers
        self.embedding = embedding
        self.output_gain = output_gain
        self.W_head = W_head

    @classmethod
    def load(cls, path: str | Path | None = None) -> "Llama":
        """Read a model file; see `load_model`."""
        file, config = open_model(path)
        tokenizer = read_tokenizer(file, config)
        embedding = read_weight(file, "token_embd.weight", (config.vocabulary, config.d))
        W_head = embedding.T
        if "output.weight" in file.tensors:
            W_head = read_weight(file, "output.weight", (config.vocabulary, config.d)).T
        layers = [read_layer(file, config, index) for index in range(config.L)]
        gain = read_weight(file, "output_norm.weight", (config.d,))
        return cls(config, tokenizer, layers, embedding, gain, W_head)

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
        tokens = check_tokens(tokens, self.config)
        cache = self.new_cache(len(tokens)) if cache is None else cache
        X = stack(*self._start(tokens, cache))  # (n, d)
        cache.n += len(tokens)
        return self.head(X if all else X[-1])

    def hidden(self, tokens: Sequence[int]) -> np.ndarray:
        """Return what enters the first layer and what leaves each layer: (L + 1, n, d).

        Parameters and errors are those of `logits`.
        """
        tokens = check_tokens(tokens, self.config)
        return np.stack(stack_outputs(*self._start(tokens, self.new_cache(len(tokens)))))

    def _start(self, tokens: np.ndarray, cache: Cache):
        """Return the arguments of the stack: vectors, layers, and the function of a layer."""
        cache.check_room(len(tokens))
        cache.truncate(cache.n)  # drop what a pass left behind that was broken off midway
        layers = list(zip(self.layers, cache.layers, strict=True))
        return self.embed(tokens), layers, partial(llama_layer, config=self.config)


def check_tokens(tokens: Sequence[int], config: LlamaConfig) -> np.ndarray:  # -> (n,) int64
    """Return tokens as an array.

    Raises
    ------
    CourseError
        If there are none, or one is not in the vocabulary.
    """
    found = np.asarray(tokens)
    if found.ndim != 1 or found.size == 0:
        raise CourseError(
            f"tokens should be a list of at least one token; its shape is {found.shape}"
        )
    if found.dtype.kind not in "iu":
        raise CourseError(f"tokens should be whole numbers; they are of type {found.dtype}")
    bad = found[(found < 0) | (found >= config.vocabulary)]
    if bad.size:
        raise CourseError(f"tokens should be 0 to {config.vocabulary - 1}; one is {bad[0]}")
    return found.astype(np.int64)


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


def open_model(path: str | Path | None = None) -> tuple[GGUF, LlamaConfig]:
    """Read a model file's header and the sizes in it; see `load_model`."""
    file = read_gguf(find_model() if path is None else path)
    config = read_config(file)
    _refuse_unknown_tensors(file, config)
    _refuse_missing_tensors(file, config)
    return file, config


def read_tokenizer(file: GGUF, config: LlamaConfig) -> Tokenizer:
    """Build the tokenizer of a file, and see that each of its tokens has a vector."""
    tokenizer = Tokenizer(file)
    if len(tokenizer) != config.vocabulary:
        raise ModelError(
            f"{file.path} lists {len(tokenizer)} tokens and has vectors for {config.vocabulary}"
        )
    return tokenizer


def read_config(file: GGUF) -> LlamaConfig:
    """Return the sizes that the metadata of a file give.

    Raises
    ------
    ModelError
        If a size is missing or contradicts another, or the file asks for something that the
        engine lacks: experts, a sliding window, rotary positions scaled in another way.
    """
    size = partial(_size, file)
    L, d, H = size("block_count"), size("embedding_length"), size("attention.head_count")
    config = LlamaConfig(
        L=L,
        d=d,
        H=H,
        H_kv=size("attention.head_count_kv", H),
        d_head=size("attention.key_length", d // H),
        d_ff=size("feed_forward_length"),
        vocabulary=_vocabulary(file),
        context=size("context_length"),
        rope_base=_constant(file, "rope.freq_base", 10000.0),
        eps=_constant(file, "attention.layer_norm_rms_epsilon"),
    )
    _refuse_unknown_metadata(file, config)
    return replace(config, rope_factors=_rope_factors(file, config.d_head // 2))


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


def layer_shapes(config: LlamaConfig) -> dict[str, tuple[int, ...]]:
    """Return the shape in the file, (out, in), of each tensor of a layer."""
    d, d_ff = config.d, config.d_ff
    d_q, d_kv = config.H * config.d_head, config.H_kv * config.d_head
    return {
        "attn_norm": (d,),
        "attn_q": (d_q, d),
        "attn_k": (d_kv, d),
        "attn_v": (d_kv, d),
        "attn_output": (d, d_q),
        "ffn_norm": (d,),
        "ffn_gate": (d_ff, d),
        "ffn_up": (d_ff, d),
        "ffn_down": (d, d_ff),
    }


def _size(file: GGUF, name: str, default: int | None = None) -> int:
    key = f"llama.{name}"
    number = file.value(key, int, default)
    if number < 1:
        raise ModelError(
            f"The metadata key `{key}` of {file.path} should be above 0; it is {number}"
        )
    return number


def _constant(file: GGUF, name: str, default: float | None = None) -> float:
    key = f"llama.{name}"
    number = file.value(key, float, default)
    if not 0 < number < np.inf:  # NaN is neither
        raise ModelError(
            f"The metadata key `{key}` of {file.path} should be finite and above 0; it is {number}"
        )
    return number


def _rope_factors(file: GGUF, pairs: int) -> tuple[float, ...] | None:  # -> (pairs,)
    """Return what each pair's angle is divided by, or None where nothing is asked for.

    A file may give one factor for all pairs (Chen et al. 2023, section 2.3) and, from Llama 3.1
    on, a tensor with one for each; both count. The keys and what their absence means are those of
    llama.cpp, src/llama-model.cpp.
    """
    kind = file.value("llama.rope.scaling.type", str, "linear")
    if kind not in ("none", "linear"):
        raise ModelError(
            f"{file.path} asks for `llama.rope.scaling.type` = {shown(kind)}, "
            "which the course lacks"
        )
    older = file.value("llama.rope.scale_linear", float, 0.0)
    factor = file.value("llama.rope.scaling.factor", float, older)
    if kind == "none" or factor == 0.0:  # 0 stands for no factor
        factor = 1.0
    if "rope_freqs.weight" in file.tensors:
        factors = factor * file.tensor("rope_freqs.weight", (pairs,)).astype(np.float64)
    elif factor != 1.0:
        factors = np.full(pairs, factor)
    else:
        return None
    with np.errstate(over="ignore", under="ignore"):  # in float32 they are used
        fit = factors.astype(np.float32)
    if not (np.isfinite(fit).all() and fit.min() > 0):
        raise ModelError(
            f"The factors of the rotary positions in {file.path} should be finite and above 0; "
            f"they run from {factors.min()} to {factors.max()}"
        )
    return tuple(factors.tolist())


def _vocabulary(file: GGUF) -> int:
    if "token_embd.weight" not in file.tensors:
        raise ModelError(f"{file.path} lacks the tensor `token_embd.weight`")
    return file.tensors.infos["token_embd.weight"].shape[0]


def _refuse_unknown_metadata(file: GGUF, config: LlamaConfig) -> None:
    """Refuse what would change the result if it were passed over."""
    if config.H % config.H_kv or config.d_head % 2:
        raise ModelError(
            f"{file.path} should have heads of even width and a multiple of its key-value heads; "
            f"it has {config.H} heads of width {config.d_head}, {config.H_kv} key-value heads"
        )
    harmless = {
        "rope.dimension_count": (config.d_head,),  # every coordinate of a head is rotated
        "attention.value_length": (config.d_head,),
        "rope.scaling.attn_factor": (1.0,),
        "expert_count": (0,),
        "attention.sliding_window": (0,),
        "attention.scale": (),
        "attention.clamp_kqv": (),
        "attention.causal": (True,),
        "embedding_scale": (1.0,),
        "residual_scale": (1.0,),
        "logit_scale": (1.0,),
    }
    for name, values in harmless.items():
        found = file.metadata.get(f"llama.{name}")
        if found is not None and found not in values:
            raise ModelError(
                f"{file.path} asks for `llama.{name}` = {shown(found)}, which the course lacks"
            )


def _refuse_unknown_tensors(file: GGUF, config: LlamaConfig) -> None:
    """Refuse tensors that the engine would not use: biases, experts."""
    names = "|".join(layer_shapes(config))
    layer = r"blk\.(0|[1-9][0-9]{0,8})"
    known = re.compile(rf"(token_embd|output_norm|output|rope_freqs|{layer}\.({names}))\.weight")
    found = {name: known.fullmatch(name) for name in file.tensors}
    unknown = [n for n, match in found.items() if not match or int(match[2] or 0) >= config.L]
    if unknown:
        raise ModelError(
            f"{file.path} holds the tensor '{shown(unknown[0])}', which the engine has no place for"
        )


def _refuse_missing_tensors(file: GGUF, config: LlamaConfig) -> None:
    """Refuse a file that lacks a weight, or has it in another shape, before any is read.

    A damaged number of layers ends here, at the first layer that is not there.
    """
    file.info("token_embd.weight", (config.vocabulary, config.d))
    file.info("output_norm.weight", (config.d,))
    if "output.weight" in file.tensors:
        file.info("output.weight", (config.vocabulary, config.d))
    shapes = layer_shapes(config)
    for index in range(config.L):
        for name, shape in shapes.items():
            file.info(f"blk.{index}.{name}.weight", shape)
