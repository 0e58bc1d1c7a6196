"""Weights in blocks of 32 numbers, as files keep them, laid out anew for the vectors.

A block of 4 bits is 32 whole numbers q of 0 to 15 with a scale d and an offset m: w = d q + m
(Q4_1). Q4_0 is the same with m = -8 d. A block of 8 bits is 32 signed numbers with a scale:
w = d q (Q8_0). These three stay as they are, bit for bit; see `ggml/src/ggml-common.h` of
llama.cpp. Other formats become float32, or blocks of 8 bits if asked for.

16 rows lie interleaved, so that a lane of a vector is a row:

    floats   for each column   16 float32
    nibbles  for each block    16 d · 16 m (float16) · 4 × 64 bytes: 4 of each row's 16 bytes
    bytes    for each block    16 d (float16) · 8 × 64 bytes: 4 of each row's 32 bytes

A byte of nibbles holds the numbers i and i + 16 of a block, the first in its lower half.
"""

from dataclasses import dataclass

import numpy as np

from lib.errors import CourseError

FLOATS, NIBBLES, BYTES = 0, 1, 2
GROUP = 16  # rows that lie interleaved
BLOCK = 32  # columns that share a scale
# Bytes of a group: of one column of floats, of one block of 4 bits, of one of 8 bits.
UNIT = {FLOATS: 64, NIBBLES: 320, BYTES: 544}
# The types of a file whose blocks stay as they are.
AS_THEY_LIE = {"Q4_0": NIBBLES, "Q4_1": NIBBLES, "Q8_0": BYTES}


@dataclass(frozen=True)
class Packed:
    """A matrix (rows, columns), laid out for the vectors."""

    kind: int
    rows: int
    columns: int
    data: np.ndarray  # (groups, columns or blocks, UNIT[kind]) uint8

    @property
    def groups(self) -> int:
        """Groups of 16 rows."""
        return len(self.data)

    @property
    def nbytes(self) -> int:
        """The memory that it takes up."""
        return self.data.nbytes


def kind_of(type_name: str, other: str = "float32") -> int:
    """Return how a tensor of a GGUF type is kept: FLOATS, NIBBLES or BYTES.

    Parameters
    ----------
    type_name : str
        The type's name in the file, such as ``Q4_1``.
    other : {"float32", "int8"}
        What becomes of types other than Q4_0, Q4_1 and Q8_0.
    """
    if other not in ("float32", "int8"):
        raise CourseError(f"other should be float32 or int8; it is {other!r}")
    return AS_THEY_LIE.get(type_name, FLOATS if other == "float32" else BYTES)


