"""Answers that are literals: read, never run."""

import pytest

from lib.exercises.judging import Malformed
from lib.exercises.literal import DEPTH, LENGTH, NODES, Computed, bound, parse, read


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
        ("x = open('/etc/passwd').read()", "`x` is computed by code, `open"),
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
        ("def x(): pass", "computed by code"),
        ("x = f'{1}'", "computed by code"),
        ("x = {**{}}", "computed by code|written out"),
        ("x = {[]: 1}", "computed by code"),
    ],
    ids=range(22),
)
def test_anything_else_gets_its_own_message(source, message):
    with pytest.raises(Malformed, match=message):
        value(source)


# --- Limits, exactly ------------------------------------------------------------------------------


def test_a_cell_may_be_as_long_as_the_limit():
    cell = "x = 'A'".ljust(LENGTH)
    assert value(cell) == "A"
    with pytest.raises(Malformed, match=f"has {LENGTH + 1} characters; {LENGTH} are enough"):
        value(cell + " ")


def test_a_value_may_have_as_many_nodes_as_the_limit():
    # The list itself is one node, and each number another.
    assert value(f"x = [{'0,' * (NODES - 1)}]") == [0] * (NODES - 1)
    with pytest.raises(Malformed, match="far larger"):
        value(f"x = [{'0,' * NODES}]")
    assert len(value(f"x = list(range({NODES}))")) == NODES
    with pytest.raises(Malformed, match="far larger"):
        value(f"x = list(range({NODES + 1}))")


@pytest.mark.parametrize(("open_", "close"), [("[", "]"), ("(", ",)"), ("{'a':", "}")])
def test_a_value_may_be_as_deep_as_the_limit(open_, close):
    found = value(f"x = {open_ * DEPTH}1{close * DEPTH}")
    for _ in range(DEPTH):
        found = found["a"] if isinstance(found, dict) else found[0]
    assert found == 1
    with pytest.raises(Malformed, match="larger or deeper"):
        value(f"x = {open_ * (DEPTH + 1)}1{close * (DEPTH + 1)}")


def test_a_name_takes_a_level_too():
    chain = "\n".join(f"y{k} = y{k + 1}" for k in range(DEPTH - 1))
    assert value(f"{chain}\ny{DEPTH - 1} = 5\nx = y0") == 5
    with pytest.raises(Malformed, match="larger or deeper"):
        value(f"{chain}\ny{DEPTH - 1} = y{DEPTH}\ny{DEPTH} = 5\nx = y0")


# --- What is understood ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("def f(): y = 1", {"f"}),
        ("async def f(): pass", {"f"}),
        ("class C: y = 1", {"C"}),
        ("import a.b, c as d", {"a", "d"}),
        ("from a import b as c, e", {"c", "e"}),
        ("a = b = 1", {"a", "b"}),
        ("a, (b, *c) = 1, 2", {"a"}),
        ("[a, b] = 1, 2", {"a", "b"}),
        ("a['k'][0] = 1", {"a"}),
        ("*a, b = c", {"b"}),
        ("a.b = 1", set()),
        ("a: int", set()),
        ("a: int = 1", {"a"}),
        ("a += 1", {"a"}),
        ("for a in b: c = 1", {"a", "c"}),
        ("print(a)", set()),
    ],
)
def test_names_that_a_statement_gives_a_value(source, names):
    (statement,) = parse(source).body
    assert bound(statement) == names


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = {'a': 1}\nx['b'] = 2\nx['a'] = 3", {"a": 3, "b": 2}),
        ("x = {'a': 1}\ny = {}\ny['a'] = 2", {"a": 1}),
        ("x = {'a': 1}\nx['a'] = 2\nx = {'c': 4}\nx['d'] = 5", {"c": 4, "d": 5}),
        ("x = [1]\nx[0] = 2", [1]),
        ("y = 'late'\nx = y\ny = 'later'", "later"),
        ("x = tuple([1, 2])", (1, 2)),
        ("x = set((1, 1, 2))", {1, 2}),
        ("x = list({3})", [3]),
        ("x = list()", []),
        ("x = tuple()", ()),
        ("x = range(3)", [0, 1, 2]),
        ("x = dict()", {}),
        ("x = dict(a=(1,), b=dict(c=2))", {"a": (1,), "b": {"c": 2}}),
        ("x = ('A' + 'B') + 'C'", "ABC"),
        ("x = 1 + 2j", 1 + 2j),
        ("x = {1: {2: 3}}", {1: {2: 3}}),
        ("x = 'A'\nx += ' B'\nx += ' C'", "A B C"),
        ("for x in [7]: pass\nx = 2", 2),
        ("what?\nx = 2", 2),
        (r"x = 'A\d'", r"A\d"),  # Python warns of the escape
        ("x = 2\n?what", 2),
    ],
)
def test_what_else_is_read(source, expected):
    found = value(source)
    assert (type(found), found) == (type(expected), expected)


@pytest.mark.parametrize(
    "source",
    [
        "x = dict([(1, 2)])",
        "x = dict(**{'a': 1})",
        "x = range(stop=3)",
        "x = list(a=1)",
        "x = list(3)",
        "x = list([1], [2])",
        "x = sorted([2, 1])",
        "x = 'A' + 1",
        "x = 'A' - 'B'",
        "x = b'A' + b'B'",
        "x = 'A' * 3",
        "x = y",
        "x = range(1.5)",
        "x = 2\nx += 1",
        "x = 2\nfor x in [7]: pass",
        "x = {'a': 1}\nx['a'] += 1",
        "x = {'a': 1}\nfor x['a'] in [7]: pass",
    ],
)
def test_what_is_code_is_told(source):
    with pytest.raises(Computed, match="`x` is computed by code"):
        value(source)


def test_code_is_shown_in_part():
    with pytest.raises(Malformed) as told:
        value(f"x = f({', '.join(map(str, range(100)))})")
    shown = str(told.value).removesuffix("`.").rpartition("by code, `")[2]
    assert shown == f"f({', '.join(map(str, range(100)))})"[:80]


def test_a_widget_is_named_only_where_there_is_one():
    for source in ("x = make_widget()", "x = thing.value", "x = board.literal"):
        with pytest.raises(Malformed, match="here it is `.*`. A widget helps"):
            value(source)
    with pytest.raises(Computed):
        value("x = things(value)")


@pytest.mark.parametrize(
    "source",
    [
        "x = 2\nfor x in [7]: pass",
        "if True:\n    x = 1",
        "try:\n    x = 1\nexcept ValueError:\n    pass",
        "with open('a') as f:\n    x = 1",
        "print(x := 1)",
        "x = [k for k in range(3)]",
        "while True:\n    x = 1\n    break",
    ],
)
def test_an_answer_within_other_statements_is_computed(source):
    with pytest.raises(Computed):
        value(source)


@pytest.mark.parametrize(
    "source",
    [
        "%matplotlib inline\nx = 7",
        "%time x = 7",
        "%%time\nx = 7",
        "%timeit -n 1 print()\nx = 7",
        "!ls\nx = 7",
        "    x = 7",
        ">>> x = 7",
        'text = """\n%d and !so\n"""\nx = 7',
        "sum?\nx = 7",
    ],
)
def test_what_ipython_understands_is_read(source):
    assert value(source) == 7
