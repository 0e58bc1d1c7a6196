"""What both engines are asked, and what of it is timed.

An engine has these methods, of which the last three are not every engine's:

    start(room)       an empty context with room for so many tokens; what can be kept is kept
    feed(tokens)      run tokens after those in the context, the last one's logits included
    best()            the likeliest next token after the last feed
    forget(n)         drop all but the first n tokens
    all_logits(tokens)    the logits after each token of a text of its own: (n, vocabulary)
    count(passes)     bytes and multiply-adds of passes of (tokens, tokens before them)
    branch(tokens, count, n)  `count` texts that begin with the tokens, with room for n more each
    feed_each(tokens)     one token of each of these texts, in one pass
    write(tokens, n, guess)   n tokens that follow, each the likeliest, guessing ahead or not; it
                      returns the seconds after the prompt was read

Only `feed` is timed: no tokenizer, no choice of the token, no loading. The token ids come from the
driver, so both engines run the same ones.
"""

import json
import time
from pathlib import Path

import numpy as np
from conversation import serve


def compete(engine, tokens):
    """Answer the cases of an engine.

    Parameters
    ----------
    engine : object
        With the methods above.
    tokens : path
        A JSON list of token ids, the text.
    """
    text = json.loads(Path(tokens).read_text(encoding="utf-8"))
    state = {}

    def stream(start, stop):  # the text, again and again
        return [text[k % len(text)] for k in range(start, stop)]

    def decode(before, n):
        """Run a prompt, then time n tokens, one by one, each the likeliest after the last."""
        before, n = int(before), int(n)
        state["context"] = 0
        engine.start(before + n)
        engine.feed(stream(0, before))
        seconds = 0.0
        for _ in range(n):
            seconds += timed(engine.feed, [engine.best()])
        return answer(engine, seconds, [(1, before + k) for k in range(n)])

    def prefill(n):
        """Time a prompt of n tokens in an empty context."""
        state["context"] = 0
        engine.start(int(n))
        return answer(engine, timed(engine.feed, stream(0, int(n))), [(int(n), 0)])

    def context(n, step):
        """Time the last `step` tokens, one by one, of a context that reaches n."""
        n, step = int(n), int(step)
        if state.get("context", 0) != n:  # once for all turns at this size
            engine.start(n)
            engine.feed(stream(0, n - step))
            state["context"] = n
        engine.forget(n - step)
        seconds = sum(timed(engine.feed, [token]) for token in stream(n - step, n))
        return answer(engine, seconds, [(1, k) for k in range(n - step, n)])

    def logits(path):
        """Write the logits after each token of the text to a file of NumPy."""
        found = engine.all_logits(text)
        np.save(path, np.asarray(found, np.float32))
        return {"tokens": len(text), "logits": path}

    def many(count, before, n):
        """Time n passes with a token of each of `count` texts that share a prompt."""
        count, before, n = int(count), int(before), int(n)
        state["context"] = 0
        engine.branch(stream(0, before), count, n)
        rows = [[text[(7 * k + step) % len(text)] for k in range(count)] for step in range(n)]
        seconds = sum(timed(engine.feed_each, row) for row in rows)
        return {"seconds": seconds, "tokens": count * n}

    def write(kind, n, guess):
        """Time n tokens that follow a text which asks for a copy, or one that does not."""
        prompt = [*stream(0, 100), *stream(0, 100), *stream(0, 8)] if kind == "copy" else text[:24]
        state["context"] = 0
        seconds = engine.write(prompt, int(n), None if guess == "none" else guess)
        return {"seconds": seconds, "tokens": int(n)}

    cases = {"decode": decode, "prefill": prefill, "context": context, "logits": logits}
    serve(cases | {"many": many, "write": write})


def answer(engine, seconds, passes):
    """Return what a turn found: passes of (tokens, tokens before them); some engines count more."""
    count = getattr(engine, "count", lambda passes: {})
    return {
        "seconds": seconds,
        "tokens": sum(n for n, _ in passes),
        "passes": len(passes),
        "cached": sum(before + n for n, before in passes),  # tokens read from the cache, in all
    } | count(passes)


def timed(call, *arguments):
    """Return the seconds of one call."""
    start = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - start
