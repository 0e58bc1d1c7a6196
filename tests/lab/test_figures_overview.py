import xml.etree.ElementTree as ET

import pytest

from lib.errors import CourseError
from lib.lab.figures import overview


def texts(axis):
    return [text.get_text() for text in axis.texts]


def test_the_picture_names_every_token_and_every_shape():
    axis = overview.way_of_a_text("dog saw bird").axes[0]
    shown = texts(axis)
    for word in (
        "dog",
        "saw",
        "bird",
        "× L",
        "(n,)",
        "(vocabulary,)",
        "left context",
        "current token",
    ):
        assert shown.count(word) == 1, word
    assert shown.count("FFN") == 3
    assert shown.count("(n, d)") == 4


def test_the_picture_ends_with_the_word_that_the_toy_writes_next():
    figure = overview.way_of_a_text("the dog saw the bird")
    assert texts(figure.axes[0]).count("fly") == 1
    assert "fly has 0." in figure.in_words()


def test_the_saved_picture_is_the_same_at_every_run(tmp_path):
    first, second = tmp_path / "a.svg", tmp_path / "b.svg"
    overview.save(first)
    overview.save(second)
    assert first.read_bytes() == second.read_bytes()
    root = ET.fromstring(first.read_text(encoding="utf-8"))
    assert root.tag.endswith("svg")
    assert first.stat().st_size < 100_000


def test_another_kind_of_file_is_refused(tmp_path):
    with pytest.raises(CourseError, match=r"\.svg"):
        overview.save(tmp_path / "stack.png")
    assert not list(tmp_path.iterdir())
