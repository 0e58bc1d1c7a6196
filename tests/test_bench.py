"""`course bench`: turns, ratios, what happens to a contestant that fails, and what is written."""

import json
import math
import platform
import socket
import sys
from pathlib import Path

import numpy as np
import pytest

from lib import cli
from lib.bench import results as kept
from lib.bench import roofline, rows, run
from lib.bench.contest import Fixed, Lost, Process, Start, alternate, environment
from lib.bench.results import Point, Results
from lib.bench.rows import Row, Side
from lib.engine import work
from lib.engine.llama import LlamaConfig
from lib.errors import CourseError

BENCH = Path(__file__).parents[1] / "bench"

# A contestant that notes its turns in a file shared by all, and answers with its argument.
HONEST = """
import json, sys
name, log = sys.argv[1:]
for line in sys.stdin:
    case, *arguments = line.split()
    with open(log, "a", encoding="utf-8") as file:
        file.write(name)
    print("a library says something")
    print(json.dumps({"seconds": float(arguments[0]), "tokens": 6}), flush=True)
"""
DIES = "import sys\nsys.stdin.readline()\nraise RuntimeError('no memory left')"
HANGS = "import sys, time\nsys.stdin.readline()\ntime.sleep(600)"
REFUSES = (
    'import sys\nsys.stdin.readline()\nprint(\'{"error": "KeyError: this case"}\', flush=True)\n'
    "sys.stdin.readline()"
)


@pytest.fixture
def scripts(tmp_path):
    """Start contestants from their source; all are ended with the test."""
    started = []

    def start(source, *arguments, name="the peer"):
        path = tmp_path / f"contestant{len(started)}.py"
        path.write_text(source, encoding="utf-8")
        command = [sys.executable, str(path), *map(str, arguments)]
        started.append(Process(name, command, 1))
        return started[-1]

    yield start
    for contestant in started:
        contestant.close()


# --- turns ---------------------------------------------------------------------------------------


def test_turns_alternate_and_the_first_of_each_does_not_count(scripts, tmp_path):
    log = tmp_path / "turns"
    a, b = scripts(HONEST, "a", log), scripts(HONEST, "b", log)
    done = []
    cases = ("decode", "2"), ("decode", "3")
    pairs = alternate(a, b, cases, rounds=3, timeout=30, after_turn=lambda: done.append(1))
    assert log.read_text(encoding="utf-8") == "abababab"
    assert len(done) == 8
    assert pairs == [({"seconds": 2.0, "tokens": 6}, {"seconds": 3.0, "tokens": 6})] * 3


def test_without_a_warm_up_every_turn_counts(scripts, tmp_path):
    log = tmp_path / "turns"
    a, b = scripts(HONEST, "a", log), scripts(HONEST, "b", log)
    pairs = alternate(a, b, (("x", "2"), ("x", "3")), rounds=1, timeout=30, warm=False)
    assert log.read_text(encoding="utf-8") == "ab"
    assert len(pairs) == 1


@pytest.mark.parametrize(
    ("source", "reason", "detail"),
    [
        (DIES, "the peer ended with code 1", "RuntimeError: no memory left"),
        (REFUSES, "the peer answered with an error", "KeyError: this case"),
    ],
)
def test_a_contestant_that_fails_is_lost_in_words(scripts, source, reason, detail):
    contestant = scripts(source)
    with pytest.raises(Lost) as lost:
        contestant.ask(("decode",), timeout=30)
    assert str(lost.value) == reason
    assert lost.value.detail == detail


def test_one_that_hangs_is_ended_when_its_time_is_over(scripts):
    contestant = scripts(HANGS)
    with pytest.raises(Lost, match=r"^the peer gave no answer within 0\.5 s$"):
        contestant.ask(("decode",), timeout=0.5)
    assert contestant._process.poll() is not None


