"""What passes between judge and process: values as they were, and nothing else."""

import contextlib
import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.grading import wire

VALUES = [
    None,
    True,
    -7,
    0.1,
    float("inf"),
    "é\ud800",
    ...,
    [1, (2.5, "x")],
    {"a": [None]},
    np.arange(6.0).reshape(2, 3),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    np.float32([1.5, np.nan]),
    np.array(["ab", "c"]),
    np.zeros((0, 3)),
    np.int64(3),
    np.array(2 + 3j),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda v: f"{type(v).__name__} {v}"[:30])
def test_a_value_comes_back_as_it_was(value):
    back = wire.decode(wire.encode(value))
    assert type(back) is type(value)
    if isinstance(value, np.ndarray):
        assert (back.dtype, back.shape) == (value.dtype, value.shape)
        assert back.flags.writeable
    np.testing.assert_equal(back, value)


class Odd:
    __class__ = property(lambda self: 1 / 0)  # nobody should ask


@pytest.mark.parametrize(
    ("value", "kind", "name"),
    [
        (len, "callable", "builtin_function_or_method"),
        (lambda: 0, "function", "function"),
        (Odd, "class", "Odd"),
        (np.zeros(2).view(np.recarray), "array", "recarray"),
        (np.array([None]), "dtype", "object"),
        ((x for x in "ab"), "iterator", "generator"),
        (2**70, "object", "int of more than 63 bits"),
    ],
)
def test_of_anything_else_only_its_kind_is_told(value, kind, name):
    told = wire.decode(wire.encode([value]))[0]
    assert (type(told), told.kind, told.name) == (wire.Foreign, kind, name)


def deep(levels):
    value = 1
    for _ in range(levels):
        value = [value]
    return value


def test_what_is_too_deep_or_too_large_is_refused():
    with pytest.raises(wire.WireError, match="too deeply"):
        wire.encode(deep(100))
    with pytest.raises(wire.WireError, match="too many"):
        wire.encode(np.zeros(wire.LIMIT))
    with pytest.raises(wire.WireError, match="a frame of"):
        wire.receive(io.BytesIO(b"\xff\xff\xff\xff"))
    with pytest.raises(EOFError):
        wire.receive(io.BytesIO(b"\x00\x00\x00\x09abc"))


def npy(array, **header):
    out = io.BytesIO()
    np.lib.format.write_array(out, array, version=(1, 0))
    data = out.getvalue()
    for old, new in header.items():
        data = data.replace(old.encode(), new)
    return data


@pytest.mark.parametrize(
    "data",
    [
        npy(np.array([None], object)),
        npy(np.zeros(2, [("a", "f8")])),
        npy(np.zeros((2, 3)))[:-1],
        npy(np.zeros((2, 3))).replace(b"(2, 3)", b"(9, 9)"),
        npy(np.zeros((2, 3))).replace(b"(2, 3)", b"(-2,3)"),
        npy(np.zeros((2, 3))).replace(b"\x93NUMPY\x01", b"\x93NUMPY\x02"),
        npy(np.zeros(3)).replace(b"<f8", b"|O8"),
        b"",
    ],
)
def test_an_array_is_read_with_suspicion(data):
    with pytest.raises(wire.WireError):
        wire.read_array(data)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.data())
def test_damaged_frames_are_refused_and_nothing_worse(data):
    body = bytearray(wire.encode({"a": [1, np.arange(4.0)], "b": (None, "x")}))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(body[: data.draw(st.integers(0, len(body)))])
    for damaged in (bytes(body), cut):
        with contextlib.suppress(wire.WireError):
            wire.decode(damaged)
