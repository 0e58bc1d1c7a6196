"""Guess ahead, and let one pass check all the guesses: speculative decoding by prompt lookup.

A pass over a few tokens costs little more than a pass over one, since both read all the weights.
So guess the next tokens, read them together, and keep those that the model itself would have said.
The guesser is no model: it looks up what followed the last words where they stood before (prompt
lookup; Saxena 2023, "Prompt lookup decoding"). Leviathan et al. 2023 and Chen et al. 2023 describe
the general method, for guesses that a small model draws.

A guess here is one token, not a distribution. Then their rule is simple: draw from the model's
probabilities p as if nobody had guessed, and keep the guess x if it is what was drawn. That keeps x
with probability p(x), and otherwise draws from the rest of p, which is the rule. It also leaves the
same random numbers to the same tokens: a text with guesses is the text without.
"""

from collections.abc import Callable, Sequence
from itertools import cycle, islice
from typing import Any

import numpy as np

from lib.arguments import is_whole
from lib.errors import CourseError

LONGEST_ENDING = 5  # words at the end of a text that are looked up
MOST_GUESSES = 15  # that are chosen for one pass
COST_OF_A_GUESS = 0.25  # of a pass with one token: chapter 08 measures 2.7 passes for 8 tokens
MEMORY = 0.1  # weight of the newest guess in the share that was right lately


class PromptLookup:
    """Looks up what followed the last words of a text where they stood before.

    The longest ending that stood before counts, up to `LONGEST_ENDING` tokens, and of several
    places the latest.

    Attributes
    ----------
    match : int
        Tokens of the ending that was found; 0 where none was.
    """

    def __init__(self):
        self._text: list[int] = []
        self._after: dict[tuple[int, ...], int] = {}  # an ending -> the place of what followed it
        self.match, self._place = 0, 0

    def read(self, tokens: Sequence[int]) -> None:
        """Take up tokens that follow those read so far."""
        for token in tokens:
            self._text.append(token)
            self.match = 0
            for length in range(1, min(LONGEST_ENDING, len(self._text)) + 1):
                ending = tuple(self._text[-length:])
                if ending in self._after:
                    self.match, self._place = length, self._after[ending]
                self._after[ending] = len(self._text)

    def guess(self, width: int) -> list[int]:
        """Return `width` tokens that may follow, or none where nothing was found.

        Where the found place is so near that it runs into the end, the text repeats itself, and
        the guess goes on repeating it.
        """
        if self.match == 0:
            return []
        return list(islice(cycle(self._text[self._place : self._place + width]), width))


class Widths:
    """Chooses how many tokens to guess, from how often guesses were right lately.

    For each length of the ending that was found there is a share of right guesses. It also learns
    from guesses that were not made: what the lookup would have said costs nothing to compare.
    """

    def __init__(self):
        lengths = range(1, LONGEST_ENDING + 1)
        self.shares = {length: length / (length + 2) for length in lengths}  # until it is known

    def choose(self, match: int, most: int) -> int:
        """Return the width, 0 to `most`, at which a token is expected to cost least."""
        share = self.shares[match] if match else 0.0
        gains = [gain(share, width) for width in range(min(most, MOST_GUESSES) + 1)]
        return int(np.argmax(gains))

    def learn(self, match: int, guesses: Sequence[int], said: Sequence[int]) -> None:
        """Compare guesses with what the model said, up to the first that was wrong."""
        for guess, token in zip(guesses, said, strict=False):
            self.shares[match] += MEMORY * ((guess == token) - self.shares[match])


def gain(share: float, width: int, cost: float = COST_OF_A_GUESS) -> float:
    """Return the expected tokens of a pass over its cost, in plain passes.

    Leviathan et al. 2023, theorem 3.8: when each guess is right with probability `share`, a pass
    yields 1 + share + share² + … + shareʷ tokens. It costs 1 + cost · w.
    """
    return sum(share**k for k in range(width + 1)) / (1 + cost * width)


class Guesser:
    """Makes the guesses for one text.

    Parameters
    ----------
    width : int or "auto"
        Tokens guessed for each pass; "auto" chooses from what was right lately, 0 included.

    Attributes
    ----------
    passes, kept : int
        Passes that were checked so far, and tokens that they yielded.

    Raises
    ------
    CourseError
        If the width is neither "auto" nor a whole number of at least 1.
    """

    def __init__(self, width: int | str = "auto"):
        if width != "auto" and not (is_whole(width) and width >= 1):
            raise CourseError(
                f'guess should be "auto" or a whole number of at least 1; it is {width!r}'
            )
        self.passes = self.kept = 0
        self._width: Any = width
        self._widths = Widths()
        self._lookup, self._read = PromptLookup(), 0

    def guess(self, text: Sequence[int], most: int) -> list[int]:
        """Return at most `most` guesses of what follows a text.

        The text begins with the one of the call before, unless it has become shorter: then all of
        it is read anew.
        """
        if len(text) < self._read:
            self._lookup, self._read = PromptLookup(), 0
        self._lookup.read(text[self._read :])
        self._read = len(text)
        match, width = self._lookup.match, self._width
        if width == "auto":
            width = self._widths.choose(match, most)
        return self._lookup.guess(min(width, most))

    def learn(self, said: Sequence[int]) -> None:
        """Note what the model said in a pass."""
        self.passes += 1
        self.kept += len(said)
        self._widths.learn(self._lookup.match, self._lookup.guess(len(said)), said)


def kept(
    rows: np.ndarray, guesses: Sequence[int], draw: Callable[[np.ndarray], int], stop: frozenset
) -> list[int]:
    """Return the tokens that a checked pass yields: right guesses, and one more.

    Parameters
    ----------
    rows : ndarray, (guesses + 1, vocabulary)
        The logits after the text, and after each guess.
    guesses : sequence of int
    draw : callable
        Draws a token from logits; called once for each token that is returned, in order.
    stop : set of int
        Tokens after which nothing follows.

    Returns
    -------
    list of int
        At least one. The last is what the model says where a guess was wrong, or after all of them.
    """
    said = []
    for row, guess in zip(rows, [*guesses, None], strict=True):
        said.append(draw(row))
        if said[-1] != guess or guess in stop:
            break
    return said
