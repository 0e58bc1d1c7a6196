"""The count of wrongs that the tests find can itself fail."""

import importlib.util
import os
import sys

import pytest

from tests.mutants import __main__ as command
from tests.mutants.operators import mutants

SOURCE = '''
"""Words."""
LIMIT = 3


def mean(x, start=0):
    """Say `a + b`."""
    total = start
    for value in x:
        if value < 0 and not total:
            continue
        total += value
    if x == "no":
        raise ValueError(f"{len(x) - 1} is wrong")
    return total / len(x)


class Thing:
    def double(self):
        return list(map(lambda y: -y * LIMIT, [1.5]))
'''
CHANGES = [
    ("", "3 → 4"),
    ("", "3 → 2"),
    ("mean", "0 → 1"),
    ("mean", "0 → -1"),
    ("mean", "value < 0 and (not total) → not (value < 0 and (not total))"),
    ("mean", "value < 0 and (not total) → value < 0 or not total"),
    ("mean", "value < 0 → value <= 0"),
    ("mean", "0 → 1"),
    ("mean", "0 → -1"),
    ("mean", "not total → total"),
    ("mean", "continue → pass"),
    ("mean", "continue → break"),
    ("mean", "total += value → pass"),
    ("mean", "total += value → total -= value"),
    ("mean", "x == 'no' → x != 'no'"),
    ("mean", "'no' → 'no?'"),
    ("mean", "raise ValueError(f'{len(x) - 1} is wrong') → pass"),
    ("mean", "return total / len(x) → return None"),
    ("mean", "total / len(x) → total * len(x)"),
    ("Thing.double", "return list(map(lambda y: -y * LIMIT, [1.5])) → return None"),
    ("Thing.double", "-y * LIMIT → -y / LIMIT"),
    ("Thing.double", "-y → y"),
    ("Thing.double", "1.5 → 2.5"),
]


def test_every_operator_once():
    found = mutants(SOURCE, "source.py")
    assert [(m.function, m.change) for m in found] == CHANGES


def test_what_a_mutant_says_of_its_place():
    one = next(m for m in mutants(SOURCE, "source.py") if m.change == "continue → break")
    assert (one.first, one.last, one.line) == (11, 11, "continue")
    assert one.key == ("mean", "continue", "continue → break")


@pytest.fixture
def live(tmp_path, monkeypatch):
    """The source as a module, and a second one that has taken its names."""
    path = tmp_path / "live_source.py"
    path.write_text(SOURCE, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("tests.live_source", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "tests.live_source", module)
    spec.loader.exec_module(module)
    return path, module


@pytest.mark.skipif(not hasattr(os, "fork"), reason="mutants need fork")
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("", (2.0, [-4.5])),
        ("3 → 4", (2.0, [-6.0])),
        ("0 → 1", (2.5, [-4.5])),
        ("total += value → total -= value", (-2.0, [-4.5])),
        ("total / len(x) → total * len(x)", (8.0, [-4.5])),
        ("-y → y", (2.0, [4.5])),
        ("return total / len(x) → return None", (None, [-4.5])),
    ],
)
def test_a_mutant_lives_in_functions_that_were_imported_before(live, change, expected):
    from tests.mutants.runner import compiled, functions_of, graft

    path, module = live
    mean, thing = module.mean, module.Thing()
    for one in mutants(SOURCE, str(path)):
        if one.change == change:
            graft(one, path, compiled(path), functions_of([path]))
            break
    assert (mean([1, 3]), thing.double()) == expected


def test_a_share_has_an_interval():
    # The example of Newcombe 1998, table I: 15 of 148 give 0.0624 to 0.1605.
    assert command.interval(15, 148) == pytest.approx((0.0624, 0.1605), abs=5e-5)


@pytest.mark.slow  # the command itself ends with 1 if one does not
def test_every_explanation_fits_a_mutant():
    files = {file for file, *_ in command.explained()}
    assert files <= {f for names, _ in command.GROUPS.values() for f in command.python_files(names)}
    assert command.unfitting(files) == []


def test_the_groups_exist():
    for files, tests in command.GROUPS.values():
        assert all((command.ROOT / name).exists() for name in [*files, *tests])