def test_one_that_has_died_is_lost_at_the_next_turn_too(scripts):
    contestant = scripts("pass")
    contestant._process.wait(30)
    with pytest.raises(Lost, match="ended with code 0"):
        contestant.ask(("decode",), timeout=30)


def test_a_program_that_is_not_there_is_lost(tmp_path):
    with pytest.raises(Lost, match=r"^the peer could not be started: \S"):
        Process("the peer", [str(tmp_path / "nothing")], 1)


def test_memory_is_that_of_the_turn(scripts):
    source = (
        "import sys, time\nfor line in sys.stdin:\n"
        "    held = bytearray(int(line)) if int(line) else None\n"
        "    time.sleep(0.3)\n    held = None\n    print('{}', flush=True)"
    )
    contestant = scripts(source)
    small = contestant.ask(("0",), 30, watch=True)["bytes"]
    large = contestant.ask(("50000000",), 30, watch=True)["bytes"]
    # All of the 50 MB, give or take pages that the system takes back meanwhile.
    assert 45_000_000 < large - small < 60_000_000


def test_a_start_is_timed_until_its_first_letter(tmp_path):
    script = tmp_path / "say.py"
    script.write_text(
        "import sys, time\ntime.sleep(0.2)\nprint(sys.argv[1], end='', flush=True)\n"
        "time.sleep(0.8)",
        encoding="utf-8",
    )
    start = Start("say", [sys.executable, str(script)], 1)
    seconds = start.ask(("word",), timeout=30)["seconds"]
    assert seconds > 0.2
    with pytest.raises(Lost, match=r"^say did not end within 0\.3 s$"):
        start.ask(("word",), timeout=0.3)
    with pytest.raises(Lost, match="^say ended with code 1$") as lost:
        start.ask((), timeout=30)
    assert lost.value.detail == "IndexError: list index out of range"


def test_a_contestant_is_told_its_threads():
    told = environment(3, {"PATH": "p", "OMP_NUM_THREADS": "8"})
    assert told["OMP_NUM_THREADS"] == told["NUMBA_NUM_THREADS"] == "3"
    assert told["PATH"] == "p"


def test_a_fixed_number_is_a_contestant():
    assert Fixed("file", {"bytes": 7}).ask((), 1) == {"bytes": 7}


# --- rows and ratios -----------------------------------------------------------------------------


def row(unit, **more):
    return Row("decode/x", "decode", "decode", unit, Side("ours"), Side("peer"), **more)


@pytest.mark.parametrize(
    ("unit", "ours", "peer", "values", "ratio"),
    [
        (
            "tokens/s",
            {"tokens": 64, "seconds": 0.25},
            {"tokens": 64, "seconds": 1.0},
            (256, 64),
            4.0,
        ),
        (
            "ms/token",
            {"tokens": 8, "seconds": 0.04},
            {"tokens": 8, "seconds": 0.1},
            (5, 12.5),
            2.5,
        ),
        ("GB/s", {"bytes": 6e9, "seconds": 0.5}, {"bytes": 8e9, "seconds": 0.5}, (12, 16), 0.75),
        (
            "G multiply-adds/s",
            {"multiply_adds": 3e9, "seconds": 0.1},
            {"multiply_adds": 2e10, "seconds": 0.2},
            (30, 100),
            0.3,
        ),
        ("µs", {"seconds": 5e-6}, {"seconds": 2e-5}, (5, 20), 4.0),
        ("s", {"seconds": 1.5}, {"seconds": 0.75}, (1.5, 0.75), 0.5),
        ("MB", {"bytes": 2e8}, {"bytes": 3e8}, (200, 300), 1.5),
        ("nats", {"kl": 0.002}, {"kl": 0.004}, (0.002, 0.004), 2.0),
        ("% equal", {"same_top": 0.96}, {"same_top": 0.48}, (96, 48), 2.0),
    ],
)
def test_a_ratio_says_how_many_times_ours_is_better(unit, ours, peer, values, ratio):
    found = kept.measured(row(unit), [(ours, peer)])
    assert (found.ours[0], found.peer[0]) == pytest.approx(values)
    assert found.ratio == pytest.approx(ratio)


