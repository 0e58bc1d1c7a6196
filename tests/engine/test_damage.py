"""Damaged model files: always a ModelError in one short line, quickly and in bounded memory.

`fuzz.py` has the files in pieces and the roads on which they are read; here are the kinds of damage
that can be enumerated, and a short run of it. Its long run is a command: `python -m
tests.engine.fuzz`.
"""

import copy
import tracemalloc

import numpy as np
import pytest
from fuzz import (
    LIST,
    ODD_NUMBERS,
    SCALARS,
    SIZES,
    STRING,
    few_tokens,
    fuzz,
    make_bases,
    packed,
    parse,
    roads,
    split_list,
    text,
    verdict,
)
from tiny_models import sentencepiece, write_tiny

from lib.engine.gguf import find_model, read_gguf
from lib.engine.llama import load_model
from lib.engine.tokenizer import Tokenizer
from lib.errors import ModelError

FLOAT, INT = 6, 4


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    """Whole files: float32, Q8_0, Q4_1 with a head of its own, Q4_0, float16 with SentencePiece."""
    return make_bases(tmp_path_factory.mktemp("whole"))


@pytest.fixture
def refuse(tmp_path):
    """Return a function that writes bytes or pieces, and expects a refusal on some roads."""

    def refuse(raw, message=None, names=("load_model", "load_fast")):
        path = tmp_path / "damaged.gguf"
        path.unlink(missing_ok=True)
        path.write_bytes(raw if isinstance(raw, bytes) else raw.written())
        for name, road in roads().items():
            if name in names:
                with pytest.raises(ModelError, match=message) as caught:
                    road(path)
                said = str(caught.value)
                assert str(path) in said
                assert said.isprintable(), said
                assert len(said) < len(str(path)) + 300

    return refuse


@pytest.fixture
def pieces(bases):
    return parse(bases[0])


def test_whole_files_run(bases, tmp_path):
    path = tmp_path / "whole.gguf"
    for raw in bases:
        assert parse(raw).written() == raw  # the pieces are those of the file
        path.unlink(missing_ok=True)
        path.write_bytes(raw)
        assert [verdict(path, road) for road in roads().values()] == ["runs"] * len(roads())


# ------------------------------------------------------------------ cut short


def test_cut_at_every_byte_of_the_header(bases, tmp_path):
    raw = bases[0]
    header = len(raw) - len(parse(raw).data)
    assert header < 4000
    path = tmp_path / "cut.gguf"
    for size in range(1, header):
        path.unlink(missing_ok=True)
        path.write_bytes(raw[:size])
        with pytest.raises(ModelError, match=r"cut\.gguf is cut short: byte"):
            read_gguf(path)


@pytest.mark.parametrize("kind", range(5))
def test_cut_at_the_ends_of_every_tensor(bases, refuse, kind):
    raw, file = bases[kind], parse(bases[kind])
    start = len(raw) - len(file.data)
    ends = [tensor.offset for tensor in file.tensors[1:]]
    for end in ends:
        for size in (end - 1, end, end + 1):
            refuse(raw[: start + size], "is cut short: byte", ("read_gguf",))
    refuse(raw[:-32], "is cut short: byte")


def test_the_header_of_the_real_model_cut(tmp_path):
    with find_model().open("rb") as file:
        raw = file.read(2_000_000)
    path = tmp_path / "cut.gguf"
    for size in np.linspace(30, len(raw), 8).astype(int).tolist():
        path.unlink(missing_ok=True)
        path.write_bytes(raw[:size])
        with pytest.raises(ModelError, match="is cut short: byte"):
            read_gguf(path)


# ------------------------------------------------------------------ counts, types, values


@pytest.mark.parametrize("which", [0, 1])
def test_wrong_counts(pieces, refuse, which):
    true = [len(pieces.tensors), len(pieces.pairs)][which]
    for count in [*ODD_NUMBERS, true - 1, true + 1]:
        pieces.counts[which] = count
        refuse(pieces)


@pytest.mark.parametrize("number", [n for n in ODD_NUMBERS if n > 255])
def test_wrong_lengths(pieces, refuse, number):
    for key, size in [("tokenizer.ggml.tokens", 4), ("tokenizer.ggml.model", 0)]:
        file = copy.deepcopy(pieces)
        pair = file.pair(key)
        pair[2] = pair[2][:size] + packed("Q", number) + pair[2][size + 8 :]
        refuse(file, "is cut short|more than 8,388,608 are not read", ("read_gguf",))


