"""A class: once each, the same bytes however it is done, and on from where it stopped."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from lib import cli
from lib.errors import CourseError
from lib.exercises.judging import NOT_HANDED_IN, NOT_JUDGED, RIGHT
from lib.exercises.running.process import Trusted
from lib.exercises.verdicts import Rules
from lib.grading import batch, confine
from tests.exercises.making import ROOT, answered, cell, handed_out, put, solved

posix_only = pytest.mark.skipif(os.name != "posix", reason="processes of POSIX")

NAMES = ["Ana María", "Zoë", "李 雷", "=1+1", "o'Brien & <b>Söhne</b>", "محمد", "x" * 120]


def make(folder, count=7):
    """Write submissions of exercise 01, every third of them wrong in its first answer."""
    for k in range(count):
        name = NAMES[k] if k < len(NAMES) else f"student {k}"
        wrong = {"one_query": 'attention_order = "D F E C A B"'} if k % 3 == 1 else {}
        put(folder / name / "01_ordering.ipynb", answered("01", **wrong))
    return folder


def files(out, but=(batch.DONE,)):
    return {
        path.relative_to(out).as_posix(): path.read_bytes()
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.relative_to(out).parts[0] not in (*but, batch.SECRET)
    }


def grade(submissions, out, **more):
    return batch.grade(submissions, out, ROOT, **more)


def test_the_same_input_gives_the_same_bytes_and_is_judged_once(tmp_path, monkeypatch):
    class_ = make(tmp_path / "class")
    first = grade(class_, tmp_path / "one")
    grade(class_, tmp_path / "two")
    assert files(tmp_path / "one", but=()) == files(tmp_path / "two", but=())
    assert first.again == len(NAMES)
    monkeypatch.setattr(batch, "judge_notebook", None)
    again = grade(class_, tmp_path / "one")
    assert again.again == 0
    assert files(tmp_path / "one") == files(tmp_path / "two")


class Stopped(Exception):
    pass


def test_a_run_that_was_stopped_goes_on_where_it_was(tmp_path):
    class_, done = make(tmp_path / "class"), []

    def stop(student, rows):
        done.append(student)
        if len(done) == 3:
            raise Stopped

    with pytest.raises(Stopped):
        grade(class_, tmp_path / "out", advance=stop)
    stored = sorted((tmp_path / "out" / batch.DONE).iterdir())
    stored[0].write_text('{"student": "An', encoding="utf-8")  # cut off as it was written
    assert grade(class_, tmp_path / "out").again == len(NAMES) - 2
    grade(class_, tmp_path / "whole")
    assert files(tmp_path / "out") == files(tmp_path / "whole")


def test_what_was_changed_is_judged_anew(tmp_path):
    class_ = make(tmp_path / "class")
    grade(class_, tmp_path / "out")
    put(class_ / "Zoë" / "01_ordering.ipynb", solved("01"))
    again = grade(class_, tmp_path / "out")
    assert again.again == 1
    assert sum(row.points for row in again.rows["Zoë"]) == 5
    assert grade(class_, tmp_path / "out", rules=Rules(confine.Confined(), seconds=9)).again == len(
        NAMES
    )


def test_exercises_that_nobody_handed_in_are_not_graded(tmp_path):
    class_ = make(tmp_path / "class")
    tasks = {row.task[:2] for row in grade(class_, tmp_path / "out").rows["Zoë"]}
    assert tasks == {"01"}
    more = grade(class_, tmp_path / "out", numbers=["1", "03"]).rows["Zoë"]
    assert [row.verdict for row in more[5:]] == [NOT_HANDED_IN] * 12
    with pytest.raises(CourseError, match="there is no exercise 99"):
        grade(class_, tmp_path / "out", numbers=["99"])


def test_results_may_not_lie_among_the_submissions(tmp_path):
    class_ = make(tmp_path / "class", 1)
    with pytest.raises(CourseError, match="should not lie in the folder of submissions"):
        grade(class_, class_ / "out")


def victims():
    import psutil

    own = psutil.Process().children(recursive=True)
    return [p for p in own if "spawn_main" in " ".join(p.cmdline())]


def test_a_killed_worker_s_work_is_done_again(tmp_path):
    class_, seen, killed = make(tmp_path / "class", 10), [], []

    def kill(student, rows):
        seen.append(student)
        if len(seen) == 4:
            worker = max(victims(), key=lambda p: p.cpu_times().user)
            worker.kill()
            killed.append(worker.pid)

    graded = grade(class_, tmp_path / "there", workers=2, advance=kill)
    assert killed
    assert sorted(seen) == sorted(graded.rows)  # each once
    assert NOT_JUDGED not in {row.verdict for rows in graded.rows.values() for row in rows}
    grade(class_, tmp_path / "here")
    assert files(tmp_path / "there") == files(tmp_path / "here")


@pytest.fixture
def closed(tmp_path):
    """Certificates of a cluster that lets nobody else in, as a teacher's settings name them."""
    distributed = pytest.importorskip("distributed")
    dask = pytest.importorskip("dask")
    if not shutil.which("openssl"):
        pytest.skip("openssl is not here to make certificates")
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"]
    made += ["-subj", "/CN=localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(made, check=True, capture_output=True)
    settings = {"distributed.comm.require-encryption": True}
    settings["distributed.comm.tls.ca-file"] = str(certificate)
    for role in ("scheduler", "worker", "client"):
        settings[f"distributed.comm.tls.{role}.cert"] = str(certificate)
        settings[f"distributed.comm.tls.{role}.key"] = str(key)
    with dask.config.set(settings):
        yield distributed


def test_a_teacher_s_own_cluster_is_used_if_it_is_closed_to_others(tmp_path, closed):
    class_ = make(tmp_path / "class", 3)
    with closed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None,
        protocol="tls://", security=closed.security.Security(),
    ) as cluster:  # fmt: skip
        where = cluster.scheduler_address
        assert where.startswith("tls://")
        assert grade(class_, tmp_path / "out", scheduler=where).again == 3
    grade(class_, tmp_path / "here")
    assert files(tmp_path / "out") == files(tmp_path / "here")


