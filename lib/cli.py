"""The command `course`: what it prints, and with which code it ends.

The work itself is done elsewhere: `lib.notebooks` runs and builds notebooks, `lib.exercises`
judges, `lib.doctor` examines, `lib.engine` speaks. They are imported inside the commands, so that
`course --help` is quick.

Codes: 0 done; 1 the run itself failed; 2 the input was wrong; 130 ended by Ctrl-C.
"""

from __future__ import annotations

import codecs
import gc
import importlib.util
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from lib import notebooks
from lib.errors import CourseError

if TYPE_CHECKING:
    from lib.bench.results import Results
    from lib.doctor import Finding
    from lib.engine.fast import FastLlama
    from lib.engine.llama import Llama
    from lib.exercises.checking import Mine
    from lib.exercises.verdicts import Row
    from lib.notebooks import Run

try:
    from typer import TyperException as UsageError
except ImportError:  # typer before it had exceptions of its own
    from click import ClickException as UsageError

FAILED, WRONG_INPUT, INTERRUPTED = 1, 2, 130

app = typer.Typer(
    name="course",
    help="Left Context: how a transformer runs, in Jupyter notebooks whose code is real.",
    epilog="Begin with: course lab",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command `course` and return its exit code.

    Parameters
    ----------
    arguments : sequence of str, optional
        What follows `course` on the command line; taken from there by default.
    """
    _prepare()
    if sys.stdout is None:  # `>&-`: the next file that is opened would get its number
        _say_error("there is no output to write to: stdout is closed")
        return FAILED
    try:
        code = app(
            args=None if arguments is None else list(arguments),
            prog_name="course",
            standalone_mode=False,
        )
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except (CourseError, UsageError) as error:
        sentence = error.format_message() if isinstance(error, UsageError) else str(error)
        _say_error(sentence)
        return WRONG_INPUT
    except ModuleNotFoundError as error:
        _say_error(f"the package {error.name} is not installed; `course doctor` tells what to do")
        return FAILED
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except SystemExit as ended:  # typer and rich end so where the reader of our output has left
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        _close_stdout()
        return 0
    except OSError as error:
        if error.filename is not None:
            _say_error(f"{error.filename} cannot be used: {error.strerror}")
            return FAILED
        _close_stdout()
        _say_error(f"the output cannot be written: {error.strerror}")
        return FAILED


def _prepare() -> None:
    """See to it that what is printed arrives, and that Ctrl-C does."""
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if not hasattr(stream, "reconfigure"):
            continue
        if stream.isatty() and not _is_utf8(stream.encoding):  # it can show those characters only
            stream.reconfigure(errors="backslashreplace")
        else:  # a pipe on Windows, say, would lose what its code page lacks
            stream.reconfigure(encoding="utf-8", errors="replace")
    # Figures belong to notebooks: another backend, meant for windows or files, would show none.
    os.environ.pop("MPLBACKEND", None)
    alone = threading.current_thread() is threading.main_thread()
    if alone and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started by `setsid … &`
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _is_utf8(encoding: str | None) -> bool:
    try:
        return codecs.lookup(encoding or "").name == "utf-8"
    except LookupError:
        return False


def _say_error(sentence: str) -> None:
    print(f"course: {sentence.rstrip('.')}.", file=sys.stderr)


def _close_stdout() -> None:
    """Let what is still buffered go nowhere: the reader of our output, say `head`, has left."""
    sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    with suppress(OSError):  # the old one is flushed once more at the end of the program
        os.dup2(sys.stdout.fileno(), sys.__stdout__.fileno())


def _console(stderr: bool = False) -> Console:
    """Return a console that prints words as they are: [1] is a prompt here, not a style."""
    return Console(stderr=stderr, markup=False, emoji=False, highlight=False)


def _at_least(least: int, words: str) -> Any:
    """Return an option that is a whole number, and what `--help` says of it."""

    def check(option: typer.CallbackParam, value: int | None) -> int | None:
        if value is not None and value < least:
            raise CourseError(f"--{option.name} should be at least {least}; it is {value}")
        return value

    return typer.Option(callback=check, help=words)


# --- course --------------------------------------------------------------------------------------


@app.callback(invoke_without_command=True)
def _course(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from importlib import metadata

        print(f"course {metadata.version('left-context')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())


# --- course lab ----------------------------------------------------------------------------------


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def lab(context: typer.Context) -> None:
    """Open the course in JupyterLab.

    Further arguments go on to JupyterLab, such as --no-browser --port 9999.
    """
    root = notebooks.find_root()
    as_root = hasattr(os, "geteuid") and os.geteuid() == 0
    # A kernel `python3` that a user has registered may be of another Python.
    os.environ.setdefault("JUPYTER_PREFER_ENV_PATH", "1")
    if as_root:
        _say_error("running as root, so JupyterLab gets --allow-root.")
    if _become(lab_command(root, context.args, as_root)):
        raise typer.Exit(FAILED)


def lab_command(root: Path, arguments: Sequence[str], as_root: bool) -> list[str]:
    """Return the command line that opens JupyterLab on the first chapter.

    Parameters
    ----------
    root : Path
        The folder of the course; JupyterLab shows all of it, exercises included.
    arguments : sequence of str
        Passed on unchanged. A notebook among them is opened instead of the first chapter.
    as_root : bool
        Whether the user is root, whom Jupyter refuses without a word of consent.
    """
    first = notebooks.chapters(root)[0].relative_to(root).as_posix()
    return [
        *(sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={root}"),
        # Part of the address, so that it also shows where no browser can be opened.
        f"--LabApp.default_url=/lab/tree/{first}",
        # Opening a chapter is no change of it: what JupyterLab writes into it is not saved.
        "--ContentsManager.pre_save_hook=lib.notebooks.keep_shipped_metadata",
        "--ServerApp.answer_yes=True",  # one Ctrl-C ends it, without a question
        *["--allow-root"] * as_root,
        *arguments,
    ]


def _become(command: list[str]) -> int:
    """Let a server take the place of this process, so that every signal reaches it."""
    sys.stdout.flush()
    if os.name == "posix":
        os.execv(command[0], command)
    process = subprocess.Popen(command)  # Windows has no exec that a terminal would wait for
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:  # the server has it too, and is about to end
            continue


# --- course update -------------------------------------------------------------------------------


@app.command()
def update() -> None:
    """Fetch the newest course; what you wrote is kept.

    Where the course has changed a file that you changed too, yours is put beside it.
    """
    from lib.update import update as fetch

    said, beside = fetch(notebooks.find_root())
    print(said or "The course is up to date.")
    for path in beside:
        print(f"The course changed this file too; yours is {_short(path)}")


# --- course run, course build --------------------------------------------------------------------

Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NOTEBOOK]...", help="Paths, or 01 for short; all chapters if none."),
]
Timeout = Annotated[float, typer.Option(help="Seconds that one cell may take.")]


@app.command()
def run(names: Names = None, timeout: Timeout = 60) -> None:
    """Execute chapters and tell how each went.

    They are executed in memory, in order; no file is written.
    """
    paths = notebooks.locate(names or [])
    read = [notebooks.read_notebook(path) for path in paths]
    table = _table("notebook", "cells", "seconds", "failures")
    failed = False
    with _progress(sum(len(notebooks.runnable(notebook)) for notebook in read)) as bar:
        for path, notebook in zip(paths, read, strict=True):
            bar.begin(path.stem)
            result = notebooks.execute(notebook, path.resolve().parent, timeout, bar.advance)
            fails = bar.show_failure(path, result)
            failed |= fails
            cells = f"{result.cells} of {result.total}"
            table.add_row(path.stem, cells, f"{result.seconds:.1f}", str(int(fails)))
    _console().print(table)
    if failed:
        raise typer.Exit(FAILED)


@app.command()
def build(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NOTEBOOK]...", help="Paths, or 01 for short; everything if none."),
    ] = None,
    timeout: Timeout = 60,
    check: Annotated[
        bool, typer.Option("--check", help="Name what would change; write nothing.")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Store anew what varies with time and machine, too.")
    ] = False,
) -> None:
    """Execute notebooks, store their outputs, make exercises.

    This is for those who write the course: chapters first, then solutions, then the exercises,
    which are made from the solutions. What did not change keeps its bytes.
    """
    paths = notebooks.locate(names or [], folders=(notebooks.FOLDER, notebooks.SOLUTIONS))
    # An exercise is not executed: it is made from its solution.
    run = [path for path in paths if _folder(path) != notebooks.EXERCISES]
    total = sum(len(notebooks.runnable(notebooks.read_notebook(path))) for path in run)
    words = {}
    with _progress(total) as bar:
        for path in run:
            words[path] = _build_one(path, timeout, check, fresh, bar)
    for path, word in words.items():
        print(f"{_name(path)}: {word}")
    solved = [path for path in paths if _folder(path) != notebooks.FOLDER]
    made = [words.get(path) != _FAILED_BUILD and _make_exercise(path, check) for path in solved]
    if not all(made) or {_FAILED_BUILD, _WOULD_CHANGE} & set(words.values()):
        raise typer.Exit(FAILED)


_FAILED_BUILD, _WOULD_CHANGE = "failed, nothing written", "would change"


def _folder(path: Path) -> str:
    """Return the folder of the course that a notebook lies in; others count as chapters."""
    name = path.resolve().parent.name
    return name if name in (notebooks.SOLUTIONS, notebooks.EXERCISES) else notebooks.FOLDER


def _name(path: Path) -> str:
    """Return what a notebook is called in a list; a chapter goes by its name alone."""
    folder = _folder(path)
    return path.stem if folder == notebooks.FOLDER else f"{folder}/{path.stem}"


def _build_one(path: Path, timeout: float, check: bool, fresh: bool, bar: _Bar) -> str:
    """Build a notebook and return a word on it."""
    bar.begin(path.stem)
    built = notebooks.build(path, timeout, check, bar.advance, fresh)
    if bar.show_failure(path, built.run):
        return _FAILED_BUILD
    return _word(built.changed, check)


def _word(changed: bool, check: bool) -> str:
    return "unchanged" if not changed else _WOULD_CHANGE if check else "written"


def _make_exercise(path: Path, check: bool) -> bool:
    """Make the exercise of a solution, say what came of it, tell whether it is fine."""
    from lib.exercises import deriving, questions

    solution = deriving.solution_of(path)
    try:
        changed = deriving.store(solution, check)
    except CourseError as error:  # one that cannot be made does not stop the others
        _say_error(str(error))
        return False
    if not check and questions.HANDED_OUT.is_relative_to(solution.parent.parent):
        questions.write_handed_out(solution.parent.parent)
    print(f"{_name(deriving.exercise_of(solution))}: {_word(changed, check)}")
    return not (check and changed)


# --- course check --------------------------------------------------------------------------------

Exercises = Annotated[
    list[str] | None,
    typer.Argument(metavar="[EXERCISE]...", help="Paths, or 01 for short; all exercises if none."),
]


@app.command()
def check(names: Exercises = None, timeout: Timeout = 60) -> None:
    """Judge your answers to the exercises.

    Save the notebook first: its file is read, and never written. Code 0 means that every task is
    right, 1 that some are not, 2 that a notebook could not be read.
    """
    from lib.exercises import checking, parts
    from lib.exercises.judging import RIGHT

    exercises, unreadable = _read_exercises(names or [])
    verdicts = {}
    with _progress(len(exercises)) as bar:
        for mine in exercises:
            bar.begin(mine.path.stem)
            verdicts[mine.path] = checking.judged(mine, timeout)
            bar.advance()
    for path, judged in verdicts.items():
        _show_verdicts(path, judged)
    for sentence in unreadable:
        _say_error(sentence)
    every = [row for rows in verdicts.values() for row in rows]
    if every:
        print(_closing_line(verdicts))
    if board := parts.board(every):
        print(board)
    if unreadable:
        raise typer.Exit(WRONG_INPUT)
    if any(row.verdict != RIGHT for row in every):
        raise typer.Exit(FAILED)


def _read_exercises(names: Sequence[str]) -> tuple[list[Mine], list[str]]:
    """Read the notebooks that can be read; return a sentence on each of the others."""
    from lib.exercises import checking

    root = notebooks.find_root()
    paths = names or [str(path) for path in notebooks.chapters(root, notebooks.EXERCISES)]
    if not paths:
        raise CourseError(f"The exercises are not here: {root} holds no folder of that name")
    exercises, unreadable = [], []
    for name in paths:
        try:
            (path,) = notebooks.locate([name], folders=(notebooks.EXERCISES,))
            exercises.append(checking.read(path))
        except CourseError as error:
            unreadable.append(str(error))
    return exercises, unreadable


def _show_verdicts(path: Path, judged: Sequence[Row]) -> None:
    """Print a table of one exercise, and below it why what failed did."""
    from lib.exercises.judging import RIGHT, UNANSWERED

    colours = {RIGHT: "green", UNANSWERED: "dim"}
    table = _table(path.stem, "task", "verdict", justify="left")
    for row in judged:
        colour = colours.get(row.verdict, "yellow")
        table.add_row(row.task, row.title, row.verdict, style=colour)
    _console().print(table)
    begun = any(row.verdict != UNANSWERED for row in judged)
    for row in judged:
        if row.verdict != RIGHT and begun:
            message = row.message.replace("\n", "\n    ")
            print(f"{row.task}: {row.verdict}\n    {message}\n")


def _closing_line(verdicts: dict[Path, Sequence[Row]]) -> str:
    """Return how many are right, and where to go on."""
    from lib.exercises.judging import RIGHT, UNANSWERED

    every = [(path, row) for path, judged in verdicts.items() for row in judged]
    right = sum(row.verdict == RIGHT for _, row in every)
    if right == len(every):
        return "Everything is right." if right > 1 else "It is right."
    path, first = next(pair for pair in every if pair[1].verdict != RIGHT)
    if all(row.verdict == UNANSWERED for _, row in every):
        return (
            f"Nothing is answered yet. A good place to begin is {first.task}: open "
            f"{_short(path)} (course lab), fill in the answer cell, save, and come back."
        )
    return f"{right} of {len(every)} tasks are right. Go on with {first.task} in {_short(path)}."


def _short(path: Path) -> str:
    here = Path.cwd()
    full = path.resolve()
    return full.relative_to(here).as_posix() if full.is_relative_to(here) else str(path)


class _Bar:
    """A progress bar over the cells of all notebooks, and a place for news above it."""

    def __init__(self, progress, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=total)

    def begin(self, name: str) -> None:
        self._progress.update(self._task, description=name)

    def advance(self, cells: int = 1) -> None:
        self._progress.advance(self._task, cells)

    def of(self, total: int) -> None:
        self._progress.update(self._task, total=total)

    def tell(self, line: str) -> None:
        self._progress.console.print(line, soft_wrap=True)

    def show_failure(self, path: Path, run: Run) -> bool:
        """Tell where a run has failed, and pass over the rest; return whether it has."""
        if (failure := run.failure) is None:
            return False
        self.advance(run.total - run.cells)
        where = f", cell [{failure.cell}]: {failure.source}\n    " if failure.cell else ": "
        self.tell(f"{path.name}{where}{failure.error}")
        return True


@contextmanager
def _progress(total: int) -> Iterator[_Bar]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = _console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    # In a log file there is nothing to redraw, so only the failures appear.
    shown = console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=not shown) as progress:
        yield _Bar(progress, total)


def _table(first: str, *others: str, justify: str = "right") -> Table:
    table = Table()
    table.add_column(first, overflow="fold")
    for column in others:
        table.add_column(column, justify=justify, overflow="fold")
    return table


# --- course grade --------------------------------------------------------------------------------


@app.command()
def grade(
    submissions: Annotated[Path, typer.Argument(help="A folder: one folder or file a student.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder of the results; SUBMISSIONS-results if none.")
    ] = None,
    exercise: Annotated[
        list[str] | None,
        typer.Option(help="An exercise to grade, such as 01; may be given several times."),
    ] = None,
    workers: Annotated[
        int | None,
        _at_least(1, "Processes; one for each core if not said."),
    ] = None,
    scheduler: Annotated[
        str, typer.Option(help="Address of a Dask scheduler whose workers are used instead.")
    ] = "",
    timeout: Annotated[float, typer.Option(help="Seconds that one answer may take.")] = 10,
    unconfined: Annotated[
        bool, typer.Option("--unconfined", help="Run code even where it cannot be confined.")
    ] = False,
) -> None:
    """Grade what a class handed in; this is for teachers.

    Nothing of a submission is trusted. Code 0 means that everybody has a verdict on every task,
    whatever it is. A run that was stopped goes on where it was.
    """
    from lib.engine.team import usable_processors
    from lib.exercises.running.process import Trusted
    from lib.exercises.verdicts import UNSAFE, Rules
    from lib.grading import batch
    from lib.grading.confine import Confined

    notebooks.check_timeout(timeout)
    out = out or submissions.resolve().with_name(f"{submissions.resolve().name}-results")
    rules = Rules(Trusted() if unconfined else Confined(), timeout, patience=6 * timeout)
    if not scheduler and not rules.runner.name:
        _say_error(UNSAFE)
    with _progress(0) as bar:

        def tell(student: str, rows: Sequence[Row]) -> None:
            bar.advance()
            bar.tell("{}: {} of {}".format(student, *_points(rows)))

        graded = batch.grade(
            submissions, out, notebooks.find_root(), exercise or [], rules,
            workers or usable_processors(), scheduler, bar.of, tell,
        )  # fmt: skip
    _console().print(_grades_table(graded), soft_wrap=True)
    old = len(graded.rows) - graded.again
    before = f", {old} of them from before" if old else ""
    print(f"{len(graded.rows)} submissions are graded{before}.")
    print(f"Results: {_short(out)}; begin with class.html.")


def _points(rows: Sequence[Row]) -> tuple[str, str]:
    """Return the points that were earned, and those that there are."""
    return f"{sum(row.points for row in rows):g}", f"{sum(row.possible for row in rows):g}"


def _grades_table(graded) -> Table:
    """Return a table of the students whose submissions need a look; of all, if they are few."""
    table = _table("student", "points", "of", "look at")
    for name, rows in graded.rows.items():
        notes = dict.fromkeys(graded.handed[name].notes)
        if notes or len(graded.rows) <= 40:
            table.add_row(name, *_points(rows), "\n".join(notes))
    return table


# --- course say ----------------------------------------------------------------------------------


Tokens = Annotated[int, _at_least(1, "How many tokens at most.")]
Temperature = Annotated[
    float, typer.Option(help="0 takes the likeliest token; above, chance has a part.")
]
TopK = Annotated[int | None, typer.Option(help="Choose among the K likeliest.")]
TopP = Annotated[
    float | None, typer.Option(help="Choose among the likeliest that make up this share.")
]
Seed = Annotated[int | None, _at_least(0, "The same seed gives the same text.")]
Model = Annotated[Path | None, typer.Option(help="A GGUF file of the Llama architecture.")]
Threads = Annotated[
    int | None, typer.Option(help="Threads of the engine; by default the processors.")
]
Plain = Annotated[
    bool, typer.Option("--plain", help="Use the float32 functions that the chapters derive.")
]


# A text may begin with a dash: what is no option is taken for the text, and looked at below.
@app.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
def say(
    context: typer.Context,
    prompt: Annotated[
        str | None,
        typer.Argument(help="The text to continue, or a question to --chat; - reads the input."),
    ] = None,
    tokens: Tokens = 50,
    temperature: Temperature = 0.0,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = None,
    chat: Annotated[bool, typer.Option("--chat", help="Answer instead of continuing.")] = False,
    model: Model = None,
    threads: Threads = None,
    slide: Annotated[
        bool, typer.Option("--slide", help="Go on past the context: forget its older half.")
    ] = False,
    plain: Plain = False,
    own: Annotated[
        bool,
        typer.Option("--mine", help="Use your functions of the exercises where they are right."),
    ] = False,
    guess: Annotated[
        bool, typer.Option("--guess", help="Guess tokens from the text; check them in one pass.")
    ] = False,
    prompts: Annotated[
        Path | None, typer.Option(help="A file of texts, one a line: continue them together.")
    ] = None,
) -> None:
    """Let the real model continue a text.

    The continuation alone goes to stdout, as it comes. Ctrl-C ends it.
    """
    from lib.arguments import check_sampling

    check_sampling(temperature, top_k, top_p)  # before seconds are spent on loading the model
    sampling = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
    given = {"--chat": chat, "--slide": slide, "--plain": plain, "--guess": guess, "--mine": own}
    if prompts is not None:
        _refuse("--prompts", given | {"PROMPT": prompt})
        _say_all(prompts, tokens, model, threads, sampling)
        return
    prompt = _prompt(prompt, context.args)
    if own:
        _refuse("--mine", given | {"--mine": None, "--model": model, "--threads": threads})
        _say_with_own(prompt, tokens, sampling)
        return
    if guess:
        _refuse("--guess", {"--plain": plain})
    llama = _load(model, threads, plain)
    from lib.engine.sampling import generate

    ids = _ids_of(llama, [{"role": "user", "content": prompt}] if chat else prompt)
    when_full = "slide" if slide else "error"
    ahead = "auto" if guess else None
    chosen = generate(llama, ids, tokens, **sampling, when_full=when_full, guess=ahead)
    if not chat:
        _show_prompt(prompt)
    _, stopped = _print_as_it_comes(llama, chosen)
    print(flush=True)
    if stopped:
        raise typer.Exit(INTERRUPTED)


def _refuse(option: str, given: Mapping[str, object]) -> None:
    """Raise a `UsageError` where something is given that does not go with an option."""
    if unfit := [name for name, value in given.items() if value]:
        raise UsageError(f"{option} does not go with {unfit[0]}; leave one of them away.")


def _say_with_own(prompt: str, tokens: int, sampling: dict) -> None:
    """Let the model speak with the reader's functions, in a process of its own."""
    from lib.exercises import mine

    paths = notebooks.chapters(notebooks.find_root(), notebooks.EXERCISES)
    try:
        code = mine.say(prompt, paths, tokens, _say_error, **sampling)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    if code:
        raise typer.Exit(code)


def _say_all(
    path: Path, tokens: int, model: Path | None, threads: int | None, sampling: dict
) -> None:
    """Continue all texts of a file together, and print each as soon as it is done.

    A line that cannot be continued is told, and costs the others nothing.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise CourseError(f"{path} is not UTF-8 text") from None
    except OSError as error:
        raise CourseError(f"{path} can't be read: {error.strerror}") from None
    llama = _load(model, threads, plain=False)
    from lib.engine.fast import FastLlama
    from lib.engine.scheduler import continuations

    if not isinstance(llama, FastLlama):
        raise CourseError("--prompts needs the fast engine, and that needs Numba")
    texts, all_right = [_ids_of(llama, line) for line in lines], True
    try:
        for k, said in continuations(llama, texts, tokens, **sampling):
            if isinstance(said, CourseError):
                _say_error(f"{path.name}, line {k + 1}: {said}")
                all_right = False
            else:
                print(f"[{k + 1}] {lines[k]}{llama.tokenizer.decode(said)}\n", flush=True)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    if not all_right:
        raise typer.Exit(WRONG_INPUT)


def _print_as_it_comes(llama: Llama | FastLlama, tokens: Iterable[int]) -> tuple[str, bool]:
    """Print the text of tokens, piece by piece; return it, and whether Ctrl-C ended it."""
    text = ""
    try:
        for piece in llama.tokenizer.stream_text(tokens):
            print(piece, end="", flush=True)
            text += piece
    except KeyboardInterrupt:
        return text, True
    return text, False


def _prompt(given: str | None, more: Sequence[str]) -> str:
    """Return the text to go on from: what was given, or what comes through a pipe."""
    for word in [given or "", *more]:
        if re.fullmatch(r"--?[A-Za-z][\w-]*(=.*)?", word):
            raise UsageError(f"No such option: {word}. In front of a text like this put -- alone.")
    if more:
        raise UsageError(f"PROMPT should be one text, in quotation marks; {more[0]!r} follows it.")
    if given is None and sys.stdin is not None and sys.stdin.isatty():
        raise UsageError("Missing argument 'PROMPT': a text in quotation marks.")
    if given is None or given == "-":
        given = _read_input().rstrip("\n")
    if not given.strip():
        raise CourseError("PROMPT has no text in it; give at least one word to go on from")
    _check_text(given, "PROMPT")
    return given


def _check_text(text: str, name: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise CourseError(f"{name} is not UTF-8 text; set the terminal to UTF-8") from None


def _read_input() -> str:
    if sys.stdin is None:
        raise CourseError("PROMPT should come from the input, and there is none")
    raw = getattr(sys.stdin, "buffer", None)
    try:
        return raw.read().decode("utf-8-sig") if raw else sys.stdin.read()
    except UnicodeDecodeError:
        raise CourseError("the input is not UTF-8 text") from None


def _load(path: Path | None, threads: int | None, plain: bool) -> Llama | FastLlama:
    """Read the model; the first use of the fast engine ever compiles it, which is said."""
    with _spinner("loading the model") as status:
        off = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")  # needs no import to see
        if not plain and not off and importlib.util.find_spec("numba") is not None:
            show = None if status is None else partial(_show_bytes, status)
            fast, is_compiled = _load_fast(path, threads, show)
            if fast is not None:
                if not is_compiled:
                    words = "compiling the engine; this first use takes about half a minute"
                    _console(stderr=True).print(f"course: {words}")
                return fast
        if not plain:
            why = "NUMBA_DISABLE_JIT is set" if off else "Numba is missing or does not load"
            _say_error(f"{why}: the plain functions of the chapters run, which are slower")
        from lib.engine.llama import load_model

        return load_model(path)


def _load_fast(path, threads, show) -> tuple[FastLlama | None, bool]:
    """Read the file while Numba is imported; None where nothing can be compiled.

    What both make is no garbage: none is looked for.
    """
    from concurrent.futures import ThreadPoolExecutor

    from lib.engine.layout import read_parts
    from lib.engine.team import Team

    team = Team(threads)
    gc.disable()
    try:
        with ThreadPoolExecutor(1) as pool:
            parts = pool.submit(read_parts, path, team.threads, progress=show)
            from lib.jit import COMPILES

            if not COMPILES:
                return None, False
            from lib.engine.fast import FastLlama, is_compiled

            return FastLlama(*parts.result(), team), is_compiled()
    finally:
        gc.freeze()  # nor at the end of the program, which would take half a second
        gc.enable()


def _show_bytes(status, done: int, total: int) -> None:
    status.update(f"loading the model: {done / 1e6:.0f} of {total / 1e6:.0f} MB")


def _ids_of(llama: Llama | FastLlama, prompt: str | list[dict]) -> list[int]:
    """Return the tokens of a text, or of a conversation that waits for its answer."""
    if isinstance(prompt, str):
        return llama.tokenizer.encode(prompt)
    return llama.tokenizer.encode(llama.tokenizer.chat(prompt), special=True)


def _spinner(words: str):
    console = _console(stderr=True)
    return console.status(words) if console.is_terminal else nullcontext()


def _show_prompt(prompt: str) -> None:
    """Show the prompt to people, dimmed; stdout holds the continuation alone."""
    console = _console(stderr=True)
    if console.is_terminal and sys.stdout.isatty():
        console.print(prompt, style="dim", end="", soft_wrap=True)


# --- course chat ---------------------------------------------------------------------------------

CHAT_WORDS = "A line is a turn. Ctrl-C stops an answer; /new forgets all; /quit or Ctrl-D ends."
CHAT_IS_FULL = "the conversation no longer fits into the context; /new begins another"
ONCE_MORE = "Ctrl-C once more ends the chat; so does /quit."


@app.command()
def chat(
    system: Annotated[str, typer.Option(help="What the model should know and do all along.")] = "",
    tokens: Annotated[int, _at_least(1, "How many tokens an answer has at most.")] = 400,
    temperature: Temperature = 0.0,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = None,
    model: Model = None,
    threads: Threads = None,
    plain: Plain = False,
) -> None:
    """Talk with the real model, turn by turn.

    The left context stays in the cache: each turn reads only what is new.
    """
    from lib.arguments import check_sampling

    check_sampling(temperature, top_k, top_p)  # before seconds are spent on loading the model
    llama = _load(model, threads, plain)
    from lib.engine import sampling

    first = [{"role": "system", "content": system}] if system else []
    messages, read, cache = list(first), [], llama.new_cache()
    for turn, words in enumerate(_turns()):
        if words == "/new":
            messages = list(first)
            continue
        said: list[int] = []
        try:
            _check_text(words, "the line")
            ids = _ids_of(llama, [*messages, {"role": "user", "content": words}])
            left = min(tokens, llama.config.context - len(ids))
            if left < 1:
                raise CourseError(CHAT_IS_FULL)
            read = ids[: min(_same(read, ids), len(ids) - 1)]
            cache.truncate(len(read))
            rest = (temperature, top_k, top_p, None if seed is None else seed + turn)
            answer = sampling.generate(llama, ids, left, *rest, cache=cache)
        except CourseError as error:  # of this line alone
            _say_error(str(error))
            continue
        text, stopped = _print_as_it_comes(llama, _noted(answer, said))
        print(" …" if stopped else "", flush=True)
        read = [*ids, *said][: cache.n]  # what the cache holds now
        messages += [{"role": "user", "content": words}, {"role": "assistant", "content": text}]


def _turns() -> Iterator[str]:
    """Yield what the reader says, until the input ends or they have had enough."""
    people = sys.stdin is not None and sys.stdin.isatty()
    if hasattr(sys.stdin, "reconfigure"):  # a line that is no text costs no other
        sys.stdin.reconfigure(errors="surrogateescape")
    if people:
        _console(stderr=True).print(CHAT_WORDS, style="dim")
    interrupted = False
    while True:
        if people:
            print("> ", end="", flush=True, file=sys.stderr)
        try:
            line = sys.stdin.readline() if sys.stdin else ""
            interrupted = False
        except KeyboardInterrupt:
            if not people:
                raise
            print(f"\n{ONCE_MORE}" if not interrupted else "", file=sys.stderr)
            if interrupted:
                return
            interrupted = True
            continue
        words = line.strip()
        if not line or words in ("/quit", "/exit"):
            if people:
                print(file=sys.stderr)
            return
        if words:
            yield words


def _noted(tokens: Iterable[int], into: list[int]) -> Iterator[int]:
    for token in tokens:
        into.append(token)
        yield token


def _same(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many tokens two texts begin with in common."""
    pairs = zip(one, other, strict=False)
    return next((k for k, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


# --- course lite ---------------------------------------------------------------------------------

Pyodide = Annotated[
    Path | None, typer.Option(help="A folder with Pyodide, where its public address is none.")
]


@app.command()
def lite(
    out: Annotated[Path, typer.Option(help="The folder to write.")] = Path("build/lite"),
    pyodide: Pyodide = None,
    port: Annotated[int, typer.Option(help="Where to serve; 0 takes a free one.")] = 8000,
    serve: Annotated[bool, typer.Option(help="Serve what was built, until Ctrl-C.")] = True,
) -> None:
    """Build the course for the browser, and serve it on this machine.

    The folder can be put on any web server as it is.
    """
    from lib.site import lite as site

    _say_if_no_pyodide(pyodide)
    with site.server(out, port) if serve else nullcontext() as server:  # a taken port shows first
        with tempfile.TemporaryDirectory() as room, _progress(site.STEPS) as bar:
            kernels = site.make_kernels(Path(room), _say_error)
            step = lambda words: (bar.begin(words), bar.advance())  # noqa: E731
            site.build_lite(out, pyodide, step, kernels=kernels)
        print(f"built: {_short(out)}")
        if server is not None:
            address = f"http://127.0.0.1:{server.server_port}/tree/index.html?path=notebooks"
            print(f"Open {address}; Ctrl-C ends it.")
            server.serve_forever()


def _say_if_no_pyodide(folder: Path | None) -> None:
    """Say it if Python could not be fetched from this machine; it is needed elsewhere, later."""
    from lib.site import lite as site

    site.check_installed()
    if folder is None and (reason := site.out_of_reach(site.public_address())):
        _say_error(
            f"Pyodide, the Python of the browser, cannot be reached from here ({reason}); a page "
            "fetches it when it is opened, so cells run only where there is a network. Or give a "
            "folder that holds Pyodide: --pyodide DIR"
        )


# --- course site ---------------------------------------------------------------------------------


@app.command()
def site(
    out: Annotated[Path, typer.Option(help="The folder to write.")] = Path("build/site"),
    pyodide: Pyodide = None,
    repository: Annotated[
        str, typer.Option(help="Address of the repository, for links to files that are no pages.")
    ] = "",
) -> None:
    """Build the course as a site, with JupyterLite beside it.

    The folder can be put on any web server as it is. A link that leads nowhere fails the build.
    """
    from lib.site import pages

    pages.check_installed()
    _say_if_no_pyodide(pyodide)
    with _progress(0) as bar:
        progress = pages.Progress(bar.of, bar.begin, bar.advance, _say_error)
        front = pages.build_site(notebooks.find_root(), out, pyodide, repository, progress)
    print(f"built: {_short(front)}")
    look = f"python -m http.server --bind 127.0.0.1 --directory {_short(out)}"
    print(f"To look at it: {look}")


# --- course bench --------------------------------------------------------------------------------


@app.command()
def bench(
    rows: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ROWS]...", help="Groups such as decode, core; all if none."),
    ] = None,
    peers: Annotated[
        str | None,
        typer.Option(metavar="PYTHON", help="The Python that has llama.cpp and torch."),
    ] = None,
    rounds: Annotated[int, _at_least(1, "Pairs of turns for each row.")] = 7,
    quick: Annotated[bool, typer.Option("--quick", help="Three rounds, no long rows.")] = False,
    threads: Annotated[int, _at_least(1, "Threads that each contestant may use.")] = 2,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the results; bench/results by default.")
    ] = None,
) -> None:
    """Measure the speed of the engine, and of its peers.

    Each row sets one of ours against one peer, in separate processes and turn by turn. Leave the
    machine to it meanwhile. COURSE_PEERS may name the Python of the peers for good.
    """
    from lib.bench import results, run

    folder = run.find_folder(notebooks.find_root())
    settings = run.Settings(
        folder=folder,
        out=out or folder / "results",
        peers=run.peers_python(peers),
        threads=threads,
        rounds=min(rounds, 3) if quick else rounds,
        quick=quick,
    )
    with _progress(run.turns(settings, rows or [])) as bar:
        found = run.run(
            settings, rows or [], lambda row: bar.begin(row.title), bar.advance, _say_error
        )
    _console().print(_bench_table(found))
    for path in results.store(found, settings.out):
        print(f"written: {_short(path)}")
    if not found.rows:
        raise typer.Exit(FAILED)


