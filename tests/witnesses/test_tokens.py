"""The tokens of the real model's tokenizer, against those of llama.cpp on the same file.

In a wider search every code point below U+40000 stood in a text, beside letters, digits and spaces.
The only difference: 80 digits that came with Unicode 16, such as U+10D40, are numbers for the
package `tokenizers`, which knows that version, and nothing in particular for llama.cpp. They are
not in the corpus.
"""

import pytest

from lib.errors import CourseError


def first_difference(tokenizer, ours, theirs):
    return [tokenizer.decode([token]) for token in ours], [tokenizer.decode([t]) for t in theirs]


def test_plain_text(real_tokenizer, tokens):
    assert len(tokens["texts"]) > 200
    for text, ids in tokens["texts"]:
        found = real_tokenizer.encode(text)
        assert found == ids, (text, *first_difference(real_tokenizer, found, ids))


def test_text_with_control_tokens(real_tokenizer, tokens):
    assert len(tokens["special"]) >= 5
    for text, ids in tokens["special"]:
        found = real_tokenizer.encode(text, special=True)
        assert found == ids, (text, *first_difference(real_tokenizer, found, ids))
        assert real_tokenizer.control.intersection(ids)


def test_control_tokens_are_read_nowhere_else(real_tokenizer, tokens):
    changed = {text for text, _ in tokens["special"]}
    for text, ids in tokens["texts"]:
        if text not in changed:
            assert real_tokenizer.encode(text, special=True) == ids, text


def test_the_tokens_spell_the_text(real_tokenizer, tokens):
    for text, ids in tokens["texts"] + tokens["special"]:
        assert real_tokenizer.decode(ids) == text
        assert "".join(real_tokenizer.stream_text(ids)) == text


def test_what_has_no_token_is_refused_where_llama_cpp_leaves_it_out(real_tokenizer, tokens):
    assert tokens["lost"]
    for text, ids in tokens["lost"]:
        assert real_tokenizer.decode(ids) != text
        with pytest.raises(CourseError, match="characters that the model has tokens for; at pos"):
            real_tokenizer.encode(text)
