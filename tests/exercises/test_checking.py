"""`course check`: answers are judged by running them, whatever is stored beside them."""

import json
import re
import shutil
import textwrap

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from lib import cli, notebooks
from lib.errors import CourseError
from lib.exercises import checking, deriving
from lib.exercises import questions as courses
from lib.exercises.judging import MALFORMED, MISSING, RIGHT, UNANSWERED, WRONG
from lib.exercises.verdicts import Row
from tests.exercises.wrong.t01 import RIGHT as KEY

TASKS = ["01.one_query", "01.one_layer", "01.pre_norm", "01.next_token", "01.decoding_step"]
VARIABLES = {
    "01.one_query": "attention_order",
    "01.one_layer": "layer_order",
    "01.pre_norm": "pre_norm_order",
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
    shutil.rmtree(tmp_path / "solutions")  # a class may have none
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
    rows = checking.judged(checking.read(path), **options)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert [row.task for row in rows] == TASKS
    return {row.task: (row.verdict, row.message) for row in rows}


# --- reading -------------------------------------------------------------------------------------


def lost(path):
    mine = checking.read(path)
    return {task: mine.lost.get(task, "") for task in TASKS}


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


HIDDEN = {
    "deleted": (remove, "check", "its check cell, 01-one_layer-check, is not in the notebook"),
    "Markdown": (to_markdown, "check", "its check cell, .*, is no code cell any more"),
    "skipped": (tag("skip-execution"), "check", "carries the tag skip-execution"),
    "nbval skips": (tag("x", "nbval-skip"), "check", "carries the tag nbval-skip"),
    "may raise": (tag("raises-exception"), "check", "carries the tag raises-exception"),
    "nbval may raise": (tag("nbval-raises-exception"), "check", "tag nbval-raises-exception"),
    "skipped by comment": (source("# NBVAL_SKIP\nCHECK"), "check", "was changed"),
    "commented out": (source('# check("01.one_layer", of="layer_order")'), "check", "was changed"),
    "caught": (source("try:\n    CHECK\nexcept Exception: pass"), "check", "was changed"),
    "no Python": (source("%%script false\nCHECK"), "check", "was changed"),
    "empty": (source(""), "check", "was changed"),
    "another answer": (source('check("01.one_layer", "E I")'), "check", "was changed"),
}


@pytest.mark.parametrize("how", HIDDEN)
def test_a_check_that_would_not_be_made_counts_as_missing_with_its_name(mine, how):
    change, kind, message = HIDDEN[how]
    edit(mine, lambda notebook: change(notebook, "01.one_layer", kind))
    found = lost(mine)
    assert re.search(message, found.pop("01.one_layer"))
    assert set(found.values()) == {""}


@pytest.mark.parametrize(
    "change",
    [
        tag(notebooks.VARYING, "mine"),
        source("CHECK  # still there\n"),
        source('check("01.one_layer", layer_order)'),  # as it was handed out before
    ],
)
def test_a_harmless_change_of_a_check_is_none(mine, change):
    edit(mine, lambda notebook: change(notebook, "01.one_layer", "check"))
    assert set(lost(mine).values()) == {""}


def test_a_missing_check_is_missing_though_the_answer_is_right(mine):
    answer(mine, {"01.one_layer": f"ANSWER = {KEY['01.one_layer']!r}"})
    edit(mine, lambda notebook: remove(notebook, "01.one_layer", "check"))
    word, message = judge(mine)["01.one_layer"]
    assert word == MISSING
    assert message.endswith('Put it back: a code cell with check("01.one_layer", of="layer_order")')


def rewritten(change):
    def write(path):
        book = json.loads(path.read_text(encoding="utf-8"))
        change(book)
        path.write_text(json.dumps(book), encoding="utf-8")
        return path

    return write


def each_cell(change):
    return rewritten(lambda book: [change(cell) for cell in book["cells"]])


def move_id(cell):
    cell["metadata"]["id"] = cell.pop("id")


def strip(cell):
    cell.pop("id")
    cell["metadata"] = {}


def renamed(name):
    return lambda path: path.rename(path.with_name(name))


AS_EDITORS_SAVE = {
    "ids in format 4.4": rewritten(lambda book: book.update(nbformat_minor=4)),
    "outputs on text": each_cell(lambda cell: cell.update(outputs=[], execution_count=None)),
    "no execution count": each_cell(lambda cell: cell.pop("execution_count", None)),
    "no outputs": each_cell(lambda cell: cell.pop("outputs", None)),
    "odd outputs": each_cell(lambda cell: cell.update(outputs=[{"output_type": "stream"}])),
    "a key of its own": each_cell(lambda cell: cell.update(mine=1)),
    "no kernelspec": rewritten(lambda book: book["metadata"].update(kernelspec={})),
    "no metadata": rewritten(lambda book: book.pop("metadata")),
    "ids as Colab has them": each_cell(move_id),
    "no ids and no metadata": each_cell(strip),
    "source as one text": each_cell(lambda c: c.update(source="".join(c["source"]))),
    "a byte-order mark": lambda path: (
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes()) and path
    ),
    "a copy": renamed("Copy of 01_ordering.ipynb"),
    "with a name in front": renamed("anna_01_ordering.ipynb"),
    "homework": renamed("homework.ipynb"),
    "another number": renamed("07_make_it_fast.ipynb"),
}


