"""The model in parts: joined again whatever the net does, and never joined wrong."""

import pytest

from lib.errors import ModelError
from lib.wasm import model


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Return the folder of a site with a model of 10 bytes in parts of 4, and the model."""
    monkeypatch.setattr(model, "PART", 4)
    whole = tmp_path / "tiny.gguf"
    whole.write_bytes(b"0123456789")
    model.split(whole, tmp_path / "model")
    return tmp_path / "model"


def reader(site, failing=()):
    """Return what fetches: names in ``failing`` fail, each once for every time it is listed."""
    failing, asked = list(failing), []

    def get(name):
        asked.append(name)
        if name in failing:
            failing.remove(name)
            raise OSError("the net failed")
        if not (site / name).is_file():
            raise OSError("the server said 404")
        return (site / name).read_bytes()

    get.asked = asked
    return get


def test_parts_join_to_the_same_bytes_and_tell_how_far(site, tmp_path):
    told = []
    out = model.join(reader(site), tmp_path / "home", lambda *seen: told.append(seen))
    assert out.read_bytes() == b"0123456789"
    assert told == [(4, 10), (8, 10), (10, 10)]


def test_a_model_that_is_here_is_not_fetched_again(site, tmp_path):
    model.join(reader(site), tmp_path / "home")
    get = reader(site)
    model.join(get, tmp_path / "home")
    assert get.asked == [model.LIST]


def test_a_part_that_fails_is_tried_again(site, tmp_path):
    out = model.join(reader(site, ["tiny.gguf.001"] * 2), tmp_path / "home")
    assert out.read_bytes() == b"0123456789"


def test_a_net_that_stays_down_is_told_and_the_next_call_goes_on(site, tmp_path):
    with pytest.raises(ModelError, match=r"fetched up to 0 of 0 MB.*net failed.*go on from there"):
        model.join(reader(site, ["tiny.gguf.001"] * 3), tmp_path / "home")
    get = reader(site)
    assert model.join(get, tmp_path / "home").read_bytes() == b"0123456789"
    assert get.asked == [model.LIST, "tiny.gguf.001", "tiny.gguf.002"]


@pytest.mark.parametrize("bytes_", [b"4x67", b"45", b""], ids=["changed", "cut", "empty"])
def test_a_part_that_is_not_what_it_was_is_refused(site, tmp_path, bytes_):
    (site / "tiny.gguf.001").write_bytes(bytes_)
    with pytest.raises(ModelError, match="not the file that the site was built with"):
        model.join(reader(site), tmp_path / "home")


@pytest.mark.parametrize("text", [None, "", "{}", '{"name": 1}', "[]"])
def test_a_site_without_a_model_says_so(site, tmp_path, text):
    if text is None:
        (site / model.LIST).unlink()
    else:
        (site / model.LIST).write_text(text)
    with pytest.raises(ModelError, match="this site has no model beside it"):
        model.join(reader(site), tmp_path / "home")


def test_no_room_is_told_and_leaves_nothing_behind(site, tmp_path):
    get = reader(site)

    def full(name):
        if name.endswith("002"):
            raise MemoryError
        return get(name)

    with pytest.raises(ModelError, match="no room for the model"):
        model.join(full, tmp_path / "home")
    assert list((tmp_path / "home").iterdir()) == []


def test_without_a_browser_the_model_is_not_fetched():
    with pytest.raises(ModelError, match="no browser here"):
        model.in_browser()
