"""Processes for answers: what they may hold on to when they end."""

import sys
import time

import pytest

from lib.exercises.running import remote
from lib.exercises.running.process import Limits, Trusted

# What it leaves behind holds both pipes, reads nothing, and is in no group that could be ended.
LEAVES = """
import os, time
if os.fork() == 0:
    os.setsid()
    time.sleep(3)
    os._exit(0)
os.kill(os.getpid(), 9)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs fork")
def test_neither_reading_nor_writing_waits_for_what_has_left_the_process():
    session = remote.Session(Trusted().start(Limits(processes=True), numba=False), wait=0.5)
    begun = time.monotonic()
    with session.within(remote.START):
        session.wait_until_ready()
    for more_than_a_pipe_holds in ({"source": LEAVES}, {"source": "x" * 10**6}):
        with pytest.raises(remote.Gone, match="it took longer than 0.2 s"), session.within(0.2):
            session.request("cell", **more_than_a_pipe_holds)
    session.close()
    assert time.monotonic() - begun < 2.9
