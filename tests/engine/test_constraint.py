"""Constraints: what the automaton lets through is what a regular expression of Python matches."""

import itertools
import json
import re

import numpy as np
import pytest

from lib.engine import constraint as form
from lib.engine.constraint import Constraint, derivative, either, json_of, literal, may_end
from lib.engine.sampling import generate
from lib.errors import CourseError

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 3},
        "age": {"type": "integer"},
        "pet": {"enum": ["cat", "dög", 5]},
        "happy": {"type": "boolean"},
        "more": {"type": "null"},
    },
}


def matches(expression, text):
    for byte in text.encode():
        expression = derivative(expression, byte)
    return may_end(expression)


A, B = literal("a"), literal("b")
CASES = [
    (form.sequence(A, B), "ab"),
    (either(A, form.sequence(B, A)), "a|ba"),
    (form.many(either(A, form.sequence(B, B))), "(a|bb)*"),
    (form.sequence(form.many(A), B, form.many(form.sequence(A, B))), "a*b(ab)*"),
    (form.sequence(either(A, form.EMPTY), either(B, form.EMPTY)), "a?b?"),
    (form.sequence(form.many(either(A, B)), A, either(A, B)), "[ab]*a[ab]"),
    (form.EMPTY, ""),
    (form.NOTHING, "x"),
    (form.one_byte(0x61, 0x63, but="b"), "[ac]"),
]


@pytest.mark.parametrize(("expression", "pattern"), CASES)
def test_derivatives_match_what_the_pattern_matches(expression, pattern):
    for length in range(6):
        for letters in itertools.product("abc", repeat=length):
            text = "".join(letters)
            assert matches(expression, text) == bool(re.fullmatch(pattern, text)), text


def test_a_repetition_has_few_states():
    """Equal states look equal, or each step of a long text would make a new one."""
    seen, states = set(), [CASES[3][0]]
    while states:
        state = states.pop()
        if state not in seen:
            seen.add(state)
            states += [derivative(state, byte) for byte in b"ab"]
    assert len(seen) <= 6


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ('{"name": "Ana", "age": -10, "pet": "cat", "happy": true, "more": null}', True),
        ('{"name": "", "age": 0, "pet": "dög", "happy": false, "more": null}', True),
        ('{"name": "éñ", "age": 7, "pet": 5, "happy": true, "more": null}', True),
        ('{"name": "Anna", "age": 1, "pet": 5, "happy": true, "more": null}', False),
        ('{"name": "A", "age": 01, "pet": 5, "happy": true, "more": null}', False),
        ('{"name": "A", "age": 1, "pet": "cow", "happy": true, "more": null}', False),
        ('{"name": "\\"", "age": 1, "pet": 5, "happy": true, "more": null}', False),
        ('{"age": 1}', False),
        ("", False),
    ],
)
def test_json_of_a_schema(text, fits):
    assert matches(json_of(SCHEMA), text) == fits
    if fits:
        json.loads(text)


def test_a_schema_is_checked():
    for schema in ({"type": "array"}, {}, {"type": "object", "properties": {"a": {"type": "?"}}}):
        with pytest.raises(CourseError, match="a schema should have an enum, or the type"):
            json_of(schema)


def test_allowed_tokens_are_those_whose_bytes_go_on(odd):
    """Against a search of the whole vocabulary, by Python's own regular expressions."""
    constraint = Constraint(either(literal("hello"), literal("he"), literal("12")), odd.tokenizer)
    pieces, stop, state = odd.tokenizer.bytes_of(), odd.tokenizer.stop, constraint.start

    def spelled(allowed):
        return {pieces[token] for token in np.flatnonzero(allowed) if token not in stop}

    assert spelled(constraint.allowed(state)) == {b"h", b"he", b"hell", b"hello"[:1], b"1", b"12"}
    state = constraint.after(state, pieces.index(b"he"))
    assert spelled(constraint.allowed(state)) == {b"l", b"ll"}
    assert constraint.allowed(state)[list(stop)].all()  # "he" is complete
    state = constraint.after(state, pieces.index(b"ll"))
    assert spelled(constraint.allowed(state)) == {b"o"}
    assert not constraint.allowed(state)[list(stop)].any()


@pytest.mark.parametrize(
    "how", [{}, {"temperature": 2.0, "seed": 1}, {"temperature": 2, "seed": 2}]
)
def test_a_generated_text_has_the_form(tiny, how):
    from lib.engine.llama import load_model

    model = load_model(tiny(metadata={"llama.context_length": 200}))
    pets = {"pet": {"enum": ["cat", "dog"]}, "age": {"type": "integer"}}
    schema = json_of({"type": "object", "properties": pets})
    words = Constraint(either(literal("hello"), literal("hell 12")), model.tokenizer)
    text = model.tokenizer.decode(generate(model, [7, 8], 60, constraint=words, **how))
    assert text in ("hello", "hell 12")
    made = Constraint(schema, model.tokenizer)
    text = model.tokenizer.decode(generate(model, [7, 8], 150, constraint=made, **how))
    assert re.match(r'\{"pet": "(cat|dog)", "age": -?\d+', text)


def test_a_form_that_no_text_has_is_refused(odd):
    with pytest.raises(CourseError, match="expression should match a text; it matches none"):
        Constraint(either(), odd.tokenizer)
