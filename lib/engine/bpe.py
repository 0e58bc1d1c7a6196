"""Byte-level BPE, the tokenizer of SmolLM2 and Llama 3.

Byte-pair encoding over bytes (Sennrich et al. 2016; Radford et al. 2019, section 2.2): a text is
cut into pieces, each piece is written as its UTF-8 bytes, and neighbours are merged in the order
of the file's list. The package `tokenizers` does the work; this module tells it what the file says.
"""

import importlib.util
import warnings

from lib.engine.gguf import GGUF, shown
from lib.engine.merges import Encoder
from lib.engine.vocabulary import (
    CONTROL,
    UNKNOWN,
    USER_DEFINED,
    Coder,
    Vocabulary,
    add_special_tokens,
)
from lib.errors import ModelError

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_LLAMA3 = (
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# How a text is cut into pieces, by the name in `tokenizer.ggml.pre`; the expressions are applied
# in turn, each to the pieces of the last. They are those of llama.cpp, src/llama-vocab.cpp.
PIECES = {
    "smollm": [r"\p{N}", _GPT2],  # each digit alone
    "gpt-2": [_GPT2],
    "default": [r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
    "llama-bpe": [_LLAMA3],
}

HAS_TOKENIZERS = importlib.util.find_spec("tokenizers") is not None


def build_bpe(file: GGUF, vocabulary: Vocabulary) -> Coder:
    """Build the tokenizer of a file whose `tokenizer.ggml.model` is ``gpt2``.

    Raises
    ------
    ModelError
        If the file names an unknown way to cut a text into pieces, or merges that don't fit its
        tokens.
    """
    name = _pieces_name(file)
    ids = {text: token for token, text in enumerate(vocabulary.tokens)}
    merges = _merges(file, ids)
    # Llama 3 takes a piece that is a token as it stands, whatever the merges say, and llama.cpp
    # adds its first token where the file is silent.
    llama3 = name == "llama-bpe"
    make = _encoder if HAS_TOKENIZERS else _plain_encoder
    as_text = set(vocabulary.of_type(CONTROL, UNKNOWN, USER_DEFINED))
    return Coder(
        encoder=make(file, vocabulary, ids, merges, PIECES[name], llama3),
        bytes_of=[_spell(text, t in as_text) for t, text in enumerate(vocabulary.tokens)],
        lost=frozenset(byte for text, byte in _BYTE_OF.items() if text not in ids),
        adds_bos=llama3,
    )


def _encoder(file, vocabulary, ids, merges, patterns, whole):
    """Return the encoder of the package `tokenizers`."""
    import tokenizers
    from tokenizers import Regex, models, pre_tokenizers

    try:
        model = models.BPE(vocab=ids, merges=merges, ignore_merges=whole)
    except Exception as error:  # `tokenizers` raises bare Exceptions
        raise ModelError(f"The merges of {file.path} don't fit its tokens: {error}") from None
    encoder = tokenizers.Tokenizer(model)
    encoder.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
        + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    add_special_tokens(encoder, vocabulary)
    return encoder


def _plain_encoder(file, vocabulary, ids, merges, patterns, whole):
    """Return the course's own encoder, for Python in a browser."""
    ranks = {pair: k for k, pair in enumerate(merges)}
    spelling = {byte: text for text, byte in _BYTE_OF.items()}
    named = lambda *types: {vocabulary.tokens[t]: t for t in vocabulary.of_type(*types)}  # noqa: E731
    control, defined = named(CONTROL, UNKNOWN), named(USER_DEFINED)
    return Encoder(ids, ranks, patterns, spelling, whole, control, defined)


def _merges(file: GGUF, ids: dict[str, int]) -> list[tuple[str, str]]:
    """Return the pairs of tokens that are merged, the most urgent first.

    They are checked here: at some pairs that make no token, `tokenizers` panics, with the stack of
    its compiled code on the screen.
    """
    merges = []
    for merge in file.array("tokenizer.ggml.merges", str):
        left, _, right = merge.partition(" ")
        if not (left in ids and right in ids and left + right in ids):
            raise ModelError(
                f"The merges of {file.path} don't fit its tokens: '{shown(merge)}' should be two "
                "tokens that together are a third"
            )
        merges.append((left, right))
    return merges


def _pieces_name(file: GGUF) -> str:
    name = file.value("tokenizer.ggml.pre", str, "")
    if not name:
        name = "default"
        warnings.warn(
            f"{file.path} does not say how its tokenizer cuts text (`tokenizer.ggml.pre`); it is "
            "cut as llama.cpp does then, and the model may have been trained otherwise",
            stacklevel=2,
        )
    if name not in PIECES:
        raise ModelError(
            f"The tokenizer of {file.path} cuts text in the way `{shown(name)}`; "
            f"the course knows {', '.join(PIECES)}"
        )
    return name


def _byte_alphabet() -> dict[str, int]:
    """Return the byte that each character of the vocabulary stands for.

    GPT-2 spells a byte as the character of that number where it can be seen, and the others, in
    their order, as the characters from 256 on (`bytes_to_unicode` in its file encoder.py).
    """
    seen = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), 256)]
    unseen = [byte for byte in range(256) if byte not in seen]
    spelled = {chr(byte): byte for byte in seen}
    return spelled | {chr(256 + k): byte for k, byte in enumerate(unseen)}


_BYTE_OF = _byte_alphabet()


# The same as a table for str.translate; what stands for no byte becomes what Latin-1 lacks.
_TO_LATIN_1 = dict.fromkeys(range(256), "\uffff") | {ord(c): chr(b) for c, b in _BYTE_OF.items()}


def _spell(text: str, as_text: bool) -> bytes:
    """Return the bytes that a token of the vocabulary stands for."""
    if not as_text:
        try:
            return text.translate(_TO_LATIN_1).encode("latin-1")
        except UnicodeEncodeError:
            pass
    return text.encode("utf-8")