def layout(kind: int, rows: int, columns: int) -> tuple[int, int, int]:
    """Return the shape of a matrix's bytes: groups of rows, columns or blocks, bytes of each.

    The number of groups is a multiple of four, filled up with rows of zeros.
    """
    units = columns if kind == FLOATS else -(-columns // BLOCK)
    return 4 * -(-rows // (4 * GROUP)), units, UNIT[kind]


def pack(source, type_name: str, rows: int, columns: int, kind: int, out: np.ndarray) -> Packed:
    """Lay a matrix out for the vectors.

    Parameters
    ----------
    source : ndarray
        The tensor's bytes in the file, (bytes,) uint8, for Q4_0, Q4_1 and Q8_0; otherwise the
        numbers, (rows, columns) float32.
    type_name, rows, columns, kind
        The type in the file, the sizes, and what `kind_of` said.
    out : ndarray of uint8, of the shape that `layout` gives
        Where to lay it.

    Raises
    ------
    CourseError
        If a scale is NaN or infinity, or a block of 8 bits holds -128.
    """
    if kind == FLOATS:
        _pack_floats(source, out)
    elif type_name in ("Q4_0", "Q4_1"):
        _pack_nibbles(source.reshape(rows, columns // BLOCK, -1), out)
    elif type_name == "Q8_0":
        _pack_bytes(source.reshape(rows, columns // BLOCK, -1), out)
    else:
        _pack_bytes(to_q8_0(source), out)
    return Packed(kind, rows, columns, out)


def _pack_floats(W, out):  # (rows, columns)
    groups, columns, _ = out.shape
    padded = _padded(np.ascontiguousarray(W), groups)  # (groups · 16, columns)
    if not np.isfinite(padded).all():
        raise CourseError("the weights should be finite; they hold NaN or infinity")
    out.view(np.float32)[...] = padded.reshape(groups, GROUP, columns).swapaxes(1, 2)


def _pack_nibbles(blocks, out):  # (rows, blocks, 18 or 20)
    groups, count, _ = out.shape
    blocks = _padded(blocks, groups).reshape(groups, GROUP, count, -1)
    halves = blocks.view(np.uint16).swapaxes(1, 2)  # (groups, blocks, 16, 9 or 10)
    d, m, q = out[..., :32], out[..., 32:64], out[..., 64:]
    d.view(np.uint16)[...] = halves[..., 0]
    if blocks.shape[-1] == 20:
        m.view(np.uint16)[...] = halves[..., 1]
    else:
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused below
            m.view(np.float16)[...] = d.view(np.float16) * np.float16(-8)
    _check_scales(d, m)
    # Words of 4 bytes: row r's word v becomes word r of vector v.
    words = halves[..., -8:].reshape(groups, count, GROUP, 4, 2)
    q.view(np.uint16).reshape(groups, count, 4, GROUP, 2)[...] = words.swapaxes(2, 3)


def _pack_bytes(blocks, out):  # (rows, blocks, 34)
    groups, count, _ = out.shape
    blocks = _padded(blocks, groups).reshape(groups, GROUP, count, 34)
    halves = blocks.view(np.uint16).swapaxes(1, 2)  # (groups, blocks, 16, 17)
    out[..., :32].view(np.uint16)[...] = halves[..., 0]
    _check_scales(out[..., :32])
    words = halves[..., 1:].reshape(groups, count, GROUP, 8, 2)
    out[..., 32:].view(np.uint16).reshape(groups, count, 8, GROUP, 2)[...] = words.swapaxes(2, 3)
    if (out[..., 32:].view(np.int8) == -128).any():
        raise CourseError("a block of 8 bits holds -128, where -127 is the least")


def _padded(rows, groups):
    """Fill up the groups with rows of zeros."""
    missing = groups * GROUP - len(rows)
    zeros = np.zeros((missing, *rows.shape[1:]), rows.dtype)
    return rows if not missing else np.concatenate([rows, zeros])


def _check_scales(*scales):
    for halves in scales:
        if not np.isfinite(halves.view(np.float16)).all():
            raise CourseError("a scale of the weights should be finite; one is NaN or infinity")


def to_q8_0(W: np.ndarray) -> np.ndarray:  # (rows, columns) -> (rows, blocks, 34) uint8
    """Round a matrix to blocks of 8 bits, as Q8_0 does: d = largest size / 127, q = w / d."""
    rows, columns = W.shape
    blocks = np.zeros((rows, -(-columns // BLOCK) * BLOCK), np.float32)
    blocks[:, :columns] = W
    blocks = blocks.reshape(rows, -1, BLOCK)
    d = np.abs(blocks).max(axis=2, keepdims=True) / np.float32(127)
    with np.errstate(over="ignore", invalid="ignore"):  # an infinite scale is refused by `pack`
        halves = d.astype(np.float16)
        # A scale that rounds to 0 makes the block zeros, whatever q; w / d would not fit into it.
        q = np.rint(blocks / np.where(halves == 0, np.inf, d)).astype(np.int8)
    return np.concatenate([halves.view(np.uint8), q.view(np.uint8)], axis=2)


def unpack_rows(packed: Packed, indices: np.ndarray) -> np.ndarray:  # (n,) -> (n, columns)
    """Return some rows of a packed matrix as float32."""
    return np.array([_unpack_row(packed, int(index)) for index in indices])


def _unpack_row(packed, index):  # -> (columns,) float32
    group, lane = divmod(index, GROUP)
    units = packed.data[group]  # (columns or blocks, bytes)
    if packed.kind == FLOATS:
        return units.view(np.float32)[:, lane]
    halves = units.view(np.float16)  # (blocks, …): scales first
    first_word = 16 if packed.kind == NIBBLES else 8
    words = units.view(np.uint32)[:, first_word + lane :: GROUP]  # (blocks, 4 or 8)
    q = np.ascontiguousarray(words).view(np.uint8)  # (blocks, 16 or 32)
    w = halves[:, lane, None].astype(np.float32)
    if packed.kind == NIBBLES:
        w = w * np.concatenate([q & 15, q >> 4], axis=1)
        w += halves[:, GROUP + lane, None]
    else:
        w = w * q.view(np.int8)
    return w.ravel()[: packed.columns]
