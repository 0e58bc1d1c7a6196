"""Exercises are made from solutions: in step, open, gradable, and without the answers."""

import ast
import json
import re
import subprocess
import sys

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from lib import notebooks
from lib.errors import CourseError
from lib.exercises import checking, deriving, judging, questions
from lib.exercises.deriving import BEGIN, END, is_answer, is_check, without_solution
from tests.exercises.caught import answer_files

SOLUTIONS = notebooks.chapters(notebooks.find_root(), notebooks.SOLUTIONS)
EACH = pytest.mark.parametrize("solution", SOLUTIONS, ids=[path.stem for path in SOLUTIONS])
ANSWERS = answer_files()


def read(path):
    return nbformat.read(path, as_version=4)


def stubs(source):
    """Return the source of a cell as it stands in the exercise."""
    return without_solution(source, "a cell")


# --- how it is made ------------------------------------------------------------------------------

SOLVED = f"""\
def scale(q, K):
    # One number.
    {BEGIN}
    #: ...
    #:
    #:     # indented
    d = len(q)
    return d**-0.5
    {END}
    # after
{BEGIN}
#: x = ...
x = 3
{END}"""

OPEN = """\
def scale(q, K):
    # One number.
    ...

        # indented
    # after
x = ..."""


def test_answers_give_way_to_the_lines_kept_for_the_reader():
    assert without_solution(SOLVED, "here") == OPEN
    assert without_solution("x = 1\n", "here") == "x = 1\n"


def answer_cell(source, **metadata):
    grader = {"nbgrader": {"solution": True, "grade": False, "grade_id": "a"}}
    return new_code_cell(source, id="a", metadata={**grader, **metadata})


def test_everything_else_is_kept():
    shown = [new_output("stream", name="stdout", text="3\n")]
    cells = [
        new_markdown_cell("# Title", id="t"),
        answer_cell(SOLVED, tags=["mine"], execution={"when": "now"}),
        new_code_cell("x", id="x", outputs=shown, execution_count=7),
    ]
    solution = new_notebook(cells=cells, metadata={"left_context": {"built_from": "0"}})
    before = json.dumps(solution)
    exercise = deriving.derive(solution)
    assert json.dumps(solution) == before
    assert [(cell.id, cell.source) for cell in exercise.cells] == [
        ("t", "# Title"),
        ("a", OPEN),
        ("x", "x"),
    ]
    assert exercise.cells[1].metadata == {
        "nbgrader": cells[1].metadata.nbgrader,
        "tags": ["mine", notebooks.VARYING],
    }
    assert [cell.outputs for cell in exercise.cells[1:]] == [[], []]
    assert [cell.execution_count for cell in exercise.cells[1:]] == [None, None]
    assert "left_context" not in exercise.metadata
    nbformat.validate(exercise)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (f"{BEGIN}\n#: x = ...\nx = 3", "cell a: .* has no '### END SOLUTION' after it"),
        (f"x = 3\n{END}", "cell a: .* has no '### BEGIN SOLUTION' before it"),
        (f"{BEGIN}\n{BEGIN}\n#: 1\n{END}\n{END}", "cell a: .* stands within another one"),
        (f"{BEGIN}\nx = 3\n{END}", "cell a: no line between the markers begins with '#:'"),
        ("x = 3", "cell a: an answer cell needs a line"),
    ],
)
def test_faults_in_the_markers_are_said_in_words(source, message):
    with pytest.raises(CourseError, match=message):
        deriving.derive(new_notebook(cells=[answer_cell(source)]))


def test_a_solution_outside_an_answer_cell_is_a_fault():
    cell = new_code_cell(SOLVED, id="b")
    with pytest.raises(CourseError, match="cell b: it holds a solution, but is not marked"):
        deriving.derive(new_notebook(cells=[cell]))


@pytest.fixture
def solution(tmp_path):
    path = tmp_path / "solutions" / "01_a.ipynb"
    path.parent.mkdir()
    nbformat.write(new_notebook(cells=[answer_cell(SOLVED)]), path)
    return path