def test_the_median_is_that_of_the_pairs():
    # Pair by pair 2, 8, 3; the ratio of the medians would be 20 / 5 = 4.
    pairs = [({"seconds": 1e-6 * a}, {"seconds": 1e-6 * b}) for a, b in [(5, 10), (5, 40), (9, 27)]]
    found = kept.measured(row("µs"), pairs)
    assert found.ratios == pytest.approx([2, 8, 3])
    assert found.ratio == pytest.approx(3)
    assert found.quartiles == pytest.approx((2.5, 5.5))
    assert found.medians == pytest.approx((5, 27))


def test_every_row_has_a_unit_a_key_of_its_own_and_contestants_that_exist():
    everything = rows.all_rows()
    assert len({row.key for row in everything}) == len(everything)
    assert {row.unit for row in everything} <= set(rows.UNITS)
    groups = [
        "decode",
        "prefill",
        "limits",
        "contexts",
        "batch",
        "guess",
        "memory",
        "start",
        "accuracy",
        "threads",
        "core",
    ]
    assert list(dict.fromkeys(row.group for row in everything)) == groups


def test_rows_are_chosen_by_group_or_by_key():
    assert [row.key for row in rows.choose(["memory", "decode/q4_0"])] == [
        "decode/q4_0",
        "memory/same-file",
        "memory/file",
    ]
    quick = {row.key for row in rows.choose([], quick=True)}
    assert "contexts/64" in quick
    assert "contexts/8192" not in quick
    assert [row.key for row in rows.choose(["contexts/8192"], quick=True)] == ["contexts/8192"]
    with pytest.raises(CourseError, match="ROWS should be among decode, .*; 'decoding' is not"):
        rows.choose(["decode", "decoding"])


# --- a run ---------------------------------------------------------------------------------------


class FakeField:
    """Contestants from a table, in place of those of `bench`."""

    table = {}  # noqa: RUF012  filled by each test
    started = []  # noqa: RUF012
    lacking = {}  # noqa: RUF012
    has = {"torch": "2.0"}  # noqa: RUF012
    model = Path("no such model")

    def __init__(self, settings, work):
        self.running = {}
        self.work = work

    def missing(self):
        return self.lacking

    def get(self, name):
        if name not in self.running:
            self.started.append(name)
            self.running[name] = self.table[name]
        return self.running[name]

    def drop(self, names):
        for name in names:
            self.running.pop(name, None)

    def close(self):
        self.running.clear()

    def q4_0_path(self):
        return Path("no such file")


class Answering:
    def __init__(self, name, answer):
        self.name, self.answer, self.asked = name, answer, []

    def ask(self, case, timeout, watch=False):
        self.asked.append(tuple(case))
        if isinstance(self.answer, Exception):
            raise self.answer
        if callable(self.answer):
            return self.answer(case)
        return dict(self.answer)

    def close(self):
        pass


@pytest.fixture
def field(monkeypatch, tmp_path):
    class Here(FakeField):
        table, started, lacking = {}, [], {}

    monkeypatch.setattr(run, "Field", Here)
    monkeypatch.setattr("lib.bench.contest.PAUSE", 0)
    return Here


def settings(tmp_path, **more):
    return run.Settings(folder=tmp_path, out=tmp_path, **{"rounds": 2} | more)


TURN = {"tokens": 64, "seconds": 0.5, "bytes": 6.4e9, "multiply_adds": 8e9, "passes": 64}


