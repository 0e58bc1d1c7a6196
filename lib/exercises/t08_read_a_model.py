"""Exercise 08: from the bytes of a model file to its numbers, from a text to tokens and back.

The blocks are those of `ggml/src/ggml-common.h` in llama.cpp. The tokenizer is the byte-level BPE
of Radford et al. 2019, section 2.2, with the pieces of SmolLM2: see `lib.engine.bpe`.
"""

import re
from itertools import pairwise

import numpy as np

from lib.engine.bpe import _byte_alphabet
from lib.exercises.building import Building, Rung
from lib.exercises.judging import Task
from lib.exercises.wording import Wording

# ALPHABET[b] is the character that a vocabulary writes for the byte b.
ALPHABET = [text for text, _ in sorted(_byte_alphabet().items(), key=lambda pair: pair[1])]

# --- Blocks of numbers ---------------------------------------------------------------------------


def q8_block(block):
    """Return the numbers of a block of Q8_0: a scale d, then 32 signed bytes q; w = d q."""
    d, q = block[:2].view("<f2")[0], block[2:].view(np.int8)
    return np.float64(d) * q


def q4_block(block):
    """Return the numbers of a block of Q4_1: scale d, offset m, 16 bytes of two q; w = d q + m."""
    d, m = block[:4].view("<f2").astype(np.float64)
    q = np.concatenate([block[4:] & 15, block[4:] >> 4])
    return d * q + m


FORMATS = {"Q8_0": (34, 32, q8_block), "Q4_1": (20, 32, q4_block)}  # bytes, numbers


