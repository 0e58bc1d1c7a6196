"""How an answer is judged: one small idea.

A task knows its question, the form of its answer, how to judge one and what to say. `check` raises
for an answer that is missing, malformed or wrong, each with a message of its own, and prints one
fixed line for a right one. It never prints a verdict without raising: a notebook whose cells all
ran is a notebook whose answers are right.
"""

import importlib
import sys
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

from lib.errors import CourseError

# The words of verdicts.
RIGHT, MISSING = "right", "missing"
WRONG, UNANSWERED, MALFORMED = "not right yet", "not answered", "not in form"
NOT_HANDED_IN, NOT_JUDGED = "not handed in", "cannot be judged here"


class NotRight(Exception):
    """An answer that is not right. A notebook shows the message alone, without a traceback."""

    heading = ""

    def _render_traceback_(self):  # IPython asks for this
        return [f"{self.heading}: {self}"]


class Unanswered(NotRight):
    """The answer has not been given yet."""

    heading = "Not answered yet"


class Malformed(NotRight):
    """The answer is not of the form that the task asks for."""

    heading = "Not in the form of an answer"


class Wrong(NotRight):
    """The answer was understood, run, and refuted."""

    heading = "Not right yet"


@dataclass(frozen=True)
class Task:
    """One question and all that belongs to it.

    Fields
    ------
    name : str
        Number of the notebook and a word: ``"01.one_query"``.
    title : str
        What the table of `course check` shows.
    form : str
        What an answer looks like, with an example that is not the answer.
    minutes, difficulty : int
        Time for a first attempt; difficulty from 1 to 3.
    judge : callable
        ``judge(answer)`` returns what to say of a right answer, in a sentence or nothing, or raises
        `NotRight`.
    """

    name: str
    title: str
    form: str
    minutes: int
    difficulty: int
    judge: Callable


# A module for each notebook; each has a list TASKS.
MODULES = {
    "01": "lib.exercises.t01_ordering",
    "02": "lib.exercises.t02_roles",
    "03": "lib.exercises.t03_debugging",
    "04": "lib.exercises.t04_build_attention",
    "05": "lib.exercises.t05_build_a_layer",
    "06": "lib.exercises.t06_build_the_stack",
    "07": "lib.exercises.t07_make_it_fast",
    "08": "lib.exercises.t08_read_a_model",
    "09": "lib.exercises.t09_your_llama",
}


def tasks_of(notebook):
    """Return the tasks of one notebook, by name; ``notebook`` is its number, such as ``"01"``."""
    return {task.name: task for task in importlib.import_module(MODULES[notebook]).TASKS}


def find(name):
    """Return the task of this name.

    Raises
    ------
    CourseError
        There is none.
    """
    number = str(name).partition(".")[0]
    tasks = tasks_of(number) if number in MODULES else {}
    if name not in tasks:
        raise CourseError(f"name should be the name of a task; it is {name!r}")
    return tasks[name]


def listed(words):
    """Return words as a sentence lists them: “a, b and c”."""
    words = list(words)
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def quoted(names):
    """Return names as a sentence lists them, each in quotation marks."""
    return listed(f'"{name}"' for name in names)


def letter_name(letter):
    """Return what a letter is called: “cyrillic small letter a”."""
    return unicodedata.name(letter, "letter without a name").lower()


def judge(task, answer):
    """Judge an answer as `Task.judge` does; of one not in form, name letters that only look right.

    Parameters
    ----------
    task : Task
    answer : object
    """
    try:
        return task.judge(answer)
    except Malformed as fault:
        for letter in "".join(_texts(answer)):
            name = letter_name(letter)
            if letter.isalpha() and not letter.isascii() and not name.startswith("latin "):
                raise Malformed(f"{fault} Its {letter!r} is a {name}.") from None
        raise


def _texts(answer):
    """Yield the texts of an answer of plain data but its sentences, which may be in any script."""
    if type(answer) is str:
        yield answer
    elif type(answer) is dict:
        for name, value in answer.items():
            yield from _texts(name)
            yield from () if name == "because" else _texts(value)
    elif type(answer) in (list, tuple):
        for value in answer:
            yield from _texts(value)


def written(value):
    """Return plain data as Python writes it, but sets in one order, which theirs is not."""
    if type(value) is set and value:
        return f"{{{', '.join(sorted(map(written, value)))}}}"
    if type(value) is dict:
        return f"{{{', '.join(f'{written(k)}: {written(v)}' for k, v in value.items())}}}"
    if type(value) is list:
        return f"[{', '.join(map(written, value))}]"
    if type(value) is tuple:
        return f"({', '.join(map(written, value))}{',' * (len(value) == 1)})"
    return repr(value)


# A widget draws the steps beside an answer cell; somebody may take it for the answer.
WIDGET = (
    "A widget helps to find an answer, but what is in it is lost when the notebook is closed. "
    "The cell is the answer: paste the line that the widget shows into it."
)


def check(name, answer=None, *, of=""):
    """Judge an answer: print one line if it is right, raise `NotRight` if it is not.

    Parameters
    ----------
    name : str
        Of the task.
    answer : object
    of : str
        In place of the answer, the name of the variable that holds it where the call is made.
    """
    task = find(name)
    if of:
        there = sys._getframe(1).f_globals
        if of not in there:
            raise Unanswered(
                f"`{of}` has no value in this kernel. Run its answer cell first, and the cells "
                "above it: in the menu Run, Run All Above Selected Cell."
            )
        answer = there[of]
    if answer is ... or answer is None:
        raise Unanswered(f"{task.name}. The form is {task.form}.")
    if {base.__module__.partition(".")[0] for base in type(answer).__mro__} & {
        "ipywidgets",
        "anywidget",
    }:
        raise Malformed(f"the answer is a widget. {WIDGET}")
    said = judge(task, answer)
    print(f"{task.name}: right." + (f" {said}" if said else ""))
