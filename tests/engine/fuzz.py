"""Damage model files at random, and see that each is refused in words or runs.

    python -m tests.engine.fuzz --minutes 10 [--seed N] [--keep FOLDER]

Tiny files are damaged byte by byte, and piece by piece: a count, a length, a type, a value, a
shape, an offset, a weight. Each is read by every road. What is allowed is a ModelError, in one
short line, or a model that runs. Anything else is a finding: it is printed, and the file is kept.
The same seed makes the same files. Memory is held to 3 GB where the system can do that. A file that
takes longer than a minute ends the run, and is left in the folder as `last.gguf`.
"""

import argparse
import contextlib
import faulthandler
import struct
import sys
import time
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from lib.engine.gguf import read_gguf
from lib.engine.llama import load_model
from lib.engine.tokenizer import Tokenizer
from lib.errors import CourseError, ModelError
from tests.engine.tiny_models import SENTENCEPIECE, byte_level, sentencepiece, write_tiny

SIZES = {"L": 1, "d": 6, "H": 4, "H_kv": 2, "d_head": 2, "d_ff": 10}
BLOCKS = {"L": 1, "d": 32, "H": 2, "H_kv": 1, "d_head": 32, "d_ff": 64}
TEXT = "ab hell 12 é<|end|>"
# Bytes of one value of each type of the metadata; 8 is a string, 9 a list.
SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, LIST = 8, 9
ODD_NUMBERS = [0, 1, 2, 3, 7, 31, 33, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32]
ODD_NUMBERS += [2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1]


def packed(kind, number):
    return struct.pack(f"<{kind}", number)


def text(raw):
    return packed("Q", len(raw)) + raw


@dataclass
class Tensor:
    name: bytes
    shape: list[int]  # as in the file, the fastest dimension first
    type: int
    offset: int

    def written(self):
        shape = b"".join(packed("Q", n % 2**64) for n in self.shape)
        head = text(self.name) + packed("I", len(self.shape)) + shape
        return head + packed("I", self.type % 2**32) + packed("Q", self.offset % 2**64)


@dataclass
class RawFile:
    """A GGUF file in its pieces, each of which may be made wrong before it is written."""

    pairs: list[list]  # [key, type, value], the value as its bytes
    tensors: list[Tensor]
    data: bytes
    magic: bytes = b"GGUF"
    version: int = 3
    counts: list[int | None] = field(default_factory=lambda: [None, None])  # where they lie
    alignment: int = 32

    def written(self):
        tensors, pairs = (
            len(x) if count is None else count
            for count, x in zip(self.counts, (self.tensors, self.pairs), strict=True)
        )
        head = self.magic + packed("I", self.version) + packed("Q", tensors) + packed("Q", pairs)
        head += b"".join(text(key) + packed("I", kind) + raw for key, kind, raw in self.pairs)
        head += b"".join(tensor.written() for tensor in self.tensors)
        return head + bytes(-len(head) % self.alignment) + self.data

    def pair(self, key):
        return next(pair for pair in self.pairs if pair[0] == key.encode())

    def tensor(self, name):
        return next(tensor for tensor in self.tensors if tensor.name == name.encode())


def parse(raw):
    """Take a whole file apart. It trusts the file, as only files of our own come here."""
    at = 24

    def take(size):
        nonlocal at
        at += size
        return raw[at - size : at]

    def number(kind):
        return struct.unpack(f"<{kind}", take(struct.calcsize(kind)))[0]

    def value(kind):
        start = at
        if kind == STRING:
            take(number("Q"))
        elif kind == LIST:
            inner, count = number("I"), number("Q")
            for _ in range(count):
                take(number("Q")) if inner == STRING else take(SCALARS[inner])
        else:
            take(SCALARS[kind])
        return raw[start:at]

    tensor_count, pair_count = struct.unpack("<QQ", raw[8:24])
    pairs, tensors = [], []
    for _ in range(pair_count):
        key, kind = take(number("Q")), number("I")
        pairs.append([key, kind, value(kind)])
    for _ in range(tensor_count):
        name, n_dims = take(number("Q")), number("I")
        tensors.append(Tensor(name, [number("Q") for _ in range(n_dims)], number("I"), number("Q")))
    return RawFile(pairs, tensors, raw[at + -at % 32 :])


