"""The share of wrong answers that are caught: the number to watch.

    python -m tests.exercises.caught

For each task the wrong answers that are known, and how many of them get the message meant for
them. Ends with code 1 if one is not caught, if a right answer is refused, or if a task has none.
"""

import contextlib
import importlib
import io
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from lib.exercises import judging


@dataclass(frozen=True)
class Count:
    """How the known answers to one task fare."""

    task: str
    known: int
    caught: int
    faults: tuple[str, ...]  # a line for each answer that fares as it should not


def answer_files():
    """Return the modules of answers, by the number of their notebook."""
    folder = Path(__file__).parent / "wrong"
    names = sorted(path.stem for path in folder.glob("t[0-9][0-9].py"))
    return {name[1:]: importlib.import_module(f"tests.exercises.wrong.{name}") for name in names}


def verdict(task, answer):
    """Return the message that an answer gets: empty if it is right."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            judging.check(task, answer)
    except judging.NotRight as refusal:
        return f"{refusal.heading}: {refusal}"
    return ""


def count(task, answers):
    """Try all known answers to a task.

    Parameters
    ----------
    task : str
    answers : module
        With ``RIGHT``, a dict of answers, and ``WRONG``, a dict of lists of (label, answer,
        pattern of the message).
    """
    faults = []
    if task not in answers.RIGHT:
        faults.append(f"{task}: no right answer is known")
    elif message := verdict(task, answers.RIGHT[task]):
        faults.append(f"{task}, the right answer: {message}")
    wrong = answers.WRONG.get(task, [])
    if not wrong:
        faults.append(f"{task}: no wrong answer is known")
    missed = []
    for label, answer, pattern in wrong:
        message = verdict(task, answer)
        if not message:
            missed.append(f"{task}, {label}: it passes")
        elif not re.search(pattern, message):
            missed.append(f"{task}, {label}: it gets another message: {message}")
    return Count(task, len(wrong), len(wrong) - len(missed), (*faults, *missed))


def count_all(files):
    """Return a `Count` for each task of the notebooks whose answers are known."""
    return [count(task, answers) for n, answers in files.items() for task in judging.tasks_of(n)]


def show(counts, console):
    """Print a table, and below it what fares as it should not."""
    table = Table()
    for column in ("task", "wrong answers known", "caught", "share"):
        table.add_column(column, justify="left" if column == "task" else "right")
    for one in counts:
        table.add_row(one.task, str(one.known), str(one.caught), share([one]))
    table.add_section()
    known, caught = (sum(getattr(c, field) for c in counts) for field in ("known", "caught"))
    table.add_row(f"{len(counts)} tasks", str(known), str(caught), share(counts))
    console.print(table)
    for one in counts:
        for fault in one.faults:
            console.print(fault, markup=False, highlight=False, soft_wrap=True)


def share(counts):
    """Return the share caught in per cent, never rounded up."""
    known, caught = sum(c.known for c in counts), sum(c.caught for c in counts)
    return f"{1000 * caught // known / 10:g} %" if known else "none"


def main(console=None):
    """Print the table and return the exit code."""
    counts = count_all(answer_files())
    show(counts, console or Console())
    return int(not counts or any(one.faults for one in counts))


if __name__ == "__main__":
    sys.exit(main())
