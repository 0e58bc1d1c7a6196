"""Rows 17 to 26 of the known faults: one batch, each beside a right and a half-right submission."""

import copy
import re
import socket
import tempfile
from pathlib import Path

import numpy as np
import psutil
import pytest

from lib.exercises import verdicts
from lib.exercises.judging import MALFORMED, MISSING, NOT_HANDED_IN, UNANSWERED
from lib.exercises.running import remote
from lib.grading import batch, confine
from tests.exercises.making import ROOT, answered, cell, handed_out, put, solved

RIGHT_SCORES = "q @ K.T / np.sqrt(len(q))"
WRONG = 'attention_order = "D F E C A B"'

LIES = """
class Always(str):
    def __eq__(self, other): return True
    __hash__ = None
attention_order = Always("D")
print("01.one_query: right.")
"""
PATCHED = """
import builtins, sys, numpy
class Always(numpy.ndarray):
    def __eq__(self, other): return True
    def __sub__(self, other): return numpy.zeros(1)
    __rsub__ = __le__ = __abs__ = __sub__
numpy.abs = numpy.array_equal = numpy.allclose = lambda *a, **k: True
builtins.abs = lambda x: 0
for module in list(sys.modules.values()):
    for name in ("check", "_close", "judge", "receive", "encode"):
        if hasattr(module, name):
            setattr(module, name, lambda *a, **k: True)
def scores(q, K):
    print("04.scores: right.")
    return numpy.zeros(len(K)).view(Always)
"""


def tries(intrusion):
    """Return an answer to 04.scores that is right only where an intrusion succeeds."""
    body = "\n".join(f"    {line}" for line in intrusion.strip().split("\n"))
    return f"def scores(q, K):\n{body}\n    return {RIGHT_SCORES}"


INTRUSIONS = {
    "reads the solutions": f"open({str(ROOT / 'solutions/04_build_attention.ipynb')!r}).read()",
    "reads the keys": f"open({str(ROOT / 'lib/exercises/t04_build_attention.py')!r}).read()",
    "reads what others handed in": "assert any(__import__('pathlib').Path(SUBMISSIONS).iterdir())",
    "writes into lib": f"open({str(ROOT / 'lib/left_behind.py')!r}, 'w').write('x')",
    "writes beside Python": "import sys\nopen(sys.prefix + '/left_behind', 'w').write('x')",
    "uses the network": "import socket\nsocket.create_connection(('127.0.0.1', PORT), 2)",
    "starts a process": "import subprocess\nsubprocess.run(['sleep', '987'])",
    "forks": "import os\nif os.fork() == 0:\n    os.setsid()\n    while True: pass",
    "finds what was left": "assert open('/tmp/left_behind').read()",
    "becomes another": "import os\nos.execv('/bin/sh', ['sh', '-c', 'sleep 987'])",
    "sees other processes": "import os\nassert {int(p) for p in os.listdir('/proc') if p.isdigit()}"
    " - {1, os.getpid()}",
    "mounts": "import ctypes\nassert ctypes.CDLL(None).mount(b'x', b'/tmp', b'tmpfs', 0, 0) == 0",
    "fills the disk": "open('/tmp/large', 'wb').write(bytes(10**8))",
}
LEFT = "assert open('/tmp/left_behind').read()"
EVERYTHING = """
def scores(q, K):
    for code in {!r}:
        try:
            exec(code)
            return q @ K.T / np.sqrt(len(q))
        except Exception:
            continue
    raise RuntimeError("none of them succeeds")
"""
LEAVES = tries("open('/tmp/left_behind', 'w').write('x')")
HANGS = {
    "endless loop": "def scores(q, K):\n    while True: pass",
    "endless print": "def scores(q, K):\n    while True: print('scores ' * 999)",
    "leaves by the back door": "import os\ndef scores(q, K):\n    os._exit(0)",
    "kills its kernel": "import os\ndef scores(q, K):\n    os.kill(os.getpid(), 9)",
    # Not written to, so that it meets the limit on memory before that on time.
    "memory bomb": "def scores(q, K):\n    return [np.empty(10**7) for _ in range(10**4)]",
    "deaf to Ctrl-C": """
import signal
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
while True: pass
""",
}