def test_a_lost_contestant_does_not_stop_the_other_rows(field, tmp_path):
    peer = dict(TURN, seconds=1.0)
    field.table |= {
        rows.OURS: Answering("ours", TURN),
        rows.LLAMA: Answering("llama.cpp", Lost("llama.cpp ended with code 3", "Error: /secret")),
        rows.LLAMA_Q4_0: Answering("q", peer),
        rows.FLOAT32: Answering("f", peer),
    }
    said, turns = [], []
    found = run.run(
        settings(tmp_path), ["decode"], after_turn=lambda: turns.append(1), say=said.append
    )
    assert [row.key for row in found.rows] == ["decode/q4_0", "decode/float32"]
    assert [row.ratio for row in found.rows] == pytest.approx([2, 2])
    assert found.left_out == {"decode/same-file": "llama.cpp ended with code 3"}
    assert said == ["decode: llama.cpp ended with code 3 (Error: /secret)"]
    # Ours is started again after the row that failed, and then kept for the other two.
    assert field.started == [rows.OURS, rows.LLAMA, rows.OURS, rows.LLAMA_Q4_0, rows.FLOAT32]
    assert len(turns) == 1 + 2 * 6  # ours of the lost row; then a warm-up and two rounds, twice
    assert "secret" not in json.dumps(found.left_out)


def test_what_is_missing_is_said_once_and_its_rows_are_left_out(field, tmp_path):
    field.table |= {rows.OURS: Answering("ours", TURN), rows.FLOAT32: Answering("f", TURN)}
    why = "llama.cpp is not installed; bench/README.md says how to get it"
    field.lacking |= {rows.LLAMA: why, rows.LLAMA_Q4_0: why}
    said = []
    found = run.run(settings(tmp_path), ["decode"], say=said.append)
    assert [row.key for row in found.rows] == ["decode/float32"]
    assert said == [f"{why} (2 rows left out)"]


def test_core_rows_first_show_that_both_compute_the_same(field, tmp_path):
    def core(digest, seconds):
        return lambda case: {"digest": digest} if case[0] == "check" else {"seconds": seconds}

    field.table |= {
        rows.CORE: Answering("core", core([1.0, -2.0], 2e-6)),
        rows.TORCH: Answering("torch", core([1.0, -2.00001], 6e-6)),
        rows.NUMPY: Answering("NumPy", core([1.0, 2.0], 1e-6)),
    }
    names = ["core/attend-64-torch", "core/attend-64-numpy"]
    found = run.run(settings(tmp_path), names)
    assert [(row.key, row.ratio) for row in found.rows] == [(names[0], pytest.approx(3))]
    assert found.left_out == {names[1]: "core and NumPy compute different numbers"}
    assert field.table[rows.TORCH].asked[0] == ("check", "attend", "64")


def test_memory_is_measured_in_fresh_processes_and_once(field, tmp_path):
    field.table |= {
        rows.OURS: Answering("ours", dict(TURN, bytes=2e8)),
        rows.FLOAT32: Answering("f", TURN),
        rows.FILE: Fixed("file", {"bytes": 1e8}),
    }
    found = run.run(settings(tmp_path), ["decode/float32", "memory/file"])
    assert field.started == [
        rows.OURS,
        rows.FLOAT32,
        rows.FILE,  # and ours, still running: a turn to compile, and then both start anew
        rows.OURS,
        rows.FILE,
    ]
    assert found.rows[1].ratios == pytest.approx([0.5])


