"""What a model file says of its model: sizes and constants, and what the engine refuses.

Nothing here computes, so nothing needs Numba: reading can begin before that has been imported.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from lib.engine.gguf import GGUF, find_model, read_gguf, shown
from lib.engine.tokenizer import Tokenizer
from lib.errors import CourseError, ModelError


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


def open_model(path: str | Path | None = None) -> tuple[GGUF, LlamaConfig]:
    """Read a model file's header and the sizes in it; see `load_model`."""
    file = read_gguf(find_model() if path is None else path)
    _refuse_a_part(file)
    config = read_config(file)
    _refuse_unknown_tensors(file, config)
    _refuse_missing_tensors(file, config)
    return file, config


def _refuse_a_part(file: GGUF) -> None:
    count = file.metadata.get("split.count", 1)
    if type(count) is int and count > 1:
        number = file.metadata.get("split.no", 0)
        which = f"part {number + 1}" if type(number) is int else "a part"
        raise ModelError(
            f"{file.path} is {which} of a model that was split over {count} files; join them "
            "with llama.cpp's `llama-gguf-split --merge`, and give the whole file"
        )


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


def read_tokenizer(file: GGUF, config: LlamaConfig) -> Tokenizer:
    """Build the tokenizer of a file, and see that each of its tokens has a vector."""
    tokenizer = Tokenizer(file)
    if len(tokenizer) != config.vocabulary:
        raise ModelError(
            f"{file.path} lists {len(tokenizer)} tokens and has vectors for {config.vocabulary}"
        )
    return tokenizer


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
