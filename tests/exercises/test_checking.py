"""`course check`: answers are judged by running them, whatever is stored beside them."""

import json
import re
import shutil
import textwrap
from types import SimpleNamespace

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from lib import cli, notebooks
from lib.errors import CourseError
from lib.exercises import checking, deriving
from lib.exercises.checking import MALFORMED, MISSING, RIGHT, UNANSWERED, WRONG
from tests.exercises.wrong.t01 import RIGHT as KEY

TASKS = ["01.one_query", "01.one_layer", "01.next_token", "01.decoding_step"]
VARIABLES = {
    "01.one_query": "attention_order",
    "01.one_layer": "layer_order",
    "01.next_token": "stack_order",
    "01.decoding_step": "decoding_order",
}


@pytest.fixture
def course(tmp_path, root, monkeypatch):
    """Return the folder of a course with exercise 01 alone, and work in it."""
    for folder in (notebooks.FOLDER, notebooks.SOLUTIONS):
        (tmp_path / folder).mkdir()
    nbformat.write(new_notebook(), tmp_path / "notebooks" / "00_start.ipynb")
    shutil.copy(root / "solutions" / "01_ordering.ipynb", tmp_path / "solutions")
    deriving.store(tmp_path / "solutions" / "01_ordering.ipynb")
    monkeypatch.chdir(tmp_path)
    # Nothing is compiled here, and a kernel that finds no Numba starts in half the time.
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "numba.py").write_text("raise ImportError", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "without"))
    return tmp_path


@pytest.fixture
def mine(course):
    return course / "exercises" / "01_ordering.ipynb"


def edit(path, change):
    notebook = nbformat.read(path, as_version=4)
    change(notebook)
    nbformat.write(notebook, path)


def cell_of(notebook, task, kind):
    name = f"{task.replace('.', '-')}-{kind}"
    return next(cell for cell in notebook.cells if cell.id == name)


def answer(path, answers):
    """Write code into the answer cells; ``ANSWER`` in it stands for the variable."""

    def change(notebook):
        for task, code in answers.items():
            code = textwrap.dedent(code).strip().replace("ANSWER", VARIABLES[task])
            cell_of(notebook, task, "answer").source = code

    edit(path, change)


def judge(path, **options):
    """Return word and message by task, and see that the file is as it was."""
    before = path.read_bytes(), path.stat().st_mtime_ns
    verdicts = checking.judge(checking.read(path, path.parent.parent), **options)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert [verdict.task for verdict in verdicts] == TASKS
    return {verdict.task: (verdict.word, verdict.message) for verdict in verdicts}


# --- reading -------------------------------------------------------------------------------------


def lost(path):
    exercise = checking.read(path, path.parent.parent)
    return {question.name: question.lost for question in exercise.questions}


def remove(notebook, task, kind):
    notebook.cells.remove(cell_of(notebook, task, kind))


def to_markdown(notebook, task, kind):
    cell = cell_of(notebook, task, kind)
    text = new_markdown_cell(cell.source, id=cell.id, metadata=cell.metadata)
    notebook.cells[notebook.cells.index(cell)] = text


def tag(*tags):
    def change(notebook, task, kind):
        cell_of(notebook, task, kind).metadata["tags"] = list(tags)

    return change


def source(text):
    def change(notebook, task, kind):
        cell = cell_of(notebook, task, kind)
        cell.source = text.replace("CHECK", cell.source)

    return change


# Row 18 of the known faults, and its relatives.
HIDDEN = {
    "deleted": (remove, "check", "its check cell, 01-one_layer-check, is not in the notebook"),
    "Markdown": (to_markdown, "check", "its check cell, .*, is no code cell any more"),
    "skipped": (tag("skip-execution"), "check", "carries the tag skip-execution"),
    "nbval skips": (tag("x", "nbval-skip"), "check", "carries the tag nbval-skip"),
    "may raise": (tag("raises-exception"), "check", "carries the tag raises-exception"),
    "nbval may raise": (tag("nbval-raises-exception"), "check", "tag nbval-raises-exception"),
    "skipped by comment": (source("# NBVAL_SKIP\nCHECK"), "check", "was changed"),
    "commented out": (source("# CHECK"), "check", "was changed"),
    "caught": (source("try:\n    CHECK\nexcept Exception: pass"), "check", "was changed"),
    "no Python": (source("%%script false\nCHECK"), "check", "was changed"),
    "empty": (source(""), "check", "was changed"),
    "another answer": (source('check("01.one_layer", "E I")'), "check", "was changed"),
    "answer deleted": (remove, "answer", "its answer cell, 01-one_layer-answer, is not in"),
    "answer Markdown": (to_markdown, "answer", "its answer cell, .*, is no code cell any more"),
}