def test_accuracy_is_judged_by_the_float32_pass(field, tmp_path):
    true = np.log([[0.5, 0.25, 0.25], [0.125, 0.75, 0.125]])
    near = np.log([[0.25, 0.5, 0.25], [0.125, 0.75, 0.125]])

    def writes(logits):
        def answer(case):
            np.save(case[1], logits.astype(np.float32))
            return {"tokens": len(logits)}

        return answer

    field.table |= {
        rows.OURS: Answering("ours", writes(near)),
        rows.LLAMA: Answering("llama.cpp", writes(true + 3.0)),  # a shift of logits is nothing
        rows.FLOAT32: Answering("f", writes(true)),
    }
    found = run.run(settings(tmp_path), ["accuracy"])
    kl, top = found.rows
    # Row 0: 0.5 log(0.5 / 0.25) + 0.25 log(0.25 / 0.5) = 0.25 log 2; row 1: 0; the mean of both.
    # float32 logits near 1 carry 1e-7.
    assert kl.ours == pytest.approx([0.125 * math.log(2)], abs=1e-6)
    assert kl.peer == pytest.approx([0.0], abs=1e-6)
    assert (top.ours, top.peer) == ([50.0], [100.0])
    assert [len(field.table[name].asked) for name in (rows.OURS, rows.FLOAT32)] == [1, 1]


def test_divergence_of_other_shapes_is_refused():
    with pytest.raises(CourseError, match=r"other should have the shape \(2, 3\); it has \(3, 2\)"):
        run.divergence(np.zeros((2, 3)), np.zeros((3, 2)))


# --- the roofline --------------------------------------------------------------------------------

CONFIG = LlamaConfig(
    L=2, d=6, H=4, H_kv=2, d_head=3, d_ff=10, vocabulary=50, context=32, rope_base=1e4, eps=1e-5
)


def test_work_is_counted_by_hand():
    # A layer: W_Q 6·12, W_K and W_V 6·6 each, W_O 12·6, three of 6·10. The head: 50·6.
    layer = 72 + 36 + 36 + 72 + 180
    assert work.weights_of_layer(CONFIG) == layer
    # Attention of 4 heads of width 3 in 2 layers, q Kᵀ and α V: 48 for each key that a query meets.
    assert work.multiply_adds(CONFIG, 1, 7) == 2 * layer + 48 * 8 + 300
    assert work.multiply_adds(CONFIG, 3) == 3 * 2 * layer + 48 * (1 + 2 + 3) + 300
    assert work.cache_bytes(CONFIG, 5, 2) == 2 * 2 * 2 * 3 * 5 * 2
    assert work.float32_bytes(CONFIG) == 4 * (2 * layer + 300)


def measured(key, unit, ours, peer, names):
    group = key.split("/")[0]
    sides = (Side(name) for name in names)
    return kept.measured(Row(key, group, group, unit, *sides), [(ours, peer)])


def some_results():
    found = Results({"cores": 2}, {"numpy": "2.0"}, {"rounds": 1})
    read = {"bytes": 8e9, "seconds": 0.5}
    peak = {"multiply_adds": 4e9, "seconds": 0.02}
    decode = dict(TURN, cached=6000)
    found.rows = [
        measured("decode/float32", "tokens/s", decode, dict(TURN, seconds=2.0, bytes=1.6e10),
                 (rows.OURS, rows.FLOAT32)),
        measured("limits/decode", "GB/s", decode, read, (rows.OURS, rows.LIMIT)),
        measured("limits/prefill", "G multiply-adds/s", decode, peak, (rows.OURS, rows.LIMIT)),
    ]  # fmt: skip
    found.left_out = {"decode/q4_0": "llama.cpp is not installed"}
    roofline.fill(found, {})
    return found


def test_points_and_roofs_come_from_the_rows():
    found = some_results()
    assert found.bandwidth == pytest.approx(16e9)
    assert found.peaks == {"float32": pytest.approx(2e11)}
    assert found.points == [
        Point("ours, decode", 1.25, 1.6e10),
        Point("float32 pass, decode", 0.5, 4e9),
    ]


def test_the_bytes_of_a_peer_are_its_file_once_for_a_pass_and_its_cache(monkeypatch):
    class Info:
        def __init__(self, nbytes):
            self.data = np.zeros(nbytes, np.uint8)

    class File:
        class tensors:
            infos = {"token_embd.weight": Info(100), "blk.0.attn_q.weight": Info(40)}  # noqa: RUF012

    monkeypatch.setattr("lib.engine.config.read_config", lambda file: CONFIG)
    answer = {"passes": 3, "cached": 10}
    assert roofline._bytes(answer, File) == 3 * 140 + 2 * 2 * 2 * 3 * 10 * 2
    File.tensors.infos["output.weight"] = Info(7)  # then the embedding is only looked up
    assert roofline._bytes(answer, File) == 3 * 47 + 480


