"""Grade a class: many submissions, some at a time, each of them once.

A submission is read here and judged by processes of this machine, which are told over pipes, or by
the workers of a Dask cluster. Each result is written as soon as it is there, under a name and with
a fingerprint of all that it depends on; so a run that was stopped goes on where it was, and what
was changed is judged anew.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import os
import pickle
import queue
import secrets
import signal
import sys
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path

from lib import notebooks
from lib.errors import CourseError
from lib.exercises import questions
from lib.exercises.judging import MISSING, NOT_HANDED_IN, NOT_JUDGED
from lib.exercises.verdicts import Row, Rules, judge_notebook, row_of
from lib.grading import collect, report
from lib.grading.collect import Handed
from lib.grading.confine import Confined

SECRET = "secret"  # what hidden inputs are made of
DONE = "done"  # the folder of results that are there already
TRIES = 3


@dataclass
class Graded:
    """What a run came to.

    Fields
    ------
    rows : dict of str to list of Row
        By student, in the order of the names.
    handed : dict of str to Handed
    again : int
        Submissions that had to be judged; the others were there already.
    """

    rows: dict[str, list[Row]]
    handed: dict[str, Handed]
    again: int


def grade(
    submissions: Path,
    out: Path,
    root: Path,
    numbers: Iterable[str] = (),
    rules: Rules | None = None,
    workers: int = 0,
    scheduler: str = "",
    begin: Callable[[int], object] = lambda count: None,
    advance: Callable[[str, list[Row]], object] = lambda student, rows: None,
) -> Graded:
    """Grade all submissions in a folder, and write the results.

    Parameters
    ----------
    submissions : Path
        One folder or one file a student.
    out : Path
        Folder of the results.
    root : Path
        The folder of the course, with its solutions.
    numbers : iterable of str
        Exercises to grade; by default those that anybody handed in.
    rules : Rules, optional
        By default code is run where it can be confined.
    workers : int
        Processes on this machine; with fewer than two, all is done in this one.
    scheduler : str
        Address of a Dask scheduler, ``tls://…``; its workers are used instead.
    begin, advance : callable
        Told how many submissions are to be judged, and then of each that has been.

    Raises
    ------
    CourseError
        There are no submissions, no such exercise, or `out` cannot be used.
    """
    _check_folders(submissions, out)
    rules = rules or Rules(Confined())
    rules = replace(rules, salt=rules.salt or _salt(out))
    _import_nothing_from(submissions)
    known = questions.read(root, numbers)
    entries = collect.students(submissions)
    handed = {name: _collected(name, path, known) for name, path in entries.items()}
    exercises = known if list(numbers) else _handed_in(known, handed.values())
    base = _fingerprint(root, exercises, rules)
    prints = {name: _digest(base, one.digest) for name, one in handed.items()}
    store = _Store(out / DONE)
    done = {name: store.read(name, prints[name]) for name in handed}
    rows = {name: found for name, found in done.items() if found is not None}
    todo = [handed[name] for name in handed if name not in rows]
    begin(len(todo))
    for name, found in _judged(todo, exercises, rules, workers, scheduler):
        rows[name] = found
        if NOT_JUDGED not in {row.verdict for row in found}:  # another run may judge it
            store.write(name, prints[name], found)
        advance(name, found)
    graded = Graded({name: rows[name] for name in sorted(rows)}, handed, len(todo))
    report.write(graded.rows, handed, exercises, out)
    return graded


def judge_handed(handed: Handed, exercises: dict, rules: Rules) -> list[Row]:
    """Return the verdicts on what one student handed in, a row for each task of the exercises."""
    rows = []
    for number, exercise in sorted(exercises.items()):
        if number in handed.cells:
            rows += judge_notebook(handed.student, exercise, handed.cells[number], rules)
            continue
        word = MISSING if number in handed.troubles else NOT_HANDED_IN
        why = handed.troubles.get(number, "")
        rows += [row_of(handed.student, question, word, why) for question in exercise.questions]
    return rows


def _collected(name: str, path: Path, known: dict) -> Handed:
    try:
        return collect.collect(name, path, known)
    except Exception as error:  # one that breaks the collector shall not stop the others
        why = f"What was handed in could not be read: {type(error).__name__}. Hand it in again."
        return Handed(name, notes=[why], digest=repr(error))


def _salt(out: Path) -> str:
    """Return the secret of these results: kept with them, so that they come out the same again."""
    path = out / SECRET
    if not path.exists():
        notebooks.replace(path, f"{secrets.token_hex(16)}\n")
    return path.read_text(encoding="utf-8").strip()


def _import_nothing_from(submissions: Path) -> None:
    """See to it that no module is looked for among what was handed in, here or in a worker."""
    inside = submissions.resolve()
    places = {place: Path(place or ".").resolve() for place in sys.path}
    sys.path[:] = [
        place for place in sys.path if inside not in (places[place], *places[place].parents)
    ]


def _check_folders(submissions: Path, out: Path) -> None:
    inner, outer = out.resolve(), submissions.resolve()
    if inner == outer or outer in inner.parents:
        raise CourseError(f"--out should not lie in the folder of submissions; it is {out}")
    try:
        (out / DONE).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CourseError(f"--out, {out}, cannot be used as a folder: {error.strerror}") from None


def _handed_in(known: dict, handed: Iterable[Handed]) -> dict:
    there = {number for one in handed for number in (*one.cells, *one.troubles)}
    return {number: exercise for number, exercise in known.items() if number in there}


# --- What is there already -----------------------------------------------------------------------


class _Store:
    """Results on disk, one file a student."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _path(self, name: str) -> Path:
        return self._folder / f"{_digest(name)[:24]}.json"

    def read(self, name: str, fingerprint: str) -> list[Row] | None:
        """Return the rows of a student, if they are those of this very submission."""
        try:
            found = json.loads(self._path(name).read_text(encoding="utf-8"))
            if found["fingerprint"] == fingerprint and found["student"] == name:
                return [Row(**row) for row in found["rows"]]
        except (OSError, ValueError, KeyError, TypeError):
            pass  # not there, or cut off when the run was stopped
        return None

    def write(self, name: str, fingerprint: str, rows: list[Row]) -> None:
        data = {"student": name, "fingerprint": fingerprint, "rows": [asdict(row) for row in rows]}
        text = json.dumps(data, ensure_ascii=False, indent=1)
        notebooks.replace(self._path(name), text + "\n")