def few_tokens():
    """Return a byte-level tokenizer of 23 tokens, so that files are small."""
    whole = byte_level()
    tokens = ["<|end|>", "<|im_end|>", *"abehl12Ġ!?.,", "he", "ll", "hell", "12", *"cdfgi"]
    return whole | {
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3, 3] + [1] * (len(tokens) - 2),
        "tokenizer.ggml.merges": ["h e", "l l", "he ll", "1 2"],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 0,
        "tokenizer.chat_template": "{{ messages[0].content }}",
    }


def few_pieces():
    """Return SentencePiece's bytes and few of its tokens."""
    whole = sentencepiece()
    keep = [
        k for k, kind in enumerate(SENTENCEPIECE["llama"]["types"]) if k < 280 or kind in (2, 3, 6)
    ]
    keep += [k for k in range(280, len(whole["tokenizer.ggml.tokens"])) if k % 20 == 0]
    keep.append(whole["tokenizer.ggml.tokens"].index("▁"))
    keep = sorted(set(keep))
    for name in ("tokens", "scores", "token_type"):
        key = f"tokenizer.ggml.{name}"
        whole[key] = [whole[key][k] for k in keep]
    return whole


def make_bases(folder):
    """Return whole files of several kinds, as bytes."""
    made = [
        write_tiny(folder / "f32.gguf", SIZES, tokenizer=few_tokens()),
        write_tiny(folder / "q8.gguf", BLOCKS, "Q8_0", tokenizer=few_tokens()),
        write_tiny(folder / "q4.gguf", BLOCKS, "Q4_1", untied=True, tokenizer=few_tokens()),
        write_tiny(folder / "q4-0.gguf", BLOCKS, "Q4_0", tokenizer=few_tokens()),
        write_tiny(folder / "f16.gguf", SIZES, "F16", tokenizer=few_pieces()),
    ]
    return [path.read_bytes() for path in made]


# ------------------------------------------------------------------ damage


def flip_bytes(raw, rng):
    raw = bytearray(raw)
    end = len(raw) if rng.random() < 0.3 else min(len(raw), 4000)  # the header matters more
    for at in rng.integers(end, size=rng.integers(1, 5)):
        raw[at] = rng.integers(256) if rng.random() < 0.5 else raw[at] ^ 1 << rng.integers(8)
    return bytes(raw)


def cut(raw, rng):
    return raw[: rng.integers(len(raw))]


def write_number(raw, rng):
    """Put a number that is often wrong where eight bytes stand."""
    at = int(rng.integers(min(len(raw), 6000)))
    kind = "Q" if rng.random() < 0.6 else "I"
    number = packed(
        kind, ODD_NUMBERS[rng.integers(len(ODD_NUMBERS))] % 2 ** (8 * struct.calcsize(kind))
    )
    return raw[:at] + number + raw[at + len(number) :]


def move_bytes(raw, rng):
    """Take bytes away, double them, or put random ones in."""
    at, size = int(rng.integers(min(len(raw), 6000))), int(rng.integers(1, 40))
    what = rng.integers(3)
    middle = [b"", 2 * raw[at : at + size], rng.bytes(size) + raw[at : at + size]][what]
    return raw[:at] + middle + raw[at + size :]


def change_count(file, rng):
    file.counts[rng.integers(2)] = ODD_NUMBERS[rng.integers(len(ODD_NUMBERS))]


def change_value(file, rng):
    """Give a key another value of its type: odd numbers, NaN, random bytes, a wrong length."""
    pair = file.pairs[rng.integers(len(file.pairs))]
    _, kind, raw = pair
    if kind in (6, 12):
        odd = [0.0, -1.0, 1e-45, 3e38, np.nan, np.inf, -np.inf]
        pair[2] = packed("f" if kind == 6 else "d", odd[rng.integers(len(odd))])
    elif kind in SCALARS:
        number = ODD_NUMBERS[rng.integers(len(ODD_NUMBERS))]
        pair[2] = packed("Q", number)[: SCALARS[kind]]
    elif kind == STRING:
        pair[2] = text(rng.bytes(int(rng.integers(60))))
    else:
        at = int(rng.integers(len(raw)))
        pair[2] = raw[:at] + rng.bytes(int(rng.integers(1, 9))) + raw[at + int(rng.integers(9)) :]


