"""Run the course as other machines would: uncompiled, on one thread, read-only and so on.

usage: python -m tests.machines [JOB …] [--list]

Each job runs in processes of its own with a kernel cache of its own. All jobs take about 25
minutes on two cores, since most compile everything anew; `--list` names them. A job that this
machine cannot run is skipped, with the reason.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[2]
PYTEST = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "--timeout=600"]
SAMPLE = [sys.executable, "-m", "tests.machines.sample"]
CORE = ["attention", "ffn", "norm", "rope", "layer", "stack", "jit"]
TESTS = [*(f"tests/test_{name}.py" for name in CORE), "tests/laws"]
TINY_ENGINE = [
    "tests/engine/test_fast.py",
    "tests/engine/test_llama.py",
    "tests/engine/test_quant.py",
]
# The real model takes minutes where nothing is compiled.
NOT_REAL = ["-k", "not real and not what_a_token_reads"]
LIMIT = 1800  # seconds for one step


class Skipped(Exception):
    """Nothing here can run the job."""


@dataclass
class Step:
    """A command, what its environment has besides, and what its output has to show."""

    command: list
    env: dict = field(default_factory=dict)
    cwd: Path = ROOT
    shows: str = ""
    code: int = 0


def pytest_on(*paths, select=(), **env):
    return Step([*PYTEST, *paths, *select], env)


# ------------------------------------------------------------------ the jobs


def without_jit(folder):
    """Kernels as plain Python, on tiny shapes."""
    return [pytest_on(*TESTS, *TINY_ENGINE, select=NOT_REAL, NUMBA_DISABLE_JIT="1")]


def bounds_checked(folder):
    """Every index of every kernel is checked."""
    return [pytest_on(*TESTS, *TINY_ENGINE, select=NOT_REAL, NUMBA_BOUNDSCHECK="1")]


def one_thread(folder):
    """One thread for everything, on one processor where the system can hold a process to it."""
    names = ("NUMBA", "OPENBLAS", "OMP", "MKL")
    env = {f"{name}_NUM_THREADS": "1" for name in names}
    step = pytest_on(*TESTS, *TINY_ENGINE, **env)
    if shutil.which("taskset"):
        step.command = ["taskset", "-c", "0", *step.command]
    return [step]


def workqueue(folder):
    """Numba's simplest threading layer, which dies where two threads meet it."""
    return [pytest_on(*TESTS, *TINY_ENGINE, NUMBA_THREADING_LAYER="workqueue")]


def processor(name, *needs):
    def job(folder):
        from llvmlite import binding

        has = {feature for feature, there in binding.get_host_cpu_features().items() if there}
        if not binding.get_default_triple().startswith("x86_64") or not set(needs) <= has:
            raise Skipped(f"the processor lacks {', '.join(sorted(set(needs) - has)) or 'x86-64'}")
        return [pytest_on(*TESTS, *TINY_ENGINE, NUMBA_CPU_NAME=name)]

    job.__doc__ = f"Compiled for {name}."
    return job


def read_only(folder):
    """An installation and a home that nobody can write to: nothing is kept, all works."""
    course = copy_of_the_course(folder / "course")
    for package in [course / "lib", *(p for p in (course / "lib").rglob("*") if p.is_dir())]:
        (package / "__pycache__").write_text("a file where a folder should be", encoding="utf-8")
    blocked = folder / "a file"
    blocked.write_text("no folder can be made here", encoding="utf-8")
    home = {name: str(blocked / "in it") for name in ("HOME", "USERPROFILE", "XDG_CACHE_HOME")}
    env = home | {
        "NUMBA_CACHE_DIR": "",
        "PYTHONDONTWRITEBYTECODE": "1",
        "MPLCONFIGDIR": str(folder),
    }
    course_command = [sys.executable, "-m", "lib.cli"]
    return [
        Step(SAMPLE, env, course, shows=r"^[0-9a-f]{16}$"),
        Step([*course_command, "say", "The capital of France is"], env, course, shows="Paris"),
        Step([*course_command, "doctor"], env, course, shows="compiles|kept|written"),
    ]


def two_at_once(folder):
    """Four processes fill one kernel cache at the same time; a fifth finds it whole."""
    code = (
        "import subprocess, sys\n"
        "command = [sys.executable, '-m', 'tests.machines.sample']\n"
        "pipes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]\n"
        "found = {p.communicate()[0].strip() for p in pipes}\n"
        "codes = [p.returncode for p in pipes]\n"
        "later = subprocess.run(command, capture_output=True, text=True, check=True)\n"
        "assert codes == [0] * 4 and found == {later.stdout.strip()}, (codes, found)\n"
        "print('all five computed', *found)\n"
    )
    return [Step([sys.executable, "-c", code], shows="all five computed [0-9a-f]{16}")]


