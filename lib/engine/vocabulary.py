"""The tokens of a model file, and what a tokenizer of either kind is made of.

`bpe` and `sentencepiece` turn a file's vocabulary into a `Coder`; `tokenizer` works with any.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lib.engine.gguf import GGUF
from lib.errors import ModelError

if TYPE_CHECKING:
    import tokenizers

# Token types of the GGUF file, those of sentencepiece's model files.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


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
        If the file lists no tokens, or not as many types.
    """
    tokens = file.array("tokenizer.ggml.tokens", str)
    types = file.array("tokenizer.ggml.token_type", int, [NORMAL] * len(tokens))
    if len(types) != len(tokens):
        raise ModelError(f"{file.path} lists {len(tokens)} tokens and {len(types)} token types")
    return Vocabulary(file.path, tokens, types)


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
