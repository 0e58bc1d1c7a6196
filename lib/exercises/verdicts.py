"""Make the verdicts on one notebook. Nothing of the notebook's is run in this process.

Literals are read and judged here. Functions are called in a process of their own, one for each
notebook: it gets inputs and returns arrays, and what they are compared with never leaves here.
An answer that hangs, or ends its process, is put aside, and the others go on in a new one.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lib.errors import CourseError, ModelError
from lib.exercises import answers, hidden, judging, literal, program
from lib.exercises import t06_build_the_stack as t06
from lib.exercises.building import Building, plain
from lib.exercises.judging import (
    MALFORMED,
    NOT_JUDGED,
    RIGHT,
    UNANSWERED,
    WRONG,
    Malformed,
    NotRight,
    Unanswered,
    Wrong,
)
from lib.exercises.questions import Exercise, Question, owner
from lib.exercises.reading import Cell, clean, code
from lib.exercises.running import remote
from lib.exercises.running.process import Limits, Runner
from lib.exercises.work import Kernel

WORDS = {"Wrong": WRONG, "Unanswered": UNANSWERED, "Malformed": MALFORMED, "NotJudged": NOT_JUDGED}
MESSAGE = 4_000  # characters
UNSAFE = (
    "This answer is code, and running it needs a confinement that this system does not "
    "offer. Install bubblewrap, or grade with --unconfined if you trust the submissions."
)


@dataclass(frozen=True)
class Rules:
    """How a notebook is judged.

    Fields
    ------
    runner : Runner
        Starts the processes in which code runs; where it does not work, no code is run.
    seconds : float
        Of processor time that one answer may take.
    patience : float
        Seconds that all answers of one notebook may spend on hanging.
    wait : float
        Seconds by the clock that one answer may take; by default some times those of processor
        time, since a busy machine takes nobody's time away.
    salt : str
        What hidden inputs are made of besides the answer: its author should not have it.
    """

    runner: Runner
    seconds: float = 10
    patience: float = 60
    wait: float = 0
    salt: str = ""
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True)
class Row:
    """The verdict on one task of one student."""

    student: str
    task: str
    title: str
    points: float
    possible: float
    verdict: str
    message: str
    answer: str = ""  # its source
    value: str = ""  # of a literal, as Python writes it
    reason: str = ""  # the sentence of a diagnosis


def judge_notebook(
    student: str, exercise: Exercise, cells: Sequence[Cell], rules: Rules
) -> list[Row]:
    """Return the verdicts on one notebook, a row for each task of the exercise."""
    try:
        return Notebook(student, exercise, cells, rules).rows()
    except Exception as error:  # whatever it was, the others shall have their verdicts
        why = f"The notebook broke its judge: {type(error).__name__}."
        return [row_of(student, question, NOT_JUDGED, why) for question in exercise.questions]


def row_of(student: str, question: Question, word: str, message: str, **more: str) -> Row:
    """Return the row of one task; the message is made fit for every file."""
    points = question.points if word == RIGHT else 0.0
    message = re.sub(r"\b0x[0-9a-fA-F]{6,}", "0x…", clean(message))[:MESSAGE]
    return Row(
        student, question.task, question.title, points, question.points, word, message, **more
    )


class Notebook:
    """One notebook of one student."""

    def __init__(
        self, student: str, exercise: Exercise, cells: Sequence[Cell], rules: Rules
    ) -> None:
        self.student, self.exercise, self.rules = student, exercise, rules
        self.cells = cells
        self.found = {q.task: answers.find(q, exercise, cells) for q in exercise.questions}
        self.judged: dict[str, Row] = {}

    def rows(self) -> list[Row]:
        """Judge all tasks."""
        running = []
        for question in self.exercise.questions:
            found = self.found[question.task]
            if found.word:
                self._give(question, found.word, found.message)
            elif question.is_built or not self._judge_literal(question):
                running.append(question)
        if running and not self.rules.runner.name:
            for question in running:
                self._give(question, NOT_JUDGED, UNSAFE)
        elif running:
            self._run(running)
        return [self.judged[question.task] for question in self.exercise.questions]

    def _give(self, question: Question, word: str, message: str, **more: str) -> None:
        found = self.found[question.task]
        text = "\n".join(part for part in (message, found.note) if part)
        more = {"answer": found.source, **more}
        self.judged[question.task] = row_of(self.student, question, word, text, **more)

    def sources(self, question: Question) -> tuple[list[str], list[str]]:
        """Return the code cells above an answer, and those below it."""
        cells = code(self.cells)
        source = self.found[question.task].source
        marked = (k for k, c in enumerate(cells) if question.answer in c.ids or c.source == source)
        at = next(marked, len(cells))
        return [c.source for c in cells[:at]], [c.source for c in cells[at + 1 :]]

    # --- Literals ---

    def _judge_literal(self, question: Question) -> bool:
        """Judge an answer that is written out; return False if its code has to run."""
        task = judging.find(question.task)
        above, below = self.sources(question)
        source, value = self.found[question.task].source, ...
        try:
            value = literal.read(source, question.variable, [*below, *above], task.form)
        except literal.Computed:
            return False
        except NotRight as refusal:
            self._give(question, WORDS[type(refusal).__name__], str(refusal))
            return True
        word, message = verdict_of(lambda: judge_value(task, value))
        self._give(question, word, message, **about(value))
        return True

    # --- Code ---

    def _run(self, left: list[Question]) -> None:
        """Judge answers in one process after the other, until each has its verdict."""
        patience = self.rules.patience
        programs = {q.task: self.program(q) for q in left}
        every = "\n".join(part for program in programs.values() for part in program)
        numba = "numba" in every or "lib.jit" in every
        seconds = math.ceil(self.rules.seconds * (len(left) + 1))
        limits = self.rules.limits
        limits = replace(limits, seconds=max(limits.seconds, seconds))
        while left:
            if patience <= 0:
                for question in left:
                    self._give(question, WRONG, "Other answers of this notebook hung too often.")
                return
            run = _Process(self.rules, numba, programs, limits)
            try:
                why = run.judge(left, self._give)
            finally:
                run.close()
            left = [q for q in left if q.task not in self.judged]
            patience -= self.rules.seconds
            for question in left[: len(left) if why.startswith(NO_START) else 1]:
                self._give(question, WRONG, why)
            left = [q for q in left if q.task not in self.judged]

    def program(self, question: Question) -> list[str]:
        """Return the code to run for an answer: what it needs, then its cell."""
        source = literal.clean(self.found[question.task].source)
        above, below = self.sources(question)
        return [*program.support([source], above, self.exercise.cells, below), source]


def judge_value(task: judging.Task, value: object) -> None:
    """Judge a value that is data; raise `NotRight` if it is not right."""
    if value is ... or value is None:
        raise Unanswered(f"The form is {task.form}.")
    judging.judge(task, value)


def about(value: object) -> dict[str, str]:
    """Return what a report tells of a value."""
    if type(value) not in (str, int, float, bool, list, tuple, dict, set):
        return {}  # of other things Python writes where they lie in memory
    more = {"value": clean(judging.written(value)[:500])}
    if isinstance(value, dict) and type(value.get("because")) is str:
        more["reason"] = clean(value["because"][:2_000])
    return more


NO_START = "The process for your code did not start"


class _Process:
    """One process for the answers of one notebook, each with names of its own."""

    def __init__(
        self, rules: Rules, numba: bool, programs: dict, limits: Limits | None = None
    ) -> None:
        self.rules, self.programs = rules, programs
        process = rules.runner.start(limits or rules.limits, numba)
        self.session = remote.Session(process, rules.wait)

    def close(self) -> None:
        """End the process."""
        self.session.close()

    def judge(self, left: Sequence[Question], give: Callable) -> str:
        """Judge what is left, in order; return why the process ended before, if it did."""
        what = NO_START
        try:
            with self.session.within(remote.START):
                self.session.wait_until_ready()
            for question in left:
                what = "Its answer cell did not end"
                with self.session.within(self.rules.seconds):
                    failed = self._run(self.programs[question.task])
                what, more = "Your code did not return", {}
                with self.session.within(self.rules.seconds):
                    word, message = verdict_of(
                        functools.partial(self._judge, question, failed, more)
                    )
                if failed and word != RIGHT:
                    message = f"{failed}\n{message}".rstrip()
                give(question, word, message, **more)
        except remote.Gone as gone:
            return f"{what}: {gone}."
        return ""

    def _run(self, program: list[str]) -> str:
        """Run the code of one answer; return what its own cell raised."""
        self.session.request("reset")
        *support, source = program
        for statement in support:
            self.session.request("cell", source=statement)
        reply = self.session.request("cell", source=source)
        if "raised" not in reply:
            return ""
        said = ": ".join(part for part in remote.words_of(reply) if part)
        return f"Its answer cell does not run: {said}."

    def _judge(self, question: Question, failed: str, more: dict) -> None:
        """Judge one answer by what its code made; raise `NotRight` if it is not right."""
        reply = self.session.request("look", name=question.variable)
        if "missing" in reply:
            if failed:
                raise Malformed("")
            raise Malformed(f"Its answer cell should give `{question.variable}` a value.")
        value, judge = reply.get("value"), owner(question.task)
        if not question.is_built:
            value = plain_value(remote.stand_in(value))
            more |= about(value)
            judge_value(judging.find(question.task), value)
            return
        if value is None or value is ...:
            raise Unanswered(f"The form is {judge.form}.")
        seed = hidden.seed_of(self.rules.salt, question.task, *self.programs[question.task])
        if isinstance(judge, Kernel):
            self._judge_kernel(question.variable, value, hidden.kernel(judge, seed))
        else:
            called = getattr(value, "kind", "") in ("function", "kernel", "callable")
            function = remote.Function(self.session, question.variable) if called else None
            judge_function(hidden.building(judge, seed), function or remote.stand_in(value))

    def _judge_kernel(self, name: str, value: object, kernel: Kernel) -> None:
        kind = getattr(value, "kind", "")
        if kind not in ("function", "kernel"):
            raise kernel.malformed(getattr(value, "name", type(value).__name__))
        plainly = remote.Function(self.session, name, plainly=True)
        compiled = remote.Function(self.session, name, do="compiled") if kind == "kernel" else None
        right = functools.partial(_check_counted, kernel)
        kernel.judge_parts(
            plainly, lambda given: remote.count(self.session, name, right, given), compiled
        )


def _check_counted(kernel: Kernel, values: np.ndarray) -> None:
    """Raise `Wrong` where a kernel gave other values when its work was counted."""
    expected = kernel.values.definition(*(kernel.counted or kernel.inputs)).ravel()
    if not np.abs(values - expected).max() <= 1e-4 * max(1, np.abs(expected).max()):
        raise Wrong(
            f"{kernel.name} gives other values when its work is counted than when it is not."
        )


def judge_function(building: Building, function: Any) -> None:
    """Judge a built function; attention for the real model on what all its heads were given."""
    if not isinstance(building, t06.InTheModelToo):
        building.judge(function)
        return
    Building.judge(building, function)
    if not all(
        _fits(function, heads()[k : k + CALLS_AT_ONCE])
        for k in range(0, len(heads()), CALLS_AT_ONCE)
    ):
        building.judge(function)  # it differs somewhere: let the model run, and say where
        raise Wrong("my_attention differs from the definition in a head of the real model.")


CALLS_AT_ONCE = 270  # in one request: those of all heads at one step


def _fits(function: remote.Function, calls: list[tuple]) -> bool:
    """Tell whether a function returns what it should, to within what `InTheModel` allows."""
    try:
        came = [plain(value) for value in function.many([call[:3] for call in calls])]
    except Exception:  # it raises somewhere
        return False
    return all(
        out.shape == right.shape and np.abs(out - right).max() <= 1e-4 * max(1, np.abs(right).max())
        for out, (_, _, _, right) in zip(came, calls, strict=True)
    )


@functools.cache
def heads() -> list[tuple[np.ndarray, ...]]:
    """Return what each head was given as the model finished a sentence, and what it returned.

    The model runs once for all submissions: who gives it the same attention lets it say the same.
    """
    seen = []

    def attention(Q, K, V):
        out = t06.reference.attend_causal(Q, K, V)
        seen.append((Q.copy(), K.copy(), V.copy(), out))
        return out.astype(np.float32)

    t06._finish(t06.PROMPT, attention, t06.NEW_TOKENS)
    return seen


def verdict_of(judge: Callable[[], object]) -> tuple[str, str]:
    """Return the word and the message for a judgement that raises, or does not."""
    try:
        judge()
        return RIGHT, ""
    except NotRight as refusal:
        return WORDS.get(type(refusal).__name__, WRONG), str(refusal)
    except ModelError as error:
        return NOT_JUDGED, str(error)
    except (CourseError, ArithmeticError, LookupError, MemoryError, RecursionError, TypeError,
            ValueError, AttributeError) as error:  # fmt: skip
        # A judge that stumbles must not cost the others their verdicts; no point is given.
        return WRONG, f"The answer could not be judged: {type(error).__name__}: {error}"


def plain_value(value: Any) -> object:
    """Return a value with Python's own numbers and lists in the place of NumPy's."""
    if isinstance(value, np.ndarray) and type(value) is np.ndarray:
        return value.tolist()
    return value.item() if type(value) in np.sctypeDict.values() else value
