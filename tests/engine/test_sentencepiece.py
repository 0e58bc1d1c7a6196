"""SentencePiece's tokenizer, against tokens that SentencePiece itself made."""

import codecs

import numpy as np
import pytest
from tiny_models import SENTENCEPIECE, TEMPLATE, plain_logits, sentencepiece, write_tiny

from lib.engine.gguf import read_gguf
from lib.engine.llama import load_model
from lib.engine.sampling import generate
from lib.engine.tokenizer import Tokenizer
from lib.errors import CourseError, ModelError

BOS, EOS = 1, 2


def tokens_of(kind):
    return {text: token for token, text in enumerate(SENTENCEPIECE[kind]["tokens"])}


@pytest.fixture
def build(tiny):
    def build(kind="llama", **changes):
        tokenizer = sentencepiece(kind)
        for name, value in changes.items():
            tokenizer[f"tokenizer.ggml.{name}"] = value
        return Tokenizer(read_gguf(tiny(tokenizer=tokenizer)))

    return build


@pytest.fixture(scope="module", params=sorted(SENTENCEPIECE))
def pair(request, tmp_path_factory):
    """A vocabulary with its texts, and the tokenizer made from it; no first token."""
    path = tmp_path_factory.mktemp("sentencepiece") / "tiny.gguf"
    metadata = {"tokenizer.ggml.add_bos_token": False}
    write_tiny(path, tokenizer=sentencepiece(request.param), metadata=metadata)
    return SENTENCEPIECE[request.param], Tokenizer(read_gguf(path))


def test_the_same_tokens_as_sentencepiece(pair):
    entry, tokenizer = pair
    assert len(entry["texts"]) > 100
    for text, ids in zip(entry["texts"], entry["ids"], strict=True):
        assert tokenizer.encode(text) == ids, text


def test_the_fixture_has_something_to_get_wrong(pair):
    entry, _ = pair
    used = [token for ids in entry["ids"] for token in ids]
    types = [entry["types"][token] for token in used]
    assert types.count(6) > 100  # bytes
    assert types.count(1) > 1000
    assert (types.count(4) > 20) == ("<sep>" in entry["tokens"])
    assert not {2, 3}.intersection(types)  # text alone makes no control token, nor the unknown one
    assert len(set(used)) > 400


def test_round_trip(pair):
    entry, tokenizer = pair
    for text, ids in zip(entry["texts"], entry["ids"], strict=True):
        assert tokenizer.decode(ids) == text
        streamed = list(tokenizer.stream_text(ids))
        space = " " if entry["space_prefix"] else ""
        assert "".join(streamed) == space + text  # as the continuation of another text
        assert all(streamed)


def test_streaming_never_shows_half_a_character(pair):
    entry, tokenizer = pair
    byte = {int(entry["tokens"][t][3:5], 16): t for t in range(len(entry["types"])) if
            entry["types"][t] == 6}  # fmt: skip
    robot = [byte[b] for b in "🤖".encode()]
    for cut in range(1, 4):
        assert list(tokenizer.stream_text(robot[:cut])) == []
        assert tokenizer.decode(robot[:cut]) == "�"
    assert list(tokenizer.stream_text([*robot, *robot])) == ["🤖", "🤖"]
    # A byte that begins nothing, and a character that breaks off: what Python's decoder shows.
    broken = [0x80, 0xF0, 0x9F, 0x41, 0x0A]
    expected = codecs.decode(bytes(broken), "utf-8", "replace")
    assert "".join(tokenizer.stream_text([byte[b] for b in broken])) == expected == "��A\n"


def test_the_first_token_is_added_where_the_file_is_silent(build):
    tokenizer = build()
    assert tokenizer.bos == BOS
    assert tokenizer.stop == {EOS}
    tokens = tokens_of("llama")
    assert tokenizer.encode("a") == [BOS, tokens["▁a"]]
    assert tokenizer.encode("") == []
    assert tokenizer.encode("<s>a", special=True) == [BOS, tokens["▁a"]]  # not twice
    assert build(add_bos_token=False).encode("a") == [tokens["▁a"]]
    other = build(bos_token_id=7, eos_token_id=8)
    assert (other.bos, other.stop) == (7, {8})


