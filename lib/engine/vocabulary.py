"""The tokens of a model file, and what a tokenizer of either kind is made of.

`bpe` and `sentencepiece` turn a file's vocabulary into a `Coder`; `tokenizer` works with any.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lib.engine.gguf import GGUF, shown
from lib.errors import ModelError

if TYPE_CHECKING:
    import tokenizers

# Token types of the GGUF file, those of sentencepiece's model files.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
# Tokens that end a turn or a text, by their spelling: those of llama.cpp, src/llama-vocab.cpp, and
# of files that name them in no key.
ENDS = frozenset(
    ["<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|end|>",
     "<|EOT|>", "<|eot|>", "<|end_of_turn|>", "<end_of_turn>", "<end_of_utterance>", "<|return|>",
     "<|call|>", "<|flush|>", "<|calls|>", "<｜end▁of▁sentence｜>", "<EOT>", "_<EOT>", "[EOT]",
     "[EOS]", "<eos>"]
)  # fmt: skip
# What steers a model looks like this, whatever type a file gives it.
_MARKER = re.compile(r"<[|｜][^\s<>|｜]+[|｜]>")
_IN_TEMPLATE = re.compile(r"<[^\s<>]+>|\[/?[A-Z_]+\]")  # … and like this, where the template has it
# Characters of a token. Known vocabularies have some 130 spaces at most; work grows as the square.
_LONGEST = 1024


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a file and their types; a token is its place in the list."""

    path: Path
    tokens: list[str]
    types: list[int]

    def of_type(self, *types: int) -> list[int]:
        """Return the tokens of these types, in order."""
        return [token for token, kind in enumerate(self.types) if kind in types]


@dataclass(frozen=True)
class Coder:
    """A tokenizer, as one kind of file describes it."""

    encoder: "tokenizers.Tokenizer"
    bytes_of: list[bytes]  # what each token stands for
    lost: frozenset[int]  # bytes that no token stands for
    space_prefix: bool = False  # a text gets a space in front, also after a special token
    adds_bos: bool = False  # whether the first token is added where the file is silent
    bos: int | None = None  # the first and the last token where the file is silent
    eos: int | None = None


def read_vocabulary(file: GGUF) -> Vocabulary:
    """Return the tokens of a file and their types.

    Raises
    ------
    ModelError
        If the file lists no tokens, one token twice, one of more than 1024 characters, or not as
        many types as tokens. Several may be empty: some files leave places free like that.
    """
    tokens = file.array("tokenizer.ggml.tokens", str)
    types = file.array("tokenizer.ggml.token_type", int, [NORMAL] * len(tokens))
    if len(types) != len(tokens):
        raise ModelError(f"{file.path} lists {len(tokens)} tokens and {len(types)} token types")
    if not tokens:
        raise ModelError(f"{file.path} lists no tokens")
    _check_tokens(file.path, tokens)
    template = file.value("tokenizer.chat_template", str, "")
    types = [
        CONTROL if kind in (NORMAL, USER_DEFINED) and _steers(text, template) else kind
        for text, kind in zip(tokens, types, strict=True)
    ]
    return Vocabulary(file.path, tokens, types)


def named_ends(file: GGUF, count: int) -> list[int]:
    """Return the tokens that the key `eos_token_ids` names: files of Ollama end with several.

    Raises
    ------
    ModelError
        If one of them is not a token, 0 to ``count`` − 1.
    """
    key = "tokenizer.ggml.eos_token_ids"
    tokens = file.array(key, int, [])
    if wrong := [token for token in tokens if not 0 <= token < count]:
        raise ModelError(
            f"The metadata key `{key}` of {file.path} should list tokens, 0 to {count - 1}; "
            f"one is {wrong[0]}"
        )
    return tokens


def _steers(text: str, template: str) -> bool:
    """Tell whether a token is a control token by its spelling: some files give it another type."""
    if text[:1] not in ("<", "[", "_"):
        return False
    if text in ENDS or _MARKER.fullmatch(text):
        return True
    return text in template and _IN_TEMPLATE.fullmatch(text) is not None


def _check_tokens(path: Path, tokens: list[str]) -> None:
    longest = max(tokens, key=len)
    if len(longest) > _LONGEST:
        raise ModelError(
            f"A token of {path} should have at most {_LONGEST} characters; one has {len(longest):,}"
        )
    seen = {}
    if len(set(tokens)) == len(tokens):  # the quick way for whole files
        return
    for token, text in enumerate(tokens):
        if text and text in seen:
            raise ModelError(
                f"{path} lists the token '{shown(text)}' twice, as {seen[text]} and {token}"
            )
        seen[text] = token


def add_special_tokens(encoder: "tokenizers.Tokenizer", vocabulary: Vocabulary) -> None:
    """Have the encoder find the tokens that are written out in a text, before all else.

    User-defined tokens are found in any text; control tokens and the unknown one only where
    special tokens are asked for.
    """
    from tokenizers import AddedToken

    for types, special in (((CONTROL, UNKNOWN), True), ((USER_DEFINED,), False)):
        add = encoder.add_special_tokens if special else encoder.add_tokens
        texts = [vocabulary.tokens[token] for token in vocabulary.of_type(*types)]
        add([AddedToken(text, special=special, normalized=False) for text in texts])
