"""A run of `course bench`: find the peers, give the turns, keep what came."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lib.bench import results as kept
from lib.bench import roofline
from lib.bench import rows as table
from lib.bench.contest import Answer, Contestant, Fixed, Lost, Process, Start, alternate
from lib.bench.results import Results
from lib.bench.rows import Row
from lib.engine.gguf import find_model, read_gguf
from lib.errors import CourseError

PEERS = "COURSE_PEERS"  # the environment variable that names the Python of the peers
NEEDED = {"llama_cpp": "llama.cpp", "torch": "torch"}
PROMPT = "The sky over the harbour was"
HOW = "bench/README.md says how to get it"


@dataclass(frozen=True)
class Settings:
    """What the reader asked for."""

    folder: Path  # bench/, with the contestants
    out: Path
    peers: str = sys.executable  # the Python that has them
    threads: int = 2
    rounds: int = 7
    quick: bool = False
    timeout: float = 300.0  # seconds of one turn, the loading before the first one included


def find_folder(root: Path) -> Path:
    """Return the folder of the contestants.

    Raises
    ------
    CourseError
        It is not there: the installed package `lib` comes without it.
    """
    folder = root / "bench"
    if not (folder / "engine_ours.py").is_file():
        raise CourseError(
            "The folder bench is not here: it is part of the course's files, not of the installed "
            "package; run `course bench` in a copy of the course"
        )
    return folder


def peers_python(named: str | None) -> str:
    """Return the Python that has the peers: the one named, that of COURSE_PEERS, or this one.

    Raises
    ------
    CourseError
        There is no such program.
    """
    chosen = named or os.environ.get(PEERS) or sys.executable
    if not Path(chosen).is_file():
        said = "--peers" if named else PEERS
        raise CourseError(f"{said} should be the path of a Python; {chosen!r} is no file")
    return chosen


def probe(python: str) -> dict[str, str]:
    """Return the versions of the peers that a Python has, without importing them.

    Raises
    ------
    CourseError
        It does not run.
    """
    code = (
        "import json; from importlib import metadata, util; names = "
        "{'torch': 'torch', 'llama_cpp': 'llama-cpp-python', 'numpy': 'numpy'}; print(json.dumps("
        "{m: metadata.version(p) for m, p in names.items() if util.find_spec(m)}))"
    )
    command = [python, "-c", code]
    try:
        done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60)
        return json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        raise CourseError(f"--peers should be a Python that runs; {python} does not") from None


class Field:
    """The contestants: started when they are first needed, and ended with the run.

    Parameters
    ----------
    settings : Settings
    work : Path
        A folder for what only this run needs.
    """

    def __init__(self, settings: Settings, work: Path):
        self.settings, self.work = settings, work
        self.model = find_model()
        self.file = read_gguf(self.model)
        self.has = probe(settings.peers)
        self._running: dict[str, Contestant] = {}
        self.tokens = work / "tokens.json"
        self.tokens.write_text(json.dumps(self._text_tokens()), encoding="utf-8")

    def _text_tokens(self) -> list[int]:
        from lib.engine.tokenizer import Tokenizer

        text = (self.settings.folder / "text.txt").read_text(encoding="utf-8")
        return Tokenizer(self.file).encode(text)

    def missing(self) -> dict[str, str]:
        """Return the contestants that can't run, and why."""
        lacks = {name: f"{words} is not installed; {HOW}" for name, words in NEEDED.items()}
        lacks = {name: why for name, why in lacks.items() if name not in self.has}
        needs = dict.fromkeys((table.LLAMA, table.LLAMA_Q4_0, table.LLAMA_START), "llama_cpp")
        needs[table.TORCH] = "torch"
        gone = {who: lacks[what] for who, what in needs.items() if what in lacks}
        if importlib.util.find_spec("numba") is None:
            ours = (table.OURS, table.OURS_1, table.OURS_PLAIN, table.LIMIT, table.LIMIT_1)
            gone |= dict.fromkeys(ours, "Numba is not installed")
        return gone

    def get(self, name: str) -> Contestant:
        """Return a contestant, started if it is not yet running."""
        if name not in self._running:
            self._running[name] = self._make(name)
        return self._running[name]

    def drop(self, names: Iterable[str]) -> None:
        """End contestants; one that is needed again starts anew."""
        for name in names:
            if name in self._running:
                self._running.pop(name).close()

    def close(self) -> None:
        """End all."""
        self.drop(list(self._running))

    def _make(self, name: str) -> Contestant:
        threads, model = self.settings.threads, str(self.model)
        one = name in (table.OURS_1, table.LIMIT_1)
        count = 1 if one else threads
        tokens = str(self.tokens)
        engine = ("engine_llama_cpp.py", "run", count, tokens)
        if name == table.FILE:
            return Fixed(name, {"bytes": self.model.stat().st_size})
        if name == table.SAY:
            command = [sys.executable, "-m", "lib.cli", "say", PROMPT, "--tokens", "1"]
            return Start(name, command, threads)
        if name == table.LLAMA_START:
            return Start(name, self._peer("say_llama_cpp.py", threads, model, PROMPT), threads)
        if name == table.LLAMA_Q4_0:
            model = str(self.q4_0())
        ours = ("engine_ours.py", "fast", count, tokens, model)
        command = {
            **dict.fromkeys(
                (table.OURS, table.OURS_1, table.OURS_PLAIN), lambda: self._ours(*ours)
            ),
            table.FLOAT32: lambda: self._ours("engine_ours.py", "float32", count, tokens, model),
            table.LIMIT: lambda: self._ours("machine.py", count),
            table.LIMIT_1: lambda: self._ours("machine.py", count),
            table.CORE: lambda: self._ours("core_ours.py", count),
            table.NUMPY: lambda: self._ours("core_numpy.py", count),
            table.TORCH: lambda: self._peer("core_torch.py", count),
            table.LLAMA: lambda: self._peer(*engine, model),
            table.LLAMA_Q4_0: lambda: self._peer(*engine, model),
        }[name]()
        return Process(name, command, count)

    def _ours(self, script: str, *arguments) -> list[str]:
        return [sys.executable, str(self.settings.folder / script), *map(str, arguments)]

    def _peer(self, script: str, *arguments) -> list[str]:
        return [self.settings.peers, str(self.settings.folder / script), *map(str, arguments)]

    def q4_0_path(self) -> Path:
        """Return where the model as Q4_0 lies, or will lie."""
        return self.settings.folder / "cache" / f"{self.model.stem}-as-Q4_0.gguf"

    def q4_0(self) -> Path:
        """Return the model as Q4_0, made by llama.cpp's own quantiser and kept in bench/cache.

        Raises
        ------
        Lost
            The quantiser fails.
        """
        out = self.q4_0_path()
        if not out.exists():
            out.parent.mkdir(exist_ok=True)
            command = self._peer("engine_llama_cpp.py", "quantise", self.model, out)
            limit = self.settings.timeout
            try:
                subprocess.run(command, capture_output=True, check=True, timeout=limit)
            except (OSError, subprocess.SubprocessError):
                raise Lost("llama.cpp's quantiser made no Q4_0 file") from None
        return out


