"""The roles of the parts: a wrong answer is met by the experiment that refutes it.

Experiments are functions of `lib.lab.experiments`. They run when an answer is judged, their numbers
go into the message, and the message ends with lines that run them in a notebook. What is right is
measured as well, wherever it can be: only a statement in words has its truth written down.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from lib.exercises.judging import Malformed, Unanswered, Wrong, quoted, written
from lib.lab import experiments

# What moves at all moves by more than 0.01 here; rounding stays below 1e-6, in float32 too.
MOVES = 1e-6

LETTERS = "ABCDEFGHIJKLMNOP"


@dataclass(frozen=True)
class Call:
    """An experiment and its arguments.

    Fields
    ------
    run : callable
        A function of `lib.lab.experiments`.
    arguments : tuple
        Functions of that module, numbers, strings, tuples of numbers.
    """

    run: Callable
    arguments: tuple = ()

    @property
    def functions(self):
        """The functions that the call names, itself first."""
        return [self.run, *filter(callable, self.arguments)]

    def __str__(self):
        spelled = (a.__name__ if callable(a) else _quoted(a) for a in self.arguments)
        return f"{self.run.__name__}({', '.join(spelled)})"

    def result(self):
        """Run it."""
        return self.run(*self.arguments)


def cell(*calls):
    """Return lines that run the experiments in a notebook and show how they are made."""
    used = {f.__name__: f for call in calls for f in call.functions}
    return "\n".join(
        [
            f"from {experiments.__name__} import {', '.join(used)}",
            "from lib.lab import show",
            "",
            *(f"print({call})" for call in calls),
            f"show.source({', '.join(used)})",
        ]
    )


def refuted(said, *calls):
    """Return the refusal of an answer: what was said against it, and how to see it."""
    return Wrong(f"{said}\nRun it yourself, in a cell of your own:\n\n{cell(*calls)}")


# --- One statement of several ---


@dataclass(frozen=True)
class Statement:
    """A statement that a reader may choose.

    Fields
    ------
    text : str
    words : str
        What refutes it, with a place for each number of the calls' results. Empty for the right
        one.
    calls : tuple of Call
    """

    text: str
    words: str = ""
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True)
class Choice:
    """Statements, of which one is right; the reader gets them shuffled and lettered."""

    statements: tuple[Statement, ...]
    seed: int
    form = 'one letter in a string, such as "A"'

    @cached_property
    def lettered(self):
        """The statements by their letters."""
        return _lettered(self.statements, self.seed)

    def judge(self, answer):
        """Run what refutes the chosen statement; raise `NotRight`, or say that nothing does."""
        if type(answer) is not str:
            raise Malformed(
                f"the answer should be {self.form}; it is of type {type(answer).__name__}."
            )
        letter = answer.strip().upper()
        if letter not in self.lettered:
            raise Malformed(
                f"the answer should be one letter from A to {max(self.lettered)}; it is {answer!r}."
            )
        statement = self.lettered[letter]
        if statement.calls:
            numbers = [x for call in statement.calls for x in _several(call.result())]
            raise refuted(f"{letter} is refuted. {statement.words.format(*numbers)}",
                          *statement.calls)  # fmt: skip
        return f"Each of the other {len(self.statements) - 1} is refuted by an experiment."


# --- Properties to sort ---

ROLES = {
    (True, False): "attention",
    (False, True): "ffn",
    (True, True): "both",
    (False, False): "neither",
}


@dataclass(frozen=True)
class Property:
    """A property that a step has or has not; both steps are measured.

    Fields
    ------
    text : str
    run : callable
        ``run(step)`` returns a number.
    holds : callable
        ``holds(number)`` tells whether the step has the property.
    words : str
        What the number is, with a place for that of attention and one for that of the FFN.
    """

    text: str
    run: Callable
    holds: Callable
    words: str

    @property
    def calls(self):
        """The experiment on both steps."""
        return Call(self.run, (experiments.attention,)), Call(self.run, (experiments.ffn,))


@dataclass(frozen=True)
class Sorting:
    """Properties to sort into `ROLES`; the reader gets them shuffled and lettered."""

    properties: tuple[Property, ...]
    seed: int
    form = 'a dict {"A": "attention", "B": "ffn", "C": "both", "D": "neither", …}, in this manner'

    @cached_property
    def lettered(self):
        """The properties by their letters."""
        return _lettered(self.properties, self.seed)

    def judge(self, answer):
        """Measure both steps for each property; raise `NotRight`, or say how many were measured."""
        given = entries(answer, self.lettered, self.form, _role)
        faults = {}
        for letter, prop in self.lettered.items():
            numbers = [call.result() for call in prop.calls]
            if given[letter] != ROLES[tuple(bool(prop.holds(x)) for x in numbers)]:
                faults[letter] = prop.words.format(*numbers)
        if faults:
            letter, fault = next(iter(faults.items()))
            prop = self.lettered[letter]
            raise refuted(
                f"{_score(len(given), len(faults))} {letter} (“{prop.text}”): you say "
                f"“{given[letter]}”. {fault}", *prop.calls)  # fmt: skip
        return f"All {len(given)} were measured on both steps."


def _role(value):
    if type(value) is not str or value.strip().lower() not in ROLES.values():
        raise Malformed(
            f'it should be "attention", "ffn", "both" or "neither"; it is {_brief(value)}.'
        )
    return value.strip().lower()


# --- Predictions ---


@dataclass(frozen=True)
class Prediction:
    """Predict the results of some experiments, in a dict; then they are run.

    Fields
    ------
    parts : dict of str to Call
    kind : Moving, YesNo, NextWord, FirstLayer or Factor
        How one prediction is read, and what refutes it.
    """

    parts: dict[str, Call]
    kind: object

    @property
    def form(self):
        """What an answer looks like."""
        return f'a dict {{"{next(iter(self.parts))}": {self.kind.example}, …}}'

    def judge(self, answer):
        """Run the experiments; raise `NotRight` for the first that refutes the answer."""
        given = entries(answer, self.parts, self.form, self.kind.read)
        faults = {
            name: fault
            for name, call in self.parts.items()
            if (fault := self.kind.refute(given[name], call.result()))
        }
        if faults:
            name, fault = next(iter(faults.items()))
            raise refuted(f"{_score(len(given), len(faults))} “{name}”: {fault}", self.parts[name])
        return f"All {len(given)} experiments came out as you predicted."


@dataclass(frozen=True)
class Moving:
    """Which of some things move: a list of their labels. Experiments return how far each does."""

    labels: tuple  # of int or of str
    thing: str  # what a label stands for, such as “output”
    examples: tuple  # labels, to show the form

    @property
    def example(self):
        """What a prediction looks like."""
        return str(list(self.examples))

    def read(self, value):
        """Return a prediction as a set of labels."""
        kind = type(self.labels[0])
        if type(value) is dict and not value:
            raise Malformed("{} is an empty dict; write [] where nothing moves.")
        if type(value) not in (list, tuple, set) or any(type(x) is not kind for x in value):
            what = "whole numbers" if kind is int else "strings"
            raise Malformed(
                f"it should be a list, tuple or set of {what}, such as {self.example}, or [] where "
                f"nothing moves; it is {_brief(value)}."
            )
        if unknown := [x for x in value if x not in self.labels]:
            known = ", ".join(map(str, self.labels))
            first = min(unknown) if type(value) is set else unknown[0]
            raise Malformed(f"it should hold some of {known}; it holds {first!r:.40}.")
        return set(value)

    def refute(self, value, found):
        """Return what refutes a prediction; empty if nothing does."""
        for label in self.labels:
            if (label in value) != (found[label] > MOVES):
                said = "you name" if label in value else "you leave out"
                return f"{said} {self.thing} {label}, which moved by {found[label]:.2f}."
        return ""


@dataclass(frozen=True)
class YesNo:
    """Whether something moves: True or False. Experiments return how far it does."""

    thing: str  # such as “the output”
    example = "True or False"

    def read(self, value):
        """Return a prediction as a bool."""
        if type(value) is not bool:
            raise Malformed(f"it should be True or False; it is {_brief(value)}.")
        return value

    def refute(self, value, found):
        """Return what refutes a prediction; empty if nothing does."""
        if value == (found > MOVES):
            return ""
        said = "moves" if value else "stays as it is"
        return f"you say that {self.thing} {said}. It moved by {found:.2f}."


@dataclass(frozen=True)
class NextWord:
    """The likeliest next word. Experiments return the probability of each word of a vocabulary."""

    words: tuple[str, ...]
    example = '"the"'

    def read(self, value):
        """Return a prediction as a word."""
        if type(value) is not str or value.strip().lower() not in self.words:
            known = " ".join(self.words)
            raise Malformed(f"it should be one word of: {known}; it is {_brief(value)}.")
        return value.strip().lower()

    def refute(self, value, found):
        """Return what refutes a prediction; empty if nothing does."""
        most = max(found.values())
        if found[value] == most:
            return ""
        return (
            f"you say that “{value}” comes next. Its probability is {found[value]:.2f}; that of "
            f"another word is {most:.2f}."
        )


@dataclass(frozen=True)
class FirstLayer:
    """After which layer something first moves, or 0 for never.

    Experiments return how far it has moved after each of the L layers; it does not move back.
    """

    L: int
    thing: str
    example = "2"

    def read(self, value):
        """Return a prediction as an int."""
        if type(value) is not int or not 0 <= value <= self.L:
            raise Malformed(
                f"it should be a whole number from 1 to {self.L}, or 0 for never; "
                f"it is {_brief(value)}."
            )
        return value

    def refute(self, value, found):
        """Return what refutes a prediction; empty if nothing does."""
        first = next((k for k, far in enumerate(found, 1) if far > MOVES), 0)
        if value == first:
            return ""
        seen = value or self.L
        if value and found[value - 1] > MOVES:
            seen = value - 1  # it moves by then, but it did already one layer before
        return (
            f"you say {value or 'never'}. After {_layers(seen)} {self.thing} has moved by "
            f"{found[seen - 1]:.2f}."
        )


@dataclass(frozen=True)
class Factor:
    """By which factor a count grows, rounded to a whole number.

    Experiments return the count before and the count after.
    """

    before: str  # such as “100 tokens”
    after: str
    example = "3"

    def read(self, value):
        """Return a prediction as a number."""
        if type(value) not in (int, float) or not 0 < value < 1000:
            raise Malformed(
                f"it should be a number above 0 and below 1000, such as 3; it is {_brief(value)}."
            )
        return value

    def refute(self, value, found):
        """Return what refutes a prediction; empty if nothing does."""
        once, twice = found
        if value == round(twice / once):
            return ""
        return (
            f"you say that it grows by the factor {value:g}. Counted were {once:,} multiply-adds "
            f"for {self.before} and {twice:,} for {self.after}."
        )


# --- What they share ---


def entries(answer, names, form, read):
    """Return an answer that is a dict, each of its values read.

    Parameters
    ----------
    answer : object
        Anything; a plain dict of strings to values is expected.
    names : iterable of str
        Its keys.
    form : str
        What an answer looks like.
    read : callable
        ``read(value)`` returns one value, or raises `Malformed`.

    Raises
    ------
    Malformed
        No dict, or a key or value of another kind.
    Unanswered
        A key that is missing, or whose value is ``...`` or None.
    """
    if type(answer) is not dict:
        raise Malformed(f"the answer should be {form}; it is {_brief(answer)}.")
    names = list(names)
    if unknown := [key for key in answer if type(key) is not str or key not in names]:
        raise Malformed(
            f"the answer has a place for {quoted(names)}, not for {_brief(unknown[0])}."
        )
    if open_ := [n for n in names if answer.get(n) is None or answer[n] is ...]:
        raise Unanswered(f"still open: {quoted(open_)}. The form is {form}.")
    given = {}
    for name in names:
        try:
            given[name] = read(answer[name])
        except Malformed as fault:
            raise Malformed(f"“{name}”: {fault}") from None
    return given


def _lettered(things, seed):
    shuffled = list(things)
    random.Random(seed).shuffle(shuffled)
    return dict(zip(LETTERS, shuffled, strict=False))


def _score(count, wrong):
    return f"Right: {count - wrong} of {count}. The first that is not is"


def _several(result):
    return result if type(result) is tuple else (result,)


def _quoted(value):
    return f'"{value}"' if type(value) is str else repr(value)


def _brief(value):
    """Name a value that came, without asking an unknown object how it likes to be shown."""
    if type(value) in (str, int, float, bool):
        return f"{value!r:.40}"
    if type(value) in (list, tuple, set):
        odd = sorted({type(x).__name__ for x in value} - {"str", "int", "float", "bool"})
        return f"a {type(value).__name__} that holds a {odd[0]}" if odd else written(value)[:60]
    return f"of type {type(value).__name__}"


def _layers(k):
    return f"{k} layer{'s' * (k > 1)}"
