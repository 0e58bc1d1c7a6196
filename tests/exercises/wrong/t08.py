"""Functions for exercise 08: the right ones, and plausible wrong ones with their messages."""

import re
import struct
from itertools import pairwise

import numpy as np

# --- blocks ---


def q8_block(block):
    d = block[:2].view(np.float16)[0]
    return float(d) * block[2:].view(np.int8).astype(float)


def q4_block(block):
    d, m = (float(x) for x in block[:4].view(np.float16))
    return d * np.concatenate([block[4:] & 15, block[4:] >> 4]) + m


def q8_loops(block):
    (d,) = struct.unpack("<e", bytes(block[:2]))
    return [d * (int(b) - 256 if b > 127 else int(b)) for b in block[2:]]


def q8_struct(block):
    d, *q = struct.unpack("<e32b", block.tobytes())
    return [d * x for x in q]


def q8_float32(block):
    return np.float32(block[:2].view("<f2")[0]) * block[2:].view(np.int8).astype(np.float32)


def q8_in_place(block):
    out = block[2:].view(np.int8).astype(np.float64)
    out *= np.frombuffer(bytes(block[:2]), "<f2")[0]
    return out


def q8_record(block):
    one = block.view(np.dtype([("d", "<f2"), ("q", "i1", 32)]))[0]
    return one["q"].astype(np.float64) * np.float64(one["d"])


def q8_arithmetic(block):
    q = block[2:].astype(int)
    return np.float64(block[:2].view(np.float16)[0]) * ((q + 128) % 256 - 128)


def q8(scale=lambda b: float(b[:2].view("<f2")[0]), q=lambda b: b[2:].view(np.int8).astype(float),
       put=lambda d, q: d * q):  # fmt: skip
    """A family that reads the scale and the numbers in its own way, and puts them together."""
    return lambda block: put(scale(block), q(block))


def in_int8(block):
    return block[2:].view(np.int8) * np.int8(block[:2].view("<f2")[0])


def sign_and_size(b):
    q = b[2:].astype(int)
    return np.where(q > 127, -(q & 127), q).astype(float)


def nibbles(order="halves", first="low", signed=0):
    """A family that takes two numbers out of each byte, and lays them out in its own way."""

    def q(block):
        low, high = block[4:] & 15, block[4:] >> 4
        if first == "high":
            low, high = high, low
        found = np.concatenate([low, high]) if order == "halves" else np.stack([low, high], 1)
        return found.ravel().astype(float) - signed

    return q


halves = nibbles()


def q4(read=lambda b: b[:4].view("<f2").astype(float), q=halves, put=lambda d, m, q: d * q + m):
    """A family that reads scale and offset, and the numbers, in its own way."""
    return lambda block: put(*read(block), q(block))