def run(
    settings: Settings,
    names: Sequence[str] = (),
    begin: Callable[[Row], None] = lambda row: None,
    after_turn: Callable[[], None] = lambda: None,
    say: Callable[[str], None] = lambda sentence: None,
) -> Results:
    """Measure rows.

    Parameters
    ----------
    settings : Settings
    names : sequence of str
        Groups or rows; all if there are none.
    begin, after_turn, say : callable
        Told which row begins, that a turn has ended, and a sentence on what is left out.

    Returns
    -------
    Results
        With a row for each that could be measured, and a reason for each of the others.

    Raises
    ------
    CourseError
        A name that no row has, no model, or a Python of the peers that does not run.
    """
    rows = table.choose(names, settings.quick)
    found = Results(kept.this_machine(), kept.these_versions(), _settings(settings))
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="course-bench-")))
        field = Field(settings, work)
        stack.callback(field.close)
        found.versions |= {f"peer {name}": version for name, version in field.has.items()}
        rows = _leave_out(rows, field.missing(), found, say)
        judge = Judge(field)
        for index, row in enumerate(rows):
            begin(row)
            try:
                pairs = _measure(row, field, judge, settings, after_turn)
                found.rows.append(kept.measured(row, pairs))
            except Lost as lost:
                found.left_out[row.key] = str(lost)
                say(f"{row.title}: {lost}" + (f" ({lost.detail})" if lost.detail else ""))
                field.drop(_names(row))
            later = {name for other in rows[index + 1 :] for name in _names(other)}
            field.drop(set(_names(row)) - later)
        weights = {table.LLAMA: field.model, table.LLAMA_Q4_0: field.q4_0_path()}
        roofline.fill(found, {name: read_gguf(p) for name, p in weights.items() if p.exists()})
    return found