def test_it_is_written_once_and_a_check_writes_nothing(solution):
    exercise = deriving.exercise_of(solution)
    assert deriving.solution_of(exercise) == solution
    assert deriving.store(solution, check=True)
    assert not exercise.parent.exists()
    assert deriving.store(solution)
    assert read(exercise).cells[0].source == OPEN
    assert not deriving.store(solution)
    assert not deriving.store(solution, check=True)


def test_a_reader_s_work_is_never_overwritten(solution):
    deriving.store(solution)
    exercise = deriving.exercise_of(solution)
    notebook = read(exercise)
    notebook.cells[0].update(source="x = 4", execution_count=1)
    nbformat.write(notebook, exercise)
    before = exercise.read_bytes()
    assert deriving.store(solution, check=True)
    with pytest.raises(CourseError, match="has been worked in, so it was not overwritten"):
        deriving.store(solution)
    assert exercise.read_bytes() == before


# --- the exercises as they are -------------------------------------------------------------------


def test_every_exercise_has_its_solution_and_its_answers():
    numbers = [path.name[:2] for path in SOLUTIONS]
    assert numbers == list(judging.MODULES)
    assert numbers == list(ANSWERS)
    exercises = notebooks.chapters(SOLUTIONS[0].parent.parent, notebooks.EXERCISES)
    assert [path.name for path in exercises] == [path.name for path in SOLUTIONS]


@EACH
def test_the_exercise_is_in_step_with_its_solution(solution):
    fresh = notebooks.dump(deriving.derive(notebooks.read_notebook(solution)))
    stored = deriving.exercise_of(solution).read_text(encoding="utf-8")
    assert stored == fresh, f"run: course build solutions/{solution.name}"


@EACH
def test_every_task_has_one_check_after_its_answer(solution):
    exercise = deriving.derive(read(solution))
    tasks, answered = [], None
    for cell in exercise.cells:
        if is_answer(cell):
            assert answered is None, f"the answer before {cell.id} has no check"
            answered = cell
        elif is_check(cell):
            task, variable = questions.check_arguments(cell.source)
            tasks.append(task)
            number, _, word = task.partition(".")
            assert (answered.id, cell.id) == (f"{number}-{word}-answer", f"{number}-{word}-check")
            assert variable in names_given(answered.source)
            answered = None
    assert answered is None
    assert tasks == list(judging.tasks_of(solution.name[:2]))


