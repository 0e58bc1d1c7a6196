"""SentencePiece's BPE, the tokenizer of Llama 2, TinyLlama and Mistral.

Kudo and Richardson 2018: a text is a sequence of characters, its spaces written as `▁` (so a `▁`
of the text itself comes back as a space). Of all neighbours that together are a token, those whose
token has the highest score are merged, the leftmost first, until none are left. A character that
is no token is written as its UTF-8 bytes, each of them a token such as `<0x0A>`. The package
`tokenizers` does the work.
"""

from lib.engine.gguf import GGUF, shown
from lib.engine.vocabulary import (
    BYTE,
    NORMAL,
    UNUSED,
    Coder,
    Vocabulary,
    add_special_tokens,
)
from lib.errors import ModelError

_SPACE = "▁"  # U+2581, not an underscore


def build_sentencepiece(file: GGUF, vocabulary: Vocabulary) -> Coder:
    """Build the tokenizer of a file whose `tokenizer.ggml.model` is ``llama``.

    Raises
    ------
    ModelError
        If the file lacks scores, a token for each byte and for the space, or wants its text
        normalised.
    """
    import tokenizers
    from tokenizers import models, normalizers

    _refuse_normalisation(file)
    ids = {text: token for token, text in enumerate(vocabulary.tokens)}
    _check_alphabet(file, vocabulary, ids)
    merges = _merges(_scores(file, vocabulary))
    encoder = tokenizers.Tokenizer(models.BPE(vocab=ids, merges=merges, byte_fallback=True))
    prefix = file.value("tokenizer.ggml.add_space_prefix", bool, True)
    # Both steps are applied to what lies between special tokens, so a text that follows one gets
    # a space in front like one that begins: so do llama.cpp (src/llama-vocab.cpp) and the
    # tokenizers that these models were trained with.
    steps = [normalizers.Prepend(_SPACE)] if prefix else []
    encoder.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", _SPACE)])
    add_special_tokens(encoder, vocabulary)
    kinds = zip(vocabulary.tokens, vocabulary.types, strict=True)
    return Coder(
        encoder=encoder,
        bytes_of=[_bytes_of(text, kind) for text, kind in kinds],
        lost=frozenset(),
        space_prefix=prefix,
        # What llama.cpp takes for granted in files of this kind.
        adds_bos=True,
        bos=1,
        eos=2,
    )


def _scores(file: GGUF, vocabulary: Vocabulary) -> dict[str, float]:
    """Return the score of each token that merging may make.

    Not among them: control tokens and bytes, which no text may spell out, user-defined ones, which
    are found before, and unused ones.
    """
    scores = file.array("tokenizer.ggml.scores", float)
    if len(scores) != len(vocabulary.tokens):
        raise ModelError(
            f"{file.path} lists {len(vocabulary.tokens)} tokens and {len(scores)} scores"
        )
    found = {vocabulary.tokens[token]: scores[token] for token in vocabulary.of_type(NORMAL)}
    if any(score != score for score in found.values()):
        raise ModelError(f"The scores of the tokens of {file.path} should be numbers; one is NaN")
    return found


def _merges(scores: dict[str, float]) -> list[tuple[str, str]]:
    """Return every pair of tokens that makes a token, the highest score first.

    Tokens of equal score keep the order of the file. Among the pairs that make one token, the
    longer left part comes first, as in Hugging Face's conversion; SentencePiece takes the leftmost
    in the text, and no text was found in which the two differ.
    """
    pairs = [
        (-score, order, -cut, (text[:cut], text[cut:]))
        for order, (text, score) in enumerate(scores.items())
        for cut in range(1, len(text))
        if text[:cut] in scores and text[cut:] in scores
    ]
    return [pair for *_, pair in sorted(pairs)]


def _bytes_of(text: str, kind: int) -> bytes:
    if kind == BYTE:
        return bytes([int(text[3:5], 16)])
    if kind in (NORMAL, UNUSED):
        text = text.replace(_SPACE, " ")
    return text.encode("utf-8")


def _check_alphabet(file: GGUF, vocabulary: Vocabulary, ids: dict[str, int]) -> None:
    """Refuse a file in which a text could get lost, or that calls something else a byte."""
    wanted = {f"<0x{byte:02X}>": BYTE for byte in range(256)} | {_SPACE: NORMAL}
    for text, kind in wanted.items():
        if text not in ids or vocabulary.types[ids[text]] != kind:
            raise ModelError(f"The tokenizer of {file.path} lacks the token `{text}`")
    for text in (vocabulary.tokens[token] for token in vocabulary.of_type(BYTE)):
        if wanted.get(text) != BYTE:
            raise ModelError(
                f"The tokenizer of {file.path} has the token '{shown(text)}' as a byte; "
                "a byte is spelled like `<0x0A>`"
            )


def _refuse_normalisation(file: GGUF) -> None:
    """Refuse what other models do to a text before it is cut up; the Llama family does nothing."""
    for name in ("precompiled_charsmap", "remove_extra_whitespaces"):
        if file.metadata.get(f"tokenizer.ggml.{name}"):
            raise ModelError(
                f"{file.path} asks for `tokenizer.ggml.{name}`, which the course lacks"
            )
