"""Put small wrongs into the code, one at a time, and count those that the tests find.

    python -m tests.mutants                       # the core
    python -m tests.mutants exercises --sample 300 --seed 1
    python -m tests.mutants lib/rope.py --minutes 5

Each mutant runs in a process of its own, with compilation off, against the tests that run its
lines. Mutants that no test could tell from the code are in `explained.toml`, with the reason.
Needs `fork`: Linux or macOS. Ends with code 1 if fewer than 90 % are killed, or if an explanation
fits nothing.
"""

import argparse
import math
import os
import random
import sys
import time
import tomllib
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENOUGH = 0.90
CORE = ("arguments", "attention", "ffn", "layer", "norm", "reference", "rope", "stack")
ENGINE = ("cache", "gguf", "quant", "sampling")
GRADING = ("answers", "hidden", "judge", "literal", "wire")
# A group: the files that get mutants, and the tests that have to find them.
GROUPS = {
    "core": (
        [f"lib/{name}.py" for name in CORE],
        [f"tests/test_{name}.py" for name in CORE if name != "reference"]
        + ["tests/test_jit.py", "tests/test_roads.py", "tests/engine/test_sampling.py"]
        + ["tests/laws", "tests/witnesses"],
    ),
    "exercises": (["lib/exercises"], ["tests/exercises"]),
    "grading": ([f"lib/grading/{name}.py" for name in GRADING], ["tests/grading"]),
    "engine": ([f"lib/engine/{name}.py" for name in ENGINE], ["tests/engine"]),
}


def explained():
    """Return the reasons for mutants that no test can tell from the code, by file and key."""
    text = Path(__file__).with_name("explained.toml").read_text(encoding="utf-8")
    return {
        (one["file"], one.get("function", ""), one["line"], one["change"]): one["reason"]
        for one in tomllib.loads(text).get("mutant", [])
    }


def mutants_of(file):
    """Return the mutants of a file of this repository."""
    from tests.mutants.operators import mutants

    path = ROOT / file
    return mutants(path.read_text(encoding="utf-8"), str(path))


def unfitting(files):
    """Return the explanations that fit no mutant of the files."""
    there = {(file, *mutant.key) for file in files for mutant in mutants_of(file)}
    return [key for key in explained() if key[0] in files and key not in there]


def python_files(names):
    """Return the Python files of folders and files, as they are called from the root."""
    paths = [ROOT / name for name in names]
    found = [p for path in paths for p in (sorted(path.glob("*.py")) if path.is_dir() else [path])]
    return [path.relative_to(ROOT).as_posix() for path in found]


def group_of(file):
    """Return the name of the group that a file belongs to."""
    for name, (files, _) in GROUPS.items():
        if file in python_files(files):
            return name
    sys.exit(f"{file} should be a file of one of the groups {', '.join(GROUPS)}")


def interval(killed, tried):
    """Return Wilson's interval of 95 % for a share that was found in a sample (Wilson 1927)."""
    p, z = killed / tried, 1.96
    per = z * z / tried
    half = math.sqrt(per * p * (1 - p) + per * per / 4)
    return (p + per / 2 - half) / (1 + per), (p + per / 2 + half) / (1 + per)


def run(group, files, given):
    """Try the mutants of files of one group; return [(file, result)], and how many there are."""
    import pytest

    from tests.mutants.runner import Runner

    every = [(ROOT / file, mutant) for file in files for mutant in mutants_of(file)]
    chosen = every
    if given.sample and given.sample < len(every):
        chosen = random.Random(given.seed).sample(every, given.sample)
    if given.only:
        chosen = [(f, m) for f, m in chosen if given.only in f"{m.function} {m.line} {m.change}"]
    until = time.monotonic() + 60 * given.minutes
    watched = [ROOT / f for f in python_files(GROUPS[group][0])]
    kept = given.map and Path(f"{given.map}-{group}")
    runner = Runner(watched, chosen, given.jobs, given.budget, until, kept)
    tests = [str(ROOT / name) for name in given.tests or GROUPS[group][1]]
    options = ["-q", "-s", "-n0", "-p", "no:cacheprovider", "--timeout=0", "-o", "addopts="]
    print(f"{group}: {len(chosen)} of {len(every)} mutants, {given.jobs} at a time", flush=True)
    code = pytest.main([*options, "-m", "not slow", *tests], plugins=[runner])
    if not runner.results:
        sys.exit(f"The tests of {group} could not be collected: pytest ended with {code}.")
    if given.failing:
        print("\nnot usable with compilation off:", *runner.bad, sep="\n  ")
    return [(f.relative_to(ROOT).as_posix(), r) for f, r in runner.results], len(every)