def interrupt(folder):
    """Ctrl-C in the middle of a kernel, then the next call."""
    return [Step([sys.executable, "-m", "tests.machines.interrupted"], shows="both go on")]


def fork(folder):
    """A process that forks after its kernels ran."""
    if not hasattr(os, "fork"):
        raise Skipped("this system has no fork")
    return [Step([sys.executable, "-m", "tests.machines.forked"], shows="parent and child")]


def odd_path(folder):
    """The course in a folder whose name has spaces and letters beyond ASCII."""
    course = copy_of_the_course(folder / "Kürs über den linken Kontext — 课程")
    command = [sys.executable, "-m", "lib.cli"]
    return [
        Step(SAMPLE, {}, course, shows=r"^[0-9a-f]{16}$"),
        Step([*command, "say", "The capital of France is"], {}, course, shows="Paris"),
        Step([*command, "run", "01"], {}, course, shows="01_single_head_attention"),
        Step([*command, "check", "01"], {}, course, shows="not answered|unanswered", code=1),
    ]


JOBS = {
    "without-jit": without_jit,
    "bounds": bounds_checked,
    "one-thread": one_thread,
    "workqueue": workqueue,
    "generic": processor("generic"),
    "x86-64-v2": processor("x86-64-v2", "sse4.2"),
    "x86-64-v3": processor("x86-64-v3", "avx2", "fma", "f16c"),
    "x86-64-v4": processor("x86-64-v4", "avx512bw", "avx512vl"),
    "read-only": read_only,
    "two-at-once": two_at_once,
    "interrupt": interrupt,
    "fork": fork,
    "odd-path": odd_path,
}


# ------------------------------------------------------------------ running them


def copy_of_the_course(folder):
    leave = shutil.ignore_patterns("__pycache__", ".*", "cache", "results")
    for name in ("lib", "tests", "notebooks", "exercises", "solutions", "bench", "docs"):
        shutil.copytree(ROOT / name, folder / name, ignore=leave)
    for name in ("conftest.py", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, folder)
    return folder


def run(step, folder):
    """Run one step; return "" or what went wrong."""
    env = os.environ | {"PYTHONPATH": str(step.cwd), "PYTHONIOENCODING": "utf-8"}
    env |= {"NUMBA_CACHE_DIR": str(folder / "kernels")} | step.env
    env = {name: value for name, value in env.items() if value}
    done = subprocess.run(
        [str(word) for word in step.command],
        cwd=step.cwd,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        timeout=LIMIT,
    )
    if done.returncode != step.code:
        return f"ended with {done.returncode}:\n{done.stdout[-4000:]}"
    if not re.search(step.shows, done.stdout, re.MULTILINE):
        return f"nothing like {step.shows!r} in:\n{done.stdout[-4000:]}"
    return ""


def run_job(job):
    """Return the outcome, a remark and the seconds of one job."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="machine-", ignore_cleanup_errors=True) as name:
        try:
            for step in job(Path(name)):
                if wrong := run(step, Path(name)):
                    return "failed", wrong, time.monotonic() - start
        except Skipped as reason:
            return "skipped", str(reason), 0
        except subprocess.TimeoutExpired as late:
            return "failed", f"no end after {late.timeout} s", time.monotonic() - start
    return "passed", "", time.monotonic() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("jobs", nargs="*", metavar="JOB", help="by default all")
    parser.add_argument("--list", action="store_true", help="name the jobs and end")
    asked = parser.parse_args()
    if unknown := set(asked.jobs) - set(JOBS):
        parser.error(f"no job is called {', '.join(sorted(unknown))}; there are {', '.join(JOBS)}")
    console = Console()
    table = Table("job", "what", "outcome", "seconds")
    failed = 0
    for name in asked.jobs or JOBS:
        what = JOBS[name].__doc__.partition("\n")[0]
        if asked.list:
            table.add_row(name, what, "", "")
            continue
        console.print(f"{name} …")
        outcome, remark, seconds = run_job(JOBS[name])
        if outcome == "failed":
            failed += 1
            console.print(remark, markup=False)
        said = f"{outcome}: {remark}" if outcome == "skipped" else outcome
        table.add_row(name, what, said, f"{seconds:.0f}")
    console.print(table)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
