"""The command `course`: what it prints, where, and with which code it ends."""

import io
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from urllib.error import URLError
from urllib.request import urlopen

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from lib import cli, doctor, notebooks
from lib.doctor import MISSING, NOTE, OK, Finding
from lib.engine import sampling
from lib.errors import CourseError

ROOT = Path(__file__).parents[1]
posix_only = pytest.mark.skipif(os.name != "posix", reason="signals and pipes of POSIX")


def write(path, *sources):
    cells = [new_code_cell(source, id=f"c{n}") for n, source in enumerate(sources)]
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(new_notebook(cells=cells), path)
    return path


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def course(tmp_path, monkeypatch):
    """Return a course of two chapters, and work in its folder."""
    write(tmp_path / "notebooks" / "00_start_here.ipynb", "6 * 7", "print('hello')")
    write(tmp_path / "notebooks" / "01_next.ipynb", "a = 1", "a / 0  # [bold]", "a")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def canned(monkeypatch):
    """Let notebooks run without a kernel: a cell fails where it divides by zero."""

    def execute(notebook, folder, timeout, after_cell):
        indices = notebooks.runnable(notebook)
        for number, index in enumerate(indices, start=1):
            source = notebook.cells[index].source
            if "/ 0" in source:
                failure = notebooks.Failure(number, source, "ZeroDivisionError: [red] zero")
                return notebooks.Run(notebook, number - 1, len(indices), 1.25, failure)
            after_cell()
        return notebooks.Run(notebook, len(indices), len(indices), 1.25, None)

    monkeypatch.setattr(notebooks, "execute", execute)


