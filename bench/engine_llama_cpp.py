"""llama.cpp as a contestant: cases on standard input, see `engine_cases`.

    python engine_llama_cpp.py run THREADS TOKENS MODEL      answers the cases
    python engine_llama_cpp.py quantise MODEL OUT            writes the model as Q4_0, its fastest

It is driven through its C functions, so that no Python of the binding stands in the time.
"""

import ctypes
import os
import sys

import llama_cpp
import numpy as np
from engine_cases import compete

BATCH = 512  # tokens that one call takes; its default
FTYPE_Q4_0 = 2  # llama_ftype, LLAMA_FTYPE_MOSTLY_Q4_0

# Its own answers about the cache are wanted, not its log.
_silent = llama_cpp.llama_log_callback(lambda level, text, data: None)


class Peer:
    """A model and its context, with llama.cpp's defaults but for the threads."""

    def __init__(self, threads, model):
        llama_cpp.llama_log_set(_silent, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        parameters = llama_cpp.llama_model_default_params()
        self.model = llama_cpp.llama_model_load_from_file(os.fsencode(model), parameters)
        if not self.model:
            raise RuntimeError("llama.cpp does not load the model")
        vocabulary = llama_cpp.llama_model_get_vocab(self.model)
        self.n_tokens = llama_cpp.llama_vocab_n_tokens(vocabulary)
        self.threads, self.room, self.texts, self.context = threads, 0, 1, None

    def start(self, room, texts=1):
        """Empty the context; make another one if it has not enough room, or texts."""
        if room > self.room or texts != self.texts:
            if self.context:
                llama_cpp.llama_free(self.context)
            parameters = llama_cpp.llama_context_default_params()
            parameters.n_ctx, parameters.n_seq_max = room, texts
            parameters.kv_unified = True  # one cache, so that texts can share their beginning
            self.room, self.texts = room, texts
            parameters.n_batch = BATCH
            parameters.n_threads = parameters.n_threads_batch = self.threads
            self.context = llama_cpp.llama_init_from_model(self.model, parameters)
            if not self.context:
                raise RuntimeError(f"llama.cpp makes no context of {room} tokens")
        self.forget(0)

    def feed(self, tokens):
        """Run tokens after those in the context, and wait until they are done."""
        for at in range(0, len(tokens), BATCH):
            part = tokens[at : at + BATCH]
            array = (llama_cpp.llama_token * len(part))(*part)
            # The logits of the last token alone are asked for: that is what this batch means.
            self._decode(llama_cpp.llama_batch_get_one(array, len(part)))

    def _decode(self, batch):
        code = llama_cpp.llama_decode(self.context, batch)
        if code:
            raise RuntimeError(f"llama_decode returned {code}")
        llama_cpp.llama_synchronize(self.context)

    def best(self):
        """Return the likeliest next token."""
        return int(np.argmax(self._logits(-1)))

    def _logits(self, index):
        pointer = llama_cpp.llama_get_logits_ith(self.context, index)
        return np.ctypeslib.as_array(pointer, shape=(self.n_tokens,))

    def forget(self, n):
        """Keep the first n tokens in the context."""
        memory = llama_cpp.llama_get_memory(self.context)
        if not llama_cpp.llama_memory_seq_rm(memory, -1 if n == 0 else 0, n, -1):
            raise RuntimeError(f"llama.cpp does not forget the tokens from {n} on")

    def branch(self, tokens, count, n):
        """Read what some texts begin with, once."""
        self.start(len(tokens) + count * n, count)
        self.feed(tokens)
        memory = llama_cpp.llama_get_memory(self.context)
        for text in range(1, count):
            llama_cpp.llama_memory_seq_cp(memory, 0, text, -1, -1)
        self.n = len(tokens)

    def feed_each(self, tokens):
        """Run one token of each text, all logits included."""
        batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for k, token in enumerate(tokens):
            batch.token[k], batch.pos[k] = token, self.n
            batch.n_seq_id[k], batch.seq_id[k][0] = 1, k
            batch.logits[k] = True
        self._decode(batch)
        llama_cpp.llama_batch_free(batch)
        self.n += 1

    def all_logits(self, tokens):
        """Return the logits after each token of a text."""
        self.start(len(tokens))
        rows = []
        for at in range(0, len(tokens), BATCH):
            rows += self._logits_of(tokens[at : at + BATCH], at)
        return np.stack(rows)

    def _logits_of(self, tokens, first):
        batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for k, token in enumerate(tokens):
            batch.token[k], batch.pos[k] = token, first + k
            batch.n_seq_id[k], batch.seq_id[k][0] = 1, 0
            batch.logits[k] = True
        self._decode(batch)
        llama_cpp.llama_batch_free(batch)
        return [self._logits(k).copy() for k in range(len(tokens))]


def quantise(model, out):
    """Write a model as Q4_0, with llama.cpp's own quantiser."""
    llama_cpp.llama_log_set(_silent, ctypes.c_void_p(0))
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype = FTYPE_Q4_0
    parameters.allow_requantize = True
    made = f"{out}.part"  # a broken off run leaves no file that looks whole
    pair = os.fsencode(model), os.fsencode(made)
    if llama_cpp.llama_model_quantize(*pair, ctypes.byref(parameters)):
        raise SystemExit("Error: llama.cpp does not quantise the model")
    os.replace(made, out)  # noqa: PTH105


if __name__ == "__main__":
    what, *arguments = sys.argv[1:]
    if what == "quantise":
        quantise(*arguments)
    else:
        threads, tokens, model = arguments
        compete(Peer(int(threads), model), tokens)