@pytest.mark.parametrize("how", HIDDEN)
def test_a_check_that_would_not_be_made_counts_as_missing_with_its_name(mine, how):
    change, kind, message = HIDDEN[how]
    edit(mine, lambda notebook: change(notebook, "01.one_layer", kind))
    found = lost(mine)
    assert re.search(message, found.pop("01.one_layer"))
    assert set(found.values()) == {""}


@pytest.mark.parametrize(
    "change", [tag(notebooks.VARYING, "mine"), source("CHECK  # still there\n")]
)
def test_a_harmless_change_of_a_check_is_none(mine, change):
    edit(mine, lambda notebook: change(notebook, "01.one_layer", "check"))
    assert set(lost(mine).values()) == {""}


def test_where_every_check_is_missing_no_kernel_is_needed(mine, monkeypatch):
    monkeypatch.setattr(notebooks, "kernel", None)
    edit(mine, lambda notebook: [remove(notebook, task, "check") for task in TASKS])
    assert {word for word, _ in judge(mine).values()} == {MISSING}


def test_cells_that_lost_their_ids_are_found_by_their_grade_ids(mine):
    def renumber(notebook):
        for number, cell in enumerate(notebook.cells):
            cell.id = f"new-{number}"

    answer(mine, {"01.one_query": "ANSWER = 'X'"})
    edit(mine, renumber)
    assert set(lost(mine).values()) == {""}
    answers = checking.read(mine, mine.parent.parent).answers
    assert next(iter(answers.values())) == "attention_order = 'X'"


def test_cells_that_lost_both_ids_are_missing_in_words(mine):
    def strip(notebook):
        for number, cell in enumerate(notebook.cells):
            cell.id = f"new-{number}"
            cell.metadata.pop("nbgrader", None)

    edit(mine, strip)
    assert all(
        "Cells are found by their ids" in why or "check" in why for why in lost(mine).values()
    )


def test_a_renamed_copy_is_known_by_its_number(mine):
    copy = mine.rename(mine.with_name("01_ordering-Copy1.ipynb"))
    assert list(lost(copy)) == TASKS


def test_without_its_solution_an_exercise_is_not_judged(mine):
    other = mine.rename(mine.with_name("09_other.ipynb"))
    with pytest.raises(CourseError, match="the folder solutions holds no notebook of its number"):
        checking.read(other, other.parent.parent)


@pytest.mark.parametrize(
    "text",
    ["check(1, x)", "check('01.a', x)", 'check("01.a", "x")', 'check("01.a", x)\ny', "# nothing"],
)
def test_a_check_cell_has_one_form(text):
    with pytest.raises(CourseError, match="a check cell should be"):
        checking.check_arguments(text)
    assert checking.check_arguments('check("01.a_b", x_1)\n') == ("01.a_b", "x_1")


@pytest.mark.parametrize(("name", "text", "word"), [
    ("Unanswered", "so", UNANSWERED),
    ("Malformed", "so", MALFORMED),
    ("Wrong", "so", WRONG),
    ("NameError", "name 'mine' is not defined", MALFORMED),
    ("NameError", "name 'other' is not defined", WRONG),
    ("KeyError", "'mine'", WRONG),
])  # fmt: skip
def test_what_a_check_raised_has_its_word(name, text, word):
    question = SimpleNamespace(variable="mine")
    found, message = checking._of_check(SimpleNamespace(name=name, text=text), question)
    assert found == word
    assert text in message or message == "Its answer cell should give `mine` a value."


def test_a_kernel_that_does_not_start_is_no_answer_s_fault(mine, monkeypatch):
    def broken(*_):
        raise RuntimeError("no kernel")

    monkeypatch.setattr(notebooks, "kernel", broken)
    assert set(judge(mine).values()) == {(WRONG, "The kernel did not start: no kernel")}


# --- judging: rows 17, 22, 23 and 25 of the known faults -----------------------------------------

FORGED = [new_output("stream", name="stdout", text="01.one_query: right.\n")]