def course_process(*arguments, **options):
    """Start the real command, its output in pipes."""
    command = [sys.executable, "-m", "lib.cli", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


# --- course --------------------------------------------------------------------------------------


def test_alone_it_prints_what_there_is(capsys):
    assert cli.main([]) == 0
    out, err = capsys.readouterr()
    for command in ("lab", "run", "build", "check", "grade", "say", "chat", "bench", "doctor"):
        assert re.search(rf"^  {command}  +[A-Z]", out, re.MULTILINE)
    assert "..." not in out.split("Commands:")[1]  # each is said in a line that fits
    assert err == ""


def test_version(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"course {version('left-context')}\n"


def test_help_waits_for_no_heavy_import():
    code = (
        "import sys; from lib import cli; cli.main([]); cli.main(['say', '--help'])\n"
        "heavy = 'numba numpy matplotlib gguf tokenizers nbclient nbformat jupyterlab'\n"
        "print('heavy:', [name for name in heavy.split() if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.endswith("heavy: []\n")


# --- bad input -----------------------------------------------------------------------------------

BAD_INPUT = {
    "unknown command": (["dance"], "No such command 'dance'"),
    "unknown option": (["run", "--fast"], "No such option"),
    "run: no such notebook": (["run", "02"], "There is no notebook '02'"),
    "run: no such file": (["run", "a/b.ipynb"], "a/b.ipynb: the file does not exist"),
    "run: broken JSON": (["run", "00", "broken.ipynb"], "broken JSON at line 1"),
    "run: not a notebook": (["run", "other.json"], "JSON, but not a notebook"),
    "run: timeout": (["run", "--timeout", "0"], "timeout must be a positive number"),
    "build: no such notebook": (["build", "02"], "There is no notebook '02'"),
    "build: broken JSON": (["build", "broken.ipynb"], "broken JSON at line 1"),
    "say: empty": (["say", ""], "PROMPT has no text in it"),
    "say: spaces": (["say", " \t\n "], "PROMPT has no text in it"),
    "say: not UTF-8": (["say", "a\udcff"], "PROMPT is not UTF-8"),
    "say: no tokens": (["say", "x", "--tokens", "0"], "--tokens should be at least 1; it is 0"),
    "say: not a number": (["say", "x", "--tokens", "many"], "--tokens"),
    "say: seed": (["say", "x", "--seed", "-1"], "--seed should be at least 0; it is -1"),
    "say: negative temperature": (["say", "x", "--temperature", "-1"], "temperature should be"),
    "say: temperature nan": (["say", "x", "--temperature", "nan"], "temperature should be"),
    "say: top-p 0": (["say", "x", "--top-p", "0"], "top_p should be above 0 and at most 1"),
    "say: top-p 2": (["say", "x", "--top-p", "2"], "top_p should be above 0 and at most 1"),
    "say: top-k 0": (["say", "x", "--top-k", "0"], "top_k should be"),
    "say: missing model": (["say", "x", "--model", "no.gguf"], "no.gguf"),
    "say: model is a folder": (["say", "x", "--model", "notebooks"], "notebooks"),
    "say: not a model": (["say", "x", "--model", "broken.ipynb"], "broken.ipynb is not a GGUF"),
    "say: empty model": (["say", "x", "--model", "empty.gguf"], "empty.gguf"),
    "say: truncated model": (["say", "x", "--model", "cut.gguf"], "cut.gguf"),
}


@pytest.mark.parametrize("kind", BAD_INPUT)
def test_bad_input_is_one_sentence_and_code_2(course, capsys, kind):
    (course / "broken.ipynb").write_text('{"cells": [', encoding="utf-8")
    (course / "other.json").write_text('{"a": 1}', encoding="utf-8")
    (course / "empty.gguf").touch()
    (course / "cut.gguf").write_bytes(b"GGUF\x03\x00\x00\x00\x01\x00")
    before = contents(course)
    arguments, sentence = BAD_INPUT[kind]
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("course: ")
    assert sentence in err
    assert err.endswith(".\n")
    assert err.count("\n") == 1
    assert contents(course) == before


def test_without_chapters_every_command_that_needs_them_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(notebooks, "__file__", str(tmp_path / "lib" / "notebooks.py"))
    for command in ("lab", "run", "build"):
        assert cli.main([command]) == 2
        assert capsys.readouterr().err.startswith("course: The chapters are not here")


def test_a_missing_package_is_named(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "lib.engine.sampling", None)
    monkeypatch.delattr("lib.engine.sampling", raising=False)
    assert cli.main(["say", "x"]) == 1
    assert "`course doctor` tells what to do" in capsys.readouterr().err


def test_the_real_command_gives_the_code_and_no_traceback():
    process = course_process("say", "x", "--top-p", "2")
    out, err = process.communicate()
    assert process.returncode == 2
    assert out == b""
    assert err.startswith(b"course: top_p should be above 0")
    assert b"Traceback" not in err


# --- course lab ----------------------------------------------------------------------------------


def test_lab_opens_the_first_chapter_and_passes_arguments_on(course, monkeypatch):
    commands = []
    monkeypatch.setattr(cli, "_become", lambda command: commands.append(command) or 0)
    monkeypatch.chdir(course / "notebooks")
    assert cli.main(["lab", "--no-browser", "--port", "9999", "-x", "--a=b"]) == 0
    (command,) = commands
    assert command[:3] == [sys.executable, "-m", "jupyterlab"]
    assert f"--ServerApp.root_dir={course}" in command
    assert "--LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb" in command
    assert command[-5:] == ["--no-browser", "--port", "9999", "-x", "--a=b"]


@pytest.mark.parametrize(("user", "as_root"), [(0, True), (1000, False)])
def test_lab_as_root_says_so(course, monkeypatch, capsys, user, as_root):
    commands = []
    monkeypatch.setattr(cli, "_become", lambda command: commands.append(command) or 0)
    monkeypatch.setattr(os, "geteuid", lambda: user, raising=False)
    assert cli.main(["lab"]) == 0
    assert ("--allow-root" in commands[0]) == as_root
    said = "course: running as root, so JupyterLab gets --allow-root.\n"
    assert capsys.readouterr().err == (said if as_root else "")


def test_lab_that_fails_is_told_by_the_code(course, monkeypatch):
    monkeypatch.setattr(cli, "_become", lambda _: 3)
    assert cli.main(["lab"]) == 1


def test_lab_on_windows_waits_through_ctrl_c(monkeypatch):
    class Process:
        answers = iter([KeyboardInterrupt(), 7])

        def wait(self):
            answer = next(self.answers)
            if isinstance(answer, KeyboardInterrupt):
                raise answer
            return answer

    monkeypatch.setattr(cli.os, "name", "nt")
    monkeypatch.setattr(cli.subprocess, "Popen", lambda _: Process())
    code = cli._become(["jupyterlab"])
    monkeypatch.undo()  # pytest itself must not believe that this is Windows
    assert code == 7


def answer(url, process):
    """Return what a server says, once it serves: it prints its address before that."""
    while process.poll() is None:
        try:
            with urlopen(url) as reply:
                return json.load(reply)
        except URLError:
            time.sleep(0.1)
    raise AssertionError(f"the server ended with {process.returncode}")


@posix_only
def test_lab_takes_a_free_port_and_ends_at_ctrl_c(course):
    env = {**os.environ, "HOME": str(course), "PYTHONUNBUFFERED": "1"}
    for kind in ("RUNTIME", "CONFIG", "DATA"):
        env[f"JUPYTER_{kind}_DIR"] = str(course / kind)
    terminal, stdin = os.openpty()  # at a terminal JupyterLab would ask whether to stop
    with socket.create_server(("localhost", 0)) as taken:
        port = taken.getsockname()[1]
        process = course_process("lab", "--no-browser", f"--port={port}", env=env, stdin=stdin)
        try:
            pattern = rb"http://localhost:(\d+)/lab/tree/notebooks/00_start_here.ipynb\?token="
            found = next(match for line in process.stderr if (match := re.search(pattern, line)))
            assert int(found[1]) != port
            assert "version" in answer(f"http://localhost:{int(found[1])}/api", process)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate()
        finally:
            process.kill()
            os.close(terminal)
            os.close(stdin)
    assert process.returncode == 0
    assert b"Traceback" not in err


# --- course run, course build --------------------------------------------------------------------


def rows(out):
    """Return the cells of a printed table, row by row."""
    lines = [line for line in out.splitlines() if line.startswith(("│", "|"))]
    return [tuple(cell.strip() for cell in re.split("[│|]", line)[1:-1]) for line in lines]


def test_run_tells_how_each_chapter_went(course, canned, capsys):
    before = contents(course)
    assert cli.main(["run"]) == 1
    out, err = capsys.readouterr()
    assert rows(out) == [
        ("00_start_here", "2 of 2", "1.2", "0"),
        ("01_next", "1 of 3", "1.2", "1"),
    ]
    assert err == "01_next.ipynb, cell [2]: a / 0  # [bold]\n    ZeroDivisionError: [red] zero\n"
    assert contents(course) == before


def test_run_goes_on_after_a_failure_in_the_order_asked_for(course, canned, capsys):
    assert cli.main(["run", "1", "0"]) == 1
    assert [row[0] for row in rows(capsys.readouterr().out)] == ["01_next", "00_start_here"]


def test_run_with_a_real_kernel(course, capsys):
    before = contents(course)
    assert cli.main(["run", "00"]) == 0
    out, err = capsys.readouterr()
    assert rows(out)[0][:2] == ("00_start_here", "2 of 2")
    assert err == ""
    assert contents(course) == before


def test_build_writes_once_and_check_tells(course, canned, capsys):
    before = contents(course)
    assert cli.main(["build", "--check", "00"]) == 1
    assert capsys.readouterr().out == "00_start_here: would change\n"
    assert contents(course) == before
    assert cli.main(["build", "00"]) == 0
    assert capsys.readouterr().out == "00_start_here: written\n"
    built = contents(course)
    assert built != before
    assert cli.main(["build", "00"]) == 0
    assert cli.main(["build", "00", "--check"]) == 0
    assert capsys.readouterr().out == 2 * "00_start_here: unchanged\n"
    assert contents(course) == built


def test_build_keeps_a_failing_chapter_and_builds_the_others(course, canned, capsys):
    failing = course / "notebooks" / "01_next.ipynb"
    before = failing.read_bytes()
    assert cli.main(["build", "01", "00"]) == 1
    out, err = capsys.readouterr()
    assert out == "01_next: failed, nothing written\n00_start_here: written\n"
    assert "cell [2]" in err
    assert failing.read_bytes() == before


SOLVED = """\
### BEGIN SOLUTION
#: x = ...
x = 6 * 7
### END SOLUTION"""


def solve(path, source=SOLVED):
    write(path, source)
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[0].metadata["nbgrader"] = {"solution": True, "grade_id": "c0"}
    nbformat.write(notebook, path)


def test_build_makes_the_exercises_from_the_solutions(course, canned, capsys):
    write(course / "notebooks" / "01_next.ipynb", "1")
    solve(course / "solutions" / "01_a.ipynb")
    solve(course / "solutions" / "02_b.ipynb")
    names = ["00_start_here", "01_next", "solutions/01_a", "solutions/02_b"]
    names += ["exercises/01_a", "exercises/02_b"]

    def said(word):
        return "".join(f"{name}: {word}\n" for name in names)

    assert cli.main(["build", "--check"]) == 1
    assert capsys.readouterr().out == said("would change")
    assert not (course / "exercises").exists()
    assert cli.main(["build"]) == 0
    assert capsys.readouterr().out == said("written")
    made = nbformat.read(course / "exercises" / "01_a.ipynb", as_version=4)
    assert [cell.source for cell in made.cells] == ["x = ..."]
    assert cli.main(["build", "--check"]) == 0
    assert capsys.readouterr().out == said("unchanged")


def test_build_of_one_exercise_executes_nothing(course, monkeypatch, capsys):
    monkeypatch.setattr(notebooks, "execute", None)
    solve(course / "solutions" / "01_a.ipynb")
    write(course / "exercises" / "01_a.ipynb", "x = 2")
    assert cli.main(["build", "exercises/01_a.ipynb"]) == 0
    assert capsys.readouterr().out == "exercises/01_a: written\n"


def test_build_makes_no_exercise_of_what_fails_and_goes_on(course, canned, capsys):
    solve(course / "solutions" / "01_a.ipynb", SOLVED.replace("7", "7 / 0"))
    solve(course / "solutions" / "02_b.ipynb", SOLVED.replace("### END", "# end"))
    solve(course / "solutions" / "03_c.ipynb")
    assert cli.main(["build", "01_a", "02_b", "03_c"]) == 1
    out, err = capsys.readouterr()
    assert "solutions/01_a: failed, nothing written\n" in out
    assert "'### BEGIN SOLUTION' has no '### END SOLUTION' after it" in err
    assert out.endswith("exercises/03_c: written\n")
    assert [path.name for path in (course / "exercises").iterdir()] == ["03_c.ipynb"]


# --- course say ----------------------------------------------------------------------------------


class FakeModel:
    """A model whose tokens are characters; it keeps what it was asked."""

    def __init__(self):
        self.tokenizer = self

    def encode(self, text, special=False):
        self.encoded = (text, special)
        return [ord(c) for c in text]

    def chat(self, messages):
        return "".join(f"<{m['role']}>{m['content']}" for m in messages)

    def stream_text(self, tokens):
        return (chr(token) for token in tokens)


@pytest.fixture
def fake(monkeypatch):
    """Let a fake model speak: `fake.says` what it says, `fake.asked` is what it was asked."""
    model = FakeModel()
    model.says = map(ord, "so")

    def generate(llama, ids, n, temperature, top_k, top_p, seed, when_full, guess=None):
        assert llama is model
        model.asked = (ids, n, temperature, top_k, top_p, seed, when_full)
        model.guess = guess
        return model.says

    def load(*loaded):
        model.loaded = loaded
        return model

    monkeypatch.setattr(cli, "_load", load)
    monkeypatch.setattr(sampling, "generate", generate)
    return model


def test_say_prints_the_continuation_alone(fake, capsys):
    assert cli.main(["say", "Hi"]) == 0
    assert capsys.readouterr() == ("so\n", "")
    assert fake.asked == ([72, 105], 50, 0.0, None, None, None, "error")
    assert fake.encoded == ("Hi", False)  # <|im_start|> in a prompt is text
    assert fake.loaded == (None, None, False)


def test_say_passes_every_option_on(fake):
    options = "--tokens 7 --temperature 0.5 --top-k 3 --top-p 0.9 --seed 11 --model m.gguf --chat"
    options += " --threads 3 --slide --plain"
    assert cli.main(["say", "Hi", *options.split()]) == 0
    assert fake.encoded == ("<user>Hi", True)
    assert fake.asked[1:] == (7, 0.5, 3, 0.9, 11, "slide")
    assert fake.loaded == (Path("m.gguf"), 3, True)
    assert fake.guess is None
    assert cli.main(["say", "Hi", "--guess"]) == 0
    assert fake.guess == "auto"


def test_say_streams(fake, monkeypatch):
    class Screen(io.StringIO):
        seen = ""

        def flush(self):
            self.seen = self.getvalue()

    screen, seen = Screen(), []

    def says():
        for c in "abc":
            seen.append(screen.seen)
            yield ord(c)

    fake.says = says()
    monkeypatch.setattr(sys, "stdout", screen)
    assert cli.main(["say", "Hi"]) == 0
    assert seen == ["", "a", "ab"]  # on the screen before the next token is asked for


def test_say_ends_cleanly_at_ctrl_c(fake, capsys):
    def says():
        yield from map(ord, "ab")
        raise KeyboardInterrupt

    fake.says = says()
    assert cli.main(["say", "Hi"]) == 130
    assert capsys.readouterr() == ("ab\n", "")


class Terminal(io.TextIOWrapper):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("kind", "shown"),
    [(io.TextIOWrapper, "é🙂!\n".encode()), (Terminal, b"\xe9\\U0001f642!\n")],
    ids=["a pipe gets UTF-8", "a terminal gets the number of what it lacks"],
)
def test_say_loses_no_character_where_the_encoding_is_narrow(fake, monkeypatch, kind, shown):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", kind(raw, encoding="cp1252", newline="\n"))
    fake.says = map(ord, "é🙂!")
    assert cli.main(["say", "🙂 مرحبا"]) == 0
    assert raw.getvalue() == shown


@pytest.mark.parametrize("words", [[], ["-"]])
def test_say_reads_the_text_from_a_pipe(fake, monkeypatch, words):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("É Hi\n".encode())))
    assert cli.main(["say", *words]) == 0
    assert fake.encoded == ("É Hi", False)