def test_the_picture_shows_roof_and_points():
    found = some_results()
    from lib.lab.figures.bench import roofline as draw

    (axis,) = draw(found.bandwidth, found.peaks, found.points).axes
    roof, *points = axis.lines
    x, y = roof.get_data()
    np.testing.assert_allclose(y, np.minimum(16e9 * x, 2e11))
    assert [point.get_xydata().tolist() for point in points] == [[[1.25, 1.6e10]], [[0.5, 4e9]]]
    assert {text.get_text() for text in axis.texts} == {
        "memory: 16.0 GB/s",
        "float32 peak: 200 G/s",
    }
    draw(16e9, {}, [])  # a machine alone


# --- what is written -----------------------------------------------------------------------------


def test_results_survive_the_file(tmp_path):
    found = some_results()
    paths = kept.store(found, tmp_path / "new" / "folder")
    assert [path.name for path in paths] == ["bench.json", "roofline.png"]
    assert kept.read(paths[0]) == found
    data = json.loads(paths[0].read_text(encoding="utf-8"))
    assert data["rows"][0]["ratio"] == pytest.approx(4)
    assert data["rows"][0]["answers"][0][0]["seconds"] == 0.5  # what was measured, as it came


def test_results_name_neither_machine_nor_path(monkeypatch):
    for module, name in ((platform, "node"), (socket, "gethostname")):
        monkeypatch.setattr(module, name, lambda: "the-name-of-this-machine")
    text = json.dumps([kept.this_machine(), kept.these_versions()])
    assert "the-name-of-this-machine" not in text
    assert str(Path.home()) not in text
    assert sys.prefix not in text


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"form": 99}', '{"form": 1, "rows": [{}]}'])
def test_a_file_of_another_kind_is_refused(tmp_path, text):
    path = tmp_path / "bench.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CourseError, match="should be a file that this `course bench` wrote"):
        kept.read(path)
    with pytest.raises(CourseError, match="can't be read"):
        kept.read(tmp_path / "absent.json")


# --- the command ---------------------------------------------------------------------------------


def test_the_command_prints_and_writes(monkeypatch, tmp_path, capsys):
    asked = {}

    def fake(settings, names, begin, after_turn, say):
        asked.update(settings=settings, names=names)
        say("torch is not installed (9 rows left out)")
        return some_results()

    monkeypatch.setattr(run, "run", fake)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(BENCH.parent)
    code = cli.main(["bench", "decode", "--quick", "--rounds", "9", "--out", str(tmp_path)])
    out, err = capsys.readouterr()
    assert code == 0
    assert asked["names"] == ["decode"]
    assert (asked["settings"].rounds, asked["settings"].quick) == (3, True)
    assert asked["settings"].peers == sys.executable
    assert err == "course: torch is not installed (9 rows left out).\n"
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines()]
    assert ["decode, tokens/s", "128", "float32 pass", "32.0", "4.00 ×", "4.00 to 4.00"] in cells
    assert (tmp_path / "bench.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rounds", "0"], "--rounds should be at least 1; it is 0"),
        (["--threads", "-2"], "--threads should be at least 1; it is -2"),
        (["--peers", "no/such/python"], "--peers should be the path of a Python"),
        (["nonsense"], "ROWS should be among decode, prefill"),
    ],
)
def test_wrong_arguments_are_named(monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(BENCH.parent)
    assert cli.main(["bench", *arguments]) == cli.WRONG_INPUT
    assert words in capsys.readouterr().err


def test_without_the_folder_it_says_so(tmp_path):
    with pytest.raises(CourseError, match="folder bench is not here"):
        run.find_folder(tmp_path)
    assert run.find_folder(BENCH.parent) == BENCH


def test_the_python_of_the_peers(monkeypatch, tmp_path):
    there = tmp_path / "python"
    there.touch()
    monkeypatch.delenv(run.PEERS, raising=False)
    assert run.peers_python(None) == sys.executable
    monkeypatch.setenv(run.PEERS, str(there))
    assert run.peers_python(None) == str(there)
    assert run.peers_python(sys.executable) == sys.executable
    monkeypatch.setenv(run.PEERS, str(tmp_path / "gone"))
    with pytest.raises(CourseError, match="COURSE_PEERS should be the path of a Python"):
        run.peers_python(None)


def test_probing_finds_what_a_python_has():
    found = run.probe(sys.executable)
    assert found["numpy"] == np.__version__
    with pytest.raises(CourseError, match="should be a Python that runs"):
        run.probe(str(BENCH / "README.md"))


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (0.00384, "0.00384"), (2.345, "2.35"), (128.4, "128"), (12345.6, "12346")],
)
def test_numbers_have_three_digits(number, text):
    assert cli._three_digits(number) == text