def test_lists_without_end_take_no_memory(pieces, refuse):
    # 9 million values would be read as 9 million objects; the limit stands before.
    pair = pieces.pair("tokenizer.ggml.token_type")
    pair[2] = packed("I", 2) + packed("Q", 2**23 + 1) + bytes(2 * (2**23 + 1))
    refuse(pieces, r"`tokenizer\.ggml\.token_type` its lists have 8,388,\d+ values; more than")


def test_every_key_with_every_type(bases, tmp_path):
    # Ten of them are numbers, read as other numbers: those may run. None may end in another error.
    path = tmp_path / "typed.gguf"
    kinds = set()
    for index in range(len(parse(bases[0]).pairs)):
        for kind in range(15):
            file = parse(bases[0])
            file.pairs[index][1] = kind
            path.unlink(missing_ok=True)
            path.write_bytes(file.written())
            kinds.add(verdict(path, load_model))
    assert len(kinds) > 5


VALUES = {0: 3, 4: 3, 5: -3, 6: 3.5, 7: True, 10: 3, 12: 3.5, STRING: "x", LIST: [1]}


@pytest.mark.parametrize("kind", VALUES)
def test_metadata_of_the_wrong_type(pieces, refuse, kind):
    letters = {0: "B", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 12: "d"}
    raw = packed(letters[kind], VALUES[kind]) if kind in SCALARS else text(b"x")
    raw = packed("I", INT) + packed("Q", 1) + packed("I", 1) if kind == LIST else raw
    for key, _, before in copy.deepcopy(pieces.pairs):
        file = copy.deepcopy(pieces)
        pair = file.pair(key.decode())
        whole, same = (0, 4, 5, 10), pair[1] == kind
        if same or (pair[1] in whole and kind in whole) or (pair[1] == FLOAT and kind == 12):
            continue
        if key in (b"general.name", b"tokenizer.ggml.scores"):
            continue
        pair[1:] = [kind, raw]
        assert raw != before
        refuse(file, names=("load_model",))


SIZE_KEYS = ["block_count", "embedding_length", "feed_forward_length", "context_length"]
SIZE_KEYS += ["attention.head_count", "attention.head_count_kv", "attention.key_length"]


@pytest.mark.parametrize("key", SIZE_KEYS)
def test_sizes_that_are_none(pieces, refuse, key):
    pair = pieces.pair(f"llama.{key}")
    pair[2] = packed("I", 0)
    refuse(pieces, rf"`llama\.{key}` .* should be above 0; it is 0")
    pair[1:] = [5, packed("i", -2)]
    refuse(pieces, rf"`llama\.{key}` .* should be above 0; it is -2")
    if key != "context_length":  # that one is a limit; the others have to fit the tensors
        for number in (5, 2**31 - 1, 2**63):
            pair[1:] = [10, packed("Q", number)]
            refuse(pieces)


@pytest.mark.parametrize("key", ["rope.freq_base", "attention.layer_norm_rms_epsilon"])
@pytest.mark.parametrize("number", [0.0, -1.0, np.nan, np.inf, -np.inf])
def test_constants_that_are_none(pieces, refuse, key, number):
    pieces.pair(f"llama.{key}")[2] = packed("f", number)
    refuse(pieces, rf"`llama\.{key}` of .* should be finite and above 0; it is {number}")


def test_a_factor_too_small_for_float32(pieces, refuse):
    pieces.pairs.append([b"llama.rope.scaling.factor", 12, packed("d", 1e-60)])
    refuse(pieces, "factors of the rotary positions .* should be finite and above 0")


@pytest.mark.parametrize("number", [0, 1, 4, 24, 33, 2**31, 2**32 - 1])
def test_alignment(pieces, refuse, number):
    pieces.pairs.append([b"general.alignment", INT, packed("I", number)])
    if number == 2**31:
        refuse(pieces, "begins at byte .* which is no multiple of 2147483648")
    else:
        refuse(pieces, f"its alignment should be a power of 2, at least 8; it is {number}")


def test_keys_and_names_that_are_long_or_no_text(pieces, refuse):
    long = b"x" * 100_000 + b"\x1b[31m"
    for raw, message in [(long, "x{20}.*x{10}"), (b"\xff\xfe", "not UTF-8"), (b"\x1b[2J\n", None)]:
        for place in ("key", "kind", "tensor", "type", "architecture", "token"):
            file = copy.deepcopy(pieces)
            if place == "key":
                file.pairs += [[raw, 0, b"x"], [raw, 0, b"x"]]
            elif place == "kind":
                file.pairs.append([raw, 99, b"x"])
            elif place == "tensor":
                file.tensors[3].name = raw
            elif place == "type":
                file.tensors[3].name, file.tensors[3].type = raw, 999
            elif place == "architecture":
                file.pair("general.architecture")[2] = text(raw)
            else:
                file.pair("tokenizer.ggml.model")[2] = text(raw)
            refuse(file, message, ("load_model",))


