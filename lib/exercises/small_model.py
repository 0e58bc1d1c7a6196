"""A model of random weights in memory, with blocks, tokens and layers like those of the real one.

It says nothing that makes sense. It serves where the real model is not installed, in a browser for
one, and where a test or a grader has no use for 98 MB. No size equals another.
"""

from pathlib import Path

import numpy as np

from lib.engine.gguf import GGUF, TensorInfo, Tensors
from lib.errors import ModelError
from lib.exercises.t08_read_a_model import SPELLS, TOKENS, q4_bytes, q8_bytes

SIZES = {"L": 2, "d": 64, "H": 6, "H_kv": 2, "d_head": 16, "d_ff": 160}
METADATA = {
    "llama.block_count": SIZES["L"],
    "llama.embedding_length": SIZES["d"],
    "llama.feed_forward_length": SIZES["d_ff"],
    "llama.attention.head_count": SIZES["H"],
    "llama.attention.head_count_kv": SIZES["H_kv"],
    "llama.attention.key_length": SIZES["d_head"],
    "llama.attention.value_length": SIZES["d_head"],
    "llama.rope.dimension_count": SIZES["d_head"],
    "llama.rope.freq_base": 500.0,
    "llama.attention.layer_norm_rms_epsilon": 1e-3,
    "llama.context_length": 256,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": [*TOKENS, "<|end|>"],
    "tokenizer.ggml.token_type": [1] * len(TOKENS) + [3],
    "tokenizer.ggml.merges": SPELLS,
    "tokenizer.ggml.bos_token_id": len(TOKENS),
    "tokenizer.ggml.eos_token_id": len(TOKENS),
    "tokenizer.ggml.add_bos_token": False,
}


def to_q8(W):  # (rows, columns) -> (bytes,)
    """Round a matrix to blocks of Q8_0."""
    blocks = W.reshape(-1, 32)
    scales = np.abs(blocks).max(1) / 127
    return np.concatenate(
        [q8_bytes(d, np.rint(b / d)) for d, b in zip(scales, blocks, strict=True)]
    )


def to_q4(W):  # (rows, columns) -> (bytes,)
    """Round a matrix to blocks of Q4_1."""
    blocks = W.reshape(-1, 32)
    offsets = blocks.min(1)
    scales = np.ptp(blocks, axis=1) / 15
    return np.concatenate([
        q4_bytes(d, m, np.clip(np.rint((b - m) / d), 0, 15))
        for d, m, b in zip(scales, offsets, blocks, strict=True)
    ])  # fmt: skip


def small_file():
    """Return the small model as a file that was read."""
    rng = np.random.default_rng(8)
    d, d_ff = SIZES["d"], SIZES["d_ff"]
    d_q, d_kv = SIZES["H"] * SIZES["d_head"], SIZES["H_kv"] * SIZES["d_head"]
    shapes = {"token_embd": (len(TOKENS) + 1, d)}
    for k in range(SIZES["L"]):
        one = {"attn_norm": (d,), "attn_q": (d_q, d), "attn_k": (d_kv, d), "attn_v": (d_kv, d),
               "attn_output": (d, d_q), "ffn_norm": (d,), "ffn_gate": (d_ff, d),
               "ffn_up": (d_ff, d), "ffn_down": (d, d_ff)}  # fmt: skip
        shapes |= {f"blk.{k}.{name}": shape for name, shape in one.items()}
    shapes["output_norm"] = (d,)
    parts, at = {}, 64  # what a header would take
    for name, shape in shapes.items():
        kind = "F32" if len(shape) == 1 else "Q8_0" if name == "token_embd" else "Q4_1"
        W = rng.standard_normal(shape) / shape[-1] ** 0.25
        raw = {"F32": lambda W: W.astype("<f4").view(np.uint8), "Q8_0": to_q8, "Q4_1": to_q4}[kind](
            W
        )
        parts[f"{name}.weight"] = at, shape, kind, raw
        at += -(-len(raw) // 32) * 32
    data = np.zeros(at, np.uint8)
    for start, _, _, raw in parts.values():
        data[start : start + len(raw)] = raw
    infos = {
        name: TensorInfo(shape, kind, data[start : start + len(raw)])
        for name, (start, shape, kind, raw) in parts.items()
    }
    path = Path("the small model")
    return GGUF(path, "llama", METADATA, Tensors(infos, path))


def open_file(say=print):
    """Return the real model's file, or, where there is none, the small one; say which it is.

    Returns
    -------
    GGUF
    """
    from lib.engine.gguf import find_model, read_gguf

    try:
        file = read_gguf(find_model())
    except ModelError as error:
        say(
            f"The real model is missing: {error}. A small model of random weights takes "
            "its place: every function can be tried on it, but it says nothing that makes sense."
        )
        return small_file()
    say(f"The real model: {len(file.tensors)} tensors.")
    return file


def place_of(file, name):
    """Return where a tensor lies: the bytes of the whole file, its first byte, kind and shape."""
    info = file.tensors.infos[name]
    data = info.data
    while isinstance(data.base, np.ndarray):
        data = data.base
    data = data.view(np.ndarray)
    start = info.data.__array_interface__["data"][0] - data.__array_interface__["data"][0]
    return data, start, info.type, info.shape
