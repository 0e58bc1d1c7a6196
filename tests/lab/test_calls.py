from types import SimpleNamespace

import pytest

from lib.lab.calls import count_calls


@pytest.fixture
def module():
    module = SimpleNamespace(double=lambda x: 2 * x, never=lambda: None)
    module.thrice = lambda x: [module.double(x + k) for k in range(3)]
    return module


def test_calls_are_counted_by_name_and_still_do_their_work(module):
    results = []
    counts = count_calls(
        lambda: results.extend(module.thrice(5)), module, ["double", "never", "thrice"]
    )
    assert counts == {"double": 3, "never": 0, "thrice": 1}
    assert list(counts) == ["double", "never", "thrice"]
    assert results == [10, 12, 14]


def test_the_functions_are_as_before_even_after_an_error(module):
    before = dict(vars(module))

    def run():
        module.double(1)
        raise KeyError("stop")

    with pytest.raises(KeyError):
        count_calls(run, module, ["double"])
    assert vars(module) == before


def test_an_unknown_name_is_an_error(module):
    with pytest.raises(AttributeError, match="absent"):
        count_calls(lambda: None, module, ["absent"])
