"""Text to tokens and back, as the model file says.

Byte-pair encoding over bytes (Sennrich et al. 2016; Radford et al. 2019, section 2.2): a text is
cut into pieces, each piece is written as its UTF-8 bytes, and neighbours are merged in the order
of the file's list. The package `tokenizers` does the work; this module tells it what the file says.
"""

import codecs
from collections.abc import Iterable, Iterator

from lib.engine.gguf import GGUF
from lib.errors import CourseError, ModelError

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

_CONTROL, _USER_DEFINED = 3, 4  # token types of the GGUF file
_STOP_TEXTS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>")


class Tokenizer:
    """The tokenizer of a model file.

    Parameters
    ----------
    file : GGUF
        What `read_gguf` returned.

    Attributes
    ----------
    tokens : list of str
        The vocabulary as the file spells it: one character for each byte.
    control : frozenset of int
        Tokens that steer the model, such as ``<|im_start|>``; text alone never becomes one.
    stop : frozenset of int
        Tokens that end a generation.
    bos : int or None
        The token that the file wants in front of every prompt, if it wants one.

    Raises
    ------
    ModelError
        If the file's tokenizer is of another kind than byte-level BPE, names an unknown way to
        cut a text into pieces, or lacks something that it needs.
    """

    def __init__(self, file: GGUF):
        self.path = file.path
        self.tokens = file.value("tokenizer.ggml.tokens", list)
        types = file.value("tokenizer.ggml.token_type", list, [1] * len(self.tokens))
        if len(types) != len(self.tokens):
            raise ModelError(
                f"{file.path} lists {len(self.tokens)} tokens and {len(types)} token types"
            )
        self.control = frozenset(t for t, kind in enumerate(types) if kind == _CONTROL)
        defined = frozenset(t for t, kind in enumerate(types) if kind == _USER_DEFINED)
        as_text = self.control | defined
        self._bytes = [_spell(text, t in as_text) for t, text in enumerate(self.tokens)]
        self._bpe = _build_bpe(file, self.tokens, sorted(self.control), sorted(defined))
        known = set(self.tokens)
        self._lost = frozenset(byte for text, byte in _BYTE_OF.items() if text not in known)
        self._template = file.value("tokenizer.chat_template", str, "")
        self._bos_id = self._token_id(file, "tokenizer.ggml.bos_token_id")
        self._eos_id = self._token_id(file, "tokenizer.ggml.eos_token_id")
        # llama.cpp adds the token for this family where the file is silent.
        silent = file.metadata.get("tokenizer.ggml.pre") == "llama-bpe"
        wanted = file.value("tokenizer.ggml.add_bos_token", bool, silent)
        self.bos = self._bos_id if wanted else None
        ends = {self._eos_id, self._token_id(file, "tokenizer.ggml.eot_token_id")}
        ends |= {token for token in self.control if self.tokens[token] in _STOP_TEXTS}
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
        self._bpe.encode_special_tokens = not special
        ids = self._bpe.encode(text, add_special_tokens=False).ids
        if self.bos is not None and ids and ids[0] != self.bos:
            ids = [self.bos, *ids]
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Turn tokens into text; control tokens appear as the file spells them.

        Bytes that make no character become U+FFFD, the replacement character.

        Raises
        ------
        CourseError
            If a token is not in the vocabulary.
        """
        return b"".join(self._piece(token) for token in ids).decode("utf-8", errors="replace")

    def stream_text(self, ids: Iterable[int]) -> Iterator[str]:
        """Yield the text of tokens as they come, and never half a character.

        A token may end within the bytes of a character; they wait for the next token. What is
        still incomplete after the last token is dropped. Yields no empty strings.
        """
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        for token in ids:
            if text := decoder.decode(self._piece(token)):
                yield text

    def chat(self, messages: list[dict], add_generation_prompt: bool = True) -> str:
        """Write a conversation as the model was trained to read it.

        The file's own template is run in the sandbox of jinja2, as it is code from a file. Encode
        the result with ``special=True``; control tokens spelled out within a message then count
        as control tokens too.

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
        _check_messages(messages)
        if not self._template:
            raise ModelError(f"{self.path} has no chat template")
        try:
            template = _sandbox().from_string(self._template)
            return template.render(
                messages=messages,
                add_generation_prompt=add_generation_prompt,
                bos_token=self._text_of(self._bos_id),
                eos_token=self._text_of(self._eos_id),
            )
        except Exception as error:  # code from a file may raise anything
            raise ModelError(
                f"The chat template of {self.path} can't be applied: {error}"
            ) from None

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
        if self._lost.isdisjoint(raw):
            return
        at, bad = next((k, c) for k, c in enumerate(text) if not self._lost.isdisjoint(c.encode()))
        raise CourseError(
            f"text should hold characters that the model has tokens for; at position {at} "
            f"it holds {bad!r}"
        )

    def _piece(self, token: int) -> bytes:
        if not 0 <= token < len(self.tokens):
            raise CourseError(f"tokens should be 0 to {len(self.tokens) - 1}; one is {token}")
        return self._bytes[token]

    def _text_of(self, token: int | None) -> str:
        return "" if token is None else self.tokens[token]

    def _token_id(self, file: GGUF, key: str) -> int | None:
        token = file.metadata.get(key)
        if token is not None and not (type(token) is int and 0 <= token < len(self.tokens)):
            raise ModelError(
                f"The metadata key `{key}` of {file.path} should be a token, "
                f"0 to {len(self.tokens) - 1}; it is {token!r}"
            )
        return token


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


