"""Print the bits of the fast engine's logits, and the real model's words; run natively and in Node.

`python say_bits.py FOLDER` reads FOLDER/tiny.gguf and FOLDER/model.gguf; in Node the folder is
/course. Both print the same lines where both compile for plain vectors of 128 bits.
"""

import hashlib
import json
import sys
import time
from pathlib import Path

import numpy as np

from lib.engine.fast import load_fast
from lib.engine.sampling import generate

PROMPTS = [
    "The capital of France is",
    "Water is made of hydrogen and",
    "The dog saw the bird and",
    "def add(a, b):\n    return",
    "One, two, three, four,",
    "The opposite of hot is",
    "Monday, Tuesday,",
    "In 1969 the first man",
    "To be or not to be,",
    "The sun rises in the",
]


def digest(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


folder = Path(sys.argv[1] if len(sys.argv) > 1 else "/course")
tiny = load_fast(folder / "tiny.gguf", threads=1, cache_type="float32")
for tokens in ([5], [5, 40, 7, 90], list(range(3, 15))):
    print("tiny", len(tokens), digest(tiny.logits(tokens, all=True)), digest(tiny.hidden(tokens)))
if (folder / "model.gguf").exists():
    model = load_fast(folder / "model.gguf", threads=1, cache_type="float32")
    for prompt in PROMPTS:
        ids = model.tokenizer.encode(prompt)
        print("real", json.dumps([ids, list(generate(model, ids, 20)), digest(model.logits(ids))]))
    start = time.perf_counter()
    said = len(list(generate(model, ids, 64)))
    decode = said / (time.perf_counter() - start)
    start = time.perf_counter()
    model.logits(list(range(100, 356)))
    prefill = 256 / (time.perf_counter() - start)
    print(f"# {decode:.0f} tokens a second decoded, {prefill:.0f} of a prompt of 256")