@pytest.mark.parametrize("kind", AS_EDITORS_SAVE)
def test_a_notebook_is_judged_however_an_editor_saved_it(mine, kind):
    answer(mine, {task: f"ANSWER = {KEY[task]!r}" for task in TASKS})
    path = AS_EDITORS_SAVE[kind](mine)
    assert judge(path if hasattr(path, "name") else mine) == dict.fromkeys(TASKS, (RIGHT, "")) or (
        kind == "no ids and no metadata" and {word for word, _ in judge(mine).values()} == {RIGHT}
    )


def test_what_is_of_no_exercise_is_said(tmp_path):
    path = tmp_path / "other.ipynb"
    nbformat.write(new_notebook(cells=[new_code_cell("x = 1")]), path)
    with pytest.raises(CourseError, match="holds no task of an exercise, and its name is of none"):
        checking.read(path)


def test_what_was_handed_out_is_written_down_as_it_is(root):
    solutions = sorted((root / "solutions").glob("*.ipynb"))
    kept = courses.read()
    assert [kept[number].file for number in sorted(kept)] == [path.name for path in solutions]
    for path in solutions:
        assert courses._exercise(path) == kept[path.name[:2]]


@pytest.mark.parametrize(
    "text",
    ["check(1, x)", "check('01.a', x)\ny", "# nothing", 'check("01.a", of=x)', 'check("a", x)',
     'import os\ncheck("01.a", x)', 'check("01.a", "x")', 'check("01.a", by="x")'],
)  # fmt: skip
def test_a_check_cell_has_one_form(text):
    with pytest.raises(CourseError, match="a check cell should be"):
        courses.check_arguments(text)


def test_both_forms_of_a_check_cell_are_known():
    new = 'from lib.exercises import check\n\ncheck("01.a_b", of="x_1")\n'
    assert courses.check_arguments(new) == ("01.a_b", "x_1")
    assert courses.check_arguments('check("01.a_b", x_1)  # here') == ("01.a_b", "x_1")


# --- judging -------------------------------------------------------------------------------------

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
    verdicts = judge(mine)
    word, message = verdicts["01.one_query"]
    assert word == WRONG  # although a green output was saved with it
    assert message.startswith("your step 1 is D")
    word, message = verdicts["01.one_layer"]
    assert (word, "it is of type int" in message) == (MALFORMED, True)
    assert verdicts["01.next_token"][0] == UNANSWERED
    assert verdicts["01.decoding_step"] == (RIGHT, "")


