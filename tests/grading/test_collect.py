"""The collector reads what people really send, or says in words what is wrong."""

import copy
import os

import pytest

from lib.errors import CourseError
from lib.exercises import answers, questions, reading
from lib.exercises.judging import MALFORMED, MISSING, UNANSWERED
from lib.grading import collect
from tests.exercises.making import ROOT, answered, cell, handed_out, new_cell, put, solved

EXERCISES = questions.read(ROOT, ["01", "03", "04"])
RIGHT = 'attention_order = "B A C E F D"'


def handed(tmp_path, notebook, name="01_ordering.ipynb"):
    put(tmp_path / "anna" / name, notebook)
    return collect.collect("anna", tmp_path / "anna", EXERCISES)


def found(one, task="01.one_query"):
    exercise = EXERCISES[task[:2]]
    (question,) = (q for q in exercise.questions if q.task == task)
    return answers.find(question, exercise, one.cells[task[:2]])


def each_cell(change):
    def make(notebook):
        for c in notebook["cells"]:
            change(c)
        return notebook

    return make


def as_colab(c):
    """Colab keeps the metadata, puts an id of its own there, and drops that of the cell."""
    c["metadata"]["id"] = c.pop("id")[:3] + "Xy9"
    c["metadata"]["colab"] = {"base_uri": "…"}


def as_vs_code(c):
    """VS Code writes sources as lists of lines, with ids only where the format has them."""
    c["source"] = c["source"].splitlines(keepends=True)
    c["metadata"]["vscode"] = {"languageId": "python"}
    c.pop("id")


def without_marks(c):
    c.pop("id")
    c["metadata"] = {}


def with_windows_lines(c):
    c["source"] = c["source"].replace("\n", "\r\n")


def old(notebook):
    """Return the notebook in format 3."""
    for c in notebook["cells"]:
        if c["cell_type"] == "code":
            c["input"] = c.pop("source")
    return {"nbformat": 3, "worksheets": [{"cells": notebook["cells"], "metadata": {}}]}


def reordered(notebook):
    notebook["cells"].reverse()
    return notebook


SENT = {
    "as it is": lambda notebook: notebook,
    "Colab": each_cell(as_colab),
    "VS Code": each_cell(as_vs_code),
    "no marks at all": each_cell(without_marks),
    "Windows": each_cell(with_windows_lines),
    "format 3": old,
    "reordered": reordered,
    "format 4.0": lambda notebook: notebook | {"nbformat_minor": 0},
    "no metadata": lambda notebook: {"cells": notebook["cells"]},
}


@pytest.mark.parametrize("name", ["01_ordering.ipynb", "sub folder/Ejercicio 1 (копия).ipynb"])
@pytest.mark.parametrize("how", SENT)
def test_every_answer_is_found_however_it_was_sent(tmp_path, how, name):
    one = handed(tmp_path, SENT[how](solved("01")), name)
    assert not one.troubles
    for question in EXERCISES["01"].questions:
        got = found(one, question.task)
        assert answers.shape(got.source) == answers.shape(question.solution), got


@pytest.mark.parametrize("how", SENT)
def test_what_was_left_open_is_open_however_it_was_sent(tmp_path, how):
    one = handed(tmp_path, SENT[how](handed_out("01")))
    assert {found(one, q.task).word for q in EXERCISES["01"].questions} == {UNANSWERED}


def change(notebook, task="01.one_query"):
    return notebook, cell(notebook, task), notebook["cells"].index(cell(notebook, task))


def split(first, *rest, marked=False):
    """Split an answer cell, with the marks on the first part alone or on all of them."""

    def make():
        notebook, mine, place = change(solved("01"))
        mine["source"] = first
        for k, part in enumerate(rest, 1):
            twin = copy.deepcopy(mine) if marked else new_cell(part)
            twin |= {"source": part, "id": f"part-{k}"}
            notebook["cells"].insert(place + k, twin)
        return notebook

    return make


def retyped():
    notebook, _, place = change(handed_out("01"))
    notebook["cells"].insert(place + 1, new_cell(RIGHT, id="new"))
    return notebook


def backup():
    notebook, mine, place = change(solved("01"))
    notebook["cells"].insert(place, mine | {"source": "attention_order = ...", "id": "old"})
    return notebook


def twice_the_same():
    notebook, mine, place = change(solved("01"))
    notebook["cells"].insert(place, mine | {"source": mine["source"] + "  # again"})
    return notebook


