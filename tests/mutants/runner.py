"""Try mutants, each in a process of its own that starts with all tests collected.

The functions of the file get the mutant's code in that process alone; no file is changed. Only
the tests that run the mutated lines are run, the quickest first, until one fails.
"""

import contextlib
import gc
import os
import pickle
import resource
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType

import coverage
import pytest
from _pytest.main import pytest_runtestloop

from tests.mutants.operators import Mutant

KILLED, SURVIVED, HUNG, UNSEEN = "killed", "survived", "killed by the limit", "no test runs it"
MEMORY = 4 << 30  # bytes that a mutant may take beyond what the collected tests have


@dataclass(frozen=True)
class Result:
    """What became of a mutant."""

    mutant: Mutant
    word: str
    seconds: float  # of processor time


# ------------------------------------------------------------------ putting a mutant in


def functions_of(files: Iterable[Path]) -> list[FunctionType]:
    """Return all functions that were made of the code of these files."""
    names = {str(file) for file in files}
    every = [one for one in gc.get_objects() if type(one) is FunctionType]  # no weak reference
    return [one for one in every if one.__code__.co_filename in names]


def graft(mutant: Mutant, file: Path, original: CodeType, functions: list[FunctionType]) -> None:
    """Give the functions of a file that is imported the code of a mutant."""
    old, new = _by_name(original), _by_name(mutant.code)
    mine = [one for one in functions if one.__code__.co_filename == str(file)]
    for function in mine:
        code = function.__code__
        key = code.co_qualname, code.co_firstlineno
        if code in old[key]:
            function.__code__ = new[key][old[key].index(code)]
    if mutant.name or mutant.default:
        module = next(m for m in list(sys.modules.values()) if _file_of(m) == str(file))
        _run_anew(mutant, module, mine)


def _file_of(module) -> str:
    return getattr(module, "__file__", "") or ""


def compiled(file: Path) -> CodeType:
    """Return the code of a file as it is now."""
    return compile(file.read_bytes(), str(file), "exec", dont_inherit=True)


def _by_name(code: CodeType) -> dict[tuple[str, int], list[CodeType]]:
    found = defaultdict(list)
    for inner in [c for c in code.co_consts if isinstance(c, CodeType)]:
        found[inner.co_qualname, inner.co_firstlineno].append(inner)
        for key, codes in _by_name(inner).items():
            found[key] += codes
    return found


def _run_anew(mutant: Mutant, module, functions: list[FunctionType]) -> None:
    """Take a constant, or the defaults of a function, from a second run of the mutated module."""
    fresh = {k: v for k, v in vars(module).items() if k.startswith("__")}
    exec(mutant.code, fresh)
    if mutant.name:
        before = vars(module)[mutant.name]
        for user in list(sys.modules.values()):  # who imported it by name
            inside = getattr(user, "__name__", "").partition(".")[0] in ("lib", "tests")
            if inside and vars(user).get(mutant.name) is before:
                setattr(user, mutant.name, fresh[mutant.name])
        return
    (made,) = [
        one for one in functions_of([Path(_file_of(module))])
        if one.__globals__ is fresh and one.__qualname__ == mutant.function
    ]  # fmt: skip
    for function in functions:
        if function.__code__.co_qualname == mutant.function:
            function.__defaults__, function.__kwdefaults__ = made.__defaults__, made.__kwdefaults__


# ------------------------------------------------------------------ who runs which line


@dataclass
class Map:
    """Which tests run which line, and how long each takes."""

    lines: dict[str, dict[int, set[str]]]  # file: line: tests
    seconds: dict[str, float]  # of processor time

    def tests(self, file: Path, mutant: Mutant) -> list[str]:
        """Return the tests that run the lines of a mutant, the quickest first."""
        known = self.lines.get(str(file), {})
        anywhere = mutant.name or mutant.default
        lines = known if anywhere else range(mutant.first, mutant.last + 1)
        found = set().union(*(known.get(line, ()) for line in lines))
        return sorted(found & self.seconds.keys(), key=self.seconds.get)


def _draw_map(session: pytest.Session, files: Iterable[Path], out: Path) -> None:
    """Run all tests once, each a context of its own; those that fail are left out of the map."""
    measured = [str(file) for file in files]
    trace = coverage.Coverage(data_file=None, config_file=False, include=measured)
    trace.start()
    watch = _Watch(trace)
    session.config.pluginmanager.register(watch)
    pytest_runtestloop(session)
    trace.stop()
    data = trace.get_data()
    lines = {
        file: {line: set(tests) for line, tests in data.contexts_by_lineno(file).items()}
        for file in data.measured_files()
    }
    good = {test: took for test, took in watch.seconds.items() if test not in watch.bad}
    out.write_bytes(pickle.dumps((Map(lines, good), sorted(watch.bad))))