def test_a_space_comes_in_front_where_a_text_begins(build):
    # As llama.cpp has it: at the beginning, and after every special token.
    tokens = tokens_of("llama")
    text = "</s>a<s>a"
    tokenizer = build()
    found = tokenizer.encode(text, special=True)
    assert found == [BOS, EOS, tokens["▁a"], BOS, tokens["▁a"]]
    assert tokenizer.decode(found) == "<s></s>a<s>a"
    assert list(tokenizer.stream_text(found[1:])) == ["</s>", "a", "<s>", "a"]
    spaced = tokenizer.encode("<s> a", special=True)
    assert spaced != tokenizer.encode("<s>a", special=True)
    assert tokenizer.decode(spaced) == "<s> a"
    without = build(add_space_prefix=False)
    assert without.encode(text, special=True) == [BOS, EOS, tokens["a"], BOS, tokens["a"]]
    assert without.decode([tokens["▁a"]]) == " a"


def test_a_token_alone_is_the_beginning_or_goes_on(build):
    tokenizer, tokens = build(), tokens_of("llama")
    assert tokenizer.decode([tokens["▁the"]]) == "the"
    assert list(tokenizer.stream_text([tokens["▁the"], tokens["▁the"]])) == [" the", " the"]
    assert tokenizer.decode([tokens["<0x20>"]]) == ""  # a space too, however it is spelled


def test_the_sign_for_a_space_is_a_space(build):
    tokenizer = build()
    assert tokenizer.encode("the▁the") == tokenizer.encode("the the")


def test_special_tokens_only_when_asked_for(build):
    tokenizer = build()
    text = "<s></s><unk><0x0A>"
    plain = tokenizer.encode(text)
    assert plain.count(BOS) == 1
    assert not {0, EOS, tokens_of("llama")["<0x0A>"]}.intersection(plain)
    assert tokenizer.decode(plain[1:]) == text
    special = tokenizer.encode(text, special=True)
    assert special[:3] == [BOS, EOS, 0]
    assert tokens_of("llama")["<0x0A>"] not in special  # bytes are no special tokens
    assert tokenizer.encode("\n")[-1] == tokens_of("llama")["<0x0A>"]


def test_merging_never_spells_a_control_token(build):
    # `<s` and `>` are tokens, and `<s>` has the best score of all.
    entry = SENTENCEPIECE["llama"]
    tokens = [*entry["tokens"], "<s", "[x]", "[x"]
    changes = {
        "tokens": tokens,
        "scores": [*entry["scores"], -0.5, -0.1, -0.2],
        "token_type": [*entry["types"], 1, 5, 1],
    }
    tokenizer = build(**changes)
    ids = {text: token for token, text in enumerate(tokens)}
    assert tokenizer.encode("<s>")[2:] == [ids["<s"], ids[">"]]
    assert tokenizer.encode("[x]")[2:] == [ids["[x"], ids["]"]]  # nor an unused one


def test_the_highest_score_is_merged_first_whatever_the_order_in_the_file(build):
    entry = SENTENCEPIECE["llama"]
    tokens = [*entry["tokens"], "qx", "xq", "qxq"]
    ids = {text: token for token, text in enumerate(tokens)}

    def pieces(text, qx, xq, qxq):
        scores = [*entry["scores"], qx, xq, qxq]
        tokenizer = build(tokens=tokens, scores=scores, token_type=[*entry["types"], 1, 1, 1])
        return [tokens[token] for token in tokenizer.encode(text)[2:]]

    assert ids["qx"] < ids["xq"]
    assert pieces("qxqx", qx=-1e6, xq=-1e5, qxq=-1e7) == ["qxq", "x"]
    assert pieces("qxqx", qx=-1e5, xq=-1e6, qxq=-1e7) == ["qx", "qx"]
    # Equal scores: the order of the file.
    assert pieces("xqx", qx=-1e5, xq=-1e5, qxq=-1e7) == ["x", "qx"]