def turns(settings: Settings, names: Sequence[str]) -> int:
    """Return how many turns a run will give at most."""
    return sum(2 * sum(_rounds(row, settings)) for row in table.choose(names, settings.quick))


def _settings(settings: Settings) -> dict:
    return {"threads": settings.threads, "rounds": settings.rounds, "quick": settings.quick}


def _names(row: Row) -> tuple[str, str]:
    return row.ours.contestant, row.peer.contestant


def _leave_out(rows, missing, found, say) -> list[Row]:
    """Take out rows whose contestants are missing; say each reason once."""
    left = []
    for row in rows:
        why = [missing[name] for name in _names(row) if name in missing]
        if why:
            found.left_out[row.key] = why[0]
        else:
            left.append(row)
    reasons = list(found.left_out.values())
    for why in dict.fromkeys(reasons):
        count = reasons.count(why)
        say(f"{why} ({count} {'row' if count == 1 else 'rows'} left out)")
    return left


def _rounds(row: Row, settings: Settings) -> tuple[int, int]:
    """Return the rounds that warm up and those that count."""
    rounds = min(settings.rounds, row.rounds or settings.rounds)
    return (0 if row.rounds == 1 else 1), rounds


def _measure(row: Row, field: Field, judge: Judge, settings: Settings, after_turn) -> list:
    if row.fresh:  # the first process compiles what is not yet in the kernel cache
        for name, case in zip(_names(row), (row.ours.case, row.peer.case), strict=True):
            field.get(name).ask(case, settings.timeout)
        field.drop(_names(row))
    sides = [field.get(name) for name in _names(row)]
    if row.ours.case == ("logits",):
        pair = tuple(judge.answer(side, settings.timeout) for side in sides)
        return [pair]
    if row.check:
        _check_same(row, sides, settings.timeout)
    warm, rounds = _rounds(row, settings)
    return alternate(
        *sides,
        (row.ours.case, row.peer.case),
        rounds,
        settings.timeout,
        warm=bool(warm),
        watch=row.unit == "MB",
        after_turn=after_turn,
    )


def _check_same(row: Row, sides: Sequence[Contestant], timeout: float) -> None:
    """Let both compute the case once, and compare what they got."""
    pairs = zip(sides, (row.ours.case, row.peer.case), strict=True)
    digests = [side.ask(("check", *case), timeout)["digest"] for side, case in pairs]
    if not np.allclose(*digests, rtol=1e-4, atol=1e-4):
        raise Lost(f"{sides[0].name} and {sides[1].name} compute different numbers")


class Judge:
    """Compares an engine's logits on the text with those of the float32 pass.

    Every engine is asked once; the float32 pass when the first one has answered.
    """

    def __init__(self, field: Field):
        self._field = field
        self._true: np.ndarray | None = None
        self._answers: dict[str, Answer] = {}

    def answer(self, contestant: Contestant, timeout: float) -> Answer:
        """Return ``kl``, ``same_top`` and ``tokens`` of a contestant.

        Raises
        ------
        Lost
            It or the float32 pass gives no logits.
        """
        name = contestant.name
        if name not in self._answers:
            logits = self._logits(contestant, timeout)
            if self._true is None:
                self._true = self._logits(self._field.get(table.FLOAT32), timeout)
                self._field.drop([table.FLOAT32])
            kl, same = divergence(self._true, logits)
            self._answers[name] = {"kl": kl, "same_top": same, "tokens": len(logits)}
        return self._answers[name]

    def _logits(self, contestant: Contestant, timeout: float) -> np.ndarray:
        path = self._field.work / "logits.npy"
        contestant.ask(("logits", str(path)), timeout)
        found = np.load(path)
        path.unlink()
        return found


def divergence(true: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """Compare logits, (n, vocabulary) each.

    Returns
    -------
    kl : float
        Σ p log (p / q) of each token's distribution, the mean over the tokens; p is the true one.
        In nats.
    same_top : float
        The share of tokens after which both find the same token likeliest.

    Raises
    ------
    CourseError
        The shapes differ.
    """
    if true.shape != other.shape:
        raise CourseError(f"other should have the shape {true.shape}; it has {other.shape}")
    total = 0.0
    for a, b in zip(true, other, strict=True):  # row by row: float64 of all would be large
        log_p, log_q = _log_softmax(a), _log_softmax(b)
        total += float(np.sum(np.exp(log_p) * (log_p - log_q)))
    same = float(np.mean(true.argmax(1) == other.argmax(1)))
    return total / len(true), same


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    logits = logits.astype(np.float64)
    logits = logits - logits.max()
    return logits - np.log(np.exp(logits).sum())
