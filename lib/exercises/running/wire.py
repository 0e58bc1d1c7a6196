"""What passes between the judge and the confined process: frames of values, nothing that can act.

A frame is a length, a tree in JSON, and the arrays of the tree in NumPy's own format, never
pickled. Both sides read with suspicion: lengths, depths, dtypes and shapes are checked before
anything is made of them. This file also runs inside the confinement, so it imports NumPy alone.

NumPy's format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
"""

import io
import json
import math
import struct

import numpy as np

LIMIT = 16 * 2**20  # bytes of a frame; the largest honest one, of the real model, has 40 thousand
DEPTH = 24  # lists within lists
PARTS = 5_000  # arrays in a frame; honest ones have some hundred
KINDS = "biufcU"  # dtypes that may pass: no objects, no records
_LENGTH = struct.Struct(">I")


class WireError(Exception):
    """What came is no frame, or what should go cannot be put into one."""


class Foreign:
    """A value that does not pass; what is told of it is its kind and the name of its type.

    Fields
    ------
    kind : str
        ``"function"``, ``"kernel"``, ``"callable"``, ``"class"``, ``"iterator"``, ``"array"`` (of a
        subclass), ``"dtype"`` (an array of a dtype that does not pass) or ``"object"``.
    name : str
        Of the type, or of the dtype.
    """

    def __init__(self, kind, name):
        self.kind, self.name = str(kind), "".join(c for c in str(name)[:60] if c.isprintable())


# --- Frames --------------------------------------------------------------------------------------


def send(stream, message, special=None):
    """Write one message: a dict of strings to values."""
    write(stream, encode(message, special))


def write(stream, body):
    """Write a frame with this body; a stream without a buffer may take it in parts."""
    rest = memoryview(_LENGTH.pack(len(body)) + body)
    while rest:
        rest = rest[stream.write(rest) :]
    stream.flush()


def receive(stream, special=None):
    """Read one message; `EOFError` where the other side has gone.

    Raises
    ------
    WireError
        It is not one.
    """
    return message_of(frame(stream), special)


def frame(stream):
    """Read the bytes of one message; `EOFError` where the other side has gone."""
    (length,) = _LENGTH.unpack(_exactly(stream, _LENGTH.size))
    if length > LIMIT:
        raise WireError(f"a frame of {length} bytes")
    return _exactly(stream, length)


def message_of(body, special=None):
    """Return the message that the bytes of a frame are."""
    message = decode(body, special)
    if type(message) is not dict:
        raise WireError("a frame that holds no message")
    return message


def _exactly(stream, count):
    parts = []
    while count:
        part = stream.read(min(count, 2**20))
        if not part:
            raise EOFError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


# --- Values --------------------------------------------------------------------------------------


def encode(value, special=None):
    """Return a value as bytes.

    Parameters
    ----------
    value : object
        None, ``...``, bool, int, float, str, arrays and scalars of NumPy, lists, tuples and dicts
        of these. Of anything else only its kind is told.
    special : callable, optional
        ``special(value)`` returns a tag and a value to send in its place, or None.
    """
    blobs = []
    tree = json.dumps(_tree(value, blobs, special, DEPTH)).encode()
    parts = [tree, *blobs]
    body = b"".join(_LENGTH.pack(len(part)) + part for part in parts)
    if len(body) > LIMIT:
        raise WireError(f"{len(body)} bytes are too many")
    return body


def _tree(value, blobs, special, depth):
    if depth == 0:
        raise WireError("lists are nested too deeply")
    kind = type(value)
    if value is None or kind is bool or kind is float or kind is str:
        return value
    if kind is int:
        return value if abs(value) < 2**63 else ["k", "object", "int of more than 63 bits"]
    if kind is list or kind is tuple:
        inner = [_tree(item, blobs, special, depth - 1) for item in value]
        return ["l" if kind is list else "t", *inner]
    if kind is dict:
        pairs = ([str(key), _tree(v, blobs, special, depth - 1)] for key, v in value.items())
        return ["d", *pairs]
    if value is ...:
        return ["e"]
    if special is not None and (found := special(value)) is not None:
        tag, rest = found
        return ["x", tag, _tree(rest, blobs, special, depth - 1)]
    if (kind is np.ndarray or isinstance(value, np.generic)) and value.dtype.kind in KINDS:
        blobs.append(_npy(np.asarray(value)))
        return ["a" if kind is np.ndarray else "s", len(blobs)]
    told = describe(value)
    return ["k", told.kind, told.name]


