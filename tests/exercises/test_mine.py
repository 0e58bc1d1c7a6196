"""The model with the reader's functions: theirs where they are right, the course's elsewhere."""

import io
import json
import re
import time
from types import SimpleNamespace

import nbformat
import numpy as np
import pytest

from lib import cli, notebooks
from lib.engine.llama import Llama
from lib.engine.sampling import generate
from lib.exercises import NotRight, checking, mine, parts, small_model
from lib.exercises.judging import RIGHT, UNANSWERED, WRONG
from tests.exercises.wrong import t08, t09

FILE = small_model.small_file()
PROMPT, N = "The tree, 5 trees", 12
OF_TASKS = {task: name for name, (task, _) in parts.PARTS.items()}
OWN = {OF_TASKS[task]: function for task, function in (t08.RIGHT | t09.RIGHT).items()}


def greedy():
    model = Llama.of(FILE)
    ids = model.tokenizer.encode(PROMPT)
    return model.tokenizer.decode(list(generate(model, ids, N)))


def written(functions, **sampling):
    engine = mine.Engine(FILE, functions)
    return "".join(engine.write(PROMPT, N, **sampling)), engine.report()


def test_with_every_part_of_the_readers_the_text_is_the_engines():
    text, report = written(OWN)
    assert text.rstrip("\ufffd") == greedy().rstrip("\ufffd")
    assert report[0] == f"yours:        {', '.join(name for name in parts.PARTS if name in OWN)}"
    assert re.search(r"^\d+ tokens in .*tokens/s$", report[-1])


@pytest.mark.parametrize("name", OWN)
def test_each_part_alone_gives_the_same_text(name):
    text, report = written({name: OWN[name]})
    assert text.rstrip("\ufffd") == greedy().rstrip("\ufffd")
    assert report[0].split() == ["yours:", name]
    assert name not in report[1].removeprefix("the course's: ").split(", ")


def test_a_seed_gives_the_same_text_again():
    first, again = (written(OWN, temperature=0.9, seed=3)[0] for _ in range(2))
    assert first == again
    assert len({written(OWN, temperature=0.9, seed=seed)[0] for seed in range(5)}) > 1


@pytest.mark.parametrize(
    ("name", "function", "message"),
    [
        ("rms_norm", lambda X, gain, eps: 2 * t09.rms_norm(X, gain, eps), "rms_norm, .* off by"),
        ("rms_norm", lambda X, gain, eps: X[:, :3], r"it returned shape .*; right is"),
        ("swiglu", lambda *_: None, "swiglu, in the model at its call number 1: .* nothing"),
        ("rotate", lambda *_: 1 / 0, "rotate, .* raised ZeroDivisionError"),
        ("rotate", lambda X, first, base: X * np.nan, "returned NaN or infinity"),
        ("attend_grouped", lambda Q, K, V: Q, "attend_grouped, .* off by"),
        ("llama_layer", lambda X, w, K, V, *_: (X, K, V), "llama_layer"),
        ("encode", lambda text, *_: [0], r"encode, .* it returned \[0\]; right is"),
        ("merge", lambda word, merges: list(word), "Your merge: the tokens are"),
        ("decode", lambda ids, *_: "x" * len(ids), "decode, .* returned 'x'; right is"),
        ("sample", lambda *_: 0, "sample, .* it returned 0; right is"),
        ("q4_block", lambda block: np.zeros(32), "Your block, on blk.0.* not those of the file"),
    ],
)
def test_a_part_that_is_wrong_in_use_is_told(name, function, message):
    with pytest.raises(NotRight, match=message):
        written({name: function})


def test_a_part_that_is_slow_in_use_is_told():
    def slow(X, gain, eps):
        time.sleep(0.02)
        return t09.rms_norm(X, gain, eps)

    _, report = written({"rms_norm": slow})
    assert any(re.search("rms_norm is right but slow in use: .* times as long", s) for s in report)


def row(task, verdict):
    return SimpleNamespace(task=task, verdict=verdict)


def test_the_board():
    assert parts.board([row("01.one_query", RIGHT), row("09.rotate", WRONG)]) == ""
    rows = [row("09.rms_norm", RIGHT), row("09.rotate", UNANSWERED), row("08.embed", RIGHT)]
    assert parts.board(rows) == (
        "Your own engine: embed, rms_norm are yours (2 of 3). Not yet: rotate."
    )
    assert parts.board(rows[:1]) == "Your own engine: rms_norm is yours (1 of 1)."


@pytest.fixture
def solved(root, tmp_path, monkeypatch):
    """Return a copy of exercise 09 with two right answers, and work in its course."""
    (tmp_path / "notebooks").mkdir()
    nbformat.write(nbformat.v4.new_notebook(), tmp_path / "notebooks" / "00_start.ipynb")
    (tmp_path / "exercises").mkdir()
    (path,) = (root / "exercises").glob("09*.ipynb")
    right = {c.id: c.source for c in notebooks.read_notebook(root / "solutions" / path.name).cells}
    book = notebooks.read_notebook(path)
    for cell in book.cells:
        if cell.id in ("09-rms_norm-answer", "09-swiglu-answer"):
            cell.source = right[cell.id]
    nbformat.write(book, tmp_path / "exercises" / path.name)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "exercises" / path.name


def test_the_cells_of_right_answers_run_in_another_process(solved, monkeypatch, capsys):
    """`say` hands them over as JSON; here `main` reads that in this process, with a small model."""
    handed = []

    class Child:
        returncode = 0

        def __init__(self, command, **_):
            assert command[-2:] == ["-m", "lib.exercises.mine"]

        __enter__ = lambda self: self  # noqa: E731
        __exit__ = lambda *_: None  # noqa: E731

        def communicate(self, data):
            handed.append(json.loads(data))

    monkeypatch.setattr(mine.subprocess, "Popen", Child)
    assert cli.main(["say", "--mine", PROMPT, "--tokens", str(N)]) == 0
    assert set(handed[0]["programs"]) == {"rms_norm", "swiglu"}
    monkeypatch.setattr(mine.small_model, "open_file", lambda tell: FILE)
    data = io.BytesIO(json.dumps(handed[0]).encode())
    monkeypatch.setattr(mine.sys, "stdin", SimpleNamespace(buffer=data))
    assert mine.main() == 0
    out, err = capsys.readouterr()
    assert out.strip().rstrip("\ufffd") == greedy().strip().rstrip("\ufffd")
    assert "yours:        rms_norm, swiglu\n" in err


def test_check_shows_the_board(solved, capsys):
    assert cli.main(["check", str(solved)]) == 1
    assert "Your own engine: rms_norm, swiglu are yours (2 of 9)." in capsys.readouterr().out


def test_programs_are_those_of_right_answers_alone(solved):
    read = checking.read(solved)
    rows = [row("09.rms_norm", RIGHT), row("09.swiglu", WRONG)]
    assert list(mine.programs_of(read, rows)) == ["rms_norm"]


@pytest.mark.parametrize(
    "option", [["--chat"], ["--plain"], ["--threads", "2"], ["--slide"], ["--guess"]]
)
def test_options_that_do_not_fit_are_named(option, capsys):
    assert cli.main(["say", "--mine", "x", *option]) == 2
    assert f"--mine does not go with {option[0]}" in capsys.readouterr().err
