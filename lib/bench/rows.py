"""What is measured: the rows of the table, as data.

Each row sets one of ours against one peer, with the same work for both. A row's ratio is always
that many times better: more tokens a second, or fewer bytes and seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lib.errors import CourseError

HIGHER, LOWER = "higher is better", "lower is better"

# A unit -> which way is better, and how it is read off an answer.
UNITS = {
    "tokens/s": (HIGHER, lambda answer: answer["tokens"] / answer["seconds"]),
    "ms/token": (LOWER, lambda answer: 1e3 * answer["seconds"] / answer["tokens"]),
    "GB/s": (HIGHER, lambda answer: answer["bytes"] / answer["seconds"] / 1e9),
    "G multiply-adds/s": (HIGHER, lambda a: a["multiply_adds"] / a["seconds"] / 1e9),
    "µs": (LOWER, lambda answer: 1e6 * answer["seconds"]),
    "s": (LOWER, lambda answer: answer["seconds"]),
    "MB": (LOWER, lambda answer: answer["bytes"] / 1e6),
    "nats": (LOWER, lambda answer: answer["kl"]),
    "% equal": (HIGHER, lambda answer: 100 * answer["same_top"]),
}

# Contestants, by the names that rows use; `lib.bench.run` knows how each is started.
OURS, OURS_1, FLOAT32, CORE = "ours", "ours, 1 thread", "float32 pass", "core"
OURS_PLAIN = "ours, plainly"  # the same program in a process of its own
LIMIT, LIMIT_1, FILE = "machine", "machine, 1 thread", "model file"
LLAMA, LLAMA_Q4_0, LLAMA_START = "llama.cpp", "llama.cpp Q4_0", "llama.cpp, from start"
SAY, TORCH, NUMPY = "course say", "torch", "NumPy"

TOKENS = "64"  # decoded in one turn, after as many
PROMPT = "256"
CONTEXTS = (64, 512, 2048, 8192)
STEP = "8"  # tokens that a turn at one context decodes


@dataclass(frozen=True)
class Side:
    """One side of a row: who, and what it is asked."""

    contestant: str
    case: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """One row of the table."""

    key: str
    group: str
    title: str
    unit: str
    ours: Side
    peer: Side
    rounds: int | None = None  # at most so many; 1 for what does not vary
    share: bool = False  # whether the ratio is a share of a limit
    fresh: bool = False  # whether the contestants start anew, with nothing done before
    check: bool = False  # whether both must first show that they compute the same
    quick: bool = True  # whether it is kept in a quick run


def _row(group: str, name: str, title: str, unit: str, ours: Side, peer: Side, **more) -> Row:
    return Row(f"{group}/{name}", group, title, unit, ours, peer, **more)


def _speed() -> list[Row]:
    """Decode and prefill, against each peer."""
    rows = []
    for group, case, title in (
        ("decode", ("decode", TOKENS, TOKENS), "decode"),
        ("prefill", ("prefill", PROMPT), f"prefill of {PROMPT} tokens"),
    ):
        for name, peer in (("same-file", LLAMA), ("q4_0", LLAMA_Q4_0), ("float32", FLOAT32)):
            rows.append(_row(group, name, title, "tokens/s", Side(OURS, case), Side(peer, case)))
    return rows


def _limits() -> list[Row]:
    """The machine: what it can at most, and the share of it that the engine reaches."""
    read, add, add_8 = ("read",), ("multiply_add", "float32"), ("multiply_add", "int8")
    decode, prefill = ("decode", TOKENS, TOKENS), ("prefill", PROMPT)
    rate = "G multiply-adds/s"
    rows = [
        ("decode", "decode, share of the read bandwidth", "GB/s", decode, read),
        ("prefill", "prefill, share of the float32 peak", rate, prefill, add),
        ("prefill-int8", "prefill, share of the 8-bit peak", rate, prefill, add_8),
    ]
    shares = [
        _row("limits", name, title, unit, Side(OURS, ours), Side(LIMIT, limit), share=True)
        for name, title, unit, ours, limit in rows
    ]
    both = [
        ("read", "read bandwidth, against 1 thread", "GB/s", read),
        ("float32", "float32 multiply-adds, against 1 thread", rate, add),
        ("int8", "8-bit multiply-adds, against 1 thread", rate, add_8),
    ]
    threads = [
        _row("limits", name, title, unit, Side(LIMIT, case), Side(LIMIT_1, case))
        for name, title, unit, case in both
    ]
    return shares + threads


def _core() -> list[Row]:
    """The taught core, operation by operation."""
    cases = [("attend", n) for n in (64, 256, 1024, 4096)]
    cases += [("attend_causal", n) for n in (64, 256, 1024, 2048)]
    titles = {"attend": "one query over {} keys", "attend_causal": "causal attention, n = {}"}
    sized = [
        (f"{name}-{n}", titles[name].format(n), (name, str(n)), n in (64, 1024))
        for name, n in cases
    ]
    rows = []
    for name, title, case, quick in [*sized, ("layer", "one layer, one token", ("layer",), True)]:
        # NumPy has no erf, and so no layer with the exact GELU.
        peers = (TORCH,) if name == "layer" else (TORCH, NUMPY)
        for peer in peers:
            sides = Side(CORE, case), Side(peer, case)
            key = f"{name}-{peer.lower()}"
            rows.append(_row("core", key, title, "µs", *sides, quick=quick, check=True))
    return rows


def _contexts() -> list[Row]:
    return [
        _row(
            "contexts",
            str(n),
            f"decode as the context reaches {n}",
            "ms/token",
            *(Side(who, ("context", str(n), STEP)) for who in (OURS, LLAMA)),
            quick=n <= 512,
        )
        for n in CONTEXTS
    ]


def _others() -> list[Row]:
    half = ("decode", PROMPT, PROMPT)
    memory = Side(OURS, half)
    once = {"rounds": 1, "fresh": True}
    title = "resident memory while generating"
    text = ("logits",)
    decode, prefill = ("decode", TOKENS, TOKENS), ("prefill", PROMPT)
    sides = [(OURS, OURS_1, case) for case in (decode, prefill)]
    return [
        _row("memory", "same-file", title, "MB", memory, Side(LLAMA, half), **once),
        _row("memory", "file", title, "MB", memory, Side(FILE), **once),
        _row("start", "same-file", "start to first token", "s", Side(SAY), Side(LLAMA_START)),
        *(
            _row("accuracy", name, words, unit, Side(OURS, text), Side(LLAMA, text), rounds=1)
            for name, words, unit in (
                ("kl", "mean KL to the float32 pass", "nats"),
                ("top", "top token as in the float32 pass", "% equal"),
            )
        ),
        *(
            _row(
                "threads",
                case[0],
                f"{case[0]}, against 1 thread",
                "tokens/s",
                Side(a, case),
                Side(b, case),
            )
            for a, b, case in sides
        ),
    ]


def _many() -> list[Row]:
    """Several texts in one pass, and guesses ahead: against llama.cpp, and against ours alone."""
    one = Side(OURS_PLAIN, ("many", "1", TOKENS, STEP))
    rows = []
    for count in ("2", "8", "32"):
        case = ("many", count, TOKENS, STEP)
        title = f"{count} texts in one pass"
        quick = count == "8"
        for name, peer in (("one", one), ("llama", Side(LLAMA, case))):
            key = f"{count}-{name}"
            rows.append(_row("batch", key, title, "tokens/s", Side(OURS, case), peer, quick=quick))
    for kind, title in (("copy", "a text that is copied"), ("story", "a text that is not")):
        ahead, plain = (("write", kind, TOKENS, guess) for guess in ("auto", "none"))
        sides = Side(OURS, ahead), Side(OURS_PLAIN, plain)
        rows.append(_row("guess", kind, f"{title}, guessing ahead", "tokens/s", *sides))
    return rows


def all_rows() -> list[Row]:
    """Return every row, in the order of the table."""
    return [*_speed(), *_limits(), *_contexts(), *_many(), *_others(), *_core()]


def choose(names: Sequence[str], quick: bool = False) -> list[Row]:
    """Return the rows asked for.

    Parameters
    ----------
    names : sequence of str
        Groups (``decode``) or single rows (``decode/q4_0``); all rows if there are none.
    quick : bool
        Whether to leave out the rows that take long.

    Raises
    ------
    CourseError
        A name that no row has.
    """
    rows = all_rows()
    for name in names:
        if not any(name in (row.group, row.key) for row in rows):
            groups = ", ".join(dict.fromkeys(row.group for row in rows))
            raise CourseError(f"ROWS should be among {groups}, or one row; {name!r} is not")
    chosen = [row for row in rows if not names or row.group in names or row.key in names]
    return [row for row in chosen if row.quick or not quick or row.key in names]


def value(row: Row, answer: dict) -> float:
    """Return an answer in the unit of a row."""
    return UNITS[row.unit][1](answer)


def ratio(row: Row, ours: float, peer: float) -> float:
    """Return how many times ours is better."""
    return ours / peer if UNITS[row.unit][0] == HIGHER else peer / ours
