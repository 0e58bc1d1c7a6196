"""The course where nothing can be written, under an odd path, after a fork, at an interrupt."""

import os
import re
import shutil
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
SAMPLE = ["-m", "tests.machines.sample"]
SAY = ["-m", "lib.cli", "say", "The capital of France is"]
DIGEST = r"^[0-9a-f]{16}$"


@pytest.fixture
def course(root, tmp_path):
    """A copy of the course, in a folder whose name has spaces and letters beyond ASCII."""
    copy = tmp_path / "Kürs über den linken Kontext — 课程"
    leave = shutil.ignore_patterns("__pycache__", ".*", "cache", "results")
    for name in ("lib", "tests", "notebooks", "exercises", "solutions", "bench", "docs"):
        shutil.copytree(root / name, copy / name, ignore=leave)
    for name in ("conftest.py", "pyproject.toml", "README.md"):
        shutil.copy(root / name, copy)
    return copy


def run(arguments, folder, shows, code=0, **env):
    """Run this Python in a folder, and look for a pattern in what it prints."""
    env = os.environ | {"PYTHONPATH": str(folder), "PYTHONIOENCODING": "utf-8"} | env
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, timeout=600, encoding="utf-8", errors="replace",
        env={name: value for name, value in env.items() if value},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == code, done.stdout
    assert re.search(shows, done.stdout, re.MULTILINE), done.stdout
    return done.stdout


def test_nothing_can_be_written_and_all_works(course, tmp_path):
    for package in [course / "lib", *(p for p in (course / "lib").rglob("*") if p.is_dir())]:
        (package / "__pycache__").write_text("a file where a folder should be", encoding="utf-8")
    blocked = tmp_path / "a file"
    blocked.write_text("no folder can be made here", encoding="utf-8")
    env = {name: str(blocked / "in it") for name in ("HOME", "USERPROFILE", "XDG_CACHE_HOME")}
    env |= {"NUMBA_CACHE_DIR": "", "PYTHONDONTWRITEBYTECODE": "1", "MPLCONFIGDIR": str(tmp_path)}
    run(SAMPLE, course, DIGEST, **env)
    run(SAY, course, "Paris", **env)
    run(["-m", "lib.cli", "doctor"], course, "compiles|kept|written", **env)


def test_a_path_with_spaces_and_other_letters(course):
    run(SAMPLE, course, DIGEST)
    run(SAY, course, "Paris")
    run(["-m", "lib.cli", "run", "01"], course, "01_single_head_attention")
    run(["-m", "lib.cli", "check", "01"], course, "not answered|unanswered", code=1)


def test_four_processes_fill_one_kernel_cache_and_a_fifth_finds_it_whole(root, tmp_path):
    env = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, *SAMPLE]
    several = [
        subprocess.Popen(command, cwd=root, env=env, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    found = {process.communicate(timeout=600)[0] for process in several}
    assert [process.returncode for process in several] == [0] * 4
    assert found == {run(SAMPLE, root, DIGEST, NUMBA_CACHE_DIR=str(tmp_path))}


def test_after_an_interrupt_in_a_kernel_the_next_call_is_right(root):
    run(["-m", "tests.machines.interrupted"], root, "both go on")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_after_the_kernels_ran_computes_the_same(root):
    run(["-m", "tests.machines.forked"], root, "parent and child")