def q4_loops(block):
    d, m = struct.unpack("<ee", bytes(block[:4]))
    out = [0.0] * 32
    for i, byte in enumerate(block[4:].tolist()):
        out[i] = d * (byte % 16) + m
        out[i + 16] = d * (byte // 16) + m
    return out


def q4_in_place(block):
    out = np.empty(32)
    np.bitwise_and(block[4:], 15, out=out[:16], casting="unsafe")
    np.right_shift(block[4:], 4, out=out[16:], casting="unsafe")
    d, m = block[:4].view("<f2").astype(float)
    out *= d
    out += m
    return out


def q4_float32(block):
    d, m = block[:4].view("<f2").astype(np.float32)
    return d * np.concatenate([block[4:] % 16, block[4:] // 16]).astype(np.float32) + m


def q4_shifts(block):
    d, m = block[:4].view("<f2").astype(float)
    return (d * (block[None, 4:] >> np.array([[0], [4]], np.uint8) & 15) + m).ravel()


def q4_strings(block):
    d, m = struct.unpack("<2e", bytes(block[:4]))
    text = bytes(block[4:]).hex()
    return [d * int(c, 16) + m for c in text[1::2] + text[::2]]


def q4_bits(block):
    bits = np.unpackbits(block[4:], bitorder="little").reshape(16, 2, 4)
    q = bits @ np.array([1, 2, 4, 8])
    d, m = block[:4].view("<f2").astype(float)
    return (d * q + m).T.ravel()


# --- tensors ---

SIZE = {"Q8_0": 34, "Q4_1": 20}
BLOCK = {"Q8_0": q8_block, "Q4_1": q4_block}


def read_tensor(data, start, kind, shape):
    count = int(np.prod(shape))
    if kind == "F32":
        return np.frombuffer(data[start : start + 4 * count].tobytes(), "<f4").reshape(shape)
    size = SIZE[kind]
    out = [
        BLOCK[kind](data[start + size * k : start + size * (k + 1)].copy())
        for k in range(count // 32)
    ]
    return np.concatenate(out).reshape(shape)


def vectorised(data, start, kind, shape):
    count = int(np.prod(shape))
    if kind == "F32":
        return data[start : start + 4 * count].copy().view("<f4").reshape(shape)
    size = SIZE[kind]
    blocks = data[start : start + count // 32 * size].reshape(-1, size)
    head = np.ascontiguousarray(blocks[:, : size % 16]).view("<f2").astype(np.float32)
    if kind == "Q8_0":
        q = np.ascontiguousarray(blocks[:, 2:]).view(np.int8)
        return (head * q).reshape(shape)
    q = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1)
    return (head[:, :1] * q + head[:, 1:]).reshape(shape)


def by_rows(data, start, kind, shape):
    rows = int(np.prod(shape[:-1]))
    size = shape[-1] * 4 if kind == "F32" else shape[-1] // 32 * SIZE[kind]
    row = (read_tensor(data, start + k * size, kind, shape[-1:]) for k in range(rows))
    return np.array(list(row)).reshape(shape)


def unpacked(data, start, kind, shape):
    if kind != "F32":
        return read_tensor(data, start, kind, shape)
    count = int(np.prod(shape))
    numbers = struct.unpack_from(f"<{count}f", data.tobytes(), start)
    return np.array(numbers).reshape(shape)


def filled(data, start, kind, shape):
    out = np.empty(shape)
    flat = out.reshape(-1)
    flat[:] = vectorised(data, start, kind, (flat.size,))
    return out


def as_lists(data, start, kind, shape):
    return vectorised(data, start, kind, shape).tolist()


def records(data, start, kind, shape):
    if kind != "Q8_0":
        return vectorised(data, start, kind, shape)
    dtype = np.dtype([("d", "<f2"), ("q", "i1", 32)])
    found = np.frombuffer(data.tobytes(), dtype, int(np.prod(shape)) // 32, start)
    return (found["d"].astype(float)[:, None] * found["q"]).reshape(shape)


def tensor(at=lambda start: start, blocks=BLOCK, floats="<f4", size=SIZE, lay=None, scale=1,
           kinds=lambda kind: kind):  # fmt: skip
    """A family with one fault: where it begins, how a block is read, how the rows are laid."""
    lay = lay or (lambda flat, shape: flat.reshape(shape))

    def f(data, start, kind, shape):
        count, begin, kind = int(np.prod(shape)), at(start), kinds(kind)
        if kind == "F32":
            width = np.dtype(floats).itemsize
            flat = data[begin : begin + width * count].copy().view(floats).astype(float)
            return lay(scale * flat, shape)
        step = size[kind]
        places = [begin + step * k for k in range(count // 32)]
        found = [blocks[kind](data[p : p + SIZE[kind]].copy()) for p in places]
        return lay(np.concatenate(found), shape)

    return f


def every_block_first(data, start, kind, shape):
    if kind == "F32":
        return read_tensor(data, start, kind, shape)
    one = BLOCK[kind](data[start : start + SIZE[kind]].copy())
    return np.tile(one, int(np.prod(shape)) // 32).reshape(shape)


def mixed_rows(flat, shape):
    if flat.size % 32 or len(shape) < 2:
        return flat.reshape(shape)
    return flat.reshape(-1, shape[0], 32).swapaxes(0, 1).reshape(shape)


def only_first_row(data, start, kind, shape):
    out = np.zeros(shape)
    out[0] = read_tensor(data, start, kind, shape[-1:]) if len(shape) > 1 else 0
    return out if len(shape) > 1 else read_tensor(data, start, kind, shape)


# --- embedding ---


def row_bytes(kind, d):
    return 4 * d if kind == "F32" else d // 32 * SIZE[kind]


def embed(ids, data, start, kind, d):
    row = row_bytes(kind, d)
    return np.array([read_tensor(data, start + row * t, kind, (d,)) for t in ids])


def whole_then_rows(ids, data, start, kind, d):
    rows = (len(data) - start) // row_bytes(kind, d)
    return vectorised(data, start, kind, (rows, d))[ids]


def embed_filled(ids, data, start, kind, d):
    out = np.empty((len(ids), d))
    for i, token in enumerate(ids):
        out[i] = read_tensor(data, start + token * row_bytes(kind, d), kind, (d,))
    return out


def embed_stacked(ids, data, start, kind, d):
    row = row_bytes(kind, d)
    return np.vstack([vectorised(data, start + row * t, kind, (1, d)) for t in ids])


def embed_once(ids, data, start, kind, d):
    rows = {t: embed([t], data, start, kind, d)[0] for t in set(ids)}
    return [rows[t] for t in ids]


def embed_gathered(ids, data, start, kind, d):
    row = row_bytes(kind, d)
    places = start + row * np.array(ids)[:, None] + np.arange(row)
    return vectorised(data[places].ravel(), 0, kind, (len(ids), d))


def rows_of(begin=lambda start, row, t: start + row * t, order=list, width=row_bytes,
            read=read_tensor, end=lambda X: X):  # fmt: skip
    """A family with one fault: where a row begins, which tokens, how wide a row is."""

    def f(ids, data, start, kind, d):
        row = width(kind, d)
        where = (begin(start, row, t) for t in order(ids))
        return end(np.array([read(data, int(p), kind, (d,)) for p in where]))

    return f


def transposed(data, start, kind, d):
    rows = (len(data) - start) // row_bytes(kind, d)
    return vectorised(data, start, kind, (rows, d)).reshape(d, rows)


def one_hot_of_wrong_axis(ids, data, start, kind, d):
    table = transposed(data, start, kind, d)
    return np.array([table[:, min(t, table.shape[1] - 1)] for t in ids])


# --- pieces ---

PIECES = r"\d|'(?:s|t|re|ve|m|ll|d)| ?[^\W\d_]+| ?(?:[^\s\w]|_)+|\s+(?=\d)|\s+(?!\S)|\s+"


def split(text):
    return re.findall(PIECES, text)


def by(pattern, flags=0):
    """A family of expressions."""
    return lambda text: re.findall(pattern, text, flags)


def first_digits_then_the_rest(text):
    found = []
    for part in re.split(r"(\d)", text):
        if part.isdigit():
            found.append(part)
        else:
            found += re.findall(
                r"'(?:s|t|re|ve|m|ll|d)| ?[^\W\d_]+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+", part
            )
    return found


def with_finditer(text):
    return [match.group() for match in re.finditer(PIECES, text)]


def compiled_verbose(text):
    pattern = r"""
        \d                                  # each digit
      | '(?: s | t | re | ve | m | ll | d )
      | [ ]?[^\W\d_]+
      | [ ]?[^\s\w]+(?:_|[^\s\w])* | [ ]?_(?:_|[^\s\w])*
      | \s+(?=\d) | \s+(?!\S) | \s+
    """
    return tuple(re.findall(pattern, text, re.VERBOSE))


def with_scanner(text):
    found, at = [], 0
    expression = re.compile(PIECES)
    while at < len(text):
        match = expression.match(text, at)
        found.append(match[0])
        at = match.end()
    return found


def kind_of(c):
    if c.isspace():
        return "space"
    if c.isdigit():
        return "digit"
    return "letter" if c.isalpha() else "mark"


def by_hand(text):
    found, k = [], 0
    while k < len(text):
        begin, kind = k, kind_of(text[k])
        ending = next((e for e in ("s", "t", "re", "ve", "m", "ll", "d")
                       if text.startswith("'" + e, k)), None)  # fmt: skip
        if kind == "digit":
            k += 1
        elif ending:
            k += 1 + len(ending)
        else:
            if text[k] == " " and k + 1 < len(text) and kind_of(text[k + 1]) in ("letter", "mark"):
                kind, k = kind_of(text[k + 1]), k + 1
            while k < len(text) and kind_of(text[k]) == kind:
                k += 1
            follows = k < len(text) and not text[k].isdigit()
            if kind == "space" and k - begin > 1 and follows:
                k -= 1
        found.append(text[begin:k])
    return found


def group_by_group(text):
    rest, found = text, []
    while rest:
        piece = re.match(PIECES, rest).group(0)
        found.append(piece)
        rest = rest[len(piece) :]
    return found


# --- merges ---


def merge(word, merges):
    rank = {pair: k for k, pair in enumerate(merges)}
    parts = list(word)
    while True:
        pairs = [rank.get(f"{a} {b}", len(merges)) for a, b in pairwise(parts)]
        if not pairs or min(pairs) == len(merges):
            return parts
        k = pairs.index(min(pairs))
        parts[k : k + 2] = [parts[k] + parts[k + 1]]


def all_places_at_once(word, merges):
    rank, parts = {tuple(pair.split()): k for k, pair in enumerate(merges)}, list(word)
    while True:
        known = [pair for pair in pairwise(parts) if pair in rank]
        if not known:
            return parts
        best, k, found = min(known, key=rank.get), 0, []
        while k < len(parts):
            if tuple(parts[k : k + 2]) == best:
                found.append("".join(best))
                k += 2
            else:
                found.append(parts[k])
                k += 1
        parts = found


def recursive(word, merges):
    def go(parts):
        known = [k for k, pair in enumerate(merges)
                 if tuple(pair.split(" ")) in set(pairwise(parts))]  # fmt: skip
        if not known:
            return parts
        a, b = merges[min(known)].split(" ")
        k = next(k for k in range(len(parts)) if parts[k : k + 2] == [a, b])
        return go([*parts[:k], a + b, *parts[k + 2 :]])

    return go(list(word))


def from_the_top(word, merges):
    parts, k = list(word), 0
    while k < len(merges):
        a, b = merges[k].split(" ")
        at = next((i for i in range(len(parts) - 1) if parts[i : i + 2] == [a, b]), None)
        if at is None:
            k += 1
        else:
            parts[at : at + 2] = [a + b]
            k = 0
    return parts


def with_index(word, merges):
    parts = [*word]
    while len(parts) > 1:
        ranked = [(merges.index(" ".join(parts[k : k + 2])), k) for k in range(len(parts) - 1)
                  if " ".join(parts[k : k + 2]) in merges]  # fmt: skip
        if not ranked:
            break
        _, k = min(ranked)
        parts = [*parts[:k], "".join(parts[k : k + 2]), *parts[k + 2 :]]
    return tuple(parts)


def with_places(word, merges):
    rank = {tuple(pair.split(" ")): k for k, pair in enumerate(merges)}
    parts = list(word)
    places = [rank.get(pair, np.inf) for pair in pairwise(parts)]
    while places and min(places) < np.inf:
        k = int(np.argmin(places))
        parts[k] += parts.pop(k + 1)
        places = [rank.get(pair, np.inf) for pair in pairwise(parts)]
    return parts


def one_pass(word, merges):
    parts = list(word)
    for pair in merges:
        a, b = pair.split(" ")
        k = 0
        while k < len(parts) - 1:
            if parts[k : k + 2] == [a, b]:
                parts[k : k + 2] = [a + b]
            k += 1
    return parts


def chosen_by(choose, once=False, again=True):
    """A family that chooses among the pairs that can be merged in its own way."""

    def f(word, merges):
        rank = {tuple(pair.split(" ")): k for k, pair in enumerate(merges)}
        parts = list(word)
        while True:
            ks = [k for k in range(len(parts) - 1) if (parts[k], parts[k + 1]) in rank]
            if not ks:
                return parts
            k = choose(ks, parts, rank)
            parts[k : k + 2] = [parts[k] + parts[k + 1]]
            if once:
                return parts

    return f


def longest_first(word, merges):
    known, parts, k = {pair.replace(" ", "") for pair in merges} | set(word), [], 0
    while k < len(word):
        length = max(n for n in range(1, len(word) - k + 1) if word[k : k + n] in known)
        parts.append(word[k : k + length])
        k += length
    return parts


def only_characters(word, merges):
    rank, parts = {tuple(p.split(" ")): k for k, p in enumerate(merges)}, list(word)
    found, k = [], 0
    while k < len(parts):
        if tuple(parts[k : k + 2]) in rank:
            found.append("".join(parts[k : k + 2]))
            k += 2
        else:
            found.append(parts[k])
            k += 1
    return found


def first_place_only(word, merges):
    parts, used = list(word), set()
    while True:
        pairs = list(pairwise(parts))
        known = [k for k, p in enumerate(merges) if tuple(p.split(" ")) in pairs and k not in used]
        if not known:
            return parts
        used.add(min(known))
        k = pairs.index(tuple(merges[min(known)].split(" ")))
        parts[k : k + 2] = ["".join(pairs[k])]


def overlapping(word, merges):
    rank, parts = {tuple(p.split(" ")): k for k, p in enumerate(merges)}, list(word)
    while True:
        pairs = list(pairwise(parts))
        known = [pair for pair in pairs if pair in rank]
        if not known:
            return parts
        best = min(known, key=rank.get)
        hits = [k for k, pair in enumerate(pairs) if pair == best]
        gone = {k + 1 for k in hits}
        parts = ["".join(best) if k in hits else p for k, p in enumerate(parts) if k not in gone]


def from_the_right(word, merges):
    return chosen_by(lambda ks, p, r: max(ks, key=lambda k: (-r[p[k], p[k + 1]], k)))(word, merges)


def fails_at_one(word, merges):
    parts = merge(word, merges)
    return parts if len(word) > 1 else []


# --- encode and decode ---


def words(text, alphabet, pieces=split):
    return ["".join(alphabet[b] for b in piece.encode()) for piece in pieces(text)]


def encode(text, tokens, merges, alphabet):
    return [tokens.index(part) for w in words(text, alphabet) for part in merge(w, merges)]


def encode_by_dict(text, tokens, merges, alphabet):
    ids = dict(zip(tokens, range(len(tokens)), strict=True))
    found = []
    for word in words(text, alphabet):
        found.extend(ids[part] for part in all_places_at_once(word, merges))
    return np.array(found)


def encode_kept(text, tokens, merges, alphabet):
    known = {}
    out = []
    for word in words(text, alphabet, by_hand):
        if word not in known:
            known[word] = [tokens.index(p) for p in merge(word, merges)]
        out += known[word]
    return tuple(out)


def encode_translated(text, tokens, merges, alphabet):
    table = dict(enumerate(alphabet))
    spelled = [p.encode().decode("latin-1").translate(table) for p in split(text)]
    ids = {t: k for k, t in enumerate(tokens)}
    return [ids[p] for w in spelled for p in with_places(w, merges)]


def encode_array(text, tokens, merges, alphabet):
    return np.array(encode(text, tokens, merges, alphabet), np.int32)


def encode_floats(text, tokens, merges, alphabet):
    return [float(t) for t in encode(text, tokens, merges, alphabet)]


def encode_recursive(text, tokens, merges, alphabet):
    text, found = words(text, alphabet), []
    for word in text[::-1]:
        found = [*map(tokens.index, recursive(word, merges)), *found]
    return found


def encoding(pieces=split, spell=None, merging=merge, ids=None, end=lambda found: found):
    """A family with one fault: the pieces, how they are spelled, how they are merged, the ids."""

    def f(text, tokens, merges, alphabet):
        how = spell or (lambda piece: "".join(alphabet[b] for b in piece.encode()))
        find = ids or (lambda part: tokens.index(part) if part in tokens else 0)
        return end([find(p) for piece in pieces(text) for p in merging(how(piece), merges)])

    return f


def utf16(piece):
    return "".join(chr(b) for b in piece.encode("utf-16-le"))


def decode(ids, tokens, alphabet):
    raw = [alphabet.index(c) for t in ids for c in tokens[t]]
    return bytes(raw).decode("utf-8", "replace")


def decode_by_dict(ids, tokens, alphabet):
    byte = {c: b for b, c in enumerate(alphabet)}
    return bytearray(byte[c] for t in ids for c in tokens[t]).decode(errors="replace")


def decode_joined(ids, tokens, alphabet):
    text = "".join(tokens[t] for t in ids)
    table = {ord(c): b for b, c in enumerate(alphabet)}
    return text.translate(table).encode("latin-1").decode("utf-8", errors="replace")


def decode_in_steps(ids, tokens, alphabet):
    import codecs

    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = ""
    for token in ids:
        text += decoder.decode(bytes(alphabet.index(c) for c in tokens[token]))
    return text + decoder.decode(b"", final=True)


def decode_array(ids, tokens, alphabet):
    raw = np.array([alphabet.index(c) for t in ids for c in tokens[t]], np.uint8)
    return raw.tobytes().decode("utf-8", "replace")


def decode_loop(ids, tokens, alphabet):
    raw = b""
    for token in ids:
        for c in tokens[token]:
            raw += bytes([alphabet.index(c)])
    return str(raw, "utf-8", "replace")


def decode_str(ids, tokens, alphabet):
    byte = dict(zip(alphabet, range(256), strict=True))
    return str(bytes(byte[c] for c in "".join(map(tokens.__getitem__, ids))), errors="replace")


def token_by_token(errors="replace", between="", strip=lambda text: text):
    """A family that turns each token into text before it joins them."""

    def f(ids, tokens, alphabet):
        parts = (bytes(alphabet.index(c) for c in tokens[t]) for t in ids)
        return strip(between.join(part.decode("utf-8", errors) for part in parts))

    return f


def joined(errors="replace", change=lambda text: text, encoding="utf-8", ids=list):
    """A family that joins the bytes first, and has another fault."""

    def f(given, tokens, alphabet):
        raw = bytes(alphabet.index(c) for t in ids(given) for c in tokens[t])
        return change(raw.decode(encoding, errors))

    return f


def spelled_only(change=lambda text: text):
    return lambda ids, tokens, alphabet: change("".join(tokens[t] for t in ids))


def until(stop):
    def f(ids, tokens, alphabet):
        text = decode(ids, tokens, alphabet)
        return text[: len(text) - stop] if len(text) > stop else text

    return f


RIGHT = {
    "08.q8_block": q8_block,
    "08.q4_block": q4_block,
    "08.tensor": read_tensor,
    "08.embed": embed,
    "08.split": split,
    "08.merge": merge,
    "08.encode": encode,
    "08.decode": decode,
}
ALSO_RIGHT = {
    "08.q8_block": [q8_loops, q8_struct, q8_float32, q8_in_place, q8_record, q8_arithmetic],
    "08.q4_block": [q4_loops, q4_in_place, q4_float32, q4_shifts, q4_strings, q4_bits],
    "08.tensor": [vectorised, by_rows, unpacked, filled, as_lists, records],
    "08.embed": [whole_then_rows, embed_filled, embed_stacked, embed_once, embed_gathered,
                 rows_of(read=vectorised)],
    "08.split": [first_digits_then_the_rest, with_finditer, compiled_verbose, with_scanner, by_hand,
                 group_by_group],
    "08.merge": [all_places_at_once, recursive, from_the_top, with_index, with_places,
                 chosen_by(lambda ks, p, r: min(ks, key=lambda k: r[p[k], p[k + 1]]))],
    "08.encode": [encode_by_dict, encode_kept, encode_translated, encode_array, encode_floats,
                  encode_recursive],
    "08.decode": [decode_by_dict, decode_joined, decode_in_steps, decode_array, decode_loop,
                  decode_str],
}  # fmt: skip


def at(mechanism):
    return f"fails at {re.escape(mechanism)}"


LOW = "which half of a byte comes first"
NEIGHBOURS = "where the two halves of a byte go"
NO_SHAPE = r"should have shape"


def changes(block):
    block[:2] = 0
    return q8_block(block)


WRONG = {
    "08.q8_block": [
        ("empty", lambda block: None, "returns nothing yet"),
        ("high byte first", q8(scale=lambda b: float(b[:2].view(">f2")[0])), at("the scale")),
        ("no scale", q8(put=lambda d, q: q), at("the scale")),
        ("divided by the scale", q8(put=lambda d, q: q / d), at("the scale")),
        ("the scale at the end", q8(lambda b: float(b[-2:].view("<f2")[0]),
                                    lambda b: b[:-2].view(np.int8).astype(float)), at("the scale")),
        ("a scale of four bytes", q8(lambda b: float(b[:4].view("<f4")[0]),
                                     lambda b: b[4:].view(np.int8).astype(float)), NO_SHAPE),
        ("a whole number as scale", q8(scale=lambda b: float(b[:2].view("<i2")[0])),
         at("the scale")),
        ("divided by 127", q8(put=lambda d, q: d * q / 127), at("the scale")),
        ("the scale among the numbers", q8(q=lambda b: b.view(np.int8)[:32].astype(float)),
         at("the scale")),
        ("added", q8(put=lambda d, q: d + q), at("the scale")),
        ("unsigned", q8(q=lambda b: b[2:].astype(float)), at("the sign")),
        ("minus 128", q8(q=lambda b: b[2:].astype(float) - 128), at("the scale")),
        ("a bit for the sign", q8(q=sign_and_size), at("the sign")),
        ("the sign dropped", q8(q=lambda b: np.abs(b[2:].view(np.int8).astype(float))),
         at("the sign")),
        ("seven bits", q8(q=lambda b: (b[2:] & 127).astype(float)), at("the sign")),
        ("backwards", q8(q=lambda b: b[:1:-1].copy().view(np.int8).astype(float)),
         at("the places")),
        ("a size as scale", q8(scale=lambda b: abs(float(b[:2].view("<f2")[0]))),
         at("a negative scale")),
        ("in eight bits", in_int8, at("the scale")),
        ("shifted by one", q8(q=lambda b: np.roll(b[2:].view(np.int8).astype(float), 1)),
         at("the places")),
        ("two columns", q8(q=lambda b: b[2:].view(np.int8).astype(float).reshape(2, 16)), NO_SHAPE),
        ("the bytes", lambda block: bytes(block), "something of type bytes"),
        ("in place", changes, "changes its argument block in place"),
    ],
    "08.q4_block": [
        ("empty", lambda block: None, "returns nothing yet"),
        ("high half first", q4(q=nibbles(first="high")), at(LOW)),
        ("neighbours", q4(q=nibbles(order="pairs")), at(NEIGHBOURS)),
        ("neighbours, high half first", q4(q=nibbles(order="pairs", first="high")), at(LOW)),
        ("signed, from -8", q4(q=nibbles(signed=8)), at("the offset")),
        ("no offset", q4(put=lambda d, m, q: d * q), at("the offset")),
        ("offset and scale exchanged", q4(put=lambda d, m, q: m * q + d), at("the offset")),
        ("the offset subtracted", q4(put=lambda d, m, q: d * q - m), at("the offset")),
        ("the offset scaled", q4(put=lambda d, m, q: d * (q + m)), at("the offset")),
        ("the offset subtracted from q", q4(put=lambda d, m, q: d * (q - m)), at("the offset")),
        ("no scale", q4(put=lambda d, m, q: q + m), at("the scale")),
        ("divided by 15", q4(put=lambda d, m, q: d * q / 15 + m), at("the scale")),
        ("divided by the scale", q4(put=lambda d, m, q: q / d + m), at("the scale")),
        ("the high half not shifted",
         q4(q=lambda b: np.concatenate([b[4:] & 15, b[4:] & 240]).astype(float)), at("the scale")),
        ("the low half not masked",
         q4(q=lambda b: np.concatenate([b[4:], b[4:] >> 4]).astype(float)), at("the scale")),
        ("high byte first", q4(read=lambda b: b[:4].view(">f2").astype(float)), at("the offset")),
        ("four bits with a sign",
         q4(q=lambda b: (nibbles()(b) + 8) % 16 - 8), at("no sign")),
        ("three bits", q4(q=lambda b: nibbles()(b) % 8), at("no sign")),
        ("a size as scale", q4(put=lambda d, m, q: abs(d) * q + m), at("a negative scale")),
        ("the low halves only", q4(q=lambda b: (b[4:] & 15).astype(float)), NO_SHAPE),
        ("the header among them",
         q4(q=lambda b: nibbles()(np.concatenate([b[:4], b]))), NO_SHAPE),
        ("in bytes", lambda b: (b[4:] & 15).tolist() + (b[4:] >> 4).tolist(), at("the offset")),
    ],
    "08.tensor": [
        ("empty", lambda data, start, kind, shape: ..., "returns nothing yet"),
        ("high byte first", tensor(floats=">f4"), at("numbers in float32")),
        ("float16", tensor(floats="<f2"), at("numbers in float32")),
        ("whole numbers", tensor(floats="<i4"), at("numbers in float32")),
        ("flat", tensor(lay=lambda flat, shape: flat), NO_SHAPE),
        ("columns first", tensor(lay=lambda flat, shape: flat.reshape(shape, order="F")),
         at("the rows of a matrix")),
        ("transposed", tensor(lay=lambda flat, shape: flat.reshape(shape[::-1]).T),
         at("the rows of a matrix")),
        ("shape backwards", tensor(lay=lambda flat, shape: flat.reshape(shape[::-1])), NO_SHAPE),
        ("from the first byte", tensor(at=lambda start: 0), at("where the tensor begins")),
        ("start in numbers", tensor(at=lambda start: 4 * start), "raises|begins"),
        ("to the end of the data",
         lambda data, start, kind, shape: data[start:].copy().view("<f4").reshape(shape)
         if kind == "F32" else read_tensor(data, start, kind, shape), "raises ValueError"),
        ("all in float32", tensor(kinds=lambda kind: "F32"), "raises|one block of 8 bits"),
        ("8 bits unsigned", tensor(blocks={**BLOCK, "Q8_0": q8(q=lambda b: b[2:].astype(float))}),
         at("one block of 8 bits")),
        ("high half first", tensor(blocks={**BLOCK, "Q4_1": q4(q=nibbles(first="high"))}),
         at("one block of 4 bits")),
        ("neighbours", tensor(blocks={**BLOCK, "Q4_1": q4(q=nibbles(order="pairs"))}),
         at("one block of 4 bits")),
        ("4 bits as 8", tensor(kinds=lambda kind: kind.replace("Q4_1", "Q8_0")),
         "raises|one block of 4 bits"),
        ("steps of 32 bytes", tensor(size={"Q8_0": 32, "Q4_1": 16}), at("the blocks of a row")),
        ("steps of 36 bytes", tensor(size={"Q8_0": 36, "Q4_1": 24}), "raises|the blocks of a row"),
        ("the first block again", every_block_first, at("the blocks of a row")),
        ("blocks down the columns", tensor(lay=mixed_rows), at("rows of blocks")),
        ("only row 0", only_first_row, at("the rows of a matrix")),
    ],
    "08.embed": [
        ("empty", lambda ids, data, start, kind, d: None, "returns nothing yet"),
        ("from 1", rows_of(lambda start, row, t: start + row * (t - 1)), at("the row of a token")),
        ("one too far", rows_of(lambda start, row, t: start + row * (t + 1)),
         at("the row of a token")),
        ("always the first", rows_of(lambda start, row, t: start), at("the row of a token")),
        ("a token is a byte", rows_of(lambda start, row, t: start + t), at("the row of a token")),
        ("a token is a block", rows_of(width=lambda kind, d: SIZE.get(kind, 4 * d)),
         at("rows of several blocks")),
        ("rows of d bytes", rows_of(width=lambda kind, d: d), at("the row of a token")),
        ("rows of 4 d bytes", rows_of(width=lambda kind, d: 4 * d), "raises|the row of a token"),
        ("sorted", rows_of(order=sorted), at("the order of the text")),
        ("each token once", rows_of(order=lambda ids: list(dict.fromkeys(ids))), NO_SHAPE),
        ("backwards", rows_of(order=lambda ids: ids[::-1]), at("the order of the text")),
        ("the last token only", rows_of(order=lambda ids: ids[-1:]), NO_SHAPE),
        ("the mean", rows_of(end=lambda X: X.mean(0)), NO_SHAPE),
        ("the sum so far", rows_of(end=lambda X: np.cumsum(X, 0)), at("the order of the text")),
        ("from the first byte", rows_of(lambda start, row, t: row * t),
         at("where the embedding begins")),
        ("start twice", rows_of(lambda start, row, t: 2 * start + row * t),
         at("where the embedding begins")),
        ("8 bits always", rows_of(read=lambda data, p, kind, shape: read_tensor(
            data, p, "Q8_0", shape)), "raises|another kind"),
        ("always 34 bytes", rows_of(width=lambda kind, d: d // 32 * 34),
         "raises|another kind"),
        ("columns", rows_of(end=lambda X: X.T), NO_SHAPE),
        ("columns of the table", one_hot_of_wrong_axis, at("the row of a token")),
        ("scaled by the root", lambda ids, data, start, kind, d: embed(
            ids, data, start, kind, d) * np.sqrt(d), "Every number is 5.66 times"),
    ],
    "08.split": [
        ("empty", lambda text: None, "returns nothing yet"),
        ("a text", lambda text: text, "it returns one of type str"),
        ("at spaces", lambda text: text.split(), at("the space in front")),
        ("at spaces, kept apart", lambda text: re.findall(r"\s+|\S+", text),
         at("the space in front")),
        ("each character", lambda text: list(text), at("one word")),
        ("the space behind", by(r"\w+ ?|[^\w\s]+ ?|\s+"), at("the space in front")),
        ("whole numbers", by(PIECES.replace(r"\d|'", r" ?\d+|'")), at("digits")),
        ("digits in threes", by(PIECES.replace(r"\d|'", r"\d{1,3}|'")), at("digits")),
        ("words of letters and digits", by(r" ?\w+| ?[^\s\w]+|\s+(?!\S)|\s+"), at("digits")),
        ("digits in words", by(r"\b\d|'(?:s|t|re|ve|m|ll|d)| ?[^\W_]+| ?(?:[^\s\w]|_)+|\s+"),
         at("digits")),
        ("a space taken by a digit", by(PIECES.replace(r"\d|'", r" ?\d|'")),
         at("the space before a digit")),
        ("marks one by one", by(PIECES.replace(r"[^\s\w]|_)+", r"[^\s\w]|_)")), at("marks")),
        ("marks without their space", by(PIECES.replace(r" ?(?:[^\s\w]|_)+", r"(?:[^\s\w]|_)+")),
         at("marks")),
        ("marks dropped", by(r"\d| ?[^\W\d_]+|\s+(?=\d)|\s+(?!\S)|\s+"),
         "nothing of the text may be"),
        ("the underscore is a letter", by(PIECES.replace(r"[^\W\d_]", r"[^\W\d]")),
         at("the underscore")),
        ("no contractions", by(PIECES.replace("'(?:s|t|re|ve|m|ll|d)|", "")), at("contractions")),
        ("few contractions", by(PIECES.replace("|ve|m|ll|d)", ")")), at("contractions")),
        ("any letters after an apostrophe", by(PIECES.replace("(?:s|t|re|ve|m|ll|d)", "[a-z]+")),
         at("an apostrophe that is no contraction")),
        ("several spaces together", by(PIECES.replace(r"|\s+(?!\S)|\s+", r"|\s+")),
         at("several spaces")),
        ("all spaces with the word", by(PIECES.replace(" ?", r"\s*")), at("several spaces")),
        ("spaces one by one", by(PIECES.replace(r"|\s+(?=\d)|\s+(?!\S)|\s+", r"|\s")),
         at("several spaces")),
        ("spaces at the end lost", lambda text: split(text.rstrip()), at("spaces at the end")),
        ("any white space with the word", by(PIECES.replace(" ?", r"\s?")), at("lines")),
        ("letters from a to z", by(PIECES.replace(r"[^\W\d_]", "[A-Za-z]")),
         at("letters beyond a to z")),
        ("in ASCII", by(PIECES, re.ASCII), at("letters beyond a to z")),
        ("lower case", lambda text: split(text.lower()), at("marks")),
        ("capital contractions too", by(PIECES, re.IGNORECASE), at("capital letters")),
        ("capitals begin a piece",
         by(PIECES.replace(" ?[^\\W\\d_]+", r" ?[A-Z]?[^\W\d_A-Z]+| ?[A-Z]")),
         at("capital letters")),
    ],
    "08.merge": [
        ("empty", lambda word, merges: None, "returns nothing yet"),
        ("a text", lambda word, merges: word, "it returns one of type str"),
        ("no merges", lambda word, merges: list(word), at("one merge")),
        ("the whole word", lambda word, merges: [word], at("nothing to merge")),
        ("from left to right", chosen_by(lambda ks, p, r: ks[0]), at("rank before place")),
        ("from right to left", chosen_by(lambda ks, p, r: ks[-1]), "fails at"),
        ("the last of the list first",
         chosen_by(lambda ks, p, r: max(ks, key=lambda k: r[p[k], p[k + 1]])),
         at("rank before place")),
        ("one pass through the list", one_pass, at("a merge that becomes possible later")),
        ("one merge only",
         chosen_by(lambda ks, p, r: min(ks, key=lambda k: r[p[k], p[k + 1]]), once=True),
         at("merges of merges")),
        ("characters only", only_characters, at("rank before place")),
        ("longest first", longest_first, at("rank before place")),
        ("each merge once", first_place_only, at("a pair that comes up twice")),
        ("overlaps", overlapping, at("places that overlap")),
        ("the last of equals", from_the_right, at("places that overlap")),
        ("the longest pair first", chosen_by(
            lambda ks, p, r: max(ks, key=lambda k: (len(p[k] + p[k + 1]), -r[p[k], p[k + 1]]))),
         "a merge that becomes possible later|an order of its own"),
        ("the alphabet's order", chosen_by(lambda ks, p, r: min(ks, key=lambda k: p[k] + p[k + 1])),
         at("rank before place")),
        ("the shortest first", chosen_by(
            lambda ks, p, r: min(ks, key=lambda k: (len(p[k] + p[k + 1]), r[p[k], p[k + 1]]))),
         "fails at"),
        ("one character is lost", fails_at_one, at("one character")),
        ("all joined by spaces", lambda word, merges: " ".join(merge(word, merges)),
         "it returns one of type str"),
        ("the ranks", lambda word, merges: [0] * len(word), "should return a list of str"),
        ("doubled", lambda word, merges: merge(word, merges) * 2, at("nothing to merge")),
    ],
    "08.encode": [
        ("empty", lambda text, tokens, merges, alphabet: None, "returns nothing yet"),
        ("spellings", lambda text, tokens, merges, alphabet: [text],
         "where an array or a list of numbers"),
        ("from 1", encoding(end=lambda found: [t + 1 for t in found]), at("a token is a place")),
        ("characters' numbers", encoding(ids=lambda part: ord(part[0])), at("a token is a place")),
        ("spaces as they are", encoding(spell=lambda piece: piece), at("the space")),
        ("spaces dropped", encoding(pieces=lambda text: [p.strip() for p in split(text)]),
         at("the space")),
        ("characters, not bytes", encoding(spell=lambda p: p.replace(" ", "Ġ")),
         at("bytes, not characters")),
        ("in UTF-16", encoding(spell=utf16), "a token is a place|the space"),
        ("Latin-1", encoding(spell=lambda p: p.encode("latin-1", "replace").decode("latin-1")
                             .replace(" ", "Ġ")), at("bytes, not characters")),
        ("no merges", encoding(merging=lambda word, merges: list(word)), at("the merges")),
        ("from left to right", encoding(merging=chosen_by(lambda ks, p, r: ks[0])),
         at("rank before place")),
        ("one pass through the list, backwards", encoding(
            merging=lambda word, merges: one_pass(word, merges[::-1])), at("the merges")),
        ("longest first", encoding(merging=longest_first), at("rank before place")),
        ("no pieces", encoding(pieces=lambda text: [text]), at("pieces")),
        ("pieces at spaces", encoding(pieces=lambda text: re.findall(r" ?\S+|\s+", text)),
         at("digits")),
        ("whole numbers", encoding(pieces=by(PIECES.replace(r"\d|'", r"\d+|'"))), at("digits")),
        ("no contractions", encoding(pieces=by(PIECES.replace("'(?:s|t|re|ve|m|ll|d)|", ""))),
         at("contractions")),
        ("sorted", encoding(end=sorted), at("a token is a place")),
        ("each token once", encoding(end=lambda f: list(dict.fromkeys(f))),
         "other characters|all of it together"),
        ("a space in front", lambda text, *rest: encode(f" {text}", *rest),
         at("a token is a place")),
        ("ids of each piece", lambda text, tokens, merges, alphabet: [
            encode(p, tokens, merges, alphabet) for p in split(text)], "list of whole numbers"),
        ("the first token in front", lambda *given: [0, *encode(*given)],
         at("a token is a place")),
        ("halves", encoding(end=lambda found: [t + 0.5 for t in found]), "whole numbers"),
    ],
    "08.decode": [
        ("empty", lambda ids, tokens, alphabet: None, "returns nothing yet"),
        ("a list", lambda ids, tokens, alphabet: [tokens[t] for t in ids], "should return a str"),
        ("bytes", lambda ids, tokens, alphabet: decode(ids, tokens, alphabet).encode(),
         "should return a str; it returns one of type bytes"),
        ("as the file spells it", spelled_only(), at("the space")),
        ("only the space", spelled_only(lambda text: text.replace("Ġ", " ")), at("other bytes")),
        ("space and line", spelled_only(lambda text: text.replace("Ġ", " ").replace("Ċ", "\n")
                                        .replace("ĉ", "\t")), at("a character in one token")),
        ("Ġ dropped", spelled_only(lambda text: text.replace("Ġ", "")), at("the space")),
        ("spaces between", token_by_token(between=" "), at("spellings side by side")),
        ("token by token", token_by_token(), at("a character cut over two tokens")),
        ("token by token, strict", token_by_token("strict"), "raises UnicodeDecodeError"),
        ("token by token, ignored", token_by_token("ignore"),
         at("a character cut over two tokens")),
        ("strict", joined("strict"), "raises UnicodeDecodeError"),
        ("ignored", joined("ignore"), at("half a character")),
        ("a question mark", joined(change=lambda text: text.replace("�", "?")),
         at("half a character")),
        ("half a character dropped", joined(change=lambda text: text.rstrip("�")),
         at("half a character")),
        ("escaped", joined("backslashreplace"), at("half a character")),
        ("Latin-1", joined(encoding="latin-1"), at("a character in one token")),
        ("stripped", joined(change=str.strip), at("the space in front")),
        ("the first space dropped", joined(change=lambda text: text.removeprefix(" ")),
         at("the space in front")),
        ("spaces joined", joined(change=lambda text: " ".join(text.split())),
         at("the space in front")),
        ("backwards", joined(ids=lambda ids: ids[::-1]), at("spellings side by side")),
        ("each token once", joined(ids=lambda ids: list(dict.fromkeys(ids))), "fails at|raises"),
        ("the last is missing", joined(ids=lambda ids: ids[:-1]), at("spellings side by side")),
        ("none for nothing", lambda ids, tokens, alphabet: decode(ids, tokens, alphabet) or None,
         "returns nothing yet"),
    ],
}  # fmt: skip
