"""The engine of the course as a contestant: cases on standard input, see `engine_cases`.

python engine_ours.py fast|float32 THREADS TOKENS MODEL
"""

import sys
import time
from pathlib import Path

import numpy as np
from engine_cases import compete

sys.path.insert(0, str(Path(__file__).parents[1]))

from lib.engine import work


class Ours:
    """`lib.engine.fast`, or the float32 pass through the taught core."""

    def __init__(self, kind, threads, model):
        if kind == "fast":
            from lib.engine.fast import load_fast

            self.model = load_fast(model, threads=threads)
        else:
            from lib.engine.llama import load_model

            self.model = load_model(model)
        self.cache, self.room = None, 0

    def start(self, room):
        """Empty the cache; make a larger one if it has not enough room."""
        if room > self.room:
            self.cache, self.room = self.model.new_cache(room), room
        self.cache.truncate(0)

    def feed(self, tokens):
        """Run tokens after those in the cache."""
        self.last = self.model.logits(tokens, self.cache)

    def best(self):
        """Return the likeliest next token."""
        return int(np.argmax(self.last))

    def forget(self, n):
        """Keep the first n tokens in the cache."""
        self.cache.truncate(n)

    def branch(self, tokens, count, n):
        """Read what some texts begin with, once."""
        first = self.model.new_cache(len(tokens) + n, pages=self.model.new_pages())
        self.model.logits(tokens, first)
        self.texts = [first, *(first.fork() for _ in range(count - 1))]

    def feed_each(self, tokens):
        """Run one token of each text."""
        self.model.logits_of_texts([([t], c) for t, c in zip(tokens, self.texts, strict=True)])

    def write(self, tokens, n, guess):
        """Continue a text by n tokens, and return the seconds, without those of the prompt."""
        from lib.engine.sampling import generate

        cache = self.model.new_cache(len(tokens) + n)
        self.model.logits(tokens[:-1], cache)
        begun = time.perf_counter()
        assert len(list(generate(self.model, tokens, n, cache=cache, guess=guess))) == n
        return time.perf_counter() - begun

    def all_logits(self, tokens):
        """Return the logits after each token of a text."""
        return self.model.logits(tokens, all=True)

    def count(self, passes):
        """Return the multiply-adds and the bytes of passes, (tokens, tokens before them) each.

        The bytes are those that must be read: all weights and the cache, once for a pass.
        """
        config = self.model.config
        per_token = getattr(self.model, "bytes_per_token", self._float32_bytes)
        return {
            "multiply_adds": sum(work.multiply_adds(config, n, before) for n, before in passes),
            "bytes": sum(per_token(before + n) for n, before in passes),
        }

    def _float32_bytes(self, n):
        config = self.model.config
        return work.float32_bytes(config) + work.cache_bytes(config, n, 4)


if __name__ == "__main__":
    kind, threads, tokens, model = sys.argv[1:]
    compete(Ours(kind, int(threads), model), tokens)