def _spell(text: str, as_text: bool) -> bytes:
    """Return the bytes that a token of the vocabulary stands for."""
    if as_text or any(character not in _BYTE_OF for character in text):
        return text.encode("utf-8")
    return bytes(_BYTE_OF[character] for character in text)


def _build_bpe(file: GGUF, tokens: list[str], control: list[int], defined: list[int]):
    """Return the `tokenizers.Tokenizer` that the file describes."""
    import tokenizers
    from tokenizers import AddedToken, Regex, models, pre_tokenizers

    name = _pieces_name(file)
    vocabulary = {text: token for token, text in enumerate(tokens)}
    merges = [tuple(merge.split(" ")) for merge in file.value("tokenizer.ggml.merges", list)]
    try:
        # Llama 3 takes a piece that is a token as it stands, whatever the merges say.
        model = models.BPE(vocab=vocabulary, merges=merges, ignore_merges=name == "llama-bpe")
    except Exception as error:  # `tokenizers` raises bare Exceptions
        raise ModelError(f"The merges of {file.path} don't fit its tokens: {error}") from None
    bpe = tokenizers.Tokenizer(model)
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in PIECES[name]]
        + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    for some, special in ((control, True), (defined, False)):
        add = bpe.add_special_tokens if special else bpe.add_tokens
        add([AddedToken(tokens[t], special=special, normalized=False) for t in some])
    return bpe


def _pieces_name(file: GGUF) -> str:
    model = file.value("tokenizer.ggml.model", str)
    if model != "gpt2":
        raise ModelError(
            f"The tokenizer of {file.path} is of the kind `{model}`; byte-level BPE, `gpt2`, is "
            "the one that the course runs"
        )
    name = file.value("tokenizer.ggml.pre", str, "default")
    if name not in PIECES:
        raise ModelError(
            f"The tokenizer of {file.path} cuts text in the way `{name}`; "
            f"the course knows {', '.join(PIECES)}"
        )
    return name


def _check_messages(messages: list[dict]) -> None:
    if not isinstance(messages, (list, tuple)) or not messages:
        raise CourseError("messages should be a list of at least one dict")
    for k, message in enumerate(messages):
        texts = [message.get(key) for key in ("role", "content")] if type(message) is dict else []
        if not texts or not all(isinstance(text, str) for text in texts):
            raise CourseError(
                "messages should be dicts with the texts `role` and `content`; "
                f"number {k} is {message!r}"
            )


def _sandbox():
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise TemplateError(message)

    # Block trimming and `raise_exception` are what templates in model files are written for.
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = refuse
    return environment