@pytest.mark.parametrize(
    "make",
    [
        split("# The letters in order", RIGHT),
        split("# The letters in order", RIGHT, marked=True),
        split("attention_order = (", '"B A C"', '" E F D")'),
        split("attention_order = (", '"B A C E F D")', marked=True),
        split('order = "B A C E F D"', "attention_order = order"),
        retyped,
        backup,
        twice_the_same,
    ],
    ids=range(8),
)
def test_split_and_retyped_answers_are_found(tmp_path, make):
    from lib.exercises.literal import read

    one = handed(tmp_path, make())
    got = found(one)
    assert not got.word, got
    sources = [c.source for c in one.cells["01"]]
    assert read(got.source, "attention_order", sources, "a string") == "B A C E F D"


def test_a_function_torn_in_two_is_joined(tmp_path):
    notebook = solved("04")
    mine = cell(notebook, "04.softmax")
    head, _, body = mine["source"].partition("    ### BEGIN")
    mine["source"], rest = head.rstrip("\n"), "    ### BEGIN" + body
    notebook["cells"].insert(notebook["cells"].index(mine) + 1, new_cell(rest))
    one = handed(tmp_path, notebook, "04_build_attention.ipynb")
    got = found(one, "04.softmax")
    assert "return powers / powers.sum" in got.source
    assert "it was joined" in got.note


def two_answers():
    notebook, mine, place = change(solved("01"))
    notebook["cells"].insert(place, mine | {"source": 'attention_order = "D"', "id": "other"})
    return notebook


def two_scratch_cells():
    notebook, _, _ = change(handed_out("01"))
    notebook["cells"] += [new_cell(RIGHT), new_cell('attention_order = "D"')]
    return notebook


def removed():
    notebook, mine, _ = change(solved("01"))
    notebook["cells"].remove(mine)
    return notebook


def as_markdown():
    notebook, mine, _ = change(solved("01"))
    mine["cell_type"] = "markdown"
    return notebook


@pytest.mark.parametrize(
    ("make", "word", "message"),
    [
        (two_answers, MALFORMED, "2 cells give `attention_order` different values"),
        (two_scratch_cells, MALFORMED, "2 cells give `attention_order` different values"),
        (removed, MISSING, "its answer cell, 01-one_query-answer, is not in the notebook"),
        (as_markdown, MISSING, "is no code cell any more"),
        (split("# only a remark"), MALFORMED, "should give `attention_order` a value"),
    ],
    ids=range(5),
)
def test_what_cannot_be_matched_is_reported(tmp_path, make, word, message):
    got = found(handed(tmp_path, make()))
    assert (got.word, got.source) == (word, "")
    assert message in got.message


# --- Files ---------------------------------------------------------------------------------------


def test_of_two_notebooks_the_one_called_as_handed_out_counts(tmp_path):
    put(tmp_path / "anna" / "01_ordering-Copy1.ipynb", answered("01", one_query="x = 1"))
    one = handed(tmp_path, solved("01"))
    assert one.files == {"01": "01_ordering.ipynb"}
    assert "There are 2 notebooks of exercise 01" in one.notes[0]


def test_of_two_others_none_counts_unless_they_are_the_same(tmp_path):
    put(tmp_path / "anna" / "a.ipynb", solved("01"))
    same = handed(tmp_path, solved("01"), "b.ipynb")
    assert same.files == {"01": "a.ipynb"}
    one = handed(tmp_path, answered("01", one_query="x = 1"), "c.ipynb")
    assert "they differ: a.ipynb, b.ipynb, c.ipynb. Hand in one." in one.troubles["01"]
    assert one.cells == {}


def test_other_files_and_links_are_told_of(tmp_path):
    one = handed(tmp_path, solved("01"))
    (tmp_path / "anna" / "essay.pdf").write_bytes(b"%PDF")
    (tmp_path / "anna" / ".ipynb_checkpoints").mkdir()
    put(tmp_path / "anna" / ".ipynb_checkpoints" / "01_ordering-checkpoint.ipynb", {})
    put(tmp_path / "anna" / "__MACOSX" / "._01_ordering.ipynb", {})
    put(tmp_path / "secret.ipynb", solved("03"))
    pipe = hasattr(os, "mkfifo")
    if pipe:
        os.mkfifo(tmp_path / "anna" / "03_pipe.ipynb")
    try:
        (tmp_path / "anna" / "link.ipynb").symlink_to(tmp_path / "secret.ipynb")
    except OSError:
        pytest.skip("no links here")
    again = collect.collect("anna", tmp_path / "anna", EXERCISES)
    assert again.files == one.files == {"01": "01_ordering.ipynb"}
    assert sorted(again.notes) == [
        *["03_pipe.ipynb is no file with content, so it was not looked at."] * pipe,
        "essay.pdf is no notebook, so it was not looked at.",
        "link.ipynb is a link, which leads to no file of yours.",
    ]


