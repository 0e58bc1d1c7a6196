"""Exercise 08: what its tasks expect is what the engine reads; the small model stands in for it."""

import gguf
import numpy as np
import pytest

from lib.engine.gguf import read_gguf
from lib.engine.llama import Llama
from lib.engine.tokenizer import Tokenizer
from lib.errors import ModelError
from lib.exercises import NotRight, check, small_model
from lib.exercises import t08_read_a_model as t08
from tests.engine.tiny_models import BLOCKS, write_tiny
from tests.exercises.wrong.t08 import ALSO_RIGHT, WRONG

FILE = small_model.small_file()
TOKENIZER = Tokenizer(FILE)
CHARACTERS = list("abZ éß東19 05   \n\t'’_.,!?-🙂sltrevmd")


def texts(count):
    rng = np.random.default_rng(5)
    return ["".join(rng.choice(CHARACTERS, rng.integers(1, 30))) for _ in range(count)]


@pytest.mark.parametrize("task", t08.TASKS, ids=lambda task: task.name)
def test_fifteen_wrong_answers_and_six_styles_are_known_of_each_task(task):
    assert len(WRONG[task.name]) >= 15
    assert len(ALSO_RIGHT[task.name]) >= 6


def test_pieces_are_those_of_the_engine():
    pieces = TOKENIZER._coder.encoder.pre_tokenizer
    for text in [rung.arguments[0] for rung in t08.SPLIT.rungs] + texts(300):
        theirs = [piece for piece, _ in pieces.pre_tokenize_str(text)]
        mine = ["".join(t08.ALPHABET[b] for b in piece.encode()) for piece in t08.split(text)]
        assert mine == theirs, text


def test_tokens_and_texts_are_those_of_the_engine():
    tokens = FILE.metadata["tokenizer.ggml.tokens"]
    for text in texts(100):
        ids = t08.encode(text, tokens, t08.SPELLS, t08.ALPHABET)
        assert ids == TOKENIZER.encode(text)
        for n in (len(ids), len(ids) - 1):
            assert t08.decode(ids[:n], tokens, t08.ALPHABET) == TOKENIZER.decode(ids[:n])


@pytest.mark.parametrize("kind", ["F32", "Q8_0", "Q4_1"])
def test_tensors_are_those_of_a_file(tmp_path, kind):
    file = read_gguf(write_tiny(tmp_path / "a.gguf", BLOCKS, kind))
    for name in ("token_embd.weight", "blk.1.ffn_down.weight"):
        data, start, kind, shape = small_model.place_of(file, name)
        assert start > 1000
        right = file.tensors[name]
        got = t08.read_tensor(data, start, kind, shape)
        np.testing.assert_allclose(got, right, rtol=0, atol=1e-6)
        rows = t08.embed([3, 1, 3], data, start, kind, shape[1])
        np.testing.assert_array_equal(rows, got[[3, 1, 3]])


def test_a_block_of_the_small_model_is_one_of_the_format():
    W = np.random.default_rng(1).standard_normal((4, 64)).astype(np.float32)
    for kind, pack in (("Q8_0", small_model.to_q8), ("Q4_1", small_model.to_q4)):
        got = t08.read_tensor(pack(W), 0, kind, W.shape)
        quantised = gguf.quants.quantize(W, gguf.GGMLQuantizationType[kind])
        right = gguf.quants.dequantize(quantised, gguf.GGMLQuantizationType[kind])
        step = np.abs(right - W).max()
        assert np.abs(got - W).max() < 1.2 * step


def test_the_small_model_is_a_file_that_the_engine_runs():
    for name in ("token_embd.weight", "blk.0.attn_q.weight", "output_norm.weight"):
        data, start, kind, shape = small_model.place_of(FILE, name)
        got = t08.read_tensor(data, start, kind, shape)
        np.testing.assert_allclose(got, FILE.tensors[name], rtol=0, atol=1e-5)
    logits = Llama.of(FILE).logits(TOKENIZER.encode("the café"))
    assert logits.shape == (272,)
    assert np.isfinite(logits).all()


def test_without_the_real_model_the_small_one_is_said_to_take_its_place(monkeypatch, capsys):
    def missing():
        raise ModelError("The model is not installed; get it with `pip`")

    monkeypatch.setattr("lib.engine.gguf.find_model", missing)
    file = small_model.open_file()
    assert file.path.name == "the small model"
    assert capsys.readouterr().out.startswith(
        "The real model is missing: The model is not installed; get it with `pip`. A small model"
    )


def test_the_message_shows_texts_as_python_writes_them():
    with pytest.raises(NotRight) as refused:
        check("08.split", lambda text: text.split(" "))
    assert str(refused.value) == (
        "split fails at the space in front. A space belongs to the word behind it.\n"
        "Right so far: one word.\n"
        "    text = 'to be or'\n"
        "    expected = ['to', ' be', ' or']\n"
        "    came     = ['to', 'be', 'or']\n"
        "Joined, it is 'tobeor'; nothing of the text may be lost."
    )


def test_a_list_of_bytes_is_told_in_short():
    with pytest.raises(NotRight) as refused:
        check("08.encode", lambda text, tokens, merges, alphabet: [1, 2])
    message = str(refused.value)
    assert "tokens = 271 texts, first those of the 256 bytes, then [" in message
    assert len(message) < 700