def _fingerprint(root: Path, exercises: dict, rules: Rules) -> str:
    """Return a digest of what a verdict depends on besides the submission."""
    code = sorted(Path(notebooks.__file__).parent.rglob("*.py"))
    parts = [hashlib.sha256(path.read_bytes()).hexdigest() for path in code]
    parts += [
        f"{number} {(e.file, sorted(e.ids), e.questions, e.cells)}"
        for number, e in sorted(exercises.items())
    ]
    return _digest(*parts, repr(replace(rules, salt="")), rules.runner.name)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()


# --- Where the work is done ----------------------------------------------------------------------

Judged = Iterator[tuple[str, list[Row]]]


def _judged(
    todo: list[Handed], exercises: dict, rules: Rules, workers: int, scheduler: str
) -> Judged:
    """Yield each student and the verdicts, as they come."""
    workers = min(workers, len(todo))
    if workers < 2 and not (scheduler and todo):
        yield from ((handed.student, judge_handed(handed, exercises, rules)) for handed in todo)
        return
    shared = zlib.compress(pickle.dumps((exercises, rules)))
    if scheduler:
        yield from _on_cluster(scheduler, shared, todo)
    else:
        yield from _in_processes(workers, shared, todo)


def _in_processes(workers: int, shared: bytes, todo: list[Handed]) -> Judged:
    """Judge in some processes of this machine; what one was at that ended is done again."""
    waiting, done = queue.SimpleQueue(), queue.SimpleQueue()
    for handed in todo:
        waiting.put((handed, TRIES))
    with _safe_path():
        for _ in range(workers):
            threading.Thread(target=_tend, args=(shared, waiting, done), daemon=True).start()
        for _ in todo:
            yield _next(done)