def read_tensor(data, start, kind, shape):
    """Return a tensor of a file, whose bytes begin at `start`: float64 of this shape."""
    count = int(np.prod(shape))
    if kind == "F32":
        return data[start : start + 4 * count].view("<f4").astype(np.float64).reshape(shape)
    size, numbers, block = FORMATS[kind]
    blocks = data[start : start + size * count // numbers].reshape(-1, size)
    return np.array([block(one.copy()) for one in blocks]).reshape(shape)


def embed(ids, data, start, kind, d):
    """Return the rows of the embedding that belong to tokens: (n,) -> (n, d)."""
    size, numbers, _ = FORMATS.get(kind, (4, 1, None))
    row = d // numbers * size  # bytes
    return np.array([read_tensor(data, start + row * token, kind, (d,)) for token in ids])


def q8_bytes(d, q):
    """Return the 34 bytes of a block of Q8_0."""
    return np.frombuffer(np.float16(d).tobytes() + np.int8(q).tobytes(), np.uint8)


def q4_bytes(d, m, q):
    """Return the 20 bytes of a block of Q4_1; q are 32 numbers from 0 to 15."""
    q = np.asarray(q, np.uint8)
    head = np.float16([d, m]).view(np.uint8)
    return np.concatenate([head, q[:16] | q[16:] << 4])


def _q8_drawn(rng, sign=1):
    return q8_bytes(sign * rng.uniform(0.02, 0.3), rng.integers(-127, 128, 32))


def _q4_drawn(rng, sign=1):
    return q4_bytes(sign * rng.uniform(0.2, 2), rng.choice([-1, 1]) * rng.uniform(2, 9),
                    rng.integers(0, 16, 32))  # fmt: skip


def tensor_drawn(rng, kind, count):
    """Return the bytes of a tensor of random numbers."""
    if kind == "F32":
        return rng.normal(size=count).astype("<f4").view(np.uint8)
    draw = {"Q8_0": _q8_drawn, "Q4_1": _q4_drawn}[kind]
    return np.concatenate([draw(rng) for _ in range(count // 32)])


def file_drawn(rng, start, kind, count):
    """Return the bytes of a file that holds a tensor from `start` on, and other bytes around it."""
    around = rng.integers(0, 256, start + 24).astype(np.uint8)
    tensor = tensor_drawn(rng, kind, count)
    return np.concatenate([around[:start], tensor, around[start:]])


def _of(seed):
    return np.random.default_rng(seed)


_PAIR = [1] * 16 + [2] * 16
_TWO = np.zeros(32, int)
_TWO[[0, 1, 16, 17]] = 1, 3, 2, 4

Q8_BLOCK = Building(
    name="q8_block",
    parameters=("block",),
    definition=q8_block,
    rungs=(
        Rung("the scale",
             "Bytes 0 and 1 are the scale d as a float16, its low byte first: here 0.5, written as "
             "the bytes 0 and 56. All 32 bytes after it are 2, so every number is 0.5 · 2.",
             (q8_bytes(0.5, [2] * 32),)),
        Rung("the places", "d is 1 and the bytes after it are 1, 2, … 32, so these come out.",
             (q8_bytes(1, np.arange(1, 33)),)),
        Rung("the sign",
             "A byte is a signed number here: 255 is −1, 254 is −2, and 129 is −127. d is 1.",
             (q8_bytes(1, [-1, -2, -127, 127] * 8),)),
        Rung("a negative scale", "d is −2.", (q8_bytes(-2, np.arange(-16, 16)),)),
        Rung("all of it together", "A scale and numbers of both signs.", (_q8_drawn(_of(1)),)),
    ),
)  # fmt: skip

Q4_BLOCK = Building(
    name="q4_block",
    parameters=("block",),
    definition=q4_block,
    rungs=(
        Rung("the offset",
             "Bytes 2 and 3 are the offset m as a float16: here 3. Every q is 0, so m alone is "
             "left; the scale is 2.",
             (q4_bytes(2, 3, [0] * 32),)),
        Rung("the scale", "Bytes 0 and 1 are the scale d: here 0.5. Every q is 2, and m is 0.",
             (q4_bytes(0.5, 0, [2] * 32),)),
        Rung("which half of a byte comes first",
             "A byte holds two q: the low half is number i of the block, the high half number "
             "i + 16. Every byte is 0x21: its low half is 1 and its high half is 2.",
             (q4_bytes(1, 0, _PAIR),), run=lambda call, block: call(block)[0], part="number 0"),
        Rung("where the two halves of a byte go",
             "The low halves of the 16 bytes are the numbers 0 … 15, the high halves the numbers "
             "16 … 31: the two halves of a byte are not neighbours. The first two bytes are 0x21 "
             "and 0x43, so numbers 0 and 1 are 1 and 3, and numbers 16 and 17 are 2 and 4.",
             (q4_bytes(1, 0, _TWO),)),
        Rung("no sign", "A q is a number from 0 to 15; none is negative.",
             (q4_bytes(1, 0, [15, 8, 7, 0] * 8),)),
        Rung("scale before offset", "w = d q + m: m is not scaled. d is 2 and m is 10.",
             (q4_bytes(2, 10, np.arange(32) % 16),)),
        Rung("a negative scale", "d is −0.5 and m is −3.",
             (q4_bytes(-0.5, -3, np.arange(32)[::-1] % 16),)),
        Rung("all of it together", "Scale, offset and 32 numbers.", (_q4_drawn(_of(2)),)),
    ),
)  # fmt: skip


READ_TENSOR = Building(
    name="read_tensor",
    parameters=("data", "start", "kind", "shape"),
    definition=read_tensor,
    rungs=(
        Rung("numbers in float32", "F32 is four bytes for each number, the low byte first.",
             (np.array([1, -2, 3], "<f4").view(np.uint8), 0, "F32", (3,))),
        Rung("the rows of a matrix",
             "Shape (2, 3): the first three numbers are row 0, the next three are row 1.",
             (np.arange(6, dtype="<f4").view(np.uint8), 0, "F32", (2, 3))),
        Rung("where the tensor begins and ends",
             "Other tensors lie before it and behind it: it begins at byte 8.",
             (file_drawn(_of(3), 8, "F32", 6), 8, "F32", (2, 3))),
        Rung("one block of 8 bits", "One row of 32 numbers is one block of Q8_0.",
             (tensor_drawn(_of(4), "Q8_0", 32), 0, "Q8_0", (1, 32))),
        Rung("one block of 4 bits", "One row of 32 numbers is one block of Q4_1.",
             (tensor_drawn(_of(5), "Q4_1", 32), 0, "Q4_1", (1, 32))),
        Rung("the blocks of a row", "A row of 64 numbers is two blocks, one behind the other.",
             (tensor_drawn(_of(6), "Q8_0", 64), 0, "Q8_0", (1, 64))),
        Rung("rows of blocks", "Three rows of 64: blocks 0 and 1 are row 0, 2 and 3 are row 1.",
             (tensor_drawn(_of(7), "Q4_1", 192), 0, "Q4_1", (3, 64))),
        Rung("all of it together", "Two rows of 64 in Q8_0, with other tensors around them.",
             (file_drawn(_of(8), 12, "Q8_0", 128), 12, "Q8_0", (2, 64))),
    ),
)  # fmt: skip


def _with_marked_rows():
    """Return an embedding of 4 tokens of width 32 in Q8_0: row t is t + 1 everywhere."""
    return np.concatenate([q8_bytes(1, [t + 1] * 32) for t in range(4)])


EMBED = Building(
    name="embed",
    parameters=("ids", "data", "start", "kind", "d"),
    definition=embed,
    rungs=(
        Rung("the row of a token",
             "Row t of the embedding is the vector of token t, the first row is that of token 0. "
             "Here row t is t + 1 everywhere; token 2 is asked for.",
             ([2], _with_marked_rows(), 0, "Q8_0", 32)),
        Rung("the order of the text",
             "The vectors come in the order of the tokens, one row for each, also for the same "
             "token twice.",
             ([3, 0, 3, 1], _with_marked_rows(), 0, "Q8_0", 32)),
        Rung("where the embedding begins", "It begins at byte 6 of the data.",
             ([1, 0], file_drawn(_of(9), 6, "Q8_0", 96), 6, "Q8_0", 32)),
        Rung("rows of several blocks", "The vectors are 64 wide: two blocks for each token.",
             ([2, 1], tensor_drawn(_of(10), "Q8_0", 256), 0, "Q8_0", 64)),
        Rung("another kind", "The rows are blocks of Q4_1.",
             ([1, 2], tensor_drawn(_of(11), "Q4_1", 192), 0, "Q4_1", 64)),
        Rung("all of it together", "Rows of float32, with other tensors around them.",
             ([4, 1, 4], file_drawn(_of(12), 8, "F32", 30), 8, "F32", 6)),
    ),
)  # fmt: skip

# --- Pieces, merges, tokens ----------------------------------------------------------------------

# \p{L} of the engine's expression is [^\W\d_] here, \p{N} is \d.
PIECES = re.compile(
    r"\d|'(?:s|t|re|ve|m|ll|d)| ?[^\W\d_]+| ?(?:[^\s\w]|_)+|\s+(?=\d)|\s+(?!\S)|\s+"
)


def split(text):
    """Return the pieces of a text; merges never cross from one to the next."""
    return PIECES.findall(text)


def merge(word, merges):
    """Return a piece as tokens: pairs are merged, the one that is first in the list first."""
    rank = {tuple(pair.split(" ")): k for k, pair in enumerate(merges)}
    parts = list(word)
    while len(parts) > 1:
        pairs = list(pairwise(parts))
        best = min(pairs, key=lambda pair: rank.get(pair, len(rank)))
        if best not in rank:
            break
        k = pairs.index(best)
        parts[k : k + 2] = ["".join(best)]
    return parts


def encode(text, tokens, merges, alphabet):
    """Return the tokens of a text."""
    ids = {spelled: token for token, spelled in enumerate(tokens)}
    words = ("".join(alphabet[byte] for byte in piece.encode()) for piece in split(text))
    return [ids[part] for word in words for part in merge(word, merges)]


def decode(ids, tokens, alphabet):
    """Return the text of tokens; bytes that make no character become U+FFFD."""
    byte = {character: k for k, character in enumerate(alphabet)}
    raw = bytes(byte[character] for token in ids for character in tokens[token])
    return raw.decode("utf-8", errors="replace")


SPLIT = Wording(
    name="split",
    parameters=("text",),
    definition=split,
    rungs=(
        Rung("one word", "Letters that follow each other are one piece.", ("attention",)),
        Rung("the space in front", "A space belongs to the word behind it.", ("to be or",)),
        Rung("digits", "Each digit is a piece of its own.", ("2048",)),
        Rung("letters beside digits", "A piece ends where letters turn into digits, or back.",
             ("gpt2xl",)),
        Rung("the space before a digit",
             "Digits are cut out first, so the space before one is a piece of its own.",
             ("in 19 or 7",)),
        Rung("marks", "Marks that are neither letter, digit nor space stay together, with the "
             "space in front of them.", ("Well... yes (no!)",)),
        Rung("the underscore", "It is a mark, not a letter.", ("a_b __c",)),
        Rung("contractions", "'s, 't, 're, 've, 'm, 'll and 'd are pieces of their own.",
             ("it's we'll I'd don't",)),
        Rung("an apostrophe that is no contraction", "It is a mark like any other.",
             ("'x o'clock",)),
        Rung("several spaces", "The last of several spaces belongs to the word behind them, the "
             "others are a piece of their own.", ("a   b",)),
        Rung("spaces at the end", "No word is behind them: together they are one piece.",
             ("a   ",)),
        Rung("lines", "A line's end is no space that a word takes along. The last one before a "
             "word is a piece of its own.", ("a\nb\n\n\nc",)),
        Rung("letters beyond a to z", "Letters of all scripts are letters.", ("naïve Übung 東京",)),
        Rung("capital letters", "They change nothing.", ("McDonald IT'S",)),
        Rung("all of it together", "Nothing is lost: the pieces joined are the text.",
             ("In 1987,  she'd said: “x_1 = 3.14”!\n\n  Ok?",)),
    ),
)  # fmt: skip

MERGE = Wording(
    name="merge",
    parameters=("word", "merges"),
    definition=merge,
    rungs=(
        Rung("nothing to merge", "No pair of the word is in the list: each character is a token.",
             ("cab", ["a c", "b c"])),
        Rung("one merge", "The pair “a b” becomes one.", ("abc", ["a b"])),
        Rung("rank before place",
             "Both pairs could be merged, and they share the b. “b c” comes first in the list, so "
             "it is merged first, though “a b” comes first in the word.",
             ("abc", ["b c", "a b"])),
        Rung("merges of merges", "What was merged can be merged again.",
             ("hello", ["l l", "h e", "he ll", "hell o"])),
        Rung("a pair that comes up twice", "Every place of the pair is merged.",
             ("abcab", ["a b"])),
        Rung("places that overlap", "In “aaa” the pair “a a” is there twice; the left one is "
             "merged, and the third a is left over.", ("aaa", ["a a"])),
        Rung("a merge that becomes possible later",
             "“ab c” comes first in the list, but there is no “ab” until “a b” has been merged. "
             "Then its turn comes, before “c d”.",
             ("abcd", ["ab c", "a b", "c d"])),
        Rung("the longest is not always reached",
             "“abc” could be made of “a bc”, but “a b” is merged first, and “ab c” is not in the "
             "list.",
             ("abc", ["a b", "b c", "a bc"])),
        Rung("an order of its own", "The rank counts, not the length, nor the alphabet.",
             ("xyzabc", ["z a", "y za", "a b", "x y", "b c", "x yza", "xyza bc"])),
        Rung("one character", "There is no pair.", ("a", ["a a"])),
        Rung("all of it together", "Merges of several lengths, in the order of the list.",
             ("Ġthethether", ["t h", "e r", "th e", "Ġ the", "h e", "e t", "the ther", "th er"])),
    ),
)  # fmt: skip

SPELLS = ["' l", "t h", "Ġ t", "a n", "h e", "i n", "th e", "Ġ a", "e r", "Ġt he", "Ġa n", "Ã ©",
          "l l", "1 2", "s Ġ"]  # fmt: skip
TOKENS = ALPHABET[::-1] + [pair.replace(" ", "") for pair in SPELLS]

ENCODE = Wording(
    name="encode",
    parameters=("text", "tokens", "merges", "alphabet"),
    definition=encode,
    kind="tokens",
    rungs=(
        Rung("a token is a place", "The token of a spelling is its place in the list.",
             ("xyz", TOKENS, [], ALPHABET)),
        Rung("the space", "A space is the byte 32, which the alphabet spells as Ġ.",
             ("x y", TOKENS, [], ALPHABET)),
        Rung("bytes, not characters", "é is two bytes in UTF-8, and each is a token here.",
             ("é", TOKENS, [], ALPHABET)),
        Rung("the merges", "“t h” and then “th e” are merged.", ("the", TOKENS, SPELLS, ALPHABET)),
        Rung("rank before place", "“h e” comes first in this list.",
             ("the", TOKENS, ["h e", "t h"], ALPHABET)),
        Rung("merges of bytes", "The two bytes of é are merged.", ("né", TOKENS, SPELLS, ALPHABET)),
        Rung("pieces", "“s Ġ” is in the list, but s and the space are of different pieces: merges "
             "do not cross.", ("as in", TOKENS, SPELLS, ALPHABET)),
        Rung("digits", "“1 2” is in the list, but each digit is a piece of its own.",
             ("12", TOKENS, SPELLS, ALPHABET)),
        Rung("contractions", "'ll is a piece of its own.",
             ("he'll", TOKENS, SPELLS, ALPHABET)),
        Rung("other characters", "Characters of three and of four bytes.",
             ("東 🙂", TOKENS, SPELLS, ALPHABET)),
        Rung("all of it together", "A text of several pieces.",
             ("the café, an 12 in there\n the", TOKENS, SPELLS, ALPHABET)),
    ),
)  # fmt: skip


def _encoded(text):
    return encode(text, TOKENS, SPELLS, ALPHABET)


DECODE = Wording(
    name="decode",
    parameters=("ids", "tokens", "alphabet"),
    definition=decode,
    kind="text",
    rungs=(
        Rung("spellings side by side", "Nothing comes between the tokens.",
             (_encoded("there"), TOKENS, ALPHABET)),
        Rung("the space", "Ġ spells the byte 32, a space.", (_encoded("in the"), TOKENS, ALPHABET)),
        Rung("the space in front", "A text may begin with a space; it stays.",
             (_encoded(" the"), TOKENS, ALPHABET)),
        Rung("other bytes", "The alphabet spells a line's end as Ċ.",
             (_encoded("a\nb\t"), TOKENS, ALPHABET)),
        Rung("a character in one token", "The token “Ã©” is the two bytes of é.",
             (_encoded("né"), TOKENS, ALPHABET)),
        Rung("a character cut over two tokens",
             "The two bytes of ü are two tokens. Neither is a character by itself: join the bytes "
             "of all tokens first, then read them as UTF-8.",
             (_encoded("für"), TOKENS, ALPHABET)),
        Rung("half a character",
             "The text ends within a character. What makes none becomes U+FFFD, the replacement "
             "character.",
             (_encoded("für")[:2], TOKENS, ALPHABET)),
        Rung("four tokens for one character", "🙂 is four bytes.",
             (_encoded("🙂!"), TOKENS, ALPHABET)),
        Rung("no tokens", "The text of no tokens is empty.", ([], TOKENS, ALPHABET)),
        Rung("all of it together", "A text, encoded.",
             (_encoded("the café für 東京\n in 12"), TOKENS, ALPHABET)),
    ),
)  # fmt: skip

# --- Inputs that nobody has seen; see the hidden rungs of a grader -------------------------------

_WORDS = ["the", "there", "then", "an", "ran", "inner", "tell", "Ärger", "naïve", "für", "café",
          "東京", "x", "her"]  # fmt: skip
_BETWEEN = [" ", " ", " ", "  ", "   ", "\n", "\n\n ", ", ", "... ", "_", " __", "'s ", "'ll ",
            " 12 ", "7", "'xe ", "'S McDon", " (", "! ", " 'x ", "’", "🙂 "]  # fmt: skip


def _text(r):
    """A text that holds every kind of piece, in an order of its own."""
    between = r.rng.permutation(_BETWEEN)
    return "".join(f"{r.rng.choice(_WORDS)}{b}" for b in between) + "a  "


def _pairs(r):
    """Draw a list of merges of few letters, and a word that uses many of them.

    A word is left out whose tokens depend on whether the places of a pair are merged one by one or
    all at once: in a real file they never do, since a merge comes after those that it is made of.
    """
    word, pairs = _drawn_pairs(r)
    while merge(word, pairs) != _merge_everywhere(word, pairs):
        word, pairs = _drawn_pairs(r)
    return word, pairs


def _merge_everywhere(word, merges):
    rank, parts = {tuple(pair.split(" ")): k for k, pair in enumerate(merges)}, list(word)
    while known := [pair for pair in pairwise(parts) if pair in rank]:
        best, found = min(known, key=rank.get), []
        for part in parts:
            if found and (found[-1], part) == best:
                found[-1] += part
            else:
                found.append(part)
        parts = found
    return parts


def _drawn_pairs(r):
    letters = r.rng.permutation(list("abcdef"))[:3]
    parts, pairs = list(letters), []
    while len(pairs) < 9:
        left, right = r.rng.choice(parts, 2)
        if f"{left} {right}" not in pairs and len(left + right) < 6:
            pairs.append(f"{left} {right}")
            parts.append(left + right)
    word = "".join(r.rng.choice(parts, 12))
    return word, r.rng.permutation(pairs).tolist()


def _kind(r):
    return str(r.rng.choice(["F32", "Q8_0", "Q4_1"]))


def _tensor(kind=None):
    def draw(r):
        k, rows, start = kind or _kind(r), r.whole(2, 5), 2 * r.whole(3, 20)
        d = 32 * r.whole(2, 4)
        return file_drawn(r.rng, start, k, rows * d), start, k, (rows, d)

    return draw


def _rows(kind=None):
    def draw(r):
        data, start, k, (rows, d) = _tensor(kind)(r)
        ids = [rows - 1, *r.rng.integers(0, rows, 3).tolist(), 0]
        return ids, data, start, k, d

    return draw


def _spelling(r):
    order = r.rng.permutation(len(SPELLS))
    letters = [ALPHABET[byte] for byte in r.rng.permutation(256)]
    return [*letters, *(SPELLS[k].replace(" ", "") for k in order)]


def _to_encode(r):
    # "th e" needs "th": any order of the list is a list of merges.
    return _text(r), _spelling(r), r.rng.permutation(SPELLS).tolist(), ALPHABET


def _to_decode(r):
    tokens = _spelling(r)
    text = " " + _text(r)
    ids = encode(text, tokens, r.rng.permutation(SPELLS).tolist(), ALPHABET)
    return [*ids, tokens.index("Ã")], tokens, ALPHABET  # ends within a character


HIDDEN = {
    "q8_block": (lambda r: (_q8_drawn(r.rng),), lambda r: (_q8_drawn(r.rng, -1),)) * 2,
    "q4_block": (lambda r: (_q4_drawn(r.rng),), lambda r: (_q4_drawn(r.rng, -1),)) * 2,
    "read_tensor": (_tensor("F32"), _tensor("Q8_0"), _tensor("Q4_1")),
    "embed": (_rows("F32"), _rows("Q8_0"), _rows("Q4_1")),
    "split": (lambda r: (_text(r),),) * 3,
    "merge": (lambda r: (str(r.rng.choice(list("abc"))), ["a b", "b c"]), *[_pairs] * 8),
    "encode": (_to_encode,) * 2,
    "decode": (_to_decode,) * 2,
}

TASKS = [
    Task("08.q8_block", "A block of 8 bits", Q8_BLOCK.form, 10, 1, Q8_BLOCK.judge),
    Task("08.q4_block", "A block of 4 bits", Q4_BLOCK.form, 10, 2, Q4_BLOCK.judge),
    Task("08.tensor", "A tensor of the file", READ_TENSOR.form, 10, 2, READ_TENSOR.judge),
    Task("08.embed", "From tokens to vectors", EMBED.form, 5, 1, EMBED.judge),
    Task("08.split", "A text in pieces", SPLIT.form, 15, 3, SPLIT.judge),
    Task("08.merge", "Merging by rank", MERGE.form, 15, 2, MERGE.judge),
    Task("08.encode", "From a text to tokens", ENCODE.form, 10, 2, ENCODE.judge),
    Task("08.decode", "From tokens to a text", DECODE.form, 5, 2, DECODE.judge),
]