def test_say_asks_people_for_a_text(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", Terminal(io.BytesIO()))
    assert cli.main(["say"]) == 2
    assert "Missing argument 'PROMPT'" in capsys.readouterr().err


def test_say_refuses_a_pipe_that_is_no_text(fake, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe")))
    assert cli.main(["say"]) == 2
    assert capsys.readouterr().err == "course: the input is not UTF-8 text.\n"


@pytest.mark.parametrize("text", ["- apples, pears and", "-5 degrees", "--- Chapter 1", "--\nx"])
def test_a_text_may_begin_with_a_dash(fake, text):
    assert cli.main(["say", text]) == 0
    assert fake.encoded == (text, False)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["Hi", "--tokns", "3"], "No such option: --tokns"),
        (["--tokns", "3", "Hi"], "No such option: --tokns"),
        (["--tokns=3", "Hi"], "No such option: --tokns=3"),
        (["Hi", "there"], "PROMPT should be one text, in quotation marks; 'there' follows it"),
    ],
)
def test_say_still_knows_a_mistyped_option(fake, capsys, words, message):
    assert cli.main(["say", *words]) == 2
    assert message in capsys.readouterr().err


@posix_only
@pytest.mark.parametrize("to", ["> /dev/full", ">&-"])
@pytest.mark.parametrize("command", ["doctor", "--help", "check 99"])
def test_where_nothing_can_be_printed_a_sentence_says_so(to, command):
    if to == "> /dev/full" and not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    shell = f'"{sys.executable}" -m lib.cli {command} {to}'
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode in (1, 2)
    assert re.fullmatch(r"course: .*\.\n", done.stderr)