def test_large_files_are_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "SIZE", 1000)
    one = handed(tmp_path, solved("01"))
    assert "Clear its outputs" in one.troubles["01"]


def test_broken_cells_cost_no_others(tmp_path):
    notebook = solved("01")
    notebook["cells"] = [None, {"source": 7}, {"source": ["a", 1]}, *notebook["cells"]]
    one = handed(tmp_path, notebook)
    assert "3 of its" in one.notes[0]
    assert not found(one).word


def test_students_are_called_as_they_handed_in(tmp_path):
    for name in ("Ana María", "李 雷", "Zoë", "=cmd"):
        (tmp_path / name).mkdir()
    put(tmp_path / "bob.ipynb", {})
    put(tmp_path / "Zoë.ipynb", {})
    put(tmp_path / ".DS_Store", {})
    assert list(collect.students(tmp_path)) == [
        "=cmd",
        "Ana María",
        "Zoë",
        "Zoë (2)",
        "bob",
        "李 雷",
    ]
    with pytest.raises(CourseError, match="should be a folder"):
        collect.students(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CourseError, match="SUBMISSIONS is empty"):
        collect.students(tmp_path / "empty")


def test_names_that_are_no_text_can_be_written():
    assert reading.clean("a\udcffb") == "a\ufffdb"
    assert reading.clean("a\ud800b\x1b[0m") == "a?b?[0m"


def both(tmp_path, one, other):
    put(tmp_path / "anna" / "a.ipynb", one)
    put(tmp_path / "anna" / "01_ordering.ipynb", other)
    return collect.collect("anna", tmp_path / "anna", EXERCISES)


def test_an_untouched_copy_does_not_beat_the_solved_one(tmp_path):
    found = both(tmp_path, solved("01"), handed_out("01"))
    assert found.files == {"01": "a.ipynb"}
    assert found.troubles == {}
    assert found.notes == ["01_ordering.ipynb is as it was handed out, so it does not count."]


def test_two_copies_with_the_same_answers_are_one_whatever_else_is_in_them(tmp_path):
    more = solved("01")
    more["cells"].append({"cell_type": "code", "source": "1 + 1", "metadata": {}, "outputs": []})
    found = both(tmp_path, more, solved("01"))
    assert found.troubles == {}
    assert list(found.files) == ["01"]


def without_ids(notebook):
    for one in notebook["cells"]:
        one.pop("id", None)
        one["metadata"] = {}
    return notebook


@pytest.mark.parametrize("change", [without_ids, lambda notebook: notebook])
def test_an_untouched_copy_is_known_without_its_ids_and_with_remarks(tmp_path, change):
    untouched = handed_out("01")
    cell(untouched, "01.one_query")["source"] += "\n\n# later"
    found = both(tmp_path, change(solved("01")), change(untouched))
    assert found.files == {"01": "a.ipynb"}
    assert found.notes == ["01_ordering.ipynb is as it was handed out, so it does not count."]


def test_answers_are_the_same_whatever_their_comments_and_ids(tmp_path):
    more = solved("01")
    cell(more, "01.one_query")["source"] += "  # mine"
    put(tmp_path / "anna" / "a.ipynb", without_ids(more))
    put(tmp_path / "anna" / "b.ipynb", solved("01"))
    found = collect.collect("anna", tmp_path / "anna", EXERCISES)
    assert (found.files, found.troubles, found.notes) == ({"01": "a.ipynb"}, {}, [])


def test_the_same_answers_with_another_setting_are_not_the_same(tmp_path):
    more = solved("03")
    (setting,) = (c for c in more["cells"] if c.get("id") == "03-seed-setting")
    setting["source"] = "SEED = 7"
    put(tmp_path / "anna" / "a.ipynb", more)
    put(tmp_path / "anna" / "b.ipynb", solved("03"))
    found = collect.collect("anna", tmp_path / "anna", EXERCISES)
    assert "they differ: a.ipynb, b.ipynb. Hand in one." in found.troubles["03"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes of POSIX")
def test_a_pipe_in_the_place_of_a_student_is_told_of(tmp_path):
    os.mkfifo(tmp_path / "eve.ipynb")
    (path,) = collect.students(tmp_path).values()
    found = collect.collect("eve", path, EXERCISES)
    assert found.notes[0] == "eve.ipynb is no file with content, so it was not looked at."