# Each ends with an answer that is wrong. What one of them patched stays patched for the next.
TRICKS = {
    "assigned": {
        "01.one_query": "check = lambda *_: print('01.one_query: right.')\nANSWER = 'A'",
        "01.one_layer": """
            import lib.exercises, lib.exercises.judging
            lib.exercises.check = lib.exercises.judging.check = lambda *_: None
            ANSWER = "A"
            """,
        "01.pre_norm": """
            import builtins
            builtins.print = lambda *_, **__: None
            builtins.isinstance = lambda *_: True
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
        "01.pre_norm": """
            import sys
            sys.settrace(lambda *_: None)
            sys.modules.pop("lib.exercises.judging", None)
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
        "01.pre_norm": """
            class Order(list):
                def __len__(self): return 8
            ANSWER = Order("A")
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
    words = [word for word, _ in verdicts.values()]
    if kind != "of objects":
        assert set(words) == {WRONG}
        assert "no step before it has made that" in verdicts["01.one_query"][1]
        return
    assert words == [MALFORMED, MALFORMED, MALFORMED, MALFORMED, WRONG]
    assert "it is of type Order" in verdicts["01.pre_norm"][1]
    assert "it is of type Yes" in verdicts["01.one_query"][1]
    assert "it is of type Text" in verdicts["01.one_layer"][1]
    assert "ipywidgets" in verdicts["01.next_token"][1] or "Text" in verdicts["01.next_token"][1]


COMPUTED = {
    "a comprehension": "ANSWER = ' '.join(letter for letter in KEY.split())",
    "two lists": "one, two = KEY.split()[:2], KEY.split()[2:]\nANSWER = ' '.join(one + two)",
    "under if": "if True:\n    ANSWER = KEY",
    "under try": "try:\n    ANSWER = KEY\nfinally:\n    pass",
    "a walrus": "print(ANSWER := KEY)",
    "a magic": "%matplotlib inline\nANSWER = KEY",
    "an import": "import string\nANSWER = string.capwords(KEY).upper()",
    "a lambda": "make = lambda: KEY\nANSWER = make()",
}


def test_an_answer_that_is_computed_is_run(mine):
    for kinds in (list(COMPUTED)[: len(TASKS)], list(COMPUTED)[-len(TASKS) :]):
        answer(
            mine,
            {
                task: COMPUTED[kind].replace("KEY", repr(KEY[task]))
                for task, kind in zip(TASKS, kinds, strict=True)
            },
        )
        assert judge(mine) == dict.fromkeys(TASKS, (RIGHT, ""))


def test_a_helper_in_a_cell_above_counts_and_one_below_that_redefines_it_does_not(mine):
    answer(mine, {"01.one_query": "ANSWER = helper()"})

    def add(notebook):
        at = notebook.cells.index(cell_of(notebook, "01.one_query", "answer"))
        right = f"def helper():\n    return {KEY['01.one_query']!r}"
        notebook.cells.insert(at + 1, new_code_cell("def helper():\n    return 'X'"))
        notebook.cells.insert(at, new_code_cell(right))

    edit(mine, add)
    assert judge(mine)["01.one_query"] == (RIGHT, "")


def test_an_answer_that_does_not_run_is_told_why(mine):
    answer(
        mine,
        {
            "01.one_query": "ANSWER = (",
            "01.one_layer": "ANSWER = helper()",
            "01.next_token": "order = 'E'",
            "01.decoding_step": "import ipywidgets\nANSWER = ipywidgets.Text('D C A').value",
        },
    )
    verdicts = judge(mine)
    assert verdicts.pop("01.pre_norm")[0] == UNANSWERED
    assert [word for word, _ in verdicts.values()] == [MALFORMED] * 4
    messages = [message for _, message in verdicts.values()]
    assert messages[0].startswith("its answer cell does not run: SyntaxError: ")
    assert messages[1] == ("Its answer cell does not run: NameError: name 'helper' is not defined.")
    assert messages[2] == "Its answer cell should give `stack_order` a value."
    assert "The cell is the answer: paste the line" in messages[3]


def test_an_answer_that_hangs_or_ends_its_process_costs_no_other_its_verdict(mine):
    answer(
        mine,
        {
            "01.one_query": f"ANSWER = str({KEY['01.one_query']!r})",
            "01.one_layer": "while True: pass\nANSWER = str(1)",
            "01.pre_norm": f"ANSWER = str({KEY['01.pre_norm']!r})",
            "01.next_token": "import os; os._exit(1)\nANSWER = str(1)",
            "01.decoding_step": f"ANSWER = str({KEY['01.decoding_step']!r})",
        },
    )
    assert judge(mine, timeout=2) == {
        "01.one_query": (RIGHT, ""),
        "01.one_layer": (WRONG, "Its answer cell did not end: it took longer than 2 s."),
        "01.pre_norm": (RIGHT, ""),
        "01.next_token": (
            WRONG,
            "Its answer cell did not end: its process ended before it had returned.",
        ),
        "01.decoding_step": (RIGHT, ""),
    }


def test_a_check_after_a_restart_says_what_to_run():
    from lib.exercises import Unanswered, check

    with pytest.raises(Unanswered, match="`attention_order` has no value in this kernel. Run its"):
        check("01.one_query", of="attention_order")
    globals()["attention_order"] = KEY["01.one_query"]
    check("01.one_query", of="attention_order")


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


# --- the command ---------------------------------------------------------------------------------


@pytest.fixture
def canned(monkeypatch):
    """Let every task be judged by the text of its answer, without a kernel."""

    def canned_judge(mine, timeout):
        rows = []
        sources = {i: cell.source for cell in mine.cells for i in cell.ids}
        for q in mine.exercise.questions:
            text = sources[q.answer]
            word = UNANSWERED if "..." in text else RIGHT if "good" in text else WRONG
            message = "" if word == RIGHT else f"why [{word}]\nand more"
            rows.append(Row("", q.task, q.title, 0.0, 1.0, word, message))
        return rows

    monkeypatch.setattr(checking, "judged", canned_judge)


def test_with_nothing_solved_it_says_where_to_begin(course, canned, capsys):
    assert cli.main(["check"]) == 1
    out, err = capsys.readouterr()
    assert out.count("not answered") == len(TASKS)
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
        "1 of 5 tasks are right. Go on with 01.one_layer in exercises/01_ordering.ipynb.\n"
    )


def test_all_right_is_code_0(mine, canned, capsys):
    answer(mine, dict.fromkeys(TASKS, "ANSWER = 'good'"))
    assert cli.main(["check", str(mine)]) == 0
    assert capsys.readouterr().out.endswith("Everything is right.\n")


UNREADABLE = {
    "empty": (b"", "is empty"),
    "broken": (b'{"cells": [', "cut off or damaged at line 1"),
    "conflict": (b"{\n<<<<<<< ours\n}\n>>>>>>> theirs\n", "conflict markers"),
    "no notebook": (b"[1]", "is no notebook"),
    "no cells": (b'{"nbformat": 3}', "it has no cells"),
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_a_file_that_cannot_be_read_is_one_sentence_and_the_others_go_on(
    mine, canned, capsys, kind
):
    data, sentence = UNREADABLE[kind]
    (mine.parent / "02_more.ipynb").write_bytes(data)
    answer(mine, dict.fromkeys(TASKS, "ANSWER = 'good'"))
    assert cli.main(["check"]) == 2
    out, err = capsys.readouterr()
    assert out.count("│ right") == len(TASKS)
    assert sentence in err
    assert err.count("\n") == 1


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
