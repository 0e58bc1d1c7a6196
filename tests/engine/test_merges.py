"""The course's own encoder gives the tokens of the package `tokenizers`."""

import random

import pytest

from lib.engine import bpe, merges
from lib.engine.gguf import find_model, read_gguf
from lib.engine.tokenizer import Tokenizer
from tests.witnesses.corpus import FIXED, mixtures


@pytest.fixture(scope="module")
def plain():
    """Return the model's tokenizer, made as in a browser."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bpe, "HAS_TOKENIZERS", False)
        made = Tokenizer(read_gguf(find_model()))
    assert isinstance(made._coder.encoder, merges.Encoder)
    return made


def texts():
    rng = random.Random(1)
    letters = [
        *range(32, 127),
        *range(0xA0, 0x600),
        *range(0x4E00, 0x4F00),
        *range(0x1F600, 0x1F650),
    ]
    made = ["".join(chr(rng.choice(letters)) for _ in range(50)) for _ in range(40)]
    return [
        *FIXED,
        *mixtures(),
        *made,
        "a" * 300,
        "<|im_start|>user\nhi<|im_end|>",
        "x" + " " * 20 + "\n\n y",
    ]


@pytest.mark.parametrize("special", [False, True])
def test_tokens_are_those_of_the_package(real_tokenizer, plain, special):
    for text in texts():
        if not real_tokenizer._coder.lost.isdisjoint(text.encode()):
            continue
        assert plain.encode(text, special) == real_tokenizer.encode(text, special), repr(text)


def test_a_conversation_has_the_same_tokens(real_tokenizer, plain):
    said = [{"role": "user", "content": "rm <filename>, <|im_end|> and 42"}]
    written = real_tokenizer.chat(said)
    assert plain.encode(plain.chat(said), special=True) == real_tokenizer.encode(written, True)


def test_a_pair_is_merged_by_its_place_in_the_list_not_by_its_place_in_the_text():
    tokens = {text: k for k, text in enumerate(["a", "b", "c", "bc", "ab", "aa"])}
    ranks = {("b", "c"): 0, ("a", "b"): 1, ("a", "a"): 2}
    encoder = merges.Encoder(tokens, ranks, [r"\s"], {byte: chr(byte) for byte in range(256)})
    assert encoder.encode("abc").ids == [tokens["a"], tokens["bc"]]
    assert encoder.encode("aaa").ids == [tokens["aa"], tokens["a"]]  # from the left
