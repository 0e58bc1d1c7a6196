"""The functions between the model's file and its text, each the answer to a task of an exercise."""

from collections.abc import Iterable

from lib.exercises.judging import RIGHT

# The parts in the order in which a text meets them: the function's name, its task, what it is.
PARTS = {
    "q8_block": ("08.q8_block", "blocks of 8 bits"),
    "q4_block": ("08.q4_block", "blocks of 4 bits"),
    "read_tensor": ("08.tensor", "the tensors of the file"),
    "split": ("08.split", "a text in pieces"),
    "merge": ("08.merge", "merges of pieces"),
    "encode": ("08.encode", "a text to tokens"),
    "embed": ("08.embed", "tokens to vectors"),
    "rms_norm": ("09.rms_norm", "the norm"),
    "rotate": ("09.rotate", "rotary positions"),
    "my_attention": ("06.real_model", "attention of one head"),
    "attend_grouped": ("09.attend_grouped", "heads in groups"),
    "swiglu": ("09.swiglu", "the gated FFN"),
    "llama_layer": ("09.layer", "the layer and its cache"),
    "logits": ("09.logits", "the head"),
    "top_p": ("09.top_p", "top-p"),
    "min_p": ("09.min_p", "min-p"),
    "sample": ("09.sample", "the next token"),
    "decode": ("08.decode", "tokens to a text"),
}


def board(rows: Iterable) -> str:
    """Return which parts of the engine are the reader's, of the verdicts on tasks; may be empty."""
    verdicts = {row.task: row.verdict for row in rows}
    tasks = {name: task for name, (task, _) in PARTS.items() if task in verdicts}
    yours = [name for name, task in tasks.items() if verdicts[task] == RIGHT]
    others = [name for name in tasks if name not in yours]
    if not yours:
        return ""
    rest = f" Not yet: {', '.join(others)}." if others else ""
    verb = "are" if len(yours) > 1 else "is"
    return f"Your own engine: {', '.join(yours)} {verb} yours ({len(yours)} of {len(tasks)}).{rest}"
