"""Grade a crowd that was made up, and tell how fast that went.

    python -m tests.grading.crowd 200 --exercise 01 --exercise 04 --kill
    python -m tests.grading.crowd 1000

Every submission differs from every other. With --kill one of two workers is killed midway, the
class is graded once more in one process, and code 1 tells that the results are not the same bytes.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil

from lib.exercises import questions
from lib.grading import batch, confine
from tests.exercises.making import ROOT, cell, put, solved

WRONG = {
    "01.one_query": 'attention_order = "D F E C A B"',
    "02.roles": 'best_statement = "A"',
    "04.scores": "def scores(q, K):\n    return K @ q",
    "05.gelu": "def gelu(x):\n    return np.maximum(x, 0)",
    "06.stack": "def stack(X, layers, step):\n    return step(X, layers[0])",
    "07.bytes": "def bytes_of_query(n, d, size):\n    return n * d * size",
}


def make(folder, count, exercises):
    """Write so many submissions; a third is right, the others are wrong in some answers."""
    for k in range(count):
        for exercise in exercises.values():
            notebook = solved(exercise.number)
            for question in exercise.questions:
                mine = cell(notebook, question.task)
                if k % 3 and question.task in WRONG and (k // 3 + len(question.task)) % 2:
                    mine["source"] = WRONG[question.task]
                mine["source"] += f"\n# handed in by student {k}"
            put(folder / f"student {k:04}" / exercise.file, notebook)


def kill_one(state):
    """Kill the busiest worker, once, midway."""

    def advance(student, rows):
        state["done"] += 1
        state["points"] += sum(row.points for row in rows)
        state["words"].update(row.verdict for row in rows)
        if state["kill"] and state["done"] == state["count"] // 2:
            workers = [
                p
                for p in psutil.Process().children(recursive=True)
                if "spawn_main" in " ".join(p.cmdline())
            ]
            victim = max(workers, key=lambda p: p.cpu_times().user)
            victim.kill()
            print(f"after {state['done']} submissions worker {victim.pid} was killed")

    return advance


def run(submissions, out, state, workers, numbers):
    begun = time.perf_counter()
    advance = kill_one(state)
    batch.grade(submissions, out, ROOT, numbers, workers=workers, advance=advance)
    seconds = time.perf_counter() - begun
    rate = 60 * state["count"] / seconds
    print(f"{state['count']} submissions in {seconds:.1f} s: {rate:.1f} a minute")
    print(f"    judged {state['done']}, {state['points']:g} points, {dict(state['words'])}")


def same(one, other):
    """Tell whether the results in two folders are the same bytes, and name those that are not."""
    found = [
        {
            p.relative_to(out): p.read_bytes()
            for p in out.rglob("*")
            if p.is_file() and p.name != batch.SECRET
        }
        for out in (one, other)
    ]
    for name in sorted(found[0].keys() | found[1].keys()):
        if found[0].get(name) != found[1].get(name):
            print(f"    {name} differs")
    return found[0] == found[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("count", type=int)
    parser.add_argument("--exercise", action="append", default=[])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kill", action="store_true")
    asked = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="crowd-"))

    def state(kill):
        return {"done": 0, "points": 0, "words": Counter(), "count": asked.count, "kill": kill}

    try:
        exercises = questions.read(ROOT, asked.exercise)
        make(base / "in", asked.count, exercises)
        print(f"confined by {confine.available() or 'nothing'}, {asked.workers} workers")
        run(base / "in", base / "one", state(asked.kill), asked.workers, asked.exercise)
        if asked.kill:
            run(base / "in", base / "two", state(False), 0, asked.exercise)
            print("same bytes" if same(base / "one", base / "two") else "NOT the same bytes")
            return int(not same(base / "one", base / "two"))
        return 0
    finally:
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
