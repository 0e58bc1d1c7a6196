"""What every machine has to compute, compared with the float64 definitions; prints a digest.

usage: python -m tests.machines.sample
"""

import hashlib
import tempfile
from pathlib import Path

import numpy as np

from lib import attention, ffn, norm, reference, rope
from lib.engine.fast import load_fast
from lib.engine.llama import load_model
from tests.engine.tiny_models import BLOCKS, write_tiny

# Sums of a few dozen float32 products of numbers of size 1, then at most a division or an
# exponential: hundreds of roundings of 6e-8 would still be below it.
TOLERANCE = 2e-5
TOKENS = [1, 5, 2, 9, 3, 3, 7]


def arrays(n=37, d=12, d_v=7):  # -> Q (n, d), K (n, d), V (n, d_v)
    random = np.random.default_rng(3)
    return [random.standard_normal((n, width)).astype(np.float32) for width in (d, d, d_v)]


def core():
    """Return pairs: what the core computes, and its definition."""
    Q, K, V = arrays()
    gain = np.linspace(0.5, 2, Q.shape[1], dtype=np.float32)
    yield attention.attend(Q[0], K, V), reference.attend(Q[0], K, V)
    yield attention.attend_causal(Q, K, V), reference.attend_causal(Q, K, V)
    yield attention.attend_causal(Q[-3:], K, V), reference.attend_causal(Q[-3:], K, V)
    yield attention.softmax(Q), reference.softmax(Q)
    yield norm.rms_norm(Q, gain), reference.rms_norm(Q, gain)
    yield norm.layer_norm(Q, gain, gain), reference.layer_norm(Q, gain, gain)
    yield ffn.activate(Q, "gelu"), reference.gelu(Q)
    yield ffn.activate(Q, "silu"), reference.silu(Q)
    yield rope.rope(Q, np.arange(len(Q))), reference.rope(Q, np.arange(len(Q)))


def engine():
    """Return triples: logits of the fast engine, of the plain one, and how far apart they may be.

    Vectors that meet weights of 4 bits are rounded to 8, which costs some percent.
    """
    with tempfile.TemporaryDirectory() as folder:
        odd = write_tiny(Path(folder, "odd.gguf"))
        blocks = write_tiny(Path(folder, "blocks.gguf"), sizes=BLOCKS, kind="Q4_1")
        for path, tolerance in ((odd, TOLERANCE), (blocks, 0.1)):
            fast = load_fast(path, threads=2, cache_type="float32").logits(TOKENS, all=True)
            yield fast, load_model(path).logits(TOKENS, all=True), tolerance


def digest():
    """Compare everything, and return the first digits of a hash of all bytes."""
    found = hashlib.sha256()
    cases = [*((got, right, TOLERANCE) for got, right in core()), *engine()]
    for got, right, tolerance in cases:
        largest = np.abs(right).max()
        np.testing.assert_allclose(got, right, rtol=0, atol=tolerance * max(1, largest))
        found.update(np.ascontiguousarray(got).tobytes())
    return found.hexdigest()[:16]


if __name__ == "__main__":
    print(digest())
