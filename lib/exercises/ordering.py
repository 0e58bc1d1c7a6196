"""Put the steps in order: the reader's order is run, on real arrays.

A step needs some arrays and makes one. The reader's steps run one after the other, from what is
given. The first whose input does not exist yet is named. Every order that the needs allow is right.
"""

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lib.exercises.judging import Malformed, Wrong, listed


@dataclass(frozen=True)
class Step:
    """One step: ``run(*needs)`` makes an array. A decoy says why it does not belong."""

    text: str
    needs: tuple[str, ...]
    makes: str
    run: Callable
    decoy: str = ""


@dataclass(frozen=True)
class Ordering:
    """Steps, written here in a right order; the reader gets them shuffled and lettered.

    Fields
    ------
    given : dict
        The arrays that exist at the beginning, by name.
    words : dict
        What each array is called in a message, such as ``{"alpha": "the weights α"}``.
    goals : tuple of str
        The arrays that must exist in the end.
    steps : tuple of Step
    seed : int
        Of the shuffle, so that every reader sees the same letters.
    read : callable, optional
        ``read(array)`` tells what the array of the first goal is or says, beginning with a verb.
    """

    given: dict
    words: dict
    goals: tuple[str, ...]
    steps: tuple[Step, ...]
    seed: int
    read: Callable = lambda array: f"is {_numbers(array)}"

    @cached_property
    def lettered(self):
        """The steps by their letters, in the order of the letters."""
        shuffled = list(self.steps)
        random.Random(self.seed).shuffle(shuffled)
        return dict(zip("ABCDEFGHIJKLMNOP", shuffled, strict=False))

    def judge(self, answer):
        """Run the answer's order; raise `Malformed` or `Wrong`, or say how it ran."""
        order = self.parse(answer)
        state = dict(self.given)
        for place, letter in enumerate(order, 1):
            step = self.lettered[letter]
            self._check_needs(place, letter, step, state)
            try:
                state[step.makes] = step.run(*(state[name] for name in step.needs))
            except ValueError:  # a decoy has made an array of a shape that does not fit
                break
        self._check_decoys(order, state)
        self._check_goals(order, state)
        return f"All {len(order)} steps ran, each on what the steps before it had made."

    def parse(self, answer):
        """Return the answer as a list of letters."""
        if type(answer) in (list, tuple) and all(type(letter) is str for letter in answer):
            answer = " ".join(answer)
        if type(answer) is not str:
            raise Malformed(
                f"the answer should be letters in a string, such as {self.example!r}; "
                f"it is of type {type(answer).__name__}."
            )
        order = re.sub(r"[\s,;>→-]", "", answer).upper()
        unknown = sorted(set(order) - set(self.lettered))
        if unknown or not order:
            raise Malformed(
                f"the answer should hold letters from A to {max(self.lettered)}, "
                f"such as {self.example!r}; it is {answer!r}."
            )
        twice = [letter for letter in self.lettered if order.count(letter) > 1]
        if twice:
            raise Malformed(f"each step is used at most once; {twice[0]} stands there twice.")
        return list(order)

    @property
    def example(self):
        """Letters that show the form: the first three, in the order of the alphabet."""
        return "A B C"

    def _check_needs(self, place, letter, step, state):
        missing = [name for name in step.needs if name not in state]
        if missing:
            raise Wrong(
                f"your step {place} is {letter} (“{step.text}”). It needs "
                f"{listed(self.words[name] for name in missing)}, "
                "and no step before it has made that."
            )

    def _check_decoys(self, order, state):
        for place, letter in enumerate(order, 1):
            step = self.lettered[letter]
            if step.decoy:
                raise Wrong(
                    f"your step {place} is {letter} (“{step.text}”). It runs, but it does not "
                    f"belong here. {step.decoy}{self._difference(state)}"
                )

    def _difference(self, state):
        """Say what the reader's order made of the first goal, beside what it should be."""
        goal, right = self.goals[0], self.result()[self.goals[0]]
        if goal not in state or np.allclose(state[goal], right):
            return ""
        came, due = self.read(state[goal]), self.read(right)
        if came == due:
            return f" With your steps {self.words[goal]} is another one, though it too {due}."
        return f" With your steps {self.words[goal]} {came}; by the definition it {due}."

    def _check_goals(self, order, state):
        for goal in self.goals:
            if goal not in state:
                raise Wrong(f"all your steps ran, but none of them has made {self.words[goal]}.")
        left_out = [step for step in self.steps if not step.decoy and step.makes not in state]
        if left_out:
            raise Wrong(
                f"all your steps ran, but none of them has made {self.words[left_out[0].makes]}."
            )

    def result(self):
        """Run the steps as they stand here, without the decoys, and return all arrays."""
        state = dict(self.given)
        for step in self.steps:
            if not step.decoy:
                state[step.makes] = step.run(*(state[name] for name in step.needs))
        return state

    def orders(self):
        """Yield every right order, as a string of letters."""
        letters = {letter: step for letter, step in self.lettered.items() if not step.decoy}

        def extend(order, made):
            if len(order) == len(letters):
                yield order
            for letter, step in letters.items():
                if letter not in order and set(step.needs) <= made:
                    yield from extend(order + letter, made | {step.makes})

        yield from extend("", set(self.given))


def lettered_list(ordering):
    """Show the steps with their letters, as Markdown."""
    from IPython.display import Markdown

    lines = [f"- **{letter}** · {step.text}" for letter, step in ordering.lettered.items()]
    return Markdown("\n".join(lines))


def _numbers(array):
    array = np.asarray(array)
    if array.ndim == 0:
        return f"{array:g}"
    return "(" + ", ".join(f"{x:.2f}".replace("-", "−") for x in array[:3]) + ", …)"