@posix_only
@pytest.mark.parametrize("command", ["", "--help", "--version", "say --help", "doctor", "check 01"])
def test_who_reads_no_more_is_no_fault(command):
    shell = f'("{sys.executable}" -m lib.cli {command}; echo $? >&2) | true'
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, cwd=ROOT)
    assert done.stderr == "0\n"


@posix_only
def test_ctrl_c_works_where_the_shell_had_it_ignored():
    """As `setsid … &` and some CI systems start a program."""
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "from lib import cli\n"
        "cli._prepare()\n"
        "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def talk(monkeypatch, capsys, lines, *options):
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
    code = cli.main(["chat", *options])
    return code, capsys.readouterr()


class Talker:
    """A model that answers with the length of what it was given, and notes what it read."""

    def __init__(self, context=400):
        self.tokenizer = self
        self.config = SimpleNamespace(context=context)
        self.reads = []

    def new_cache(self):
        self.cache = SimpleNamespace(n=0, truncate=self.truncate)
        return self.cache

    def truncate(self, n):
        assert n <= self.cache.n
        self.cache.n = n

    def chat(self, messages):
        return "".join(f"<{m['role'][0]}>{m['content']}" for m in messages) + "<a>"

    def encode(self, text, special=False):
        return list(map(ord, text))

    def stream_text(self, tokens):
        return (chr(token) for token in tokens)

    def generate(self, llama, ids, n, *sampling, cache):
        self.reads.append("".join(map(chr, ids[cache.n :])))
        yield from map(ord, str(len(ids))[:n])
        cache.n = len(ids) + len(str(len(ids)))


