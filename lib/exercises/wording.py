"""Build it yourself, where what comes is text, or a list of texts, or of tokens.

Such results are compared as they are: there is no rounding, and a list of another length is no
fault of form, since how long it is is the question.
"""

from dataclasses import dataclass

import numpy as np

from lib.exercises.building import Building, brief
from lib.exercises.judging import Malformed


@dataclass(frozen=True)
class Wording(Building):
    """A function to build that returns a text, a list of texts, or a list of tokens.

    Fields
    ------
    kind : str
        ``"text"``, ``"texts"`` or ``"tokens"``.
    """

    kind: str = "texts"

    def _plain(self, name, value):
        if self.kind == "tokens":
            found = super()._plain(name, value)
            if found.ndim != 1 or (found != np.round(found)).any():
                raise Malformed(f"{self.name} should return a list of whole numbers, the tokens.")
            return found
        if self.kind == "text":
            if type(value) is not str:
                raise Malformed(
                    f"{self.name} should return a str; it returns one of {_type(value)}."
                )
            return np.array(value)
        if type(value) not in (list, tuple) or {type(item) for item in value} - {str}:
            raise Malformed(
                f"{self.name} should return a list of str; it returns one of {_type(value)}."
            )
        return np.array(value, dtype=str)

    def _shaped(self, number, arguments, name, array, shape):
        return array

    def _compare(self, rung, k, got, want):
        lines = [f"    expected = {_told(want)}", f"    came     = {_told(got)}"]
        if got.size == want.size and sorted(got.ravel()) == sorted(want.ravel()):
            lines.append("They are the right ones, but not in their places.")
        elif got.dtype.kind == want.dtype.kind == "U" and _joined(got) != _joined(want):
            lines.append(f"Joined, it is {_joined(got)!r}; nothing of the text may be lost.")
        return lines


def _told(array):
    if array.dtype.kind == "U":
        return brief(array.tolist())
    return f"{array.astype(int).tolist()}"


def _joined(array):
    return "".join(array.ravel().tolist())


def _type(value):
    items = value if type(value) in (list, tuple) else ()
    odd = sorted({type(item).__name__ for item in items} - {"str"})
    return f"type {type(value).__name__}" + (f" that holds a {odd[0]}" if odd else "")
