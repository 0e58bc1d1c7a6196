"""What passes between judge and process: values as they were, and nothing else."""

import contextlib
import io
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.exercises.running import wire

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


# --- Limits, exactly ------------------------------------------------------------------------------


def test_a_frame_may_be_as_long_as_the_limit(monkeypatch):
    body = wire.encode({"a": "text"})
    monkeypatch.setattr(wire, "LIMIT", len(body))
    assert wire.encode({"a": "text"}) == body
    out = io.BytesIO()
    wire.send(out, {"a": "text"})
    assert wire.receive(io.BytesIO(out.getvalue())) == {"a": "text"}
    monkeypatch.setattr(wire, "LIMIT", len(body) - 1)
    with pytest.raises(wire.WireError, match=f"^{len(body)} bytes are too many"):
        wire.encode({"a": "text"})
    with pytest.raises(wire.WireError, match=f"^a frame of {len(body)} bytes"):
        wire.receive(io.BytesIO(out.getvalue()))


def wrapped(tree, levels):
    return ["l", wrapped(tree, levels - 1)] if levels else tree


def frame(tree, *blobs):
    parts = [json.dumps(tree).encode(), *blobs]
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


@pytest.mark.parametrize("make", [deep, lambda n: deep(n - 1) and (deep(n - 1),)])
def test_lists_may_be_as_deep_as_the_limit(make):
    # The innermost number takes a level of its own.
    assert wire.decode(wire.encode(make(wire.DEPTH - 1))) == make(wire.DEPTH - 1)
    with pytest.raises(wire.WireError, match="too deeply"):
        wire.encode(make(wire.DEPTH))


def test_depth_counts_through_dicts_and_special_values():
    inside = deep(wire.DEPTH - 2)
    assert wire.decode(wire.encode({"a": inside})) == {"a": inside}
    with pytest.raises(wire.WireError, match="too deeply"):
        wire.encode({"a": [inside]})
    thing = Thing()

    def special(value):
        return ("tag", inside) if value is thing else None

    assert wire.encode(thing, special)
    with pytest.raises(wire.WireError, match="too deeply"):
        wire.encode([thing], special)


def test_what_comes_may_be_one_list_deeper_than_what_goes():
    # Nothing is nested in the innermost number, so it takes no level when it is read.
    assert wire.decode(frame(wrapped(1, wire.DEPTH))) == deep(wire.DEPTH)
    with pytest.raises(wire.WireError, match="too deeply"):
        wire.decode(frame(wrapped(1, wire.DEPTH + 1)))
    for tag in ("d", "x"):
        inner = wrapped(1, wire.DEPTH - 1)
        tree = ["d", ["a", inner]] if tag == "d" else ["x", "a", inner]
        assert wire.decode(frame(tree), lambda tag, value: value)
        with pytest.raises(wire.WireError, match="too deeply"):
            wire.decode(frame(["l", tree]), lambda tag, value: value)


@pytest.mark.parametrize("number", [2**63 - 1, 1 - 2**63])
def test_whole_numbers_of_63_bits_pass(number):
    assert wire.decode(wire.encode(number)) == number
    beyond = number + (1 if number > 0 else -1)
    assert wire.decode(wire.encode(beyond)).name == "int of more than 63 bits"


# --- Streams --------------------------------------------------------------------------------------


class Trickle(io.BytesIO):
    """A stream that gives three bytes at a time, and remembers whether it was flushed."""

    flushed = 0

    def read(self, count):
        return super().read(min(count, 3))

    def flush(self):
        self.flushed += 1


def test_messages_follow_each_other():
    stream = Trickle()
    wire.send(stream, {"a": [1]})
    wire.send(stream, {"b": "longer than three"})
    assert stream.flushed == 2
    stream.seek(0)
    assert wire.receive(stream) == {"a": [1]}
    assert wire.receive(stream) == {"b": "longer than three"}
    with pytest.raises(EOFError):
        wire.receive(stream)


def test_a_message_is_a_dict():
    body = wire.encode([1])
    with pytest.raises(wire.WireError, match="holds no message"):
        wire.receive(io.BytesIO(len(body).to_bytes(4, "big") + body))


# --- Special values and kinds ---------------------------------------------------------------------


class Thing:
    pass