def names_given(source):
    """Return the names that a cell assigns or defines."""
    body = ast.parse(source).body
    names = {node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    targets = [target for node in body if isinstance(node, ast.Assign) for target in node.targets]
    return names | {target.id for target in targets if isinstance(target, ast.Name)}


@EACH
def test_cells_carry_the_metadata_of_nbgrader(solution):
    cells = [cell for cell in read(solution).cells if "nbgrader" in cell.metadata]
    ids = [cell.metadata.nbgrader.grade_id for cell in cells]
    assert ids == [cell.id for cell in cells]
    assert len(set(ids)) == len(ids)
    for cell in cells:
        common = {"schema_version": 3, "grade_id": cell.id, "cell_type": "code", "task": False}
        answer = {**common, "solution": True, "grade": False, "locked": False}
        check = {**common, "solution": False, "grade": True, "locked": True, "points": 1}
        assert cell.cell_type == "code"
        assert cell.metadata.nbgrader in (answer, check)


# --- no answer in an exercise --------------------------------------------------------------------


@EACH
def test_no_line_of_a_solution_stands_in_its_exercise(solution):
    secret, public = set(), set()
    for cell in read(solution).cells:
        if cell.cell_type == "code":
            kept = stubs(cell.source)
            public |= {line.strip() for line in kept.split("\n")}
            lines = {line.strip() for line in between_markers(cell.source)}
            secret |= {line for line in lines if line not in kept}
    assert secret
    text = deriving.exercise_of(solution).read_text(encoding="utf-8")
    lines = {json.dumps(line, ensure_ascii=False)[1:-1] for line in secret}
    # A short line, such as `else:`, tells nothing, but must not be a cell's own either.
    assert {line for line in lines if len(line) > 12 and line in text} == set()
    assert secret & public == set()


def between_markers(source):
    inside = False
    for line in source.split("\n"):
        if line.strip() in (BEGIN, END):
            inside = line.strip() == BEGIN
        elif inside and not line.strip().startswith("#"):
            yield line


@EACH
def test_no_right_literal_stands_in_an_exercise(solution):
    text = bare(deriving.exercise_of(solution).read_text(encoding="utf-8"))
    cells = [cell for cell in read(deriving.exercise_of(solution)).cells if is_answer(cell)]
    for task, answer in ANSWERS[solution.name[:2]].RIGHT.items():
        if callable(answer):
            continue
        key = bare(repr(answer))
        if len(key) > 4:  # a shorter one, such as 2, stands in any text by chance
            assert key not in text, task
        for cell in cells:
            assert repr(answer) not in {ast.unparse(value) for value in values(cell.source)}, task


def bare(text):
    """Return the text without spaces, quotes and marks between items: the many ways to write."""
    return re.sub(r"""[\s"'\\,]|\\n""", "", text)


def values(source):
    nodes = ast.walk(ast.parse(source))
    return [node.value for node in nodes if isinstance(node, ast.Assign)]


# --- unsolved, they fail -------------------------------------------------------------------------


@pytest.mark.timeout(300)  # exercise 03 loads the real model
@EACH
def test_every_unsolved_exercise_fails_task_by_task(solution, request):
    if solution.name.startswith("03"):
        request.getfixturevalue("compiled")
    rows = checking.judged(checking.read(deriving.exercise_of(solution)))
    assert [row.task for row in rows] == list(judging.tasks_of(solution.name[:2]))
    assert [row for row in rows if row.verdict != judging.UNANSWERED] == []


def test_plain_nbval_fails_at_the_checks_alone_also_where_a_wrong_run_was_saved(root, tmp_path):
    exercise = root / "exercises" / "01_ordering.ipynb"
    notebook = read(exercise)
    solved = read(root / "solutions" / "01_ordering.ipynb")
    for mine, right in zip(notebook.cells, solved.cells, strict=True):
        mine.source = right.source
    wrong = next(cell for cell in notebook.cells if cell.id == "01-one_layer-answer")
    wrong.source = 'layer_order = "A B C"'
    check = next(cell for cell in notebook.cells if cell.id == "01-one_layer-check")
    said = {"ename": "Wrong", "evalue": "your step 1 …", "traceback": ["Not right yet: …"]}
    check.outputs = [new_output("error", **said)]
    saved = tmp_path / "saved.ipynb"
    nbformat.write(notebook, saved)
    command = [sys.executable, "-m", "pytest", "--nbval", "-n0", "-q", "-rf", exercise, saved]
    options = {"capture_output": True, "text": True, "encoding": "utf-8", "cwd": root}
    done = subprocess.run([*command, "-p", "no:cacheprovider"], **options)
    assert done.returncode == 1, done.stdout + done.stderr
    failed = re.findall(r"^FAILED \S*::Cell (\d+)", done.stdout, re.MULTILINE)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    checks = [k for k, cell in enumerate(code) if is_check(cell)]
    assert [int(cell) for cell in failed] == [*checks, code.index(check)]
    assert done.stdout.count("Not answered yet") >= 4


def test_nbgrader_s_own_validation_fails_on_an_exercise_and_passes_on_a_solution(root):
    pytest.importorskip("nbgrader", reason="nbgrader is not installed")
    said = {}
    for folder in ("exercises", "solutions"):
        path = root / folder / "01_ordering.ipynb"
        command = [sys.executable, "-m", "nbgrader", "validate", str(path)]
        said[folder] = subprocess.run(command, capture_output=True, text=True).stdout
    assert said["exercises"].startswith("VALIDATION FAILED ON 4 CELL(S)")
    assert said["solutions"].startswith("Success! Your notebook passes all the tests.")