def _npy(array):
    out = io.BytesIO()
    np.lib.format.write_array(out, array, version=(1, 0), allow_pickle=False)
    return out.getvalue()


def describe(value):
    """Return the kind of a value that does not pass, without asking the value itself."""
    kind = type(value)
    if isinstance(value, Foreign):
        return value
    if kind is np.ndarray:
        return Foreign("dtype", value.dtype)
    if issubclass(kind, np.ndarray):
        return Foreign("array", kind.__name__)
    if issubclass(kind, type):
        return Foreign("class", value.__name__)
    if hasattr(kind, "__next__"):
        return Foreign("iterator", kind.__name__)
    if kind.__name__ == "function":
        return Foreign("function", kind.__name__)
    if kind.__module__.startswith("numba."):
        return Foreign("kernel", kind.__name__)
    can_be_called = any("__call__" in vars(base) for base in kind.__mro__)
    return Foreign("callable" if can_be_called else "object", kind.__name__)


def decode(body, special=None):
    """Return the value that `encode` made bytes of.

    Parameters
    ----------
    body : bytes
    special : callable, optional
        ``special(tag, value)`` returns what a special value stands for.

    Raises
    ------
    WireError
        The bytes are of no such value.
    """
    parts, at = [], 0
    while at + 4 <= len(body) and len(parts) < PARTS:
        (length,) = _LENGTH.unpack_from(body, at)
        parts.append(body[at + 4 : at + 4 + length])
        at += 4 + length
    if at != len(body) or not parts:
        raise WireError("a frame whose parts do not add up")
    try:
        return _value(json.loads(parts[0]), parts, special, DEPTH)
    except WireError:
        raise
    except Exception as error:
        raise WireError(f"a frame that cannot be read: {type(error).__name__}") from None


def _value(tree, parts, special, depth):
    if type(tree) is not list:
        return tree
    if depth == 0:
        raise WireError("lists are nested too deeply")
    tag, *rest = tree
    if tag == "l" or tag == "t":
        items = [_value(item, parts, special, depth - 1) for item in rest]
        return items if tag == "l" else tuple(items)
    if tag == "d":
        return {str(key): _value(item, parts, special, depth - 1) for key, item in rest}
    if tag == "a" or tag == "s":
        (index,) = rest
        # Each part is used once: else a small frame could stand for any amount of memory.
        data, parts[index] = parts[index], None
        array = read_array(data)
        return array if tag == "a" else array[()]
    if tag == "e":
        return ...
    if tag == "k":
        return Foreign(*rest)
    if tag == "x" and special is not None:
        name, inner = rest
        return special(name, _value(inner, parts, special, depth - 1))
    raise WireError("a value of no known kind")


def read_array(data):
    """Return the array that bytes in NumPy's format hold.

    Raises
    ------
    WireError
        Another version, a dtype that may not pass, or a size that is not that of the bytes.
    """
    file = io.BytesIO(data)
    try:
        if np.lib.format.read_magic(file) != (1, 0):
            raise WireError("an array of another version")
        shape, by_column, dtype = np.lib.format.read_array_header_1_0(file, max_header_size=1000)
    except WireError:
        raise
    except Exception as error:  # it parses the header as Python, and fails in many ways
        raise WireError(f"no array: {type(error).__name__}") from None
    if dtype.kind not in KINDS or len(shape) > 16 or dtype.itemsize == 0:
        raise WireError(f"an array of dtype {dtype}")
    rest = data[file.tell() :]
    if any(size < 0 for size in shape) or math.prod(shape) * dtype.itemsize != len(rest):
        raise WireError("an array whose size is not that of its bytes")
    array = np.frombuffer(rest, dtype).reshape(shape, order="F" if by_column else "C")
    return array.copy()