def test_special_values_are_for_who_knows_them():
    thing = Thing()
    known = wire.encode({"it": thing}, lambda v: ("thing", [1, 2]) if v is thing else None)
    assert wire.decode(known, lambda tag, value: (tag, value)) == {"it": ("thing", [1, 2])}
    with pytest.raises(wire.WireError, match="no known kind"):
        wire.decode(known)
    # What `special` does not know is told by its kind; numbers are not asked for.
    other = wire.decode(wire.encode([Thing(), 3], lambda v: None))
    assert (other[0].kind, other[0].name, other[1]) == ("object", "Thing", 3)


def test_kinds_that_the_judge_tells_apart():
    kernel = type("Dispatcher", (), {"__module__": "numba.core.registry", "__call__": len})()
    likes = type("Likes", (), {"__module__": "numbas", "__call__": len})()
    found = [wire.describe(value) for value in (kernel, likes, Thing(), iter([]), Thing)]
    assert [one.kind for one in found] == ["kernel", "callable", "object", "iterator", "class"]
    assert [one.name for one in found][:2] == ["Dispatcher", "Likes"]
    assert wire.describe(found[0]) is found[0]


def test_a_name_is_short_and_printable():
    told = wire.Foreign("object", "a\nb\x1b" + 70 * "c")
    assert told.name == "ab" + 56 * "c"


# --- Frames that nobody sent ----------------------------------------------------------------------

ONE = npy(np.arange(3.0))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "do not add up"),
        (b"\0\0\0\x05null", "do not add up"),
        (frame(1) + b"\0\0", "do not add up"),
        (frame(["?"]), "no known kind"),
        (frame(["x", "tag", 1]), "no known kind"),
        (frame([]), "cannot be read: ValueError"),
        (frame(["d", ["a"]]), "cannot be read: ValueError"),
        (frame(["a", 1]), "cannot be read: IndexError"),
        (frame(["a", 1, 2], ONE), "cannot be read: ValueError"),
        (frame(["a", 0], ONE), "^no array: ValueError"),
        (b"\0\0\0\x01{", "cannot be read: JSONDecodeError"),
        (frame(["k", "function"]), "cannot be read: TypeError"),
    ],
)
def test_what_is_wrong_with_a_frame(body, message):
    with pytest.raises(wire.WireError, match=message):
        wire.decode(body)


def test_the_second_array_is_the_second():
    got = wire.decode(wire.encode([np.arange(2), np.float32([7.5])]))
    np.testing.assert_equal(got, [np.arange(2), np.float32([7.5])])
    assert wire.decode(frame(["s", 1], npy(np.array(2.5)))) == 2.5


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (npy(np.zeros(2, "M8[s]")), r"^an array of dtype datetime64\[s\]"),
        (npy(np.zeros(2, "S3")), r"^an array of dtype \|S3"),
        (npy(np.zeros(2, "U1")).replace(b"<U1", b"<U0"), "^an array of dtype"),
        (npy(np.zeros((1,) * 17)), "^an array of dtype float64"),
        (ONE + b"\0", "^an array whose size"),
        (npy(np.zeros((2, 3))).replace(b"(2, 3)", b"(-2,-3)"[:6]), "^(an|no) array"),
        (ONE.replace(b"NUMPY\x01\x00", b"NUMPY\x01\x01"), "^an array of another version"),
        (ONE[:20], "^no array: ValueError"),
    ],
)
def test_what_is_wrong_with_an_array(data, message):
    with pytest.raises(wire.WireError, match=message):
        wire.read_array(data)


def test_sixteen_axes_pass_and_columns_stay_columns():
    wide = np.arange(2.0).reshape((1,) * 15 + (2,))
    np.testing.assert_equal(wire.read_array(npy(wide)), wide)
    columns = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    assert b"'fortran_order': True" in npy(columns)
    np.testing.assert_equal(wire.read_array(npy(columns)), columns)


def test_a_header_may_not_be_long():
    names = npy(np.zeros(1, [("a" * 1200, "f8")]))
    with pytest.raises(wire.WireError, match="^no array: ValueError"):
        wire.read_array(names)


def test_the_largest_honest_message_passes():
    # What the heads of the real model are given at one step: 40 thousand bytes.
    heads = np.arange(5_000.0)
    out = io.BytesIO()
    wire.send(out, {"with": [heads]})
    np.testing.assert_equal(wire.receive(io.BytesIO(out.getvalue())), {"with": [heads]})


def test_two_sizes_below_zero_are_no_array():
    data = npy(np.zeros((1, 1))).replace(b"(1, 1), }  ", b"(-1,-1), } ")
    assert b"(-1,-1)" in data
    with pytest.raises(wire.WireError, match="^an array whose size is not that of its bytes"):
        wire.read_array(data)