def change_type(file, rng):
    file.pairs[rng.integers(len(file.pairs))][1] = int(rng.integers(15))


def change_key(file, rng):
    pair = file.pairs[rng.integers(len(file.pairs))]
    pair[0] = rng.choice([b"", rng.bytes(5), file.pairs[0][0], pair[0] + b"x"])


def drop_or_double_pair(file, rng):
    at = int(rng.integers(len(file.pairs)))
    pair = file.pairs.pop(at)
    if rng.random() < 0.3:
        file.pairs[at:at] = [pair, list(pair)]


def change_list(file, rng):
    """Change one entry of a list of texts or numbers, or repeat, drop and swap some."""
    lists = [pair for pair in file.pairs if pair[1] == LIST]
    pair = lists[rng.integers(len(lists))]
    kind, entries = split_list(pair[2])
    at, other = (int(k) for k in rng.integers(len(entries), size=2))
    what = rng.integers(4)
    if what == 0:
        entries[at] = random_entry(kind, rng)
    elif what == 1:
        entries[at] = entries[other]
    elif what == 2:
        del entries[at]
    else:
        entries[at], entries[other] = entries[other], entries[at]
    pair[2] = packed("I", kind) + packed("Q", len(entries)) + b"".join(entries)


def random_entry(kind, rng):
    if kind != STRING:
        return rng.bytes(SCALARS[kind])
    texts = ["", " ", "a b", "a  b", "b c", " a", "a ", "hellhell", "\0", "x" * 2000, "▁", "<0x41>"]
    texts += ["é é", "a b c", "hell 12", "<0xZZ>", "<|end|>"]
    raw = texts[rng.integers(len(texts))].encode() if rng.random() < 0.8 else rng.bytes(4)
    return text(raw)


def split_list(raw):
    kind, count = struct.unpack("<IQ", raw[:12])
    entries, at = [], 12
    while len(entries) < count and at < len(raw):
        size = 8 + struct.unpack("<Q", raw[at : at + 8])[0] if kind == STRING else SCALARS[kind]
        entries.append(raw[at : at + size])
        at += size
    return kind, entries


def change_tensor(file, rng):
    """Change a tensor's name, shape, type or place."""
    tensor = file.tensors[rng.integers(len(file.tensors))]
    what = rng.integers(6)
    if what == 0:
        tensor.name = rng.choice([b"", rng.bytes(6), file.tensors[0].name, b"blk.9.attn_q.weight"])
    elif what == 1:
        at = int(rng.integers(len(tensor.shape)))
        tensor.shape[at] = ODD_NUMBERS[rng.integers(len(ODD_NUMBERS))]
    elif what == 2:
        shapes = [[], tensor.shape[::-1], [*tensor.shape, 1], [1] * 5, [2**32] * 4, [0]]
        tensor.shape = list(shapes[rng.integers(len(shapes))])
    elif what == 3:
        tensor.type = int(rng.integers(45)) if rng.random() < 0.8 else int(rng.integers(2**32))
    elif what == 4:
        tensor.offset = ODD_NUMBERS[rng.integers(len(ODD_NUMBERS))]
    else:
        tensor.offset += int(rng.choice([-32, -1, 1, 4, 32, 64]))


def drop_or_double_tensor(file, rng):
    at = int(rng.integers(len(file.tensors)))
    tensor = file.tensors.pop(at)
    if rng.random() < 0.3:
        file.tensors[at:at] = [tensor, tensor]


