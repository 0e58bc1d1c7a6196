"""Byte-pair encoding in plain Python, where the package `tokenizers` is missing: in a browser.

A piece of text starts as its single bytes. Of all neighbours that the file lists, the pair that
stands first in the list is merged, until none is listed (Sennrich et al. 2016, algorithm 1).
"""

import functools
import itertools
import re
import sys
import unicodedata
from dataclasses import dataclass, field


@dataclass
class Encoded:
    """What an encoder returns: the tokens, in the order of the text."""

    ids: list[int]


@dataclass
class Encoder:
    """An encoder with the methods that the course uses of `tokenizers.Tokenizer`."""

    tokens: dict[str, int]  # the vocabulary, bytes spelled as characters
    ranks: dict[tuple[str, str], int]  # pairs that are merged, and their place in the list
    patterns: list[str]  # how a text is cut into pieces, in turn
    spelling: dict[int, str]  # the character of each byte
    whole: bool = False  # a piece that is a token is taken as it stands
    control: dict[str, int] = field(default_factory=dict)
    defined: dict[str, int] = field(default_factory=dict)
    encode_special_tokens: bool = False  # whether control tokens are text like any other

    def __post_init__(self):
        self._cuts = [re.compile(_plain(pattern)) for pattern in self.patterns]
        self._known = {}

    def encode(self, text, add_special_tokens=False):
        """Return the tokens of a text, as `Encoded`."""
        written = self.defined if self.encode_special_tokens else self.control | self.defined
        spelled = sorted(filter(None, written), key=len, reverse=True)
        parts = re.split(f"({'|'.join(map(re.escape, spelled))})", text) if spelled else [text]
        ids = []
        for k, part in enumerate(parts):
            ids += [written[part]] if k % 2 else self._encode(part)
        return Encoded(ids)

    def _encode(self, text):
        pieces = [text]
        for cut in self._cuts:
            pieces = [part for piece in pieces for part in _isolate(cut, piece)]
        return [token for piece in pieces for token in self._tokens_of(piece)]

    def _tokens_of(self, piece):
        if piece not in self._known:
            spelled = "".join(self.spelling[byte] for byte in piece.encode())
            parts = [spelled] if self.whole and spelled in self.tokens else self._merge(spelled)
            self._known[piece] = [self.tokens[part] for part in parts if part in self.tokens]
        return self._known[piece]

    def _merge(self, spelled):
        parts, unlisted = list(spelled), len(self.ranks)
        while len(parts) > 1:
            first = min(itertools.pairwise(parts), key=lambda pair: self.ranks.get(pair, unlisted))
            if first not in self.ranks:
                break
            merged, k = [], 0
            while k < len(parts):  # every occurrence, from the left
                found = tuple(parts[k : k + 2]) == first
                merged.append("".join(first) if found else parts[k])
                k += 1 + found
            parts = merged
        return parts


def _isolate(cut, text):
    """Cut a text into the matches of an expression and what lies between them."""
    at = 0
    for match in cut.finditer(text):
        if match.start() > at:
            yield text[at : match.start()]
        if match[0]:
            yield match[0]
        at = match.end()
    if at < len(text):
        yield text[at:]


def _plain(pattern):
    r"""Spell out classes such as ``\p{L}``, which Python's `re` does not know."""
    named = r"\\p\{(\w)\}"
    inside = re.sub(r"\[[^\]]*\]", lambda m: re.sub(named, lambda n: _class(n[1]), m[0]), pattern)
    return re.sub(named, lambda n: f"[{_class(n[1])}]", inside)


@functools.cache
def _class(letter):
    """Return the characters whose category begins with a letter, as ranges of an expression."""
    points = [c for c in range(sys.maxunicode + 1) if unicodedata.category(chr(c))[0] == letter]
    inside = set(points)
    starts = [re.escape(chr(c)) for c in points if c - 1 not in inside]
    ends = [re.escape(chr(c)) for c in points if c + 1 not in inside]
    return "".join(f"{start}-{end}" for start, end in zip(starts, ends, strict=True))