# ------------------------------------------------------------------ tensors


@pytest.mark.parametrize("number", [1, 2, 16, 31, 33])
def test_offsets_that_are_not_aligned(pieces, refuse, number):
    pieces.tensors[4].offset += number
    refuse(pieces, "begins at byte .* which is no multiple of 32")


def test_tensors_that_overlap(pieces, refuse):
    first, second = pieces.tensors[4:6]
    second.offset = first.offset
    refuse(pieces, "lie in the same bytes")
    second.offset = first.offset + 32
    refuse(pieces, f"`{first.name.decode()}` and `{second.name.decode()}` lie in the same bytes")


@pytest.mark.parametrize("offset", [2**20, 2**32, 2**62, 2**63, 2**64 - 32])
def test_offsets_past_the_end(pieces, refuse, offset):
    pieces.tensors[-1].offset = offset
    refuse(pieces, "is cut short: byte .* is needed")


def test_types(bases, tmp_path):
    path = tmp_path / "typed.gguf"
    kinds = set()
    for number in [*range(45), 2**16, 2**32 - 1]:
        for index in (0, 1):  # a matrix, gains
            file = parse(bases[1])
            file.tensors[index].type = number
            path.unlink(missing_ok=True)
            path.write_bytes(file.written())
            kinds |= {verdict(path, road) for road in roads().values()}
    assert len(kinds) > 4


SHAPES = {
    "no axis": [],
    "five axes": [1] * 5,
    "an empty axis": [6, 0],
    "all empty": [0, 0],
    "an axis more": [6, 24, 2],
    "an axis less": [6],
    "transposed": [24, 6],
    "huge": [2**63, 6],
    "product past 64 bits": [2**32, 2**32],
    "product that wraps to the right one": [2**63 + 3, 48],
    "the largest": [2**64 - 1] * 4,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(pieces, refuse, shape):
    pieces.tensor("token_embd.weight").shape = SHAPES[shape]
    refuse(pieces)


def test_names_of_layers(pieces, refuse):
    for name in (
        b"blk.01.attn_q.weight",
        b"blk.1.attn_q.weight",
        b"blk." + b"9" * 5000 + b".attn_q.weight",
    ):
        file = copy.deepcopy(pieces)
        file.tensor("blk.0.attn_q.weight").name = name
        refuse(file, "which the engine has no place for")


def test_layers_without_end(pieces, refuse):
    # The fast engine would list the tensors of two billion layers.
    pieces.pair("llama.block_count")[2] = packed("I", 2**31)
    refuse(pieces, r"lacks the tensor `blk\.1\.attn_norm\.weight`")


BAD = {"NaN": np.nan, "infinity": np.inf, "minus infinity": -np.inf}


@pytest.mark.parametrize("bad", BAD)
def test_weights_that_are_no_numbers(bases, refuse, bad):
    for tensor in parse(bases[0]).tensors:
        file = parse(bases[0])
        at = tensor.offset + 4 * 3
        file.data = file.data[:at] + packed("f", BAD[bad]) + file.data[at + 4 :]
        refuse(file, f"`{tensor.name.decode()}` of .* damaged: it holds NaN", ("load_model",))
        refuse(file, "NaN or infinity|should be finite", ("load_fast",))


@pytest.mark.parametrize("half", [0x7C00, 0xFC00, 0x7E00, 0x7C01])  # the last one signals
@pytest.mark.parametrize("base", [1, 2, 3])
def test_scales_that_are_no_numbers(bases, refuse, base, half):
    file = parse(bases[base])
    tensor = file.tensor("blk.0.ffn_up.weight")
    file.data = file.data[: tensor.offset] + packed("H", half) + file.data[tensor.offset + 2 :]
    refuse(file, r"blk\.0\.ffn_up\.weight.*NaN or infinity")


# ------------------------------------------------------------------ the vocabulary


@pytest.fixture
def build(tmp_path):
    """Return a function that builds a tokenizer from changed metadata."""

    def build(base, **changes):
        metadata = base | {f"tokenizer.ggml.{name}": value for name, value in changes.items()}
        path = write_tiny(tmp_path / "words.gguf", SIZES, tokenizer=metadata)
        return Tokenizer(read_gguf(path))

    return build


TOKENS = few_tokens()["tokenizer.ggml.tokens"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": [*TOKENS, "he"]}, "24 tokens and 23 token types"),
        ({"tokens": [*TOKENS[:-1], "he"]}, "lists the token 'he' twice, as 14 and 22"),
        ({"tokens": [*TOKENS[:-1], "x" * 1025]}, "at most 1024 characters; one has 1,025"),
        ({"token_type": [1] * 22}, "23 tokens and 22 token types"),
        ({"merges": None}, r"lack the key `tokenizer\.ggml\.merges`"),
        ({"merges": ["a b"]}, "merges of .* 'a b' should be two tokens that together are a third"),
        ({"merges": ["hell hell"]}, "merges of .* 'hell hell'"),
        ({"merges": ["x he"]}, "merges of .* 'x he'"),
        ({"merges": ["hell"]}, "merges of .* 'hell'"),
        ({"merges": [" "]}, "merges of .* ' '"),
        ({"merges": ["h  e"]}, "merges of .* 'h  e'"),
        ({"merges": ["h e x"]}, "merges of .* 'h e x'"),
        ({"merges": ["h" * 5000 + " e"]}, "merges of .* should be two tokens"),
        ({"bos_token_id": 23}, r"`tokenizer\.ggml\.bos_token_id` .* 0 to 22; it is 23"),
        ({"eot_token_id": "x"}, r"`tokenizer\.ggml\.eot_token_id` .* it is 'x'|it is x"),
    ],
)
def test_byte_level_vocabularies(build, changes, message):
    with pytest.raises(ModelError, match=message) as caught:
        build(few_tokens(), **changes)
    assert len(str(caught.value)) < 400