def test_an_open_cluster_is_refused(tmp_path):
    pytest.importorskip("distributed")
    where = "tcp://127.0.0.1:8786"
    with pytest.raises(CourseError, match="should be an address that begins with tls://"):
        grade(make(tmp_path / "class", 1), tmp_path / "out", scheduler=where)


def test_without_dask_a_cluster_is_refused_and_how_to_get_it_is_said(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "dask", None)
    where = "tls://127.0.0.1:8786"
    with pytest.raises(CourseError, match="needs Dask, which is not installed: `pip install dask"):
        grade(make(tmp_path / "class", 1), tmp_path / "out", scheduler=where)


@posix_only
def test_grading_opens_no_port_and_imports_nothing_that_was_handed_in(tmp_path):
    """A handed-in pickle.py would be imported by every Python that starts among the submissions."""
    class_ = make(tmp_path / "class", 4)
    proof = tmp_path / "imported"
    for name in ("pickle", "numpy", "lib", "wire", "concurrent", "ctypes"):
        trap = f"import pathlib; pathlib.Path({str(proof)!r}).write_text({name!r})"
        (class_ / f"{name}.py").write_text(trap, encoding="utf-8")
    code = (
        "import psutil, threading, sys\n"
        "from lib import cli\n"
        "me, seen = psutil.Process(), set()\n"
        "def watch():\n"
        "    while True:\n"
        "        for p in [me, *me.children(recursive=True)]:\n"
        "            try: seen.update(c.status for c in p.net_connections())\n"
        "            except psutil.Error: pass\n"
        "threading.Thread(target=watch, daemon=True).start()\n"
        "if __name__ == '__main__':\n"
        "    code = cli.main(['grade', '.', '--out', '../out', '--workers', '2'])\n"
        "    sys.exit(code or bool(seen - {'NONE'}) * 7)\n"
    )
    script = tmp_path / "run.py"
    script.write_text(code, encoding="utf-8")
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-P", str(script)]
    subprocess.run(command, cwd=class_, env=env, check=True, timeout=100)
    assert not proof.exists()
    assert len(list((tmp_path / "out" / batch.DONE).iterdir())) >= 4