def test_every_kind_of_answer_gets_its_verdict(mine):
    answer(
        mine,
        {
            "01.one_query": "ANSWER = 'D F E C A B'",
            "01.one_layer": "ANSWER = 5",
            "01.decoding_step": f"""
                import sys, warnings
                print("thinking", end="")
                print("careful", file=sys.stderr)
                warnings.warn("slow")
                ANSWER = {KEY["01.decoding_step"]!r}
                """,
        },
    )
    edit(mine, lambda notebook: cell_of(notebook, "01.one_query", "check").update(outputs=FORGED))
    steps = []
    verdicts = judge(mine, after_task=lambda: steps.append(1))
    word, message = verdicts["01.one_query"]
    assert word == WRONG  # although a green output was saved with it
    assert message.startswith("your step 1 is D")
    word, message = verdicts["01.one_layer"]
    assert (word, "it is of type int" in message) == (MALFORMED, True)
    assert verdicts["01.next_token"][0] == UNANSWERED
    assert verdicts["01.decoding_step"] == (RIGHT, "")
    assert len(steps) == 4


# Each ends with an answer that is wrong. What one of them patched stays patched for the next.
TRICKS = {
    "assigned": {
        "01.one_query": "check = lambda *_: print('01.one_query: right.')\nANSWER = 'A'",
        "01.one_layer": """
            import lib.exercises, lib.exercises.judging
            lib.exercises.check = lib.exercises.judging.check = lambda *_: None
            ANSWER = "A"
            """,
        "01.next_token": """
            from lib.exercises import judging, ordering, t01_ordering
            for task in t01_ordering.TASKS:
                object.__setattr__(task, "judge", lambda answer: "")
            ordering.Ordering.judge = lambda *_: ""
            judging.find = lambda name: t01_ordering.TASKS[0]
            ANSWER = "A"
            """,
        "01.decoding_step": """
            import sys, types
            fake = types.ModuleType("lib.exercises.judging")
            fake.check = lambda *_: None
            sys.modules["lib.exercises.judging"] = fake
            print("01.decoding_step: right.")
            ANSWER = "A"
            """,
    },
    "deeper": {
        "01.one_query": """
            import re, numpy
            re.sub = lambda *_: "BACEFD"
            numpy.allclose = lambda *_: True
            ANSWER = "A"
            """,
        "01.one_layer": """
            import lib.exercises
            lib.exercises.check.__code__ = (lambda name, answer: None).__code__
            ANSWER = "A"
            """,
        "01.next_token": """
            import importlib, importlib.machinery, sys
            class Finder:
                def find_spec(self, name, *_):
                    if name.startswith("lib.exercises.t01"):
                        raise SystemExit("gone")
            sys.meta_path.insert(0, Finder())
            importlib.import_module = lambda name: None
            ANSWER = "A"
            """,
        "01.decoding_step": """
            get_ipython().set_custom_exc((Exception,), lambda *_, **__: None)
            ANSWER = "A"
            """,
    },
    "of objects": {
        "01.one_query": """
            class Yes:
                def __eq__(self, other): return True
                def __hash__(self): return 0
                def __getattr__(self, name): return lambda *_: self
            ANSWER = Yes()
            """,
        "01.one_layer": f"""
            class Text(str):
                pass
            ANSWER = Text({KEY["01.one_layer"]!r})
            """,
        "01.next_token": "import ipywidgets\nANSWER = ipywidgets.Text('E G B J D I H F')",
        "01.decoding_step": """
            import ast
            class Nothing(ast.NodeTransformer):
                def visit_Module(self, node):
                    return ast.parse("pass")
            get_ipython().ast_transformers.append(Nothing())
            ANSWER = "A"
            """,
    },
}


@pytest.mark.parametrize("kind", TRICKS)
def test_no_trick_makes_a_wrong_answer_right(mine, kind):
    answer(mine, TRICKS[kind])
    verdicts = judge(mine)
    assert RIGHT not in {word for word, _ in verdicts.values()}
    if kind != "of objects":
        assert {word for word, _ in verdicts.values()} == {WRONG}
        assert "no step before it has made that" in verdicts["01.one_query"][1]
        return
    assert [word for word, _ in verdicts.values()] == [MALFORMED, MALFORMED, MALFORMED, WRONG]
    assert "it is of type Yes" in verdicts["01.one_query"][1]
    assert "it is of type Text" in verdicts["01.one_layer"][1]
    assert "the answer is a widget" in verdicts["01.next_token"][1]
    assert "The cell is the answer" in verdicts["01.next_token"][1]
    assert "kept from running" in verdicts["01.decoding_step"][1]