def copied(notebook):
    """Copy a graded cell, as editors do: with its marks, and with a change."""
    twin = copy.deepcopy(cell(notebook, "01.one_query"))
    twin["source"] = WRONG
    notebook["cells"].append(twin)
    return notebook


def without_check(how):
    """Return a wrong answer whose check was put out of the way."""
    notebook = answered("01", one_query=WRONG)
    check = cell(notebook, "01.one_query", "check")
    if how == "deleted":
        notebook["cells"].remove(check)
    elif how == "Markdown":
        check["cell_type"] = "markdown"
    elif how == "caught":
        check["source"] = f"try:\n    {check['source']}\nexcept Exception: pass"
    else:
        check["metadata"]["tags"] = [how]
    return notebook


def saved_as_right(notebook):
    """Store the line of a right answer beside a wrong one, as an old run leaves it."""
    check = cell(notebook, "01.one_query", "check")
    check["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "01.one_query: right."}]
    check["execution_count"] = 7
    return notebook


NO_NOTEBOOK = {
    "empty file": b"",
    "bad JSON": b'{"cells": [',
    "conflict": b'<<<<<<< HEAD\n{"cells": []}\n=======\n{}\n>>>>>>> theirs\n',
    "no object": b"[1, 2]",
    "binary": bytes(range(256)),
    "no cells": b'{"nbformat": 9, "worksheets": []}',
}
HOW = ("deleted", "Markdown", "caught", "skip-execution", "raises-exception", "nbval-skip")
WIDGET = 'attention_order = order_widget(ONE_QUERY, "attention_order").value'


def make(folder):
    """Write all submissions; the first one that is graded, by its name, is one that hangs."""
    put(folder / "right" / "01_ordering.ipynb", solved("01"))
    put(folder / "right" / "04_build_attention.ipynb", solved("04"))
    put(folder / "half" / "01_ordering.ipynb", answered("01", one_query=WRONG, one_layer="x = 1"))
    half = {"scores": "def scores(q, K): return K @ q", "softmax": "def softmax(scores): ..."}
    put(folder / "half" / "04_build_attention.ipynb", answered("04", **half))
    put(folder / "nothing" / "01_ordering.ipynb", handed_out("01"))
    first = HANGS["endless loop"]
    put(folder / "0 hangs first.ipynb", answered("04", scores=first))
    put(folder / "17 saved.ipynb", saved_as_right(answered("01", one_query=WRONG)))
    for how in HOW:
        put(folder / f"18 {how}.ipynb", without_check(how))
    put(folder / "19 copied.ipynb", copied(solved("01")))
    (folder / "20 empty folder").mkdir()
    for what, data in NO_NOTEBOOK.items():
        (folder / f"20 {what}").mkdir()
        (folder / f"20 {what}" / "01_ordering.ipynb").write_bytes(data)
    put(folder / "20 right with a mark.ipynb", solved("01"))
    text = (folder / "20 right with a mark.ipynb").read_bytes()
    (folder / "20 right with a mark.ipynb").write_bytes(b"\xef\xbb\xbf" + text)
    for what, source in HANGS.items():
        if source == first:
            continue
        put(folder / f"21 {what}.ipynb", answered("04", scores=source))
    put(folder / "22 lies.ipynb", answered("01", one_query=LIES))
    put(folder / "22 patched.ipynb", answered("04", scores=PATCHED))
    put(folder / "23 widget.ipynb", answered("01", one_query=WIDGET))
    warns = "import sys, warnings\nwarnings.warn('x')\nprint('x', file=sys.stderr)\n"
    put(folder / "25 warns.ipynb", answered("04", scores=warns + tries("np.log(0.0 * q)")))
    put(folder / "26 leaves.ipynb", answered("04", scores=LEAVES))
    put(folder / "26 sees what was left.ipynb", answered("04", scores=tries(LEFT)))
    every = [code for what, code in INTRUSIONS.items() if what not in ("forks", "becomes another")]
    every = [c.replace("SUBMISSIONS", repr(str(folder))).replace("PORT", "22") for c in every]
    put(folder / "26 tries everything.ipynb", answered("04", scores=EVERYTHING.format(every)))


@pytest.fixture(scope="module")
def batch_of_all(tmp_path_factory):
    if not confine.available():
        pytest.skip("nothing here confines a process")
    base = tmp_path_factory.mktemp("class")
    make(base / "handed in")
    before = set(Path(tempfile.gettempdir()).glob("grading-*")), _lib(), _children()
    rules = verdicts.Rules(confine.Confined(), seconds=1, patience=4)
    graded = batch.grade(base / "handed in", base / "out", ROOT, rules=rules)
    after = set(Path(tempfile.gettempdir()).glob("grading-*")), _lib(), _children()
    return graded, before, after, base / "out"


def _lib():
    return {path for path in (ROOT / "lib").rglob("*") if "__pycache__" not in path.parts}


def _children():
    return {p.pid for p in psutil.Process().children(recursive=True)}


@pytest.fixture
def rows(batch_of_all):
    graded = batch_of_all[0]
    return lambda student: {row.task: row for row in graded.rows[student]}


@pytest.fixture
def notes(batch_of_all):
    return lambda student: "\n".join(batch_of_all[0].handed[student].notes)


def points(rows, number):
    return [row.points for task, row in rows.items() if task.startswith(number)]


def test_right_and_half_right_get_what_they_earned(rows):
    assert points(rows("right"), "01") == [1, 1, 1, 1, 1]
    assert points(rows("right"), "04") == [1] * 6
    assert points(rows("half"), "01") == [0, 0, 1, 1, 1]
    # The other four are built on these two: what they call is not right yet.
    assert points(rows("half"), "04") == [0] * 6
    assert [row.verdict for row in rows("half").values()][:2] == [verdicts.WRONG, MALFORMED]
    assert rows("half")["04.softmax"].verdict == UNANSWERED
    words = {row.verdict for task, row in rows("nothing").items() if task[:2] == "01"}
    assert words == {UNANSWERED}


def test_17_a_wrong_answer_saved_as_right_fails(rows):
    assert points(rows("17 saved"), "01") == [0, 1, 1, 1, 1]


@pytest.mark.parametrize("how", HOW)
def test_18_a_check_out_of_the_way_hides_nothing(rows, how):
    assert points(rows(f"18 {how}"), "01") == [0, 1, 1, 1, 1]
    if how in ("deleted", "Markdown"):
        assert "01-one_query-check" in rows(f"18 {how}")["01.one_query"].message


def test_19_a_copied_cell_is_reported(rows):
    assert points(rows("19 copied"), "01") == [0, 1, 1, 1, 1]
    assert "2 cells give `attention_order` different" in rows("19 copied")["01.one_query"].message


SAYS = {
    "empty folder": "No notebook of an exercise was found",
    "empty file": "is empty. Save your notebook",
    "bad JSON": "cut off or damaged at line 1",
    "conflict": "conflict markers of an unfinished git merge",
    "no object": "is no notebook, though it is called one",
    "binary": "no clean UTF-8",
    "no cells": "it has no cells",
}


@pytest.mark.parametrize("what", SAYS)
def test_20_what_cannot_be_read_is_reported_in_words(rows, notes, what):
    assert not any(points(rows(f"20 {what}"), ""))
    assert SAYS[what] in notes(f"20 {what}")
    word = NOT_HANDED_IN if what == "empty folder" else MISSING
    assert rows(f"20 {what}")["01.one_query"].verdict == word


def test_20_a_byte_order_mark_costs_nothing(rows, notes):
    assert points(rows("20 right with a mark"), "01") == [1, 1, 1, 1, 1]
    assert "byte-order mark" in notes("20 right with a mark")


@pytest.mark.parametrize("what", HANGS)
def test_21_what_does_not_end_is_ended_and_the_others_are_judged(rows, what):
    found = rows("0 hangs first" if what == "endless loop" else f"21 {what}")
    assert found["04.scores"].points == 0
    assert found["04.softmax"].points == 1
    assert found["04.last_queries"].points == 1
    if what in ("endless loop", "endless print"):
        assert "it took longer than 1 s" in found["04.scores"].message
    elif what in ("leaves by the back door", "kills its kernel"):
        assert "its process ended" in found["04.scores"].message
    elif what == "memory bomb":
        assert "MemoryError" in found["04.scores"].message


def test_22_neither_lies_nor_patches_gain_a_point(rows):
    assert points(rows("22 lies"), "01") == [0, 1, 1, 1, 1]
    assert "it is of type Always" in rows("22 lies")["01.one_query"].message
    assert rows("22 patched")["04.scores"].points == 0


def test_23_an_answer_in_a_widget_gets_a_clear_word(rows):
    assert points(rows("23 widget"), "01") == [0, 1, 1, 1, 1]
    assert "The cell is the answer" in rows("23 widget")["01.one_query"].message


def test_24_where_the_first_one_hangs_every_other_score_is_kept(batch_of_all, rows):
    assert next(iter(batch_of_all[0].rows)) == "0 hangs first"
    assert points(rows("0 hangs first"), "04")[:2] == [0, 1]
    assert points(rows("right"), "04") == [1] * 6


def test_25_a_warning_is_no_fault(rows):
    assert points(rows("25 warns"), "04") == [1] * 6


def test_26_nothing_is_left_behind(batch_of_all, rows):
    _, before, after, _ = batch_of_all
    assert rows("26 leaves")["04.scores"].points == 1  # it may write where nobody else looks
    assert rows("26 sees what was left")["04.scores"].points == 0
    assert "none of them succeeds" in rows("26 tries everything")["04.scores"].message
    # The worker's own files stay until this process ends, and so do those of other tests.
    new = {path.name for path in after[0] - before[0]}
    assert not [name for name in new if not name.startswith("grading-worker-")]
    assert after[1] == before[1]
    assert after[2] == before[2]
    assert not Path(tempfile.gettempdir(), "left_behind").exists()


def test_the_files_of_results_hold_all_of_them(batch_of_all):
    graded, _, _, out = batch_of_all
    lines = (out / "results.csv").read_text(encoding="utf-8")
    assert lines.startswith('"student","task","points","verdict","message"\n')
    assert len(list((out / "reports").glob("*.html"))) == len(graded.rows)


@pytest.mark.parametrize("method", confine.methods())
def test_26_intrusions_fail(method, monkeypatch, tmp_path):
    """All of them in one notebook: each is the answer to 04.scores in its turn."""
    try:
        monkeypatch.setattr(confine, "available", lambda: method)
        session = verdicts._Process(verdicts.Rules(confine.Confined(), seconds=5), False, {})
        session.session.wait_until_ready()
    except (OSError, remote.Gone):
        pytest.skip(f"{method} does not work here")
    put(tmp_path / "handed in" / "somebody.ipynb", solved("01"))
    succeeded, said = [], {}
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for what, code in INTRUSIONS.items():
            code = code.replace("PORT", str(port)).replace("SUBMISSIONS", repr(str(tmp_path)))
            if what in ("forks", "becomes another"):
                code = code.replace("while True: pass", "os._exit(0)")
            session.session.request("cell", source=f"import numpy as np\n{tries(code)}")
            call = remote.Function(session.session, "scores")
            try:
                with session.session.within(5):
                    call(np.ones(2), np.ones((3, 2)))
                succeeded.append(what)
            except Exception as error:
                said[what] = f"{type(error).__name__} {error}"
    session.close()
    assert succeeded == []
    # Refused by the system, not stumbled over a mistake of the test's own.
    refused = "FileNotFound|Permission|OSError|Connection|AssertionError"
    assert [what for what, why in said.items() if not re.match(refused, why)] == []
    assert not (ROOT / "lib" / "left_behind.py").exists()
    assert not [
        p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", "987"]
    ]