def _next(done: queue.SimpleQueue) -> tuple[str, list[Row]]:
    """Wait for a result, not too long at once: an endless wait is deaf to Ctrl-C on Windows."""
    while True:
        with suppress(queue.Empty):
            return done.get(timeout=1)


def _tend(shared: bytes, waiting: queue.SimpleQueue, done: queue.SimpleQueue) -> None:
    """Give the work that waits to one process, and to another one when that ends."""
    worker = None
    with suppress(queue.Empty):
        while True:
            handed, tries = waiting.get_nowait()
            try:
                worker = worker or _Worker(shared)
                done.put((handed.student, worker.judge(handed)))
            except (EOFError, OSError) as error:
                worker = worker and worker.end()  # it may not even have been started
                if tries > 1:
                    waiting.put((handed, tries - 1))
                else:
                    done.put((handed.student, _not_judged(shared, handed, type(error).__name__)))
    if worker is not None:
        worker.end()


class _Worker:
    """A process of this machine that judges what it is told over a pipe."""

    def __init__(self, shared: bytes) -> None:
        context = get_context("spawn")
        self._line, theirs = context.Pipe()
        arguments = theirs, shared, os.getpid()
        self._process = context.Process(target=_work, args=arguments, daemon=True)
        self._process.start()
        theirs.close()  # so that the end of the process shows

    def judge(self, handed: Handed) -> list[Row]:
        self._line.send(handed)
        return self._line.recv()

    def end(self) -> None:
        self._line.close()  # which it takes for the end
        self._process.join(10)
        self._process.kill()


def _work(line, shared: bytes, grader: int) -> None:
    """Judge what comes, until nothing does; ends with the grader, and leaves Ctrl-C to it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
        if os.getppid() != grader:  # it ended before it could be asked for that
            return
    with suppress(EOFError):
        while True:
            line.send(judge_there(shared, line.recv()))


@contextmanager
def _safe_path() -> Iterator[None]:
    """Let a new Python import nothing from the folder in which it is started."""
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        os.environ.pop("PYTHONSAFEPATH")
        if before is not None:
            os.environ["PYTHONSAFEPATH"] = before


@contextmanager
def _client(scheduler: str) -> Iterator:
    try:
        import dask.config
        from distributed import Client
    except ImportError:
        raise CourseError(
            "--scheduler needs Dask, which is not installed: `pip install dask distributed`"
        ) from None
    if not scheduler.startswith("tls://"):
        raise CourseError(
            f"--scheduler should be an address that begins with tls://; it is {scheduler}. Whoever "
            "reaches an open scheduler can run code as you: docs/teachers.md tells how to close it"
        )
    with dask.config.set({"distributed.scheduler.allowed-failures": TRIES}):
        try:
            client = Client(scheduler, timeout=20)
        except (OSError, ValueError, TypeError, TimeoutError) as error:
            raise CourseError(
                f"--scheduler: no Dask scheduler answers at {scheduler} ({error})"
            ) from None
        with client:
            yield client


def _on_cluster(scheduler: str, shared: bytes, todo: list[Handed]) -> Judged:
    with _client(scheduler) as client:
        from distributed import as_completed

        futures = {
            client.submit(judge_there, shared, handed, pure=False, retries=TRIES): handed
            for handed in todo
        }
        for future in as_completed(list(futures)):
            handed = futures.pop(future)
            try:
                rows = future.result()
            except Exception as error:  # a worker that ended again and again, or a broken cluster
                rows = _not_judged(shared, handed, type(error).__name__)
            yield handed.student, rows


def judge_there(shared: bytes, handed: Handed) -> list[Row]:
    """Judge one submission in a worker."""
    return judge_handed(handed, *_unpacked(shared))


@functools.lru_cache(maxsize=2)
def _unpacked(shared: bytes) -> tuple:
    return pickle.loads(zlib.decompress(shared))


def _not_judged(shared: bytes, handed: Handed, error: str) -> list[Row]:
    exercises, _ = _unpacked(shared)
    why = f"The worker that judged this was lost {TRIES} times ({error}). Grade it again."
    return [
        row_of(handed.student, q, NOT_JUDGED, why)
        for exercise in exercises.values()
        for q in exercise.questions
    ]