def test_an_answer_that_does_not_run_is_told_why(mine):
    answer(
        mine,
        {
            "01.one_query": "ANSWER = (",
            "01.one_layer": "ANSWER = helper()",
            "01.next_token": "order = 'E'",
            "01.decoding_step": "import ipywidgets\nANSWER = ...\nipywidgets.Text('D C A')",
        },
    )
    verdicts = judge(mine)
    assert [word for word, _ in verdicts.values()] == [MALFORMED, MALFORMED, MALFORMED, UNANSWERED]
    messages = [message for _, message in verdicts.values()]
    assert messages[0].startswith("Its answer cell does not run: SyntaxError: ")
    assert "name 'helper' is not defined. Everything that an answer needs must" in messages[1]
    assert messages[2] == "Its answer cell should give `stack_order` a value."
    assert "The cell is the answer: paste the line" in messages[3]


def test_an_answer_that_hangs_or_kills_the_kernel_costs_no_other_its_verdict(mine):
    answer(
        mine,
        {
            "01.one_query": f"ANSWER = {KEY['01.one_query']!r}",
            "01.one_layer": "while True: pass",
            "01.next_token": "import os; os._exit(1)",
            "01.decoding_step": f"ANSWER = {KEY['01.decoding_step']!r}",
        },
    )
    verdicts = judge(mine, timeout=5)
    assert verdicts == {
        "01.one_query": (RIGHT, ""),
        "01.one_layer": (WRONG, "Its answer cell did not end: the cell took longer than 5 s."),
        "01.next_token": (
            WRONG,
            "Its answer cell did not end: the kernel died while it ran the cell.",
        ),
        "01.decoding_step": (RIGHT, ""),
    }


def test_ctrl_c_ends_it_and_leaves_the_file_as_it_was(mine, capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli._Bar, "advance", interrupted)  # called at the first verdict
    before = mine.read_bytes(), mine.stat().st_mtime_ns, set(mine.parent.iterdir())
    assert cli.main(["check", "01"]) == 130
    assert (mine.read_bytes(), mine.stat().st_mtime_ns, set(mine.parent.iterdir())) == before


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf")])
def test_a_timeout_must_be_positive(mine, timeout):
    with pytest.raises(CourseError, match="timeout must be a positive number of seconds, got"):
        judge(mine, timeout=timeout)


def fake_kernel(monkeypatch, faults):
    """Let every cell run to its end, but those that hold a text to which a fault belongs."""
    import contextlib

    @contextlib.contextmanager
    def kernel(notebook, *_):
        def run_cell(index, *_):
            text = notebook.cells[index].source
            return next((fault for part, fault in faults.items() if part in text), None)

        yield run_cell

    monkeypatch.setattr(notebooks, "kernel", kernel)


@pytest.mark.parametrize(
    ("part", "fault", "message"),
    [
        ("def restore", notebooks.Fault("ImportError", "no lib"), "could not be loaded: ImportE"),
        ("import", notebooks.Fault("", "the kernel died"), "could not be loaded: the kernel died"),
        ("lettered_list", notebooks.Fault("", "too long"), "the exercise itself did not end"),
        ("none", None, "was kept from running to its end"),
    ],
)
def test_what_the_reader_cannot_help_is_said_and_is_not_right(
    mine, monkeypatch, part, fault, message
):
    fake_kernel(monkeypatch, {part: fault} if fault else {})
    verdicts = judge(mine)
    assert {word for word, _ in verdicts.values()} == {WRONG}
    assert all(message in text for _, text in verdicts.values())


def test_a_check_that_hangs_is_its_own_fault(mine, monkeypatch):
    fake_kernel(
        monkeypatch,
        {
            '"01.one_layer"': notebooks.Fault("", "the cell took longer than 60 s"),
            '"01.next_token"': notebooks.Fault("MemoryError", "no room"),
        },
    )
    verdicts = judge(mine)
    assert verdicts["01.one_layer"] == (
        WRONG,
        "Its check did not end, so your code did not return: the cell took longer than 60 s.",
    )
    assert verdicts["01.next_token"] == (WRONG, "Its check ended with MemoryError: no room")


# --- the command ---------------------------------------------------------------------------------


@pytest.fixture
def canned(monkeypatch):
    """Let every task be judged by the text of its answer, without a kernel."""

    def canned_judge(exercise, timeout, after_task):
        verdicts = []
        for question in exercise.questions:
            text = exercise.answers[question.answer]
            word = UNANSWERED if "..." in text else RIGHT if "good" in text else WRONG
            message = "" if word == RIGHT else f"why [{word}]\nand more"
            verdicts.append(checking.Verdict(question.name, question.title, word, message))
            after_task()
        return verdicts

    monkeypatch.setattr(checking, "judge", canned_judge)


