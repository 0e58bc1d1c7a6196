"""Find answers that are nearly the same, among those who handed in.

An answer is cut into runs of five words or signs. Runs that many have are what the task asks for;
runs that few have are somebody's own. Two answers that share most of these are listed, to be read
side by side: what they mean is for the teacher to say.
"""

from __future__ import annotations

import io
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import NamedTuple

RUN = 5  # words or signs
MIN_RUNS = 12  # that an answer must have of its own to be compared
MAX_HOLDERS = 8  # who share a run that is still called somebody's own
ALIKE = 0.8  # of the runs of both
_SKIPPED = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


class Pair(NamedTuple):
    """Two answers that are nearly the same."""

    task: str
    one: str
    other: str
    share: float  # of their runs, from 0 to 1


def words(text: str) -> list[str]:
    """Return the words and signs of code or of a sentence; comments count, blanks do not."""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError, ValueError):
        return text.split()
    return [token.string for token in tokens if token.type not in _SKIPPED]


def pairs(task: str, answers: dict[str, str], common: Sequence[str] = ()) -> list[Pair]:
    """Return the pairs of students whose answers to a task are nearly the same.

    Parameters
    ----------
    task : str
    answers : dict of str to str
        By student.
    common : sequence of str
        Texts that everybody has: what was handed out.
    """
    shared = set().union(*map(_runs, common))
    runs = {student: _runs(text) - shared for student, text in answers.items()}
    runs = {student: own for student, own in runs.items() if len(own) >= MIN_RUNS}
    holders = defaultdict(list)
    for student in sorted(runs):
        for run in runs[student]:
            holders[run].append(student)
    met = Counter(
        pair
        for found in holders.values()
        if len(found) <= MAX_HOLDERS
        for pair in combinations(found, 2)
    )
    found = [(pair, _share(runs[pair[0]], runs[pair[1]])) for pair in sorted(met)]
    return [Pair(task, *pair, round(share, 3)) for pair, share in found if share >= ALIKE]


def _runs(text: str) -> set[tuple[str, ...]]:
    found = words(text)
    return {tuple(found[k : k + RUN]) for k in range(len(found) - RUN + 1)}


def _share(one: set, other: set) -> float:
    return len(one & other) / len(one | other)


def every(answers: Iterable[tuple[str, dict[str, str], Sequence[str]]]) -> list[Pair]:
    """Return the pairs of all tasks, the most alike first."""
    found = [
        pair for task, by_student, common in answers for pair in pairs(task, by_student, common)
    ]
    return sorted(found, key=lambda pair: (-pair.share, pair))
