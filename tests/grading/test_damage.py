"""Random damage to a submission: never a crash, never a point that was not earned."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lib.exercises import answers, program, questions
from lib.exercises.judging import NOT_JUDGED, UNANSWERED
from lib.exercises.verdicts import Rules
from lib.grading import batch, collect, confine
from tests.exercises.making import ROOT, answered

EXERCISES = questions.read(ROOT, ["01", "04"])
# What an intact copy earns: some of its answers are right, some are not.
MINE = {
    "01": answered("01", one_query='attention_order = "B C E F A D"', next_token="x = 1"),
    "04": answered("04", scores="def scores(q, K):\n    return K @ q"),
}
LITTLE = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just([]) | st.just({})
RULES = Rules(confine.Confined())


def places(value, path=()):
    """Return the paths to everything in a value of JSON."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in inner:
        yield (*path, key)
        if isinstance(item, dict | list):
            yield from places(item, (*path, key))


def inside(value, path):
    for key in path[:-1]:
        value = value[key]
    return value, path[-1]


def drop(draw, notebook):
    found = list(places(notebook))
    if found:
        holder, key = inside(notebook, draw(st.sampled_from(found)))
        del holder[key]


def retype(draw, notebook):
    found = list(places(notebook))
    if found:
        holder, key = inside(notebook, draw(st.sampled_from(found)))
        holder[key] = draw(LITTLE)


def reorder(draw, notebook):
    if isinstance(notebook.get("cells"), list):
        notebook["cells"] = draw(st.permutations(notebook["cells"]))


def repeat(draw, notebook):
    if isinstance(notebook.get("cells"), list) and notebook["cells"]:
        some = draw(st.sampled_from(notebook["cells"]))
        notebook["cells"].insert(draw(st.integers(0, 40)), json.loads(json.dumps(some)))


def cut(draw, data):
    start = draw(st.integers(0, len(data)))
    return data[:start] + data[start + draw(st.integers(0, 2000)) :]


def flip(draw, data):
    at = draw(st.integers(0, len(data) - 1)) if data else 0
    return data[:at] + bytes([draw(st.integers(0, 255))]) + data[at + 1 :]


@st.composite
def damaged(draw, number):
    """Draw the bytes of a notebook that has suffered."""
    notebook = json.loads(json.dumps(MINE[number]))
    for change in draw(st.lists(st.sampled_from([drop, retype, reorder, repeat]), max_size=6)):
        change(draw, notebook)
    data = json.dumps(notebook, ensure_ascii=draw(st.booleans())).encode("utf-8", "replace")
    for change in draw(st.lists(st.sampled_from([cut, flip]), max_size=1)):
        data = change(draw, data)
    return data


def rows_of(data, number):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"{number}_notebook.ipynb")
        path.write_bytes(data)
        handed = collect.collect("anna", path, EXERCISES)
    exercises = {number: EXERCISES[number]}
    return handed, batch.judge_handed(handed, exercises, RULES)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(damaged("01"))
def test_a_damaged_notebook_of_literals_earns_no_more_than_the_whole(data):
    _, whole = rows_of(json.dumps(MINE["01"]).encode(), "01")
    assert [row.points for row in whole] == [0, 1, 1, 0, 1]
    handed, rows = rows_of(data, "01")
    for row, intact in zip(rows, whole, strict=True):
        assert row.points <= intact.points, row
        assert row.points or row.message or row.verdict == UNANSWERED or handed.notes


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(damaged("04"))
def test_code_of_a_damaged_notebook_is_what_its_owner_wrote(data):
    """Without running it: of each answer that is found, every line stood in the notebook."""
    handed, _ = rows_of(data, "04")
    for question in EXERCISES["04"].questions:
        if "04" in handed.cells:
            found = answers.find(question, EXERCISES["04"], handed.cells["04"])
            own = {line for cell in handed.cells["04"] for line in cell.source.split("\n")}
            assert set(found.source.split("\n")) <= own | {""}
            program.support([found.source], EXERCISES["04"].cells, own)


@pytest.fixture(autouse=True)
def _nothing_is_run(monkeypatch):
    monkeypatch.setattr(confine, "available", lambda: "")


def test_where_nothing_confines_a_process_functions_are_not_run():
    _, rows = rows_of(json.dumps(MINE["04"]).encode(), "04")
    assert {(row.verdict, row.points) for row in rows} == {(NOT_JUDGED, 0.0)}
    assert "--unconfined" in rows[0].message