# --- the contestants of the course ---------------------------------------------------------------


def test_numpy_computes_what_the_core_computes():
    command = [sys.executable, str(BENCH / "core_numpy.py"), "1"]
    core = [sys.executable, str(BENCH / "core_ours.py"), "1"]
    ours, numpy = Process("core", core, 1), Process("NumPy", command, 1)
    try:
        for case in (("attend", "9"), ("attend_causal", "7"), ("product", "3", "5", "2")):
            a, b = (side.ask(("check", *case), 100)["digest"] for side in (ours, numpy))
            # Sums of at most 64 products of normal numbers in float32: 64 · 6e-8, some of it √.
            np.testing.assert_allclose(a, b, atol=1e-5)
    finally:
        ours.close()
        numpy.close()


class FakeEngine:
    """An engine whose context is a list, and whose next token is one more than the last."""

    def __init__(self):
        self.calls, self.tokens = [], []

    def start(self, room):
        self.calls.append(("start", room))
        self.tokens = []

    def feed(self, tokens):
        self.calls.append(("feed", tokens))
        self.tokens += tokens

    def best(self):
        return self.tokens[-1] + 1

    def forget(self, n):
        del self.tokens[n:]

    def branch(self, tokens, count, n):
        self.calls.append(("branch", tokens, count, n))

    def feed_each(self, tokens):
        self.calls.append(("feed_each", tokens))

    def write(self, tokens, n, guess):
        self.calls.append(("write", tokens, n, guess))
        return 2.5


