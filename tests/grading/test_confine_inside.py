"""What code finds in a confinement, on both roads."""

import json
import os
import subprocess
import time
from types import SimpleNamespace

import pytest

from lib.exercises import questions, verdicts
from lib.exercises.reading import read
from lib.exercises.running import process as processes
from lib.exercises.running import remote
from lib.exercises.running.process import Trusted
from lib.grading import confine
from tests.exercises.making import ROOT, solved

SECRET = "a secret of the teacher's shell"


@pytest.fixture(params=confine.methods())
def inside(request, tmp_path, monkeypatch):
    """Run code in there, and return its exit code and what it printed."""
    monkeypatch.setenv("TEACHER", SECRET)

    def run(code):
        command = confine.command(request.param, tmp_path, ["-c", code])
        done = subprocess.run(
            command, env=confine.outside(), capture_output=True, text=True, timeout=60
        )
        return done.returncode, done.stdout.strip()

    run.method = request.param
    if run("print(6 * 7)") != (0, "42"):
        pytest.skip(f"{request.param} does not work here")
    return run


def test_code_that_kills_itself_dies(inside):
    code, said = inside("import os; print(os.getpid() == 1, flush=True); os.kill(os.getpid(), 9)")
    assert code != 0
    assert said == "False"


def test_code_does_not_run_as_the_root_who_grades(inside, tmp_path):
    if not inside.method.endswith(confine.AS_NOBODY):
        pytest.skip("root is dropped where the system lets a grader who is root mount")
    key = tmp_path / "key"
    key.write_text("of root's")
    key.chmod(0o600)
    tmp_path.chmod(0o755)
    assert inside("import os; print(os.listdir('/grading'))") == (0, "['key']")
    assert inside("open('/grading/key')")[0] != 0
    assert inside(
        "import os; print(os.getresuid(), os.getresgid(), os.getgroups(), os.geteuid())\n"
        "print(open('/proc/self/status').read().split('CapBnd:')[1].split()[0])"
    ) == (0, "(65534, 65534, 65534) (65534, 65534, 65534) [] 65534\n0000000000000000")


def test_root_takes_a_road_that_drops_root_where_there_is_one():
    roads = [road for road in confine.methods() if road.endswith(confine.AS_NOBODY)]
    assert bool(roads) == (hasattr(os, "geteuid") and os.geteuid() == 0)
    assert confine.methods()[: len(roads)] == roads


def test_nothing_shows_the_environment_of_the_grader(inside):
    code = (
        "import os, pathlib\n"
        "for p in pathlib.Path('/proc').glob('[0-9]*/environ'):\n"
        "    try: print(p.read_bytes())\n"
        "    except OSError: pass\n"
        "print(os.environ)"
    )
    assert SECRET not in inside(code)[1]


def test_the_system_s_settings_cannot_be_written(inside):
    code = "open('/proc/sys/kernel/hostname', 'w').write('mine')"
    assert inside(code)[0] != 0


def test_what_leaves_its_group_and_asks_to_live_on_dies_with_the_rest(inside, tmp_path):
    code = (
        "import ctypes, os, time\n"
        "os.setsid() if os.getpgid(0) != os.getpid() else None\n"
        "ctypes.CDLL(None).prctl(1, 0)\n"
        "print('alive', flush=True)\n"
        "time.sleep(100)"
    )
    command = confine.command(confine.available(), tmp_path, ["-c", code])
    process = subprocess.Popen(
        command, env=confine.outside(), stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout.readline() == "alive\n"
    processes.kill(process)
    with process:  # closes and waits
        assert process.stdout.read() == ""  # nobody holds the pipe any more


def test_an_ordinary_user_finds_the_programs_that_make_namespaces():
    assert {"/usr/sbin", "/sbin"} <= set(confine.outside()["PATH"].split(os.pathsep))
    script = " ".join(confine.command(confine.NAMESPACES, ROOT, ["-c", ""]))
    assert "remount,ro " not in script  # which adds an owner that a namespace does not know
    assert "remount,bind,ro" in script


SHARED = """
import ctypes
def scores(q, K):
    libc = ctypes.CDLL(None, use_errno=True)
    return [float(n) for n in (libc.shmget(0, 1 << 30, 0o1600), libc.msgget(0, 0o1600),
                               libc.semget(0, 100, 0o1600))]
"""


def test_memory_that_no_limit_counts_is_refused():
    if not confine.available():
        pytest.skip("nothing here confines a process")
    run = verdicts._Process(verdicts.Rules(confine.Confined(), seconds=10), False, {})
    try:
        told = run.session.wait_until_ready()
        if not told["no_processes"]:
            pytest.skip("no filter of system calls here")
        run.session.request("cell", source=SHARED)
        assert remote.Function(run.session, "scores")(1, 2) == [-1.0] * 3
    finally:
        run.close()


class Enough(Exception):
    """The test has seen what it wanted."""


def test_more_time_for_an_answer_is_more_time_for_its_process(monkeypatch):
    def start(self, limits, numba):
        raise Enough(limits.seconds)

    monkeypatch.setattr(Trusted, "start", start)
    exercise = questions.read(ROOT, ["04"])["04"]
    cells = read(json.dumps(solved("04")).encode(), "a.ipynb", [])
    rules = verdicts.Rules(Trusted(), seconds=100)
    with pytest.raises(Enough, match="^700$"):  # six answers, and one more to start
        verdicts.Notebook("Ann", exercise, cells, rules).rows()


class Endless:
    """A stream that is never at its end, as a pipe that somebody else holds open."""

    def read(self, count):
        time.sleep(3600)

    def close(self):
        """Nothing to do."""


def test_the_judge_waits_no_longer_than_it_said(monkeypatch):
    process = SimpleNamespace(pid=0, stdout=Endless(), stdin=SimpleNamespace(
        write=len, flush=lambda: None, close=lambda: None), kill=lambda: None)  # fmt: skip
    monkeypatch.setattr(remote.processes, "kill", lambda process: None)  # which escapes it
    session = remote.Session(process)
    with pytest.raises(remote.Gone, match="it took longer than 0.5 s"), session.within(0.5):
        session.request("look", name="x")
