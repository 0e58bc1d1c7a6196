"""How a contestant and the driver talk: one line is one turn, answered with one line of JSON."""

import json
import os
import shlex
import sys


def serve(cases):
    """Answer the cases on standard input until it ends.

    Parameters
    ----------
    cases : dict
        The name of a case -> a function of its arguments, which are strings, that returns what
        JSON can hold.
    """
    answers = _own_stdout()
    for line in sys.stdin:
        name, *arguments = shlex.split(line)
        try:
            answer = cases[name](*arguments)
        except Exception as error:  # said in words; the driver decides what follows
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


def _own_stdout():
    """Keep standard output for answers: what a library prints goes to standard error."""
    kept = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return kept
