"""Tiny random models of any shape, and a pass over a model that owes nothing to `lib`."""

import json
from pathlib import Path

import gguf
import numpy as np
from tokenizers import pre_tokenizers

# No size equals another, H · d_head is not d, and two groups of three heads each.
ODD = {"L": 3, "d": 20, "H": 6, "H_kv": 2, "d_head": 4, "d_ff": 28}
# For formats in blocks of 32 numbers: every row is a multiple of 32.
BLOCKS = {"L": 2, "d": 64, "H": 6, "H_kv": 2, "d_head": 16, "d_ff": 160}

BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
MERGES = ["h e", "l l", "he ll", "Ġ w", "1 2", "12 3"]
CONTROL = ["<|end|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


# Two vocabularies, texts and their tokens; see make_sentencepiece_fixture.py.
SENTENCEPIECE = json.loads(
    Path(__file__).with_name("sentencepiece.json").read_text(encoding="utf-8")
)


def tensors_of(sizes, vocabulary, untied, rng):
    d, d_ff = sizes["d"], sizes["d_ff"]
    d_q, d_kv = sizes["H"] * sizes["d_head"], sizes["H_kv"] * sizes["d_head"]
    shapes = {"token_embd": (vocabulary, d), "output_norm": (d,)}
    if untied:
        shapes["output"] = (vocabulary, d)
    for k in range(sizes["L"]):
        shapes |= {f"blk.{k}.attn_norm": (d,), f"blk.{k}.ffn_norm": (d,)}
        shapes |= {f"blk.{k}.attn_q": (d_q, d), f"blk.{k}.attn_output": (d, d_q)}
        shapes |= {f"blk.{k}.attn_k": (d_kv, d), f"blk.{k}.attn_v": (d_kv, d)}
        shapes |= {f"blk.{k}.ffn_gate": (d_ff, d), f"blk.{k}.ffn_up": (d_ff, d)}
        shapes |= {f"blk.{k}.ffn_down": (d, d_ff)}
    return {
        f"{name}.weight": (rng.standard_normal(shape) / shape[-1] ** 0.25).astype(np.float32)
        for name, shape in shapes.items()
    }


def metadata_of(sizes):
    return {
        "llama.block_count": sizes["L"],
        "llama.embedding_length": sizes["d"],
        "llama.feed_forward_length": sizes["d_ff"],
        "llama.attention.head_count": sizes["H"],
        "llama.attention.head_count_kv": sizes["H_kv"],
        "llama.attention.key_length": sizes["d_head"],
        "llama.attention.value_length": sizes["d_head"],
        "llama.rope.dimension_count": sizes["d_head"],
        "llama.rope.freq_base": 500.0,
        "llama.attention.layer_norm_rms_epsilon": 1e-3,
        "llama.context_length": 12,
    }


def byte_level():
    """Return the metadata of a byte-level tokenizer."""
    tokens = CONTROL + BYTES + [merge.replace(" ", "") for merge in MERGES]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if text in CONTROL else 1 for text in tokens],
        "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.bos_token_id": tokens.index("<|end|>"),
        "tokenizer.ggml.eos_token_id": tokens.index("<|end|>"),
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": TEMPLATE,
    }


def sentencepiece(kind="llama"):
    """Return the metadata of a vocabulary that SentencePiece made."""
    entry = SENTENCEPIECE[kind]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": entry["tokens"],
        "tokenizer.ggml.scores": entry["scores"],
        "tokenizer.ggml.token_type": entry["types"],
        "tokenizer.ggml.add_space_prefix": entry["space_prefix"],
        "tokenizer.chat_template": TEMPLATE,
    }


def add_value(writer, key, value):
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