def change_weights(file, rng):
    """Write numbers that are none, or the largest, among the weights."""
    raw = bytearray(file.data)
    for _ in range(rng.integers(1, 4)):
        at = 2 * int(rng.integers(len(raw) // 2))
        odd = [
            b"\x00\x7c",
            b"\x00\x7e",
            b"\x01\x7c",
            b"\xff\x7b",
            b"\xff\xff\x7f\x7f",
            b"\0\0\xc0\x7f",
        ]
        number = odd[rng.integers(len(odd))]
        raw[at : at + len(number)] = number
    file.data = bytes(raw)


RAW = [flip_bytes, cut, write_number, move_bytes]
PIECES = [change_count, change_value, change_value, change_type, change_key, drop_or_double_pair]
PIECES += [change_list, change_list, change_tensor, change_tensor, drop_or_double_tensor]
PIECES += [change_weights]


def damaged(raw, rng):
    """Return a file with one or a few kinds of damage."""
    if rng.random() < 0.35:
        return RAW[rng.integers(len(RAW))](raw, rng)
    file = parse(raw)
    for _ in range(1 if rng.random() < 0.7 else 3):
        if file.pairs and file.tensors:
            # A second damage may meet a piece that is no list or number any more.
            with contextlib.suppress(struct.error, ValueError, KeyError):
                PIECES[rng.integers(len(PIECES))](file, rng)
    return file.written()


# ------------------------------------------------------------------ judging


def roads():
    """Return every way in which a file is read, by name."""
    found = {"read_gguf": read_gguf, "load_model": run_plain, "Tokenizer": run_tokenizer}
    try:
        import numba  # noqa: F401
    except ImportError:
        return found
    return found | {"load_fast": load_fast}


def run_plain(path):
    model = load_model(path)
    try:
        model.logits([1, 2], model.new_cache(2))
    except ModelError:
        raise
    except CourseError:  # numbers that left float32: the core says so
        pass


def run_tokenizer(path):
    tokenizer = Tokenizer(read_gguf(path))
    for special in (False, True):
        try:
            tokenizer.decode(tokenizer.encode(TEXT, special=special))
        except CourseError as error:
            if isinstance(error, ModelError):
                raise


def load_fast(path):
    from lib.engine import fast

    fast.load_fast(path, threads=1, cache_type="float32")


def verdict(path, road):
    """Return what came of a file on a road: "runs", or how it was refused.

    Raises
    ------
    Exception
        Whatever a road raised that is no ModelError; AssertionError, if the words are no one short
        line.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a warning on the screen is not the reader's business
            # … but for this one: how such a file cuts text can only be guessed.
            warnings.filterwarnings("ignore", message=".*does not say how its tokenizer cuts text")
            road(path)
    except ModelError as error:
        message = str(error).replace(str(path), "FILE")
        assert len(message) < 400, f"a message of {len(message)} characters"
        assert message.isprintable(), "a message with control characters or several lines"
        return kind_of(message)
    return "runs"


def kind_of(message):
    """Return the words of a message without names and numbers, to count kinds of refusals."""
    words = [word for word in message.split() if word.isalpha()]
    return " ".join(words[:9])


def fuzz(seed, go_on, folder, keep, say=print):
    """Damage files as long as `go_on(tried)`; return how many, kinds of refusals, findings.

    Findings are kept in the folder `keep`, and the file at hand in `folder`, as `last.gguf`.
    """
    bases = make_bases(folder)
    path = folder / "last.gguf"
    seen, findings, tried = Counter(), [], 0
    while go_on(tried):
        rng = np.random.default_rng([seed, tried])
        raw = damaged(bases[rng.integers(len(bases))], rng)
        path.unlink(missing_ok=True)
        path.write_bytes(raw)
        for name, road in roads().items():
            try:
                seen[verdict(path, road)] += 1
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # `tokenizers` panics with one
                kept = Path(keep) / f"{seed}-{tried}-{name}.gguf"
                kept.write_bytes(raw)
                findings.append(f"{kept}: {type(error).__name__}: {str(error)[:200]}")
                say(findings[-1])
        tried += 1
    return tried, seen, findings


def hold_memory():
    with contextlib.suppress(ImportError):  # Windows has no such limit
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (3 << 30, resource.getrlimit(resource.RLIMIT_AS)[1]))


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", default="fuzz-findings", help="a folder for files that misbehave")
    options = parser.parse_args(arguments)
    Path(options.keep).mkdir(parents=True, exist_ok=True)
    hold_memory()
    end = time.monotonic() + 60 * options.minutes

    def go_on(tried):
        faulthandler.dump_traceback_later(60, exit=True)
        return time.monotonic() < end

    tried, seen, findings = fuzz(options.seed, go_on, Path(options.keep), options.keep)
    faulthandler.cancel_dump_traceback_later()
    print(f"{tried:,} files, seed {options.seed}; on {len(roads())} roads each:")
    for words, count in seen.most_common():
        print(f"{count:8,}  {words}")
    print(f"{len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
