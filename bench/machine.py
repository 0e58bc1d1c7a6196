"""The machine itself as a contestant: what it can read, multiply and add at most.

python machine.py THREADS
"""

import sys
from pathlib import Path

from conversation import serve

sys.path.insert(0, str(Path(__file__).parents[1]))

from lib.bench.limits import multiply_add_peak, read_bandwidth

threads = int(sys.argv[1])
serve({
    "read": lambda: read_bandwidth(threads),
    "multiply_add": lambda kind: multiply_add_peak(threads, kind),
})  # fmt: skip
