"""Text to tokens and back, as the model file says.

Two kinds of tokenizer come with Llama files: byte-level BPE (`lib.engine.bpe`) and SentencePiece's
BPE (`lib.engine.sentencepiece`). What both share is here: special tokens, decoding and streaming,
conversations.
"""

import codecs
import re
from collections.abc import Iterable, Iterator

from lib.engine.bpe import build_bpe
from lib.engine.conversation import Conversation, write
from lib.engine.gguf import GGUF, shown
from lib.engine.sentencepiece import build_sentencepiece
from lib.engine.vocabulary import (
    CONTROL,
    ENDS,
    UNKNOWN,
    USER_DEFINED,
    named_ends,
    read_vocabulary,
)
from lib.errors import CourseError, ModelError

# The kinds, by the name in `tokenizer.ggml.model`.
_BUILD = {"gpt2": build_bpe, "llama": build_sentencepiece}


class Tokenizer:
    """The tokenizer of a model file.

    Parameters
    ----------
    file : GGUF
        What `read_gguf` returned.

    Attributes
    ----------
    tokens : list of str
        The vocabulary as the file spells it.
    control : frozenset of int
        Tokens that steer the model, such as ``<|im_start|>``, and the unknown token; text alone
        never becomes one.
    stop : frozenset of int
        Tokens that end a generation.
    bos : int or None
        The token that the file wants in front of every prompt, if it wants one.

    Raises
    ------
    ModelError
        If the file's tokenizer is of another kind than byte-level BPE or SentencePiece's BPE, or
        lacks or asks for something that would make its tokens wrong.
    """

    def __init__(self, file: GGUF):
        self.path = file.path
        vocabulary = read_vocabulary(file)
        self.tokens = vocabulary.tokens
        self.control = frozenset(vocabulary.of_type(CONTROL, UNKNOWN))
        self._special = self.control.union(vocabulary.of_type(USER_DEFINED))
        self._coder = coder = _kind(file)(file, vocabulary)
        self._template = file.value("tokenizer.chat_template", str, "")
        self._bos_id = self._token_id(file, "bos", coder.bos)
        self._eos_id = self._token_id(file, "eos", coder.eos)
        self._pad_id = self._token_id(file, "padding")
        wanted = file.value("tokenizer.ggml.add_bos_token", bool, coder.adds_bos)
        self.bos = self._bos_id if wanted else None
        ends = {self._eos_id, self._token_id(file, "eot"), self._token_id(file, "eom")}
        ends |= set(named_ends(file, len(self.tokens)))
        ends |= {token for token in self._special if self.tokens[token] in ENDS}
        self.stop = frozenset(ends - {None})

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, text: str, special: bool = False) -> list[int]:
        """Turn a text into tokens.

        Parameters
        ----------
        text : str
            Any Unicode text.
        special : bool
            Whether the spelling of a control token, such as ``<|im_start|>``, becomes that token.
            By default it is text like any other.

        Returns
        -------
        list of int
            With the file's first token in front where the file asks for one; the empty text
            gives an empty list.

        Raises
        ------
        CourseError
            If `text` is not a str, holds half of a surrogate pair, or holds a character for
            whose bytes the vocabulary has no token (SmolLM2 lacks some control characters).
        """
        self._check_text(text)
        if special and isinstance(text, Conversation):
            ids = self._encode_conversation(text)
        else:
            ids = self._encode(text, special)
        if self.bos is not None and ids and ids[0] != self.bos:
            ids = [self.bos, *ids]
        return ids

    def _encode(self, text: str, special: bool) -> list[int]:
        encoder = self._coder.encoder
        encoder.encode_special_tokens = not special
        return encoder.encode(text, add_special_tokens=False).ids

    def _encode_conversation(self, text: Conversation) -> list[int]:
        """Encode what a template wrote: its control tokens, and the plain text between them."""
        spelled = sorted((self.tokens[t] for t in self._special if self.tokens[t]), key=len)[::-1]
        if text.mark not in text.marked or not spelled:  # nobody spelled one
            return self._encode(text, special=True)
        ids = []
        for k, piece in enumerate(re.split(f"({'|'.join(map(re.escape, spelled))})", text.marked)):
            plain = piece.replace(text.mark, "")
            if plain:
                ids += self._encode(plain, special=k % 2 == 1)  # every second one is a match
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Turn tokens into text; control tokens appear as the file spells them.

        The tokens are taken as the beginning of a text: the space that SentencePiece puts in front
        of it is left out. Bytes that make no character become U+FFFD, the replacement character.

        Raises
        ------
        CourseError
            If a token is not in the vocabulary.
        """
        return b"".join(self._spelled(ids, begins=True)).decode("utf-8", errors="replace")

    def stream_text(self, ids: Iterable[int]) -> Iterator[str]:
        """Yield the text of tokens as they come, and never half a character.

        The tokens are taken to follow others, so a space in front is theirs. A token may end
        within the bytes of a character; they wait for the next token. What is still incomplete
        after the last token is dropped. Yields no empty strings.
        """
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        for piece in self._spelled(ids, begins=False):
            if text := decoder.decode(piece):
                yield text

    def chat(self, messages: list[dict], add_generation_prompt: bool = True) -> Conversation:
        """Write a conversation as the model was trained to read it.

        The file's own template is run in the sandbox of jinja2, as it is code from a file. Encode
        the result with ``special=True``: what the template wrote becomes control tokens, and what a
        message says stays text, even where it spells one.

        Parameters
        ----------
        messages : list of dict
            Each with the keys ``role`` ("system", "user" or "assistant") and ``content``.
        add_generation_prompt : bool
            Whether to end where the answer begins.

        Raises
        ------
        CourseError
            If `messages` is not a list of such dicts.
        ModelError
            If the file has no template, or it can't be applied to these messages.
        """
        if not self._template:
            raise ModelError(f"{self.path} has no chat template")
        try:
            return write(
                self._template,
                messages,
                (self.tokens[token] for token in self._special),
                add_generation_prompt=add_generation_prompt,
                bos_token=self._text_of(self._bos_id),
                eos_token=self._text_of(self._eos_id),
                pad_token=self._text_of(self._pad_id),
            )
        except CourseError:
            raise
        except Exception as error:  # code from a file may raise anything
            raise ModelError(
                f"The chat template of {self.path} can't be applied: {error}"
            ) from None

    def bytes_of(self) -> list[bytes]:
        """Return the bytes that each token stands for within a text."""
        return list(self._coder.bytes_of)

    def _check_text(self, text: str) -> None:
        if not isinstance(text, str):
            raise CourseError(f"text should be a str; it is of type {type(text).__name__}")
        try:
            raw = text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise CourseError(
                f"text should be valid Unicode; at position {error.start} it holds "
                f"{text[error.start]!r}, half of a surrogate pair"
            ) from None
        # `tokenizers` would drop such a character without a word.
        lost = self._coder.lost
        if lost.isdisjoint(raw):
            return
        at, bad = next((k, c) for k, c in enumerate(text) if not lost.isdisjoint(c.encode()))
        raise CourseError(
            f"text should hold characters that the model has tokens for; at position {at} "
            f"it holds {bad!r}"
        )

    def _spelled(self, ids: Iterable[int], begins: bool) -> Iterator[bytes]:
        """Yield the bytes of each token, less the space that `encode` put in front of a text."""
        for token in ids:
            if not 0 <= token < len(self.tokens):
                raise CourseError(f"tokens should be 0 to {len(self.tokens) - 1}; one is {token}")
            piece = self._coder.bytes_of[token]
            if begins and self._coder.space_prefix and token not in self._special:
                piece = piece.removeprefix(b" ")
            yield piece
            begins = token in self._special

    def _text_of(self, token: int | None) -> str:
        return "" if token is None else self.tokens[token]

    def _token_id(self, file: GGUF, name: str, default: int | None = None) -> int | None:
        key = f"tokenizer.ggml.{name}_token_id"
        token = file.metadata.get(key, default)
        if token is not None and not (type(token) is int and 0 <= token < len(self.tokens)):
            raise ModelError(
                f"The metadata key `{key}` of {file.path} should be a token, "
                f"0 to {len(self.tokens) - 1}; it is {shown(token)}"
            )
        return token


def _kind(file: GGUF):
    name = file.value("tokenizer.ggml.model", str)
    if name not in _BUILD:
        raise ModelError(
            f"The tokenizer of {file.path} is of the kind `{shown(name)}`; byte-level BPE, `gpt2`, "
            "and SentencePiece's BPE, `llama`, are those that the course runs"
        )
    return _BUILD[name]
