"""What both contestants of the float32 core share: inputs by seed, the clock, the conversation.

A contestant reads one case a line from its standard input and answers each with one line of JSON:

    attend 1024             one query over 1024 keys, width 64
    attend_causal 256       256 queries, each over its left context, width 64
    layer                   one layer, one token: width 576, FFN 1536
    product 1 576 1536      (1, 576) @ (576, 1536)
    check attend 1024       the same computation, answered with numbers of its result

It waits between its turns, so that a driver can let two contestants alternate. Its one argument,
if given, is the number of threads.
"""

import json
import os
import sys
import time

THREADS = sys.argv[1] if len(sys.argv) > 1 else "2"
for library in ("OPENBLAS", "OMP", "MKL"):  # read when NumPy or torch is imported: set before that
    os.environ[f"{library}_NUM_THREADS"] = THREADS

import numpy as np  # noqa: E402

WIDTH, D, D_FF = 64, 576, 1536
NAMES = ["W_Q", "W_K", "W_V", "W_O", "W_1", "b_1", "W_2", "b_2"]  # of a layer's weights
NAMES += ["gain_1", "bias_1", "gain_2", "bias_2"]


def normal(*shapes, seed=0):
    """Return float32 arrays of normal numbers, the same in every process."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def arrays(case, *sizes):
    """Return the inputs of a case.

    Those of ``layer`` are named as in `lib.layer.LayerWeights`, after the vector that enters.
    """
    if case == "attend":
        return normal((WIDTH,), (sizes[0], WIDTH), (sizes[0], WIDTH))
    if case == "attend_causal":
        return normal(*[(sizes[0], WIDTH)] * 3)
    if case == "product":
        m, k, n = sizes
        return normal((m, k), (k, n))
    x, *weights = normal((1, D), *[(D, D)] * 4, (D, D_FF), D_FF, (D_FF, D), *[(D,)] * 5)
    scaled = {n: w / np.sqrt(np.float32(len(w))) for n, w in zip(NAMES, weights, strict=True)}
    return [x, scaled]


def median_seconds(call, least=0.1):
    """Return the median time of one call, from at least 7 calls and ``least`` seconds of them."""
    for _ in range(3):  # compile, and bring the inputs into the cache
        call()
    seconds, total = [], 0.0
    while len(seconds) < 7 or total < least:
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
        total += seconds[-1]
    return float(np.median(seconds))


def digest(result):
    """Return 16 numbers of a result, evenly spread over it, and its root mean square."""
    flat = np.asarray(result, np.float64).ravel()
    where = np.linspace(0, flat.size - 1, 16).astype(int)
    return [*flat[where].tolist(), float(np.sqrt(np.mean(flat**2)))]


def serve(prepare):
    """Answer the cases on standard input; ``prepare(case, *sizes)`` returns a call to be timed."""
    for line in sys.stdin:
        *check, case = line.split()[: 1 + line.startswith("check")]
        sizes = [int(size) for size in line.split()[1 + len(check) :]]
        call = prepare(case, *sizes)
        answer = {"digest": digest(call())} if check else {"seconds": median_seconds(call)}
        print(json.dumps({"case": line.strip()} | answer), flush=True)