@pytest.fixture
def talker(monkeypatch):
    model = Talker()
    monkeypatch.setattr(cli, "_load", lambda *loaded: model)
    monkeypatch.setattr(sampling, "generate", model.generate)
    return model


def test_each_turn_of_a_chat_reads_only_what_is_new(talker, monkeypatch, capsys):
    code, (out, err) = talk(monkeypatch, capsys, ["Hello", "", "More"], "--system", "S")
    assert (code, out, err) == (0, "15\n27\n", "")
    assert talker.reads == ["<s>S<u>Hello<a>", "<u>More<a>"]


def test_a_chat_begins_anew_and_ends_when_asked(talker, monkeypatch, capsys):
    code, (out, _) = talk(monkeypatch, capsys, ["Hello", "/new", "Bye", "/quit", "Never"])
    assert (code, out) == (0, "11\n9\n")
    assert talker.reads == ["<u>Hello<a>", "Bye<a>"]  # what both begin with is there already


def test_a_chat_that_fills_the_context_says_so_and_goes_on(talker, monkeypatch, capsys):
    talker.config.context = 20
    code, (out, err) = talk(monkeypatch, capsys, ["Hello", "a long question", "/new", "Hi"])
    assert (code, out) == (0, "11\n8\n")
    assert err == (
        "course: the conversation no longer fits into the context; /new begins another.\n"
    )