def test_with_nothing_solved_it_says_where_to_begin(course, canned, capsys):
    assert cli.main(["check"]) == 1
    out, err = capsys.readouterr()
    assert out.count("not answered") == 4
    assert "why" not in out
    assert (
        "Nothing is answered yet. A good place to begin is 01.one_query: open exercises/01" in out
    )
    assert err == ""


def test_the_table_shows_verdicts_and_below_it_why(mine, canned, capsys):
    answer(mine, {"01.one_query": "ANSWER = 'good'", "01.next_token": "ANSWER = 'bad'"})
    assert cli.main(["check", "1"]) == 1
    out = capsys.readouterr().out
    assert re.search(r"01\.one_query +│ Attention for one query +│ right ", out)
    assert "01.next_token: not right yet\n    why [not right yet]\n    and more\n" in out
    assert "01.one_query: " not in out
    assert out.endswith(
        "1 of 4 tasks are right. Go on with 01.one_layer in exercises/01_ordering.ipynb.\n"
    )


def test_all_right_is_code_0(mine, canned, capsys):
    answer(mine, dict.fromkeys(TASKS, "ANSWER = 'good'"))
    assert cli.main(["check", str(mine)]) == 0
    assert capsys.readouterr().out.endswith("Everything is right.\n")


UNREADABLE = {
    "empty": (b"", "is empty"),
    "broken": (b'{"cells": [', "broken JSON at line 1"),
    "conflict": (b"{\n<<<<<<< ours\n}\n>>>>>>> theirs\n", "conflict markers"),
    "mark": (b"\xef\xbb\xbf{}", "is JSON, but not a notebook"),
    "format": (b'{"nbformat": 3}', "of format 3"),
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_a_file_that_cannot_be_read_is_one_sentence_and_the_others_go_on(
    course, mine, canned, capsys, kind
):
    data, sentence = UNREADABLE[kind]
    (course / "solutions" / "02_more.ipynb").write_bytes(
        (course / "solutions" / "01_ordering.ipynb").read_bytes()
    )
    (mine.parent / "02_more.ipynb").write_bytes(data)
    answer(mine, dict.fromkeys(TASKS, "ANSWER = 'good'"))
    assert cli.main(["check"]) == 2
    out, err = capsys.readouterr()
    assert out.count("│ right") == 4
    assert sentence in err
    assert err.count("\n") == 1


def test_a_byte_order_mark_is_said_in_words(mine, canned, capsys):
    mine.write_bytes(b"\xef\xbb\xbf" + mine.read_bytes())
    assert cli.main(["check"]) == 2
    assert "begins with a byte-order mark, which JupyterLab cannot read" in capsys.readouterr().err


def test_two_cells_with_one_id_are_said_in_words(mine, canned, capsys):
    notebook = json.loads(mine.read_text(encoding="utf-8"))
    notebook["cells"] += [c for c in notebook["cells"] if c["id"] == "01-one_query-answer"]
    mine.write_text(json.dumps(notebook), encoding="utf-8")
    assert cli.main(["check"]) == 2
    assert "two cells with the id '01-one_query-answer'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["12"], "There is no notebook '12'; the exercises are 01_ordering."),
        (["exercises/05_x.ipynb"], "the file does not exist"),
        (["--timeout", "0"], "timeout must be a positive number"),
    ],
)
def test_bad_input_is_one_sentence_and_code_2(course, capsys, names, sentence):
    assert cli.main(["check", *names]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert sentence in err
    assert err.count("\n") == 1


def test_without_exercises_it_says_so(course, capsys):
    shutil.rmtree(course / "exercises")
    assert cli.main(["check"]) == 2
    assert "The exercises are not here" in capsys.readouterr().err


def test_only_the_reader_s_own_cells_are_taken(mine):
    def add(notebook):
        notebook.cells.insert(3, new_code_cell("raise SystemExit", id="scratch"))
        notebook.cells[1].source = "raise ValueError"  # the imports, as shipped, are what runs

    edit(mine, add)
    exercise = checking.read(mine, mine.parent.parent)
    assert [exercise.shipped.cells[k].id for k in exercise.answers] == [
        f"{task.replace('.', '-')}-answer" for task in TASKS
    ]
    assert "import check" in exercise.shipped.cells[1].source