def cases_of(engine, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(BENCH)
    import engine_cases

    tokens = tmp_path / "tokens.json"
    tokens.write_text("[10, 20, 30]", encoding="utf-8")
    caught = {}
    monkeypatch.setattr(engine_cases, "serve", caught.update)
    engine_cases.compete(engine, tokens)
    return caught


def test_a_decode_feeds_the_likeliest_token_after_a_prompt(monkeypatch, tmp_path):
    engine = FakeEngine()
    found = cases_of(engine, monkeypatch, tmp_path)["decode"]("5", "3")
    assert engine.calls == [
        ("start", 8),
        ("feed", [10, 20, 30, 10, 20]),
        ("feed", [21]),
        ("feed", [22]),
        ("feed", [23]),
    ]
    # Each token reads the cache with itself in it: 6 + 7 + 8.
    assert (found["tokens"], found["passes"], found["cached"]) == (3, 3, 21)


def test_a_context_is_filled_once_and_its_end_run_again(monkeypatch, tmp_path):
    engine = FakeEngine()
    context = cases_of(engine, monkeypatch, tmp_path)["context"]
    context("6", "2")
    found = context("6", "2")
    once = [("start", 6), ("feed", [10, 20, 30, 10])]
    again = [("feed", [20]), ("feed", [30])]
    assert engine.calls == once + again + again
    assert engine.tokens == [10, 20, 30, 10, 20, 30]
    assert (found["tokens"], found["cached"]) == (2, 11)


def test_a_prefill_is_one_pass(monkeypatch, tmp_path):
    engine = FakeEngine()
    found = cases_of(engine, monkeypatch, tmp_path)["prefill"]("4")
    assert engine.calls == [("start", 4), ("feed", [10, 20, 30, 10])]
    assert (found["tokens"], found["passes"], found["cached"]) == (4, 1, 4)


def test_several_texts_get_a_token_each_in_a_pass(monkeypatch, tmp_path):
    engine = FakeEngine()
    found = cases_of(engine, monkeypatch, tmp_path)["many"]("2", "4", "3")
    begin, *passes = engine.calls
    assert begin == ("branch", [10, 20, 30, 10], 2, 3)
    assert passes == [("feed_each", [10, 20]), ("feed_each", [20, 30]), ("feed_each", [30, 10])]
    assert found["tokens"] == 6


def test_a_copy_stands_twice_and_a_story_once(monkeypatch, tmp_path):
    engine = FakeEngine()
    write = cases_of(engine, monkeypatch, tmp_path)["write"]
    assert write("copy", "5", "auto") == {"tokens": 5, "seconds": 2.5}
    write("story", "5", "none")
    (_, copied, *more), (_, story, *plain) = engine.calls
    assert copied[:100] == copied[100:200]
    assert copied[200:] == copied[:8]
    assert (more, story, plain) == ([5, "auto"], [10, 20, 30], [5, None])


# --- the limits ----------------------------------------------------------------------------------


def test_the_kernels_of_the_limits_do_the_work_that_is_counted():
    from lib.bench import limits

    x = np.arange(-100, 92, dtype=np.float32)
    assert limits._read(x) == x.sum()  # whole numbers below 2²⁴: exact in any order
    y = np.linspace(-1, 1, 64, dtype=np.float32)
    expected = y.astype(np.float64)
    for _ in range(2 * limits.STEPS):
        expected = expected * 0.75 + 0.5
    limits._multiply_add(y, np.float32(0.75), np.float32(0.5), 2)
    np.testing.assert_allclose(y, expected, rtol=1e-5)  # 32 steps, 6e-8 each, and room

    rng = np.random.default_rng(0)
    w = rng.integers(0, 16, 1024).astype(np.uint8)
    v = rng.integers(-127, 128, 256).astype(np.int8)
    sums = w.reshape(-1, 1, 64).astype(int) * v.reshape(1, 4, 64)
    assert limits._dot_bytes(w, v.view(np.uint8), 3) == 3 * sums.sum()


def test_limits_count_their_work(monkeypatch):
    from lib.bench import limits

    monkeypatch.setattr(limits, "READ_BYTES", 1_000_000)
    found = limits.read_bandwidth(3, passes=2)
    assert found["bytes"] == 4 * (1_000_000 // 4 // 3 // 64 * 64) * 3 * 2
    assert found["seconds"] > 0
    assert limits.multiply_add_peak(2, rounds=5)["multiply_adds"] == 1024 * 16 * 5 * 2
    assert limits.multiply_add_peak(2, "int8", 5)["multiply_adds"] == 4 * 8192 * 5 * 2
    for call, words in (
        (lambda: limits.read_bandwidth(0), "threads should be at least 1; it is 0"),
        (lambda: limits.read_bandwidth(1, 0), "passes should be at least 1; it is 0"),
        (lambda: limits.multiply_add_peak(1, "int4"), "kind should be 'float32' or 'int8'"),
    ):
        with pytest.raises(CourseError, match=words):
            call()
