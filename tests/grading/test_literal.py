"""Answers that are literals: read, never run."""

import pytest

from lib.exercises.judging import Malformed
from lib.grading.literal import LENGTH, NODES, read


def value(source, *others, variable="x"):
    return read(source, variable, others, "a string")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = 'A B'", "A B"),
        ("x: str = 'A'", "A"),
        ("x = y = 3", 3),
        ("x = 1\nprint(x)\nx = [2, (3.5, None)]", [2, (3.5, None)]),
        ("x = {'a': {1, 2}, 'b': -1}", {"a": {1, 2}, "b": -1}),
        ("x = ...", ...),
        ("x = 'A' + ' B'", "A B"),
        ("x = dict(a=True, b=[])", {"a": True, "b": []}),
        ("x = list(range(2, 6))", [2, 3, 4, 5]),
        ("x = set()", set()),
        ("seed = 7\nx = {'seed': seed}", {"seed": 7}),
        ("x = {'a': ...}\nx['a'] = 'both'", {"a": "both"}),
        ("%timeit 1\n!ls\nx = 2", 2),
        ("x = 1 if 1 else 2\nx = 5", 5),
        ("1/0; undefined()\nx = 5", 5),
    ],
)
def test_the_last_value_is_read(source, expected):
    assert value(source) == expected


def test_names_of_other_cells_are_written_out():
    assert value("x = {'seed': SEED}", "SEED = 2026", "broken (", "SEED = 7") == {"seed": 7}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("y = 1", "should give `x` a value"),
        ("# nothing", "should give `x` a value"),
        ("x = open('/etc/passwd').read()", "written out: a string. Here `x` is computed by code"),
        ("x = [__import__('os').system('touch /tmp/x')]", "computed by code"),
        ("x = order_widget(STEPS).value", "The cell is the answer"),
        ("x = x", "far larger or deeper"),
        ("x = [y, y]\ny = x", "far larger or deeper"),
        ("x = list(range(1000000000))", "far larger or deeper"),
        (f"x = {'[' * 60}{']' * 60}", "far larger or deeper"),
        (f"x = [{'0,' * NODES}]", "far larger or deeper"),
        (f"x = {'[' * 4000}", "SyntaxError"),
        (f"x = {'-' * 40_000}1", "nested too deeply|computed by code|far larger"),
        (f"x = {'(' * 150}1{')' * 150} + {'1 + ' * 10_000}1", "computed|deep|Syntax"),
        (f"x = '{'A' * LENGTH}'", "characters"),
        (f"x = {'9' * 5000}", "SyntaxError"),
        ("x = 'A\0B'", "SyntaxError"),
        ("x = (", "SyntaxError: .* line 1"),
        ("x = '\ud800", "SyntaxError"),
        ("def x(): pass", "should give `x` a value"),
        ("x = f'{1}'", "computed by code"),
        ("x = {**{}}", "computed by code|written out"),
        ("x = {[]: 1}", "computed by code"),
    ],
    ids=range(22),
)
def test_anything_else_gets_its_own_message(source, message):
    with pytest.raises(Malformed, match=message):
        value(source)
