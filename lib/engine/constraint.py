"""What a text may be: an automaton over its bytes says which tokens may come next.

The form is a regular expression, put together from the functions below. What may follow some bytes
is its derivative (Brzozowski 1964): again a regular expression, and a state of the automaton. A
token is allowed in a state if its bytes lead to a state from which there is a way on; the others
get the logit −∞. Each state's tokens are found once (Willard and Louf 2023, section 3).

    >>> yes_or_no = either(literal("yes"), literal("no"))
    >>> derivative(yes_or_no, ord("n")) == literal("o")
    True
"""

import json
from collections.abc import Mapping
from functools import cache, reduce

import numpy as np

from lib.engine.tokenizer import Tokenizer
from lib.errors import CourseError

# An expression is a tuple: its kind, then its parts.
NOTHING = ("nothing",)  # matches no text
EMPTY = ("empty",)  # matches the text of no bytes


def literal(text: str) -> tuple:
    """Match this text alone."""
    return sequence(*(("byte", frozenset([byte])) for byte in text.encode()))


def one_byte(first: int, last: int, but: str = "") -> tuple:
    """Match a byte from `first` to `last`, but none of these characters."""
    return "byte", frozenset(range(first, last + 1)) - frozenset(but.encode())


def sequence(*parts: tuple) -> tuple:
    """Match one part after the other."""
    return reduce(lambda rest, part: _then(part, rest), reversed(parts), EMPTY)


def either(*parts: tuple) -> tuple:
    """Match any of the parts."""
    found = set()
    for part in parts:
        found |= part[1] if part[0] == "either" else {part}
    found -= {NOTHING}
    return ("either", frozenset(found)) if len(found) > 1 else next(iter(found), NOTHING)


def many(part: tuple) -> tuple:
    """Match the part any number of times, none included."""
    return "many", part


def _then(part: tuple, rest: tuple) -> tuple:
    if NOTHING in (part, rest):
        return NOTHING
    if part == EMPTY:
        return rest
    if part[0] == "then":  # always nested to the right, so that equal states look equal
        return "then", part[1], _then(part[2], rest)
    return part if rest == EMPTY else ("then", part, rest)


@cache
def may_end(expression: tuple) -> bool:
    """Tell whether the text of no bytes matches."""
    kind, *parts = expression
    if kind == "then":
        return all(map(may_end, parts))
    if kind == "either":
        return any(map(may_end, parts[0]))
    return kind in ("empty", "many")


@cache
def derivative(expression: tuple, byte: int) -> tuple:
    """Return what has to follow this byte for the whole to match."""
    kind, *parts = expression
    if kind == "byte":
        return EMPTY if byte in parts[0] else NOTHING
    if kind == "either":
        return either(*(derivative(part, byte) for part in parts[0]))
    if kind == "many":
        return _then(derivative(parts[0], byte), expression)
    if kind == "then":
        first, rest = parts
        later = derivative(rest, byte) if may_end(first) else NOTHING
        return either(_then(derivative(first, byte), rest), later)
    return NOTHING


# A character of a JSON string: not the quotation mark, the backslash, or a control character. The
# last three lines are UTF-8 characters of two to four bytes, less those at the edges of what UTF-8
# allows.
_LATER = one_byte(0x80, 0xBF)
CHARACTER = either(
    one_byte(0x20, 0x7E, but='"\\'),
    sequence(one_byte(0xC3, 0xDF), _LATER),
    sequence(one_byte(0xE1, 0xEC), _LATER, _LATER),
    sequence(one_byte(0xF1, 0xF3), _LATER, _LATER, _LATER),
)
DIGIT = one_byte(ord("0"), ord("9"))
BOOLEAN = either(literal("true"), literal("false"))
INTEGER = sequence(
    either(literal("-"), EMPTY),
    either(literal("0"), sequence(one_byte(ord("1"), ord("9")), many(DIGIT))),
)


def json_of(schema: Mapping) -> tuple:
    """Return the expression of the JSON texts that fit a schema.

    Parameters
    ----------
    schema : dict
        A small part of JSON Schema: ``enum``, or a ``type`` of "string" (with ``maxLength``),
        "integer", "boolean", "null", or "object" with ``properties``, all of which are written, in
        their order.

    Raises
    ------
    CourseError
        If the schema asks for something else.
    """
    if "enum" in schema:
        return either(*(literal(json.dumps(value, ensure_ascii=False)) for value in schema["enum"]))
    kind = schema.get("type")
    if kind == "string":
        most = schema.get("maxLength")
        inside = many(CHARACTER) if most is None else _at_most(CHARACTER, most)
        return sequence(literal('"'), inside, literal('"'))
    if kind == "object":
        fields = schema.get("properties", {}).items()
        parts = [
            sequence(literal(f"{', ' * (k > 0)}{json.dumps(name)}: "), json_of(value))
            for k, (name, value) in enumerate(fields)
        ]
        return sequence(literal("{"), *parts, literal("}"))
    simple = {"integer": INTEGER, "boolean": BOOLEAN, "null": literal("null")}
    if kind not in simple:
        raise CourseError(
            "a schema should have an enum, or the type string, integer, boolean, null or object; "
            f"its type is {kind!r}"
        )
    return simple[kind]


def _at_most(part: tuple, times: int) -> tuple:
    return reduce(lambda rest, _: either(sequence(part, rest), EMPTY), range(times), EMPTY)


class Constraint:
    """Says which tokens may follow, state by state.

    Parameters
    ----------
    expression : tuple
        The form that the whole text has to take.
    tokenizer : Tokenizer
        A text may end, by a token that ends it, where the form is complete.

    Attributes
    ----------
    start : tuple
        The state before the first token.

    Raises
    ------
    CourseError
        If no text has this form.
    """

    def __init__(self, expression: tuple, tokenizer: Tokenizer):
        if expression == NOTHING:
            raise CourseError("expression should match a text; it matches none")
        self.start = expression
        self._bytes_of, self._stop = tokenizer.bytes_of(), tokenizer.stop
        self._root: dict = {}  # byte -> the node of the next byte; None -> tokens that end here
        for token, piece in enumerate(self._bytes_of):
            if piece and token not in tokenizer.control:
                node = self._root
                for byte in piece:
                    node = node.setdefault(byte, {})
                node.setdefault(None, []).append(token)
        self._masks: dict[tuple, np.ndarray] = {}

    def allowed(self, state: tuple) -> np.ndarray:  # -> (vocabulary,) bool
        """Return which tokens may follow in a state."""
        if state not in self._masks:
            mask = np.zeros(len(self._bytes_of), bool)
            mask[np.array([*self._stop], int)] = may_end(state)
            nodes = [(self._root, state)]
            while nodes:
                node, state_here = nodes.pop()
                mask[node.get(None, [])] = True
                steps = (
                    (child, derivative(state_here, b)) for b, child in node.items() if b is not None
                )
                nodes += [(child, after) for child, after in steps if after != NOTHING]
            self._masks[state] = mask
        return self._masks[state]

    def after(self, state: tuple, token: int) -> tuple:
        """Return the state after a token; a token that ends the text leaves it as it is."""
        piece = b"" if token in self._stop else self._bytes_of[token]
        return reduce(derivative, piece, state)