def _bench_table(found: Results) -> Table:
    table = _table("row", "ours", "peer", "", "ratio", "quartiles")
    table.columns[2].justify = "left"
    for row in found.rows:
        ours, peer = (_three_digits(median) for median in row.medians)
        scale, sign = (100, " %") if row.share else (1, " ×")
        ratio, *quartiles = (_three_digits(scale * r) for r in (row.ratio, *row.quartiles))
        title = f"{row.title}, {row.unit}"
        colour = "yellow" if row.ratio < 1 and not row.share else None
        between = " to ".join(quartiles)
        table.add_row(title, ours, row.names[1], peer, ratio + sign, between, style=colour)
    return table


def _three_digits(number: float) -> str:
    """Return a number with three digits that count, and without an exponent."""
    decimals = 2 - math.floor(math.log10(abs(number))) if number else 0
    return f"{number:.{min(max(0, decimals), 6)}f}"


# --- course doctor -------------------------------------------------------------------------------


@app.command()
def doctor() -> None:
    """Examine the installation for what the course needs."""
    from lib.doctor import MISSING, can_run, examine

    findings = examine()
    console = _console()
    console.print(_doctor_table(findings))
    if can_run(findings):
        console.print("The course can run. Begin with: course lab")
        return
    console.print("The course can't run yet. What to do:")
    for finding in findings:
        if finding.status == MISSING:
            print(f"  {finding.name}: {finding.advice}")
    raise typer.Exit(FAILED)


def _doctor_table(findings: Sequence[Finding]) -> Table:
    from lib.doctor import MISSING, NOTE

    table = _table("what", "status", "found", justify="left")
    colours = {NOTE: "yellow", MISSING: "red"}
    for finding in findings:
        found = [line for line in (finding.value, finding.place, finding.advice) if line]
        colour = colours.get(finding.status)
        table.add_row(finding.name, finding.status, "\n".join(found), style=colour)
    return table


if __name__ == "__main__":
    sys.exit(main())
