"""Try the laws on ever new cases: `python -m tests.laws --minutes 10`.

Each round runs all laws on 30 times as many cases as the suite does, drawn by a new seed. The
first case that breaks a law ends the run; hypothesis has then made it as small as it could.
"""

import argparse
import os
import random
import subprocess
import sys
import time
from pathlib import Path

from tests.laws.cases import DEFAULT, VARIABLE


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.laws", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="no round starts after these")
    parser.add_argument("--examples", type=int, default=30 * DEFAULT, help="cases for each law")
    given = parser.parse_args()
    here, start, rounds = Path(__file__).parent, time.monotonic(), 0
    while time.monotonic() - start < 60 * given.minutes or not rounds:
        seed = random.SystemRandom().randrange(2**32)
        command = ["-m", "pytest", "-q", "-n0", "--timeout=0", f"--hypothesis-seed={seed}"]
        command += ["-p", "no:cacheprovider", str(here)]
        env = os.environ | {VARIABLE: str(given.examples)}
        done = subprocess.run([sys.executable, *command], env=env, cwd=here.parent.parent)
        if done.returncode:
            print(f"A law broke. Again: {VARIABLE}={given.examples} python {' '.join(command)}")
            return done.returncode
        rounds += 1
    print(f"{rounds} rounds of {given.examples} cases for each law: all hold")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