def test_user_defined_tokens_and_the_space_in_front(build):
    # SentencePiece would not put a space after <sep>; llama.cpp does, and so it is read back.
    tokens = tokens_of("user-defined")
    tokenizer = build("user-defined", add_space_prefix=True, add_bos_token=False)
    found = tokenizer.encode("a<sep>a")
    assert found == [tokens["▁a"], tokens["<sep>"], tokens["▁a"]]
    for text in ("a<sep>a", "a <sep> a", "<sep>", "<sep><sep> ", " \n\n a"):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_the_chat_template(build):
    tokenizer = build()
    text = tokenizer.chat([{"role": "user", "content": "the"}])
    assert text == "<s>[user] the\n[assistant]"
    assert "bos_token" in TEMPLATE
    assert tokenizer.encode(text, special=True).count(BOS) == 1


def test_texts_are_checked(build):
    tokenizer = build()
    with pytest.raises(CourseError, match="half of a surrogate"):
        tokenizer.encode("a\udce9")
    assert tokenizer.decode(tokenizer.encode("ab\x04")[1:]) == "ab\x04"  # every byte has a token
    for bad in (-1, 760):
        with pytest.raises(CourseError, match=f"0 to 759; one is {bad}"):
            tokenizer.decode([5, bad])


def entry_without(text):
    tokens = list(SENTENCEPIECE["llama"]["tokens"])
    tokens[tokens.index(text)] = "something else"
    return tokens


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scores": None}, r"lack the key `tokenizer\.ggml\.scores`"),
        ({"scores": [0.5, -1.0]}, "760 tokens and 2 scores"),
        ({"scores": [1, 2]}, "list values of type float; they are of type int"),
        ({"token_type": [1, 1]}, "760 tokens and 2 token types"),
        ({"token_type": None}, "lacks the token `<0x00>`"),  # as a byte
        ({"token_type": [6, *SENTENCEPIECE["llama"]["types"][1:]]}, "'<unk>' as a byte"),
        ({"tokens": entry_without("<0x7B>")}, "lacks the token `<0x7B>`"),
        ({"tokens": entry_without("▁")}, "lacks the token `▁`"),
        ({"remove_extra_whitespaces": True}, "asks for `tokenizer.ggml.remove_extra_whitespaces`"),
        ({"precompiled_charsmap": [1, 2]}, "asks for `tokenizer.ggml.precompiled_charsmap`"),
        ({"bos_token_id": 760}, "`tokenizer.ggml.bos_token_id` .* 0 to 759; it is 760"),
        ({"add_space_prefix": "yes"}, "should be of type bool; it is str"),
    ],
)
def test_what_would_go_wrong_is_refused(build, changes, message):
    with pytest.raises(ModelError, match=message) as caught:
        build(**changes)
    assert "tiny-0.gguf" in str(caught.value)


def test_a_model_runs_on_these_tokens(tiny):
    path = tiny(tokenizer=sentencepiece())
    model = load_model(path)
    prompt = model.tokenizer.encode("the cat")
    expected = plain_logits(read_gguf(path), prompt)
    assert expected.shape == (len(prompt), 760)
    np.testing.assert_allclose(model.logits(prompt), expected[-1], rtol=0, atol=2e-5)
    assert list(generate(model, prompt, 1)) == [expected[-1].argmax()]


def test_damage_never_raises_anything_but_a_course_error(tmp_path):
    # Bits flipped within scores, types and the last tokens.
    whole = write_tiny(tmp_path / "whole.gguf", tokenizer=sentencepiece()).read_bytes()
    start, end = whole.index(b"tokenizer.ggml.tokens"), whole.index(b"tokenizer.chat_template")
    rng = np.random.default_rng(9)
    refused = 0
    for at in rng.choice(np.arange(start, end), 120, replace=False):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << int(rng.integers(8))
        bad = tmp_path / f"{at}.gguf"
        bad.write_bytes(damaged)
        try:
            tokenizer = Tokenizer(read_gguf(bad))
            tokenizer.decode(tokenizer.encode("The cat 🤖\n<s>", special=True))
        except CourseError:
            refused += 1
    assert refused > 10  # elsewhere the damage is a spelling or a score
