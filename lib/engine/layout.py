"""A file's weights laid out for `lib.engine.kernels`, in the order in which a token reads them.

Nothing here needs Numba, so that a file is read while Numba is imported.
"""

from collections import namedtuple
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from lib.engine import quant
from lib.engine.config import LlamaConfig, layer_shapes, open_model, read_tokenizer
from lib.engine.gguf import GGUF
from lib.engine.tokenizer import Tokenizer
from lib.errors import CourseError, ModelError

MATRICES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
# Beside FLOATS, NIBBLES and BYTES: a head in bytes that meets vectors in float32, since rounding
# them would show in the logits at once, and memory sets its pace in any case.
BYTES_HEAD = 3

# All weights in one array of bytes; where[layer, matrix] = kind, first byte, groups of 16 rows,
# columns, place in the output, bytes of a group, a quarter of the groups in a piece, 4, whether
# the product is added to what is there; gains (2 L + 1, width).
Weights = namedtuple("Weights", "arena where gains")


def read_parts(
    path: str | Path | None = None,
    threads: int = 1,
    other: str = "float32",
    progress: Callable[[int, int], None] | None = None,
) -> tuple[LlamaConfig, Tokenizer, Weights, dict[str, quant.Packed]]:
    """Read what a model is made of; parameters and errors are those of `load_fast`."""
    file, config = open_model(path)
    with ThreadPoolExecutor(1) as pool:  # both take a third of a second
        tokenizer = pool.submit(read_tokenizer, file, config)
        weights, packed = read_weights(file, config, other, threads, progress)
    return config, tokenizer.result(), weights, packed


def read_weights(
    file: GGUF,
    config: LlamaConfig,
    other: str = "float32",
    threads: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Weights, dict[str, quant.Packed]]:
    """Lay all weights of a file out in one array, in the order in which a token reads them."""
    shapes = layer_shapes(config)
    table = {"token_embd.weight": (config.vocabulary, config.d)}
    if "output.weight" in file.tensors:
        table["output.weight"] = table["token_embd.weight"]
    layers = [
        (f"blk.{layer}.{name}.weight", shapes[name])
        for layer in range(config.L)
        for name in MATRICES
    ]
    table = dict(layers) | table
    infos = {name: file.info(name, shape) for name, shape in table.items()}
    kinds = {name: quant.kind_of(info.type, other) for name, info in infos.items()}
    places = {name: quant.layout(kinds[name], *shape) for name, shape in table.items()}
    ends = np.cumsum([np.prod(place) for place in places.values()])
    arena = _aligned(int(ends[-1]))
    starts = dict(zip(table, [0, *ends.tolist()], strict=False))
    packed, done = {}, 0

    def fill(name):
        info, at, place = infos[name], starts[name], places[name]
        out = arena[at : at + np.prod(place)].reshape(place)
        try:
            source = info.data if info.type in quant.AS_THEY_LIE else file.tensors[name]
            return quant.pack(source, info.type, *info.shape, kinds[name], out)
        except ModelError:
            raise
        except CourseError as error:
            raise ModelError(f"The tensor `{name}` of {file.path} is damaged: {error}") from None

    with ThreadPoolExecutor(threads) as pool:
        for name, matrix in zip(table, pool.map(fill, table), strict=True):
            packed[name] = matrix
            done += matrix.nbytes
            if progress:
                progress(done, arena.nbytes)
    return Weights(arena, _where(packed, starts, config, threads), _gains(file, config)), packed


def _where(packed, starts, config, threads):  # -> (L + 1, 7, 9) int64
    """Say for each matrix of each layer, and for the head in the row behind them, where it lies."""
    place, _ = places_of(config)
    where = np.zeros((config.L + 1, len(MATRICES), 9), np.int64)

    def entry(name, to=0, onto=False, in_layer=True):
        p = packed[name]
        group_bytes = p.data[0].nbytes
        # Large pieces, since memory takes time to get going; two a thread, should one be held up.
        # Of a head, which is 50 times as large, more.
        step = -(-p.groups // ((8 if in_layer else 64) * threads))
        return p.kind, starts[name], p.groups, p.columns, to, group_bytes, step, 4, onto

    for layer in range(config.L):
        for m, name in enumerate(MATRICES):
            onto = name in ("attn_output", "ffn_down")  # added to what enters: the residual stream
            where[layer, m] = entry(f"blk.{layer}.{name}.weight", place.get(name, 0), onto)
    head = head_of(packed)
    where[config.L, 0] = entry(head, in_layer=False)
    if packed[head].kind == quant.BYTES:
        where[config.L, 0, 0] = BYTES_HEAD
    return where


def head_of(packed: dict[str, quant.Packed]) -> str:
    """Return the name of the head's matrix: the embedding, where a file has no other."""
    return "output.weight" if "output.weight" in packed else "token_embd.weight"


def _gains(file, config):  # -> ((2 L + 1) · width,)
    names = [f"blk.{layer}.{n}_norm.weight" for layer in range(config.L) for n in ("attn", "ffn")]
    gains = np.zeros((len(names) + 1, round_up(config.d, 64)), np.float32)
    for gain, name in zip(gains, [*names, "output_norm.weight"], strict=True):
        gain[: config.d] = file.tensor(name, (config.d,))
    if not np.isfinite(gains).all():
        raise ModelError(f"The gains of the norms in {file.path} should be finite")
    return gains.ravel()


def places_of(config: LlamaConfig) -> tuple[dict[str, int], tuple[int, int]]:
    """Return where each matrix writes its result, and the widths of the two common rows."""
    q, kv = round_up(config.H * config.d_head, 64), round_up(config.H_kv * config.d_head, 64)
    half = round_up(config.d_ff, 64)
    return {"attn_k": q, "attn_v": q + kv, "ffn_up": half}, (q + 2 * kv, 2 * half)


def _aligned(size):  # -> (size,) uint8, beginning at a multiple of 64 bytes
    found = np.empty(size + 64, np.uint8)
    start = -found.ctypes.data % 64
    return found[start : start + size]


def round_up(n: int, step: int) -> int:
    """Return the next multiple of step."""
    return -(-n // step) * step