def write_tiny(
    path,
    sizes=ODD,
    kind="F32",
    untied=False,
    arch="llama",
    tokenizer=None,
    metadata=None,
    tensors=None,
    seed=0,
):
    """Write a random model; `metadata` and `tensors` replace, add, or (with None) take away."""
    tokenizer = tokenizer or byte_level()
    vocabulary = len(tokenizer["tokenizer.ggml.tokens"])
    writer = gguf.GGUFWriter(path, arch)
    for key, value in (metadata_of(sizes) | tokenizer | (metadata or {})).items():
        if value is not None:
            add_value(writer, key, value)
    arrays = tensors_of(sizes, vocabulary, untied, np.random.default_rng(seed))
    for name, array in (arrays | (tensors or {})).items():
        if array is None:
            continue
        if array.ndim == 1 or kind == "F32":
            writer.add_tensor(name, array)
        else:
            qtype = gguf.GGMLQuantizationType[kind]
            writer.add_tensor(name, gguf.quants.quantize(array, qtype), raw_dtype=qtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def round_to_8_bits(x):  # (n, columns) -> the same, each block of 32 a multiple of its scale
    blocks = x.reshape(len(x), -1, 32)
    scale = np.abs(blocks).max(-1, keepdims=True) / np.float32(127)
    return (np.rint(blocks / np.where(scale == 0, 1, scale)) * scale).reshape(x.shape)


def plain_logits(file, tokens, enter=lambda x: x, enter_head=lambda x: x):
    """Run whole sequences, with masks: (n,) -> (n, vocabulary), float32.

    Of `lib` only the reading is used.

    `enter` is applied to what a matrix of a layer is multiplied with, `enter_head` to what the
    head is.
    """
    meta, T = file.metadata, file.tensors
    H = meta["llama.attention.head_count"]
    H_kv = meta["llama.attention.head_count_kv"]
    base, n = meta["llama.rope.freq_base"], len(tokens)
    eps = np.float32(meta["llama.attention.layer_norm_rms_epsilon"])
    slower = T.get("rope_freqs.weight", 1.0) * meta.get("llama.rope.scaling.factor", 1.0)
    causal = np.tril(np.ones((n, n), bool))
    embedding = T["token_embd.weight"]
    x = embedding[list(tokens)]

    def norm(x, name):
        return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps) * T[name]

    def turn(x):  # (heads, n, d_head): pairs as complex numbers, turned by multiplication
        d_head = x.shape[-1]
        angle = np.outer(np.arange(n), base ** (-np.arange(0, d_head, 2) / d_head) / slower)
        pairs = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * angle)
        return np.stack([pairs.real, pairs.imag], -1).reshape(x.shape).astype(np.float32)

    def heads(x, count):  # (n, count · d_head) -> (count, n, d_head)
        return x.reshape(n, count, -1).transpose(1, 0, 2)

    for k in range(meta["llama.block_count"]):
        b = f"blk.{k}."
        h = enter(norm(x, b + "attn_norm.weight"))
        q = turn(heads(h @ T[b + "attn_q.weight"].T, H))
        key = np.repeat(turn(heads(h @ T[b + "attn_k.weight"].T, H_kv)), H // H_kv, 0)
        value = np.repeat(heads(h @ T[b + "attn_v.weight"].T, H_kv), H // H_kv, 0)
        s = np.where(causal, q @ key.transpose(0, 2, 1) / np.sqrt(np.float32(q.shape[-1])), -np.inf)
        a = np.exp(s - s.max(-1, keepdims=True))
        o = (a / a.sum(-1, keepdims=True)) @ value
        o = enter(o.transpose(1, 0, 2).reshape(n, -1))
        x = x + o @ T[b + "attn_output.weight"].T
        h = enter(norm(x, b + "ffn_norm.weight"))
        gate = h @ T[b + "ffn_gate.weight"].T
        up = h @ T[b + "ffn_up.weight"].T
        x = x + enter(gate / (1 + np.exp(-gate)) * up) @ T[b + "ffn_down.weight"].T
    head = T.get("output.weight", embedding)
    return enter_head(norm(x, "output_norm.weight")) @ head.T
