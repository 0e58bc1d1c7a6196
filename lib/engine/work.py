"""What a pass costs: multiply-adds and bytes, counted from the sizes of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lib.engine.config import LlamaConfig
    from lib.engine.gguf import GGUF


def weights_of_layer(config: LlamaConfig) -> int:
    """Return the weights of one layer that a token is multiplied with."""
    d_q, d_kv = config.H * config.d_head, config.H_kv * config.d_head
    return config.d * (2 * d_q + 2 * d_kv + 3 * config.d_ff)


def multiply_adds(config: LlamaConfig, n: int, before: int = 0) -> int:
    """Return the multiply-adds of a pass over n tokens, of which the last alone meets the head.

    Parameters
    ----------
    config : LlamaConfig
    n : int
        Tokens of the pass.
    before : int
        Tokens in the cache before it.
    """
    seen = sum(range(before + 1, before + n + 1))  # keys that the n queries meet together
    attention = 2 * config.L * config.H * config.d_head * seen  # q Kᵀ, then α V
    return n * config.L * weights_of_layer(config) + attention + config.vocabulary * config.d


def cache_bytes(config: LlamaConfig, n: int, width: int) -> int:
    """Return the bytes of n tokens in a cache whose numbers are `width` bytes wide."""
    return 2 * config.L * config.H_kv * config.d_head * n * width


def float32_bytes(config: LlamaConfig) -> int:
    """Return the bytes of all weights that a token is multiplied with, as float32."""
    return 4 * (config.L * weights_of_layer(config) + config.vocabulary * config.d)


def file_bytes(file: GGUF) -> int:
    """Return the bytes of a file's weights that a token reads: all but an embedding of its own."""
    infos = file.tensors.infos
    looked_up = (
        "token_embd.weight" if "output.weight" in infos else None
    )  # otherwise it is the head
    return sum(info.data.nbytes for name, info in infos.items() if name != looked_up)
