"""Instruments of chapter 9: passes that are watched, and the acceptance rule for any guesser."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lib.engine.guess import Guesser


@dataclass(frozen=True)
class Pass:
    """What was guessed for one pass, and the tokens that it yielded."""

    guesses: list[int]
    said: list[int]


class Watched(Guesser):
    """A guesser that keeps what happened in each pass, in `seen`."""

    def __init__(self, width: int | str = "auto"):
        super().__init__(width)
        self.seen: list[Pass] = []
        self._made: list[int] = []

    def guess(self, text: Sequence[int], most: int) -> list[int]:
        """Guess, as `Guesser.guess` does."""
        self._made = super().guess(text, most)
        return self._made

    def learn(self, said: Sequence[int]) -> None:
        """Note a pass, as `Guesser.learn` does."""
        super().learn(said)
        self.seen.append(Pass(self._made, list(said)))


def accept(p: np.ndarray, q: np.ndarray, guess: int, rng: np.random.Generator) -> int:
    """Return the next token: the guess, or one in its place; either way it follows p.

    Leviathan et al. 2023, algorithm 1; Chen et al. 2023, algorithm 2.

    Parameters
    ----------
    p, q : ndarray, (vocabulary,)
        The probabilities of the model, and those that the guess was drawn from.
    guess : int
    rng : Generator
    """
    if rng.random() * q[guess] < p[guess]:
        return guess
    rest = np.maximum(p - q, 0)  # what q gave too little of
    return int(rng.choice(len(p), p=rest / rest.sum()))


def second_chance(p: np.ndarray, q: np.ndarray, guess: int, rng: np.random.Generator) -> int:
    """The mistake: a guess that is refused is replaced by a draw from all of p."""
    if rng.random() * q[guess] < p[guess]:
        return guess
    return int(rng.choice(len(p), p=p))