def test_ctrl_c_stops_an_answer_and_not_the_chat(talker, monkeypatch, capsys):
    plain = talker.generate

    def interrupted(*arguments, **options):
        for k, token in enumerate(plain(*arguments, **options)):
            if len(talker.reads) == 1 and k == 1:
                raise KeyboardInterrupt
            yield token

    monkeypatch.setattr(sampling, "generate", interrupted)
    code, (out, _) = talk(monkeypatch, capsys, ["Hello", "Hi"])
    assert (code, out) == (0, "1 …\n20\n")


def test_a_line_that_is_no_text_costs_no_other(talker, monkeypatch, capsys):
    lines = io.TextIOWrapper(io.BytesIO(b"a\xff\nHello\n"), encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", lines)
    assert cli.main(["chat"]) == 0
    said = "course: the line is not UTF-8 text; set the terminal to UTF-8.\n"
    assert capsys.readouterr() == ("11\n", said)


def test_a_line_that_the_model_refuses_costs_no_other(talker, monkeypatch, capsys):
    def chat(messages):
        if messages[-1]["content"] == "b":
            raise CourseError("no b")
        return Talker.chat(talker, messages)

    monkeypatch.setattr(talker, "chat", chat)
    code, (out, err) = talk(monkeypatch, capsys, ["Hello", "b", "More"])
    assert (code, out, err) == (0, "11\n23\n", "course: no b.\n")
    assert talker.reads == ["<u>Hello<a>", "<u>More<a>"]


def test_each_turn_has_draws_of_its_own(talker, monkeypatch, capsys):
    seeds, plain = [], talker.generate

    def generate(llama, ids, n, temperature, top_k, top_p, seed, cache):
        seeds.append(seed)
        return plain(llama, ids, n, cache=cache)

    monkeypatch.setattr(sampling, "generate", generate)
    for options, drawn in ((["--seed", "5"], [5, 6, 8]), ([], [None] * 3)):
        talk(monkeypatch, capsys, ["Hello", "More", "/new", "Hello"], *options)
        assert seeds == drawn
        seeds.clear()


class Person(io.StringIO):
    """Somebody at a terminal; a line `^C` is Ctrl-C."""

    def isatty(self):
        return True

    def readline(self):
        if (line := super().readline()) == "^C\n":
            raise KeyboardInterrupt
        return line


@pytest.mark.parametrize(("typed", "answers", "asked_again"), [
    (["Hello", "^C", "^C", "Never"], 1, 1),
    (["^C", "Hello", "^C", "/quit"], 1, 2),
    (["^C", "", "^C", "Hello"], 1, 2),
])  # fmt: skip
def test_a_second_ctrl_c_at_the_prompt_ends_a_chat(
    talker, monkeypatch, capsys, typed, answers, asked_again
):
    monkeypatch.setattr(sys, "stdin", Person("\n".join([*typed, ""])))
    assert cli.main(["chat"]) == 0
    out, err = capsys.readouterr()
    assert (out.count("\n"), err.count(cli.ONCE_MORE)) == (answers, asked_again)


def test_ctrl_c_ends_a_chat_that_reads_a_pipe(talker, monkeypatch, capsys):
    monkeypatch.setattr(Person, "isatty", lambda self: False)
    monkeypatch.setattr(sys, "stdin", Person("Hello\n^C\n"))
    assert cli.main(["chat"]) == cli.INTERRUPTED


@pytest.mark.usefixtures("compiled")
def test_the_real_model_answers_as_if_it_had_read_all_anew(monkeypatch, capsys):
    lines, options = ["My name is Ada.", "What is my name?"], ["--tokens", "20"]
    code, (out, _) = talk(monkeypatch, capsys, lines, *options)
    assert code == 0
    first, second = out.splitlines()
    model = cli._load(None, None, False)
    messages = [
        {"role": "user", "content": lines[0]},
        {"role": "assistant", "content": first},
        {"role": "user", "content": lines[1]},
    ]
    ids = model.tokenizer.encode(model.tokenizer.chat(messages), special=True)
    assert second == model.tokenizer.decode(sampling.generate(model, ids, 20))


COMPILING = "course: compiling the engine; this first use takes about half a minute\n"


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("engine", [[], ["--plain"]])
def test_say_with_the_real_model(capsys, engine):
    prompt = "The capital of France is"
    assert cli.main(["say", prompt, "--tokens", "5", "--temperature", "0", *engine]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(" Paris")
    assert prompt not in out
    assert err in ("", COMPILING)


@pytest.mark.usefixtures("compiled")
def test_say_continues_a_file_of_texts_and_loses_none_to_a_bad_line(tmp_path, capsys):
    texts = ["The capital of France is", "", "Once upon a time", "Hi " * 9000, "One, two, three,"]
    (tmp_path / "texts").write_text("\n".join(texts), encoding="utf-8")
    assert cli.main(["say", "--prompts", str(tmp_path / "texts"), "--tokens", "6"]) == 2
    out, err = capsys.readouterr()
    said = dict(re.findall(r"^\[(\d)\] ([^\[]*)\n\n", out, re.MULTILINE | re.DOTALL))
    for k in (1, 3, 5):
        assert cli.main(["say", texts[k - 1], "--tokens", "6"]) == 0
        alone, _ = capsys.readouterr()
        assert said.pop(str(k)) == texts[k - 1] + alone.removesuffix("\n")
    assert said == {}
    lines = err.replace(COMPILING, "").splitlines()
    assert [line.split(":")[1] for line in lines] == [" texts, line 2", " texts, line 4"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--prompts", "no such file"], "no such file can't be read: No such file or directory."),
        (["--prompts", "."], "can't be read: Is a directory."),
        (["Hi", "--prompts", "x"], "--prompts does not go with PROMPT; leave one of them away."),
        (["--prompts", "x", "--guess"], "--prompts does not go with --guess"),
        (["Hi", "--guess", "--plain"], "--guess does not go with --plain"),
    ],
)
def test_say_names_what_does_not_go_together(capsys, words, message):
    assert cli.main(["say", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.usefixtures("compiled")
def test_say_says_when_it_compiles(capsys, monkeypatch):
    from lib.engine import fast

    monkeypatch.setattr(fast, "load_fast", lambda *arguments, **options: FakeModel())
    for known in (True, False):
        monkeypatch.setattr(fast, "is_compiled", lambda known=known: known)
        cli._load(None, None, False)
        assert ("compiling the engine" in capsys.readouterr().err) is not known


@pytest.mark.usefixtures("compiled")
def test_say_refuses_more_than_the_context(capsys):
    assert cli.main(["say", "x", "--tokens", "1000000"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"course: .*context of 8192 tokens.*\.\n", err)


@pytest.mark.usefixtures("compiled")
@posix_only
@pytest.mark.parametrize(("how", "code"), [("ctrl-c", 130), ("closed pipe", 0)])
def test_the_real_command_ends_quietly(how, code):
    process = course_process("say", "Once upon a time", "--tokens", "4000")
    first = process.stdout.read(1)
    if how == "ctrl-c":
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert rest.endswith(b"\n")
    process.stdout.close()
    err = process.stderr.read().decode()
    process.stderr.close()
    assert process.wait() == code
    assert first == b","
    assert err in ("", COMPILING)


# --- course doctor -------------------------------------------------------------------------------

FINDINGS = {
    OK: Finding("Python", OK, "3.11.7", place="here [really]"),
    NOTE: Finding("Numba", NOTE, "not installed", "slower"),
    MISSING: Finding("Model", MISSING, "not found", "get it with `pip …`"),
}


@pytest.mark.parametrize("statuses", list(itertools.combinations(FINDINGS, 2)))
def test_doctor_tells_and_ends_with_1_when_the_course_cannot_run(monkeypatch, capsys, statuses):
    monkeypatch.setattr(doctor, "examine", lambda: [FINDINGS[status] for status in statuses])
    missing = MISSING in statuses
    assert cli.main(["doctor"]) == (1 if missing else 0)
    out = capsys.readouterr().out
    for status in statuses:
        assert FINDINGS[status].value in out
        assert FINDINGS[status].place in out
        assert FINDINGS[status].advice in out
    closing = out.split("What to do:")[1] if missing else out.splitlines()[-1]
    assert closing.strip() == (
        "Model: get it with `pip …`" if missing else "The course can run. Begin with: course lab"
    )


def test_doctor_here(capsys):
    code = cli.main(["doctor"])
    out = capsys.readouterr().out
    assert code == (0 if doctor.can_run(doctor.examine()) else 1)
    for finding in doctor.examine():
        assert f"│ {finding.name}" in out or f"| {finding.name}" in out