@posix_only
def test_a_grader_that_is_killed_leaves_no_process(tmp_path):
    import psutil

    class_ = tmp_path / "class"
    sleeps = "import time\ndef scores(q, K):\n    time.sleep(300)"
    for k in range(2):
        book = solved("04")
        cell(book, "04.scores")["source"] = sleeps
        put(class_ / f"s{k}" / "04_build_attention.ipynb", book)
    command = [sys.executable, "-m", "lib.cli", "grade", str(class_), "--out", str(tmp_path / "o")]
    grader = subprocess.Popen(
        [*command, "--workers", "2", "--timeout", "60"], cwd=ROOT, stderr=subprocess.DEVNULL
    )
    process, end = psutil.Process(grader.pid), time.monotonic() + 60
    while time.monotonic() < end:
        started = process.children(recursive=True)
        if sum("worker.py" in " ".join(_words(p)) for p in started) >= 2:
            break
        time.sleep(0.2)
    assert len(started) >= 4
    grader.kill()
    grader.wait()
    _, alive = psutil.wait_procs(started, timeout=20)
    assert [" ".join(_words(p))[:80] for p in alive] == []


def _words(process):
    import psutil

    try:
        return process.cmdline()
    except psutil.Error:
        return []


def test_what_could_not_be_judged_is_judged_by_the_next_run(tmp_path, monkeypatch):
    class_ = tmp_path / "class"
    put(class_ / "ann.ipynb", solved("04"))
    with monkeypatch.context() as patched:
        patched.setattr(confine, "available", lambda: "")
        first = grade(class_, tmp_path / "out", rules=Rules(confine.Confined()))
    assert NOT_JUDGED in {row.verdict for row in first.rows["ann"]}
    again = grade(class_, tmp_path / "out", rules=Rules(Trusted()))
    assert again.again == 1
    assert {row.verdict for row in again.rows["ann"]} == {RIGHT}


def test_the_command(tmp_path, capsys):
    class_ = make(tmp_path / "class", 3)
    put(class_ / "open" / "01_ordering.ipynb", handed_out("01"))
    (class_ / "nobody").mkdir()
    out = tmp_path / "results"
    assert cli.main(["grade", str(class_), "--out", str(out), "--workers", "1"]) == 0
    said = capsys.readouterr()
    assert "Ana María: 5 of 5" in said.err
    assert "5 submissions are graded." in said.out
    assert "No notebook of an exercise was found" in said.out.replace("\n", " ")
    assert cli.main(["grade", str(class_), "--out", str(out)]) == 0
    assert "5 submissions are graded, 5 of them from before." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "SUBMISSIONS should be a folder"),
        ([".", "--workers", "0"], "--workers should be at least 1; it is 0"),
        ([".", "--timeout", "-1"], "timeout must be a positive number"),
        ([".", "--exercise", "x"], "there is no exercise"),
    ],
)
def test_what_is_asked_wrongly_is_told(tmp_path, arguments, message, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    arguments = [str(tmp_path / "in") if one == "." else one for one in arguments]
    assert cli.main(["grade", *arguments, "--out", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err


def test_ctrl_c_keeps_what_is_done(tmp_path, monkeypatch):
    if os.name == "nt":
        pytest.skip("Windows sends Ctrl-C in another way")
    class_, count = make(tmp_path / "class"), []
    plain = batch.judge_notebook

    def slow(*arguments):
        count.append(1)
        if len(count) == 3:
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
            time.sleep(5)
        return plain(*arguments)

    monkeypatch.setattr(batch, "judge_notebook", slow)
    code = cli.main(["grade", str(class_), "--out", str(tmp_path / "out"), "--workers", "1"])
    assert code == cli.INTERRUPTED
    assert len(list(Path(tmp_path / "out" / batch.DONE).iterdir())) == 2
