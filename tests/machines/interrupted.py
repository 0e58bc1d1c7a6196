"""Ctrl-C while a kernel runs, then the next call: in the core, and in the engine on two threads.

usage: python -m tests.machines.interrupted
"""

import os
import signal
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from lib.attention import attend_causal
from lib.engine.fast import load_fast
from tests.engine.tiny_models import BLOCKS, write_tiny

FAR_TOO_LONG = 60  # seconds


def interrupt_in(seconds):
    """Send this process what Ctrl-C sends, a little later."""
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()


def until_interrupted(call):
    """Call again and again until the interrupt comes, and return how many calls ended before."""
    interrupt_in(0.2)
    ended, start = 0, time.monotonic()
    try:
        while time.monotonic() < start + FAR_TOO_LONG:
            call()
            ended += 1
    except KeyboardInterrupt:
        return ended
    raise SystemExit("no interrupt came")


def core():
    Q = np.random.default_rng(1).standard_normal((1500, 24)).astype(np.float32)
    right = attend_causal(Q, Q, Q)
    ended = until_interrupted(lambda: attend_causal(Q, Q, Q))
    np.testing.assert_array_equal(attend_causal(Q, Q, Q), right)
    return ended


def engine():
    with tempfile.TemporaryDirectory() as folder:
        path = write_tiny(Path(folder, "tiny.gguf"), sizes=BLOCKS, kind="Q4_1")
        model = load_fast(path, threads=2)
    tokens = [1, 4, 2, 9, 5, 5, 7, 3]
    right = model.logits(tokens, all=True)
    cache = model.new_cache()

    def call():
        cache.n = 0
        model.logits(tokens, cache)

    ended = until_interrupted(call)
    assert cache.n in (0, len(tokens))  # all of a call, or nothing
    np.testing.assert_array_equal(model.logits(tokens, all=True), right)
    return ended


if __name__ == "__main__":
    print(f"interrupted after {core()} calls of the core and {engine()} of the engine; both go on")
