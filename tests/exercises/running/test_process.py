"""Processes for answers: what they may hold on to when they end."""

import os
import signal
import sys
import time

import pytest

from lib.exercises.running import remote
from lib.exercises.running.process import Limits, Trusted

# What it leaves behind holds both pipes, reads nothing, and is in no group that could be ended.
LEAVES = """
import os, pathlib, time
if os.fork() == 0:
    os.setsid()
    pathlib.Path({!r}).write_text(str(os.getpid()))
    time.sleep(60)
    os._exit(0)
time.sleep(0.1)
os.kill(os.getpid(), 9)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs fork")
def test_neither_reading_nor_writing_waits_for_what_has_left_the_process(tmp_path):
    session = remote.Session(Trusted().start(Limits(processes=True), numba=False))
    with session.within(remote.START):
        session.wait_until_ready()
    session._wait, begun = 1.5, time.monotonic()
    for more_than_a_pipe_holds in (LEAVES.format(str(tmp_path / "left")), "x" * 10**6):
        with pytest.raises(remote.Gone, match="it took longer than 0.2 s"), session.within(0.2):
            session.request("cell", source=more_than_a_pipe_holds)
    session.close()
    assert time.monotonic() - begun < 30
    os.kill(int((tmp_path / "left").read_text()), signal.SIGKILL)  # it was there all the time
