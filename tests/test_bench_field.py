"""Who takes part in `course bench`: which program, with which arguments, and what is missing."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from lib.bench import rows, run
from lib.bench.contest import Fixed, Lost

MODEL_BYTES = b"a model of 19 bytes"


class Made:
    """Stands in for a process that is started."""

    def __init__(self, name, command, threads):
        self.name, self.command, self.threads, self.closed = name, command, threads, 0

    def close(self):
        self.closed += 1


class Process(Made):
    pass


class Start(Made):
    pass


@pytest.fixture
def field(monkeypatch, tmp_path):
    """The field of a bench folder with a text, a model, and peers that have everything."""
    folder, model = tmp_path / "bench", tmp_path / "tiny.gguf"
    folder.mkdir()
    (folder / "text.txt").write_text("ab", encoding="utf-8")
    model.write_bytes(MODEL_BYTES)
    monkeypatch.setattr(run, "find_model", lambda: model)
    monkeypatch.setattr(run, "read_gguf", lambda path: f"read {path.name}")
    monkeypatch.setattr(run, "probe", lambda python: {"torch": "2", "llama_cpp": "0.3"})
    monkeypatch.setattr(run, "Process", Process)
    monkeypatch.setattr(run, "Start", Start)
    monkeypatch.setattr(
        "lib.engine.tokenizer.Tokenizer",
        lambda file: SimpleNamespace(encode=lambda text: [file, *text]),
    )
    work = tmp_path / "work"
    work.mkdir()
    settings = run.Settings(folder=folder, out=tmp_path, peers="peers-python", threads=3)
    return run.Field(settings, work)


def test_the_text_is_cut_into_tokens_once_for_all(field):
    assert json.loads(field.tokens.read_text(encoding="utf-8")) == ["read tiny.gguf", "a", "b"]


OURS, PEERS = sys.executable, "peers-python"


@pytest.mark.parametrize(
    ("name", "kind", "python", "script", "arguments", "threads"),
    [
        (rows.OURS, Process, OURS, "engine_ours.py", ["fast", "3", "TOKENS", "MODEL"], 3),
        (rows.OURS_1, Process, OURS, "engine_ours.py", ["fast", "1", "TOKENS", "MODEL"], 1),
        (rows.FLOAT32, Process, OURS, "engine_ours.py", ["float32", "3", "TOKENS", "MODEL"], 3),
        (rows.LIMIT, Process, OURS, "machine.py", ["3"], 3),
        (rows.LIMIT_1, Process, OURS, "machine.py", ["1"], 1),
        (rows.CORE, Process, OURS, "core_ours.py", ["3"], 3),
        (rows.NUMPY, Process, OURS, "core_numpy.py", ["3"], 3),
        (rows.TORCH, Process, PEERS, "core_torch.py", ["3"], 3),
        (rows.LLAMA, Process, PEERS, "engine_llama_cpp.py", ["run", "3", "TOKENS", "MODEL"], 3),
        (rows.LLAMA_START, Start, PEERS, "say_llama_cpp.py", ["3", "MODEL", run.PROMPT], 3),
    ],
)
def test_each_contestant_has_its_program(field, name, kind, python, script, arguments, threads):
    made = field.get(name)
    named = {"TOKENS": str(field.tokens), "MODEL": str(field.model)}
    script = str(field.settings.folder / script)
    assert type(made) is kind
    assert made.command == [python, script, *(named.get(one, one) for one in arguments)]
    assert (made.name, made.threads) == (name, threads)


def test_those_without_a_program_of_the_folder(field):
    said = field.get(rows.SAY)
    assert type(said) is Start
    assert said.command == [OURS, "-m", "lib.cli", "say", run.PROMPT, "--tokens", "1"]
    file = field.get(rows.FILE)
    assert type(file) is Fixed
    assert file.ask((), 1.0) == {"bytes": len(MODEL_BYTES)}


def test_a_contestant_runs_until_it_is_dropped(field):
    first, other = field.get(rows.CORE), field.get(rows.NUMPY)
    assert field.get(rows.CORE) is first
    field.drop([rows.CORE, rows.TORCH])
    assert (first.closed, other.closed) == (1, 0)
    second = field.get(rows.CORE)
    assert second is not first
    field.close()
    assert (first.closed, second.closed, other.closed) == (1, 1, 1)


def test_what_is_missing_is_told_by_contestant(field, monkeypatch):
    assert field.missing() == {}
    field.has = {"torch": "2"}
    assert field.missing() == dict.fromkeys(
        (rows.LLAMA, rows.LLAMA_Q4_0, rows.LLAMA_START),
        f"llama.cpp is not installed; {run.HOW}",
    )
    field.has = {"llama_cpp": "0.3"}
    assert field.missing() == {rows.TORCH: f"torch is not installed; {run.HOW}"}
    field.has = {"llama_cpp": "0.3", "torch": "2"}
    monkeypatch.setattr(run.importlib.util, "find_spec", lambda name: None)
    ours = (rows.OURS, rows.OURS_1, rows.OURS_PLAIN, rows.LIMIT, rows.LIMIT_1)
    assert field.missing() == dict.fromkeys(ours, "Numba is not installed")


def test_the_other_format_is_made_once(field, monkeypatch):
    asked = []

    def quantise(command, **options):
        asked.append(command)
        assert options == {"capture_output": True, "check": True, "timeout": 300.0}
        field.q4_0_path().write_bytes(b"quantised")

    monkeypatch.setattr(run.subprocess, "run", quantise)
    made = field.get(rows.LLAMA_Q4_0)
    out = field.settings.folder / "cache" / "tiny-as-Q4_0.gguf"
    script = str(field.settings.folder / "engine_llama_cpp.py")
    assert asked == [[PEERS, script, "quantise", str(field.model), str(out)]]
    assert made.command == [PEERS, script, "run", "3", str(field.tokens), str(out)]
    assert field.q4_0() == out
    assert len(asked) == 1


@pytest.mark.parametrize("error", [OSError("gone"), subprocess.CalledProcessError(1, "quantise")])
def test_a_quantiser_that_fails_loses_its_contestant(field, monkeypatch, error):
    def fail(command, **options):
        raise error

    monkeypatch.setattr(run.subprocess, "run", fail)
    with pytest.raises(Lost, match="^llama.cpp's quantiser made no Q4_0 file"):
        field.get(rows.LLAMA_Q4_0)