def report(results, every):
    """Print a table by files and the mutants that live; return the share killed of the others."""
    from rich.console import Console
    from rich.table import Table

    reasons, rows, alive = explained(), defaultdict(Counter), []
    for file, result in results:
        known = (file, *result.mutant.key) in reasons
        caught = result.word.startswith("killed")
        rows[file]["killed" if caught else "explained" if known else "alive"] += 1
        if not caught and not known:
            alive.append((file, result))
    table = Table("file", *(("mutants", "killed", "explained", "alive", "share killed")))
    for file in [*sorted(rows), "all"]:
        row = rows[file] if file != "all" else sum(rows.values(), Counter())
        judged = row["killed"] + row["alive"]
        share = f"{100 * row['killed'] / judged:.1f} %" if judged else "–"
        numbers = (row.total(), row["killed"], row["explained"], row["alive"])
        table.add_row(file, *map(str, numbers), share)
    console = Console(soft_wrap=True)
    console.print(table)
    for file, result in sorted(alive, key=lambda one: (one[0], one[1].mutant.first)):
        m = result.mutant
        console.print(
            f"{file}:{m.first} {m.function}: {m.line}\n    {m.change}  ({result.word})",
            markup=False, highlight=False,
        )  # fmt: skip
    total = sum(rows.values(), Counter())
    judged = total["killed"] + total["alive"]
    share = total["killed"] / judged if judged else 1.0
    if len(results) < every:
        low, high = interval(total["killed"], judged)
        print(f"{len(results)} of {every} tried; the share of all is in {low:.1%} … {high:.1%}")
    return share


def main():
    """Run what was asked for and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("what", nargs="*", default=["core"], help=f"files, or {', '.join(GROUPS)}")
    parser.add_argument("--sample", type=int, help="try so many of them, drawn by the seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=60, help="no mutant starts after these")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--budget", type=float, default=10, help="seconds of tests for a mutant")
    parser.add_argument("--tests", nargs="*", help="files of tests, in place of the group's")
    parser.add_argument("--only", help="mutants whose function, line or change has this in it")
    parser.add_argument("--failing", action="store_true", help="name the tests that are left out")
    parser.add_argument("--map", help="keep here which test runs which line, for the next run")
    given = parser.parse_args()
    if not hasattr(os, "fork"):
        sys.exit("Mutants need fork, which this system does not have: use Linux or macOS.")
    os.nice(5)
    os.environ |= {"NUMBA_DISABLE_JIT": "1", "OPENBLAS_NUM_THREADS": "1"}
    wanted = defaultdict(list)
    for what in given.what:
        for file in python_files(GROUPS[what][0] if what in GROUPS else [what]):
            wanted[group_of(file)].append(file)
    results, every, faults = [], 0, []
    start = time.monotonic()
    for group, files in wanted.items():
        more, count = run(group, files, given)
        results, every, faults = results + more, every + count, faults + unfitting(files)
    share = report(results, every)
    spent = sum(result.seconds for _, result in results)
    minutes = (time.monotonic() - start) / 60
    print(f"{share:.1%} killed; {minutes:.1f} minutes, {spent:.0f} s of processor time in mutants")
    for key in faults:
        print("explained.toml explains what does not exist:", *key, sep="\n    ")
    return int(share < ENOUGH or bool(faults))


if __name__ == "__main__":
    sys.exit(main())
