"""A file's weights laid out for `lib.engine.kernels`, in the order in which a token reads them.

Nothing here needs Numba, so that a file is read while Numba is imported.
"""

from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from lib.engine import quant
from lib.engine.config import LlamaConfig, layer_shapes, open_model, read_tokenizer
from lib.engine.gguf import GGUF, give_back
from lib.engine.team import Pool
from lib.engine.tokenizer import Tokenizer
from lib.errors import CourseError, ModelError

# The matrices of a layer in the order in which they are read: names of `LlamaWeights`, of the file.
MATRICES = {
    "W_Q": "attn_q",
    "W_K": "attn_k",
    "W_V": "attn_v",
    "W_O": "attn_output",
    "W_gate": "ffn_gate",
    "W_up": "ffn_up",
    "W_down": "ffn_down",
}
# Beside FLOATS, NIBBLES and BYTES: a head in bytes that meets vectors in float32, since rounding
# them would show in the logits at once, and memory sets its pace in any case.
BYTES_HEAD = 3

# Where a matrix lies among all weights, and how it is multiplied.
MATRIX = np.dtype(
    [
        ("kind", np.int64),  # FLOATS, NIBBLES, BYTES or BYTES_HEAD
        ("at", np.int64),  # its first byte
        ("groups", np.int64),  # of 16 rows
        ("columns", np.int64),
        ("group_bytes", np.int64),
        ("vectors", np.int64),  # of 64 bytes, that hold the numbers of a block of 4 bits
        ("to", np.int64),  # its place in the output
        ("onto", np.bool_),  # whether the product is added to what is there
        ("step", np.int64),  # quarters of groups that a thread takes at a time
    ],
    align=True,
)
# A layer: its matrices, and where the gains of its two norms begin.
LAYER = np.dtype(
    [*((name, MATRIX) for name in MATRICES), ("attention_gain", np.int64), ("ffn_gain", np.int64)]
)
# All weights in one array of bytes; layers (L,) of LAYER and head (1,) of MATRIX say where they
# lie; gains (2 L + 1, width) of all norms, flat, the last of them from output_gain on.
Weights = namedtuple("Weights", "arena layers head gains output_gain")


def read_parts(
    path: str | Path | None = None,
    threads: int = 1,
    other: str = "float32",
    progress: Callable[[int, int], None] | None = None,
) -> tuple[LlamaConfig, Tokenizer, Weights, dict[str, quant.Packed]]:
    """Read what a model is made of; parameters and errors are those of `load_fast`."""
    file, config = open_model(path)
    with Pool(1) as pool:  # both take a third of a second
        tokenizer = pool.map(lambda file: read_tokenizer(file, config), [file])
        weights, packed = read_weights(file, config, other, threads, progress)
        return config, next(tokenizer), weights, packed


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
        for name in MATRICES.values()
    ]
    table = dict(layers) | table
    infos = {name: file.info(name, shape) for name, shape in table.items()}
    kinds = {name: quant.kind_of(info.type, other) for name, info in infos.items()}
    places = {name: quant.layout(kinds[name], *shape) for name, shape in table.items()}
    ends = np.cumsum([np.prod(place) for place in places.values()])
    arena = aligned(int(ends[-1]))
    starts = dict(zip(table, [0, *ends.tolist()], strict=False))
    packed, done = {}, 0

    def fill(name):
        info, at, place = infos[name], starts[name], places[name]
        out = arena[at : at + np.prod(place)].reshape(place)
        try:
            source = info.data if info.type in quant.AS_THEY_LIE else file.tensors[name]
            rows, columns = info.shape
            made = quant.pack(source, info.type, rows, columns, kinds[name], out)
            give_back(info.data)
            return made
        except ModelError:
            raise
        except CourseError as error:
            raise ModelError(f"The tensor `{name}` of {file.path} is damaged: {error}") from None

    with Pool(threads) as pool:
        for name, matrix in zip(table, pool.map(fill, table), strict=True):
            packed[name] = matrix
            done += matrix.nbytes
            if progress:
                progress(done, arena.nbytes)
    records, head = _records(packed, starts, config, threads)
    gains, output_gain = _gains(file, config), 2 * config.L * round_up(config.d, 64)
    return Weights(arena, records, head, gains, output_gain), packed


def _records(packed, starts, config, threads):  # -> (L,) of LAYER, (1,) of MATRIX
    """Say for each matrix of each layer, and for the head, where it lies."""
    places, _ = places_of(config)
    layers, head = np.recarray(config.L, LAYER), np.recarray(1, MATRIX)

    def record(name, place=0, onto=False, pieces=8):
        p = packed[name]
        # Large pieces, since memory takes time to get going; two a thread, should one be held up.
        step = -(-p.groups // (pieces * threads))
        vectors = quant.UNIT[quant.NIBBLES] // 64 - 1  # of 5, the first holds scales and offsets
        size = p.data[0].nbytes
        return p.kind, starts[name], p.groups, p.columns, size, vectors, place, onto, step

    for layer in range(config.L):
        for name, in_file in MATRICES.items():
            onto = name in ("W_O", "W_down")  # added to what enters: the residual stream
            place = places.get(name, 0)
            layers[name][layer] = record(f"blk.{layer}.{in_file}.weight", place, onto)
    width = round_up(config.d, 64)
    layers.attention_gain = 2 * width * np.arange(config.L)
    layers.ffn_gain = layers.attention_gain + width
    head[0] = record(head_of(packed), pieces=64)  # it is 50 times as large as a layer's
    if head.kind[0] == quant.BYTES:
        head.kind = BYTES_HEAD
    return layers, head


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
    return {"W_K": q, "W_V": q + kv, "W_up": half}, (q + 2 * kv, 2 * half)


def aligned(shape: int | tuple[int, ...], dtype: Any = np.uint8) -> np.ndarray:
    """Return zeros that begin at a multiple of 64 bytes, as the vectors of a processor do."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    found = np.zeros(size + 64, np.uint8)
    start = -found.ctypes.data % 64
    return found[start : start + size].view(dtype).reshape(shape)


def round_up(n: int, step: int) -> int:
    """Return the next multiple of step."""
    return -(-n // step) * step