class _Watch:
    def __init__(self, trace):
        self.trace, self.seconds, self.bad = trace, {}, set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        self.trace.switch_context(item.nodeid)
        start = time.process_time()
        done = yield
        self.seconds[item.nodeid] = time.process_time() - start
        return done

    def pytest_runtest_logreport(self, report):
        if not report.passed:
            self.bad.add(report.nodeid)


# ------------------------------------------------------------------ the plugin


class Runner:
    """A plugin of pytest: collects once, then tries mutants instead of running the tests."""

    def __init__(self, files, queue, jobs, budget, until, kept=None):
        self.files, self.queue = files, queue  # a list of (file, mutant)
        # As they are now: somebody may edit a file meanwhile.
        self.codes = {file: compiled(file) for file in files}
        self.jobs, self.budget, self.until = jobs, budget, until
        self.kept = kept  # where the map is kept from run to run, if it is
        self.results: list[tuple[Path, Result]] = []
        self.bad: list[str] = []

    def pytest_runtestloop(self, session):
        base = session.config._tmp_path_factory.getbasetemp()  # one folder for all children
        kept = self.kept or Path(base, "map")
        if not kept.exists():  # in a child, so that mutants find all caches empty
            os.waitpid(self._fork(session, lambda: _draw_map(session, self.files, kept)), 0)
        found, self.bad = pickle.loads(kept.read_bytes())
        spent = sum(found.seconds.values())
        print(f"{len(found.seconds)} tests, {spent:.0f} s; {len(self.bad)} left out", flush=True)
        self.functions = functions_of(self.files)
        gc.collect()
        gc.freeze()  # what is collected now stays in memory that all children share
        self._try_all(session, found)
        return True

    def _fork(self, session, work, seconds=0) -> int:
        """Start a child that does the work and ends with its code."""
        sys.stdout.flush()
        pid = os.fork()
        if pid:
            return pid
        code = 3
        try:
            os.setpgid(0, 0)
            _silence(session)
            if seconds:
                _limit(seconds)
            code = work() or 0
        except BaseException:
            code = 1  # the mutant broke pytest itself
        os._exit(code)

    def _try_all(self, session, found):
        """Keep `jobs` children at work until the queue is empty or the time is over."""
        queue, running = list(reversed(self.queue)), {}
        while running or (queue and time.monotonic() < self.until):
            while queue and len(running) < self.jobs and time.monotonic() < self.until:
                file, mutant = queue.pop()
                chosen = _within(found.tests(file, mutant), found.seconds, self.budget)
                if not chosen:
                    self._done(file, Result(mutant, UNSEEN, 0.0))
                    continue
                limit = 10 + 5 * sum(found.seconds[test] for test in chosen)
                put = partial(graft, mutant, file, self.codes[file], self.functions)
                pid = self._fork(session, partial(_try, session, put, chosen), limit)
                running[pid] = (file, mutant, time.monotonic() + 60 + 10 * limit)
            self._reap(running)
            time.sleep(0.01)

    def _reap(self, running):
        for pid, (file, mutant, end) in list(running.items()):
            late = time.monotonic() > end
            if late:
                os.killpg(pid, signal.SIGKILL)
            ended, status, usage = os.wait4(pid, 0 if late else os.WNOHANG)
            if ended:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)  # what its tests left behind
                code = os.waitstatus_to_exitcode(status)
                word = HUNG if code < 0 else KILLED if code else SURVIVED
                del running[pid]
                self._done(file, Result(mutant, word, usage.ru_utime + usage.ru_stime))

    def _done(self, file, result):
        self.results.append((file, result))
        print(result.word[0], end="", flush=True)


def _within(tests, seconds, budget):
    """Return the quickest tests that together take no longer than the budget, one at least."""
    spent, chosen = 0.0, []
    for test in tests:
        spent += seconds[test]
        if chosen and spent > budget:
            break
        chosen.append(test)
    return chosen


def _try(session, put, chosen):
    put()
    places = {test: k for k, test in enumerate(chosen)}
    session.items[:] = sorted(
        (item for item in session.items if item.nodeid in places),
        key=lambda item: places[item.nodeid],
    )
    session.config.option.maxfail = 1
    try:
        pytest_runtestloop(session)
    except (session.Failed, session.Interrupted):
        return 1
    return 1 if session.testsfailed else 0


def _silence(session):
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)


def _limit(seconds):
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 2))
    with contextlib.suppress(OSError, ValueError):
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
