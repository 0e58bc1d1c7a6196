"""An engine of the reader's own functions: theirs where they are right, the course's elsewhere.

`course say --mine` judges the notebooks first, as `course check` does. Then it starts a process
that runs the cells of the right answers and the model with them; no code of a reader runs in the
process that judges, and Ctrl-C ends both. `finish` does the same within a notebook.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lib.attention import attend_causal
from lib.engine.llama import Llama, LlamaWeights
from lib.engine.sampling import probabilities
from lib.errors import CourseError
from lib.exercises import small_model
from lib.exercises import t08_read_a_model as t08
from lib.exercises import t09_your_llama as t09
from lib.exercises.building import plain
from lib.exercises.judging import RIGHT, Malformed, NotRight, Unanswered, Wrong
from lib.exercises.parts import PARTS
from lib.ffn import swiglu
from lib.norm import rms_norm
from lib.rope import rope

SLOW_TO_READ = 60  # seconds for all tensors
TOO_FAR = 2e-3  # of the largest number: sums in float32, over rows of a thousand numbers
SLOWER = 4  # times as long as the course's function, before it is said


if TYPE_CHECKING:
    from lib.exercises.checking import Mine
    from lib.exercises.verdicts import Row


# --- A reader's function in the model ------------------------------------------------------------


@dataclass
class Watched:
    """A reader's function in use: its first results are compared, its time is taken.

    Fields
    ------
    name : str
    function, course : callable
        The reader's, and the course's with the same parameters.
    compared : int
        Calls whose results are compared.
    """

    name: str
    function: Callable
    course: Callable
    compared: int = 0
    calls: int = 0
    seconds: float = 0.0
    pairs: list = field(default_factory=list)  # seconds of both, for the calls that are compared

    def __call__(self, *arguments):
        """Call it; raise `NotRight` where it cannot be used, or differs from the course's."""
        start = time.perf_counter()
        try:
            returned = self.function(*arguments)
        except (Exception, SystemExit) as error:
            raise Wrong(f"{self._where()} it raised {type(error).__name__}: {error}") from None
        seconds = time.perf_counter() - start
        if returned is None or returned is ...:
            raise Unanswered(f"{self._where()} it returned nothing.")
        if self.calls < self.compared:
            start = time.perf_counter()
            expected = self.course(*arguments)
            self.pairs.append((seconds, time.perf_counter() - start))
            self._compare(returned, expected)
        self.calls += 1
        self.seconds += seconds
        return returned

    def numbers(self, *arguments):
        """Call it, and return float32 arrays in the place of what it returned."""
        returned = self(*arguments)
        if type(returned) is tuple:
            return tuple(self._float32(part) for part in returned)
        return self._float32(returned)

    def _float32(self, value):
        if type(value) is np.ndarray and value.dtype in (np.float32, np.float64):
            found = value
        else:
            try:
                found = plain(value)
            except Malformed as fault:
                raise Malformed(f"{self._where()} it returned {fault}.") from None
        if not np.isfinite(found).all():
            raise Wrong(f"{self._where()} it returned NaN or infinity.")
        return found.astype(np.float32, copy=False)

    def _compare(self, came, expected):
        if not isinstance(expected, tuple | np.ndarray):  # a text, tokens, one token
            if came != expected and list(np.ravel(came)) != list(np.ravel(expected)):
                raise Wrong(
                    f"{self._where()} it returned {came!r:.200}; right is {expected!r:.200}"
                )
            return
        parts = expected if type(expected) is tuple else (expected,)
        theirs = came if type(expected) is tuple else (came,)
        for mine, right in zip(theirs, parts, strict=True):
            mine = self._float32(mine)
            if mine.shape != np.shape(right):
                raise Wrong(
                    f"{self._where()} it returned shape {mine.shape}; right is {np.shape(right)}."
                )
            size = max(1.0, float(np.abs(right).max(initial=0)))
            if (gap := float(np.abs(mine - right).max(initial=0))) > TOO_FAR * size:
                raise Wrong(
                    f"{self._where()} it is off by {gap:.2g}, where the largest number is "
                    f"{size:.2g}. It is right on the small inputs of its task, so look at what the "
                    "model has more of: tokens, heads, large numbers."
                )

    def _where(self):
        return f"Your {self.name}, in the model at its call number {self.calls + 1}:"

    def slow(self):
        """Say whether it takes far longer than the course's, by the calls that were compared."""
        theirs, course = (sum(times) for times in zip(*self.pairs[1:], strict=True)) if (
            len(self.pairs) > 1
        ) else (0.0, 1.0)  # fmt: skip
        if theirs < SLOWER * course or self.seconds < 0.5:
            return ""
        return (
            f"Your {self.name} is right but slow in use: {1e3 * self.seconds / self.calls:.1f} ms "
            f"a call, {theirs / course:.0f} times as long as the course's; it took "
            f"{self.seconds:.1f} s in all."
        )