def test_no_tokens(pieces, refuse):
    for name, kind in (("tokens", STRING), ("token_type", 5)):
        pieces.pair(f"tokenizer.ggml.{name}")[2] = packed("I", kind) + packed("Q", 0)
    refuse(pieces, "lists no tokens", ("load_model", "load_fast", "Tokenizer"))


def test_tokens_that_are_no_text(pieces, refuse):
    pair = pieces.pair("tokenizer.ggml.tokens")
    kind, entries = split_list(pair[2])
    entries[5] = text(b"\xff\xfe")
    pair[2] = packed("I", kind) + packed("Q", len(entries)) + b"".join(entries)
    refuse(pieces, "a string in its header is not UTF-8")


def test_empty_tokens_are_places_left_free(build):
    # llama.cpp only warns of them (src/llama-vocab.cpp); no text has one, and they spell nothing.
    tokenizer = build(few_tokens(), tokens=[*TOKENS[:-2], "", ""])
    assert tokenizer.encode("hell") == [TOKENS.index("hell")]
    assert tokenizer.decode([21, TOKENS.index("hell"), 22]) == "hell"
    control = build(few_tokens(), tokens=["", *TOKENS[1:]])
    assert control.encode("hell", special=True) == [TOKENS.index("hell")]


@pytest.mark.parametrize("bad", [np.nan])
def test_scores_that_are_no_numbers(build, bad):
    scores = sentencepiece()["tokenizer.ggml.scores"]
    with pytest.raises(ModelError, match="scores of the tokens .* one is NaN"):
        build(sentencepiece(), scores=[*scores[:-1], bad])


def test_a_sentencepiece_token_without_end(build):
    # Every way to cut a token in two is tried: for a million characters that would not end.
    tokens = sentencepiece()["tokenizer.ggml.tokens"]
    with pytest.raises(ModelError, match="at most 1024 characters; one has 1,000,000"):
        build(sentencepiece(), tokens=[*tokens[:-1], "x" * 1_000_000])


# ------------------------------------------------------------------ memory, and at random


def test_memory_is_bounded(pieces, refuse):
    """What such a file asks for is far beyond any machine; what is taken is less than a megabyte.

    Python's and NumPy's memory is measured; the fuzzer's long run limits that of the process.
    """
    most = packed("Q", 2**64 - 1)
    changes = [
        ("tokenizer.ggml.tokens", LIST, packed("I", STRING) + most),
        ("tokenizer.ggml.token_type", LIST, packed("I", 5) + most),
        ("tokenizer.ggml.model", STRING, most),
        ("llama.block_count", 10, most),
        ("llama.embedding_length", 10, most),
        ("llama.attention.head_count", 10, most),
    ]
    files = [copy.deepcopy(pieces) for _ in range(len(changes) + 1)]
    for file, (key, kind, raw) in zip(files, changes, strict=False):
        file.pair(key)[1:] = [kind, raw]
    files[-1].tensor("token_embd.weight").shape = [6, 2**40]
    for file in files:
        tracemalloc.start()
        try:
            refuse(file)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 2**20


def test_a_short_run_of_the_fuzzer(tmp_path):
    tried, seen, findings = fuzz(2026, lambda tried: tried < 200, tmp_path, tmp_path)
    assert findings == []
    assert tried == 200
    assert len(seen) > 20  # kinds of refusals
    assert 80 < seen["runs"] < 720  # of 800: damage may be harmless