# --- The engine ----------------------------------------------------------------------------------


def _grouped(Q, K, V, attend=attend_causal):
    group = Q.shape[1] // K.shape[1]
    heads = [attend(Q[:, h], K[:, h // group], V[:, h // group]) for h in range(Q.shape[1])]
    return np.stack(heads, axis=1)


def _turn(X, first, base):
    return rope(X, np.arange(first, first + len(X)), base)


def _layer(parts, X, w, K_cache, V_cache, H, eps, base):
    """Run a layer with the parts given: the steps of `t09.layer`."""
    n, (first, H_kv, d_head) = len(X), K_cache.shape
    normed = parts["rms_norm"](X, w["attention_gain"], eps)
    Q = parts["rotate"]((normed @ w["W_Q"]).reshape(n, H, d_head), first, base)
    K = parts["rotate"]((normed @ w["W_K"]).reshape(n, H_kv, d_head), first, base)
    K = np.concatenate([K_cache, K])
    V = np.concatenate([V_cache, (normed @ w["W_V"]).reshape(n, H_kv, d_head)])
    X = X + parts["attend_grouped"](Q, K, V).reshape(n, -1) @ w["W_O"]
    normed = parts["rms_norm"](X, w["ffn_gain"], eps)
    return X + parts["swiglu"](normed, w["W_gate"], w["W_up"], w["W_down"]), K, V


def _logits(norm, X, gain, embedding, eps):
    return embedding @ norm(X[-1:], gain, eps)[0]


COURSE = {"rms_norm": rms_norm, "rotate": _turn, "attend_grouped": _grouped, "swiglu": swiglu}
COURSE["my_attention"] = attend_causal
COURSE["llama_layer"] = partial(_layer, COURSE)
COURSE["logits"] = partial(_logits, rms_norm)


class Engine:
    """A model of the course's parts and a reader's.

    Parameters
    ----------
    file : GGUF
    yours : dict of str to callable
        The reader's functions, by the names of `PARTS`.
    """

    def __init__(self, file, yours):
        self.file, self.notes = file, []
        self.watched = {}
        model = Llama.of(file)
        twice = 2 * model.config.L  # each layer, for the prompt and for the first token after it
        for name, function in yours.items():
            count = {"rms_norm": 2 * twice, "rotate": 2 * twice, "my_attention": 200}.get(
                name, twice
            )
            self.watched[name] = Watched(name, function, COURSE.get(name), count)
        self._text = (
            file.metadata["tokenizer.ggml.tokens"],
            file.metadata["tokenizer.ggml.merges"],
        )
        self.model = self._model(model)

    def _part(self, name):
        return self.watched[name].numbers if name in self.watched else COURSE[name]

    def _model(self, model):
        if {"read_tensor", "q8_block", "q4_block"} & self.watched.keys():
            self._read(model)
        parts = {name: self._part(name) for name in ("rms_norm", "rotate", "swiglu")}
        parts["attend_grouped"] = self._part("attend_grouped")
        if "attend_grouped" not in self.watched and "my_attention" in self.watched:
            parts["attend_grouped"] = partial(_grouped, attend=self._part("my_attention"))
        whole = (
            self._part("llama_layer") if "llama_layer" in self.watched else partial(_layer, parts)
        )
        if any(part not in (COURSE[name],) for name, part in parts.items()) or (
            "llama_layer" in self.watched
        ):
            model = model.using(layer=partial(_in_the_engine, whole))
        if {"logits", "rms_norm"} & self.watched.keys():
            head = self._part("logits") if "logits" in self.watched else (
                partial(_logits, parts["rms_norm"])
            )  # fmt: skip
            gain, embedding, eps = model.output_gain, model.W_head.T, model.config.eps
            model = model.using(head=lambda X: head(np.atleast_2d(X), gain, embedding, eps))
        if "embed" in self.watched:
            place = small_model.place_of(self.file, "token_embd.weight")
            embed, table = self.watched["embed"], model.embedding
            embed.course = lambda ids, *rest: table[ids]
            model.embedding = _Rows(lambda ids: embed.numbers(ids, *place[:3], model.config.d))
        return model

    # --- Reading ---

    def _read(self, model):
        """Read the weights by the reader's functions, as far as they are quick enough."""
        reader = self.watched.get("read_tensor")
        blocks = {
            name: self.watched[name] for name in ("q8_block", "q4_block") if name in self.watched
        }
        read = reader.function if reader else partial(_by_blocks, blocks)
        names = list(self.file.tensors)
        total = sum(np.prod(self.file.tensors.infos[name].shape) for name in names)
        begun, done, taken = time.perf_counter(), 0, []
        for name in sorted(names, key=lambda name: (not name.startswith("blk.0."), name)):
            place = small_model.place_of(self.file, name)
            taken.append((name, self._one(read, reader, name, place)))
            done += np.prod(place[3])
            expected = (time.perf_counter() - begun) * total / done
            if done > 50_000 and expected > SLOW_TO_READ:
                who = "read_tensor" if reader else " and ".join(blocks)
                self.notes.append(
                    f"Reading all {total:,.0f} weights with your {who} would take "
                    f"{expected:.0f} s, so it reads {len(taken)} of {len(names)} tensors, and the "
                    "course the others. "
                    "Reading all blocks of a tensor at once makes it quick."
                )
                break
        _put(model, dict(taken))

    def _one(self, read, reader, name, place):
        who = "read_tensor" if reader else "block"
        try:
            found = np.asarray(read(*place), np.float32)
        except (Exception, SystemExit) as error:
            raise Wrong(
                f"Your {who}, on {name}: it raised {type(error).__name__}: {error}"
            ) from None
        right = self.file.tensors[name]
        if found.shape != right.shape or not np.abs(found - right).max() <= 1e-4:
            raise Wrong(f"Your {who}, on {name}: its numbers are not those of the file.")
        return found

    # --- Text ---

    def encode(self, text):
        """Return the tokens of a text, by the reader's functions where there are any."""
        right, (tokens, merges) = self.model.tokenizer.encode(text), self._text
        yours = {name: self.watched[name].function for name in ("split", "merge", "encode")
                 if name in self.watched}  # fmt: skip
        if "encode" in yours:
            watched = self.watched["encode"]
            watched.course, watched.compared = lambda *given: right, 1
            return [int(token) for token in watched(text, tokens, merges, t08.ALPHABET)]
        if not yours:
            return right
        pieces, merge = yours.get("split", t08.split), yours.get("merge", t08.merge)
        ids = {spelled: token for token, spelled in enumerate(tokens)}
        words = ("".join(t08.ALPHABET[byte] for byte in p.encode()) for p in pieces(text))
        found = [ids.get(part, -1) for word in words for part in merge(word, merges)]
        if found != right:
            raise Wrong(f"Your {' and '.join(yours)}: the tokens are {found}; right is {right}.")
        return found

    def decode(self, ids):
        """Return the text of tokens."""
        if "decode" not in self.watched:
            return self.model.tokenizer.decode(ids)
        watched = self.watched["decode"]
        watched.course = lambda ids, *rest: self.model.tokenizer.decode(ids)
        watched.compared = sys.maxsize
        return watched(list(ids), self._text[0], t08.ALPHABET)

    def choose(self, logits, temperature, top_p, top_k, seed):
        """Return the next token, by the reader's functions where there are any."""
        share, theirs = 1.0 if top_p is None else top_p, self.watched
        if "sample" in theirs and top_k is None:
            watched = theirs["sample"]
            watched.course, watched.compared = t09.sample, sys.maxsize
            return int(watched(np.asarray(logits, float), temperature, share, 0.0, seed))
        if temperature == 0 or top_k is not None or "top_p" not in theirs:
            p = probabilities(logits, temperature, top_k, top_p)
        else:
            theirs["top_p"].course, theirs["top_p"].compared = t09.top_p, sys.maxsize
            p = theirs["top_p"].numbers(probabilities(logits, temperature), share)
        u = np.random.default_rng(seed).random()
        return min(int(np.searchsorted(np.cumsum(p), u, side="right")), len(p) - 1)

    def write(self, prompt, n, temperature=0.0, top_k=None, top_p=None, seed=None):
        """Yield pieces of the text that follows a prompt."""
        model, ids = self.model, self.encode(prompt)
        if not ids:
            raise CourseError("prompt should hold at least one token; it is empty")
        cache, new, said, shown = model.new_cache(len(ids) + n), ids, [], ""
        seeds = np.random.default_rng(seed)
        self.began = time.perf_counter()
        for _ in range(n):
            logits = model.logits(new, cache)
            token = self.choose(logits, temperature, top_p, top_k, int(seeds.integers(2**31)))
            if token in model.tokenizer.stop:
                break
            said.append(token)
            new = [token]
            whole = self.decode(said)
            if not whole.endswith("\ufffd"):  # half a character waits for its rest
                yield whole[len(shown) :]
                shown = whole
        self.tokens, self.seconds = len(said), time.perf_counter() - self.began

    def report(self):
        """Return lines that say whose the parts are, what is slow, and how many tokens a second."""
        own = [name for name in PARTS if name in self.watched]
        lines = [f"yours:        {', '.join(own) or 'nothing yet'}"]
        if rest := [name for name in PARTS if name not in self.watched
                    and not (name == "my_attention" and "attend_grouped" in own)]:  # fmt: skip
            lines.append(f"the course's: {', '.join(rest)}")
        if "llama_layer" in own:
            lines.append("Your llama_layer runs with the functions that it calls in its notebook.")
        lines += self.notes
        lines += [said for watched in self.watched.values() if (said := watched.slow())]
        lines.append(f"{self.tokens} tokens in {self.seconds:.1f} s, the reading of the prompt "
                     f"included: {self.tokens / max(self.seconds, 1e-9):.2f} tokens/s")  # fmt: skip
        return lines


class _Rows:
    """An embedding whose rows are looked up by a function."""

    def __init__(self, look_up):
        self.look_up = look_up

    def __getitem__(self, ids):
        return self.look_up([int(token) for token in ids])


def _in_the_engine(layer, X, weights_and_cache, config, parts=None):
    """Run a layer with the parameters of exercise 09 in the place of the engine's own."""
    weights, cache = weights_and_cache
    n, filled = len(X), cache.n
    K, V = (A[:, :filled].swapaxes(0, 1) for A in (cache.keys, cache.values))
    out, K, V = layer(X, vars(weights), K, V, config.H, config.eps, config.rope_base)
    if len(K) != filled + n or len(V) != filled + n:
        raise Wrong(
            f"Your llama_layer returned caches of {len(K)} and {len(V)} tokens; there are "
            f"{filled + n}."
        )
    cache.append(K[filled:].swapaxes(0, 1), V[filled:].swapaxes(0, 1))
    return np.asarray(out, np.float32)


def _by_blocks(blocks, data, start, kind, shape):
    """Read a tensor with a reader's function for its blocks, or the course's."""
    theirs = blocks.get({"Q8_0": "q8_block", "Q4_1": "q4_block"}.get(kind))
    if theirs is None:
        return t08.read_tensor(data, start, kind, shape)
    size, numbers, _ = t08.FORMATS[kind]
    count = int(np.prod(shape)) // numbers
    rows = data[start : start + size * count].reshape(count, size)
    return np.array([theirs.function(row.copy()) for row in rows], np.float32).reshape(shape)


_IN_FILE = {
    "attention_gain": "attn_norm", "W_Q": "attn_q", "W_K": "attn_k", "W_V": "attn_v",
    "W_O": "attn_output", "ffn_gain": "ffn_norm", "W_gate": "ffn_gate", "W_up": "ffn_up",
    "W_down": "ffn_down",
}  # fmt: skip


def _put(model, taken):
    """Put tensors that were read into their places in a model."""
    model.layers = [
        LlamaWeights(**{
            name: taken[place].T if (place := f"blk.{k}.{in_file}.weight") in taken
            else getattr(weights, name)
            for name, in_file in _IN_FILE.items()
        })
        for k, weights in enumerate(model.layers)
    ]  # fmt: skip
    model.output_gain = taken.get("output_norm.weight", model.output_gain)
    if "token_embd.weight" in taken:
        tied = model.W_head.T.shape == model.embedding.shape and model.W_head.base is not None
        model.embedding = taken["token_embd.weight"]
        if tied and "output.weight" not in model_tensors(taken):
            model.W_head = model.embedding.T


def model_tensors(taken):
    """Return the names of the tensors that were read."""
    return taken.keys()


def finish(prompt, parts, n=8, temperature=0.0, seed=None):
    """Let the model finish a text with functions of yours, and say whose the parts are.

    Parameters
    ----------
    prompt : str
    parts : dict of str to callable
        Functions by their names: ``{"rms_norm": rms_norm}``.
    n : int
        Tokens to add at most.
    temperature : float
    seed : int, optional

    Raises
    ------
    NotRight
        A function cannot be used, or gives other numbers than the course's.
    """
    if unknown := sorted(parts.keys() - PARTS.keys()):
        raise CourseError(f"parts should be named {', '.join(PARTS)}; one is {unknown[0]!r}")
    engine = Engine(small_model.open_file(), parts)
    print(prompt, end="")
    for piece in engine.write(prompt, n, temperature, seed=seed):
        print(piece, end="", flush=True)
    print("\n", *engine.report(), sep="\n")


# --- course say --mine ---------------------------------------------------------------------------


def programs_of(mine: Mine, rows: Sequence[Row]) -> dict[str, list[str]]:
    """Return the cells of each right answer that is a part: the name, its variable and cells."""
    from lib.exercises import checking

    right = {row.task for row in rows if row.verdict == RIGHT}
    questions = {q.task: q for q in mine.exercise.questions if q.task in right}
    return {
        name: [questions[task].variable, *checking.program(mine, questions[task])]
        for name, (task, _) in PARTS.items()
        if task in questions
    }


def say(
    prompt: str, paths: Sequence[Path], tokens: int, tell: Callable, **sampling: float | None
) -> int:
    """Judge a reader's notebooks, then let the model speak in a process of its own.

    Parameters
    ----------
    prompt : str
    paths : sequence of Path
        The reader's exercises; those without a part of the engine are passed over.
    tokens : int
    tell : callable
        ``tell(sentence)`` says what is no part of the text.
    **sampling
        temperature, top_k, top_p and seed, as in `lib.engine.sampling.generate`.

    Returns
    -------
    int
        0, or 1 where a function could not be used.
    """
    from lib.exercises import checking

    programs = {}
    for path in paths:
        mine = checking.read(path)
        if any(q.task == task for q in mine.exercise.questions for task, _ in PARTS.values()):
            programs |= programs_of(mine, checking.judged(mine))
    if not programs:
        tell("None of the engine's parts is yours yet: exercises 08 and 09 ask for them. The "
             "course's functions speak.")  # fmt: skip
    task = json.dumps({"prompt": prompt, "n": tokens, "programs": programs, **sampling})
    command = [sys.executable, "-X", "utf8", "-m", "lib.exercises.mine"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, cwd=Path(__file__).parents[2]) as child:
        try:
            child.communicate(task.encode())
        except BaseException:  # Ctrl-C ends both
            child.kill()
            raise
    return child.returncode


def function_of(variable, *cells):
    """Run the cells of an answer, and return the function that it makes.

    A statement above the answer that fails is passed over, as the judge does.
    """
    names = {"__name__": "__main__", "display": print, "get_ipython": lambda: None}
    for source in cells[:-1]:
        try:
            exec(compile(source, "a cell", "exec"), names)
        except Exception:
            continue
    exec(compile(cells[-1], "a cell", "exec"), names)
    return names[variable]


def main():
    """Speak as the JSON on stdin says: text to stdout, all else to stderr."""
    task = json.loads(sys.stdin.buffer.read())
    programs = task.pop("programs")
    tell = partial(print, file=sys.stderr)
    try:
        yours = {name: function_of(*cells) for name, cells in programs.items()}
        engine = Engine(small_model.open_file(tell), yours)
        tell(task["prompt"], end="", flush=True)
        for piece in engine.write(**task):
            print(piece, end="", flush=True)
        print(flush=True)
        for line in engine.report():
            tell(line)
    except KeyboardInterrupt:
        return 130
    except NotRight as refusal:
        tell(f"\n{refusal.heading}: {refusal}")
        return 1
    except CourseError as error:
        tell(f"\n{error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
