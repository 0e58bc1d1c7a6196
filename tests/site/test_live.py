"""The front page's instrument: its numbers are the model's, and it can be worked by keyboard."""

import json
from itertools import pairwise

import numpy as np
import pytest

from lib.engine.llama import load_model
from lib.lab import heads, lens
from lib.site import live
from tests.browser.test_in_jupyterlab import browser

__all__ = ["browser"]  # the fixture

SENTENCE = "The bird that the dog saw flew away"


@pytest.fixture(scope="module")
def model():
    return load_model()


@pytest.fixture(scope="module")
def found(model):
    return live.numbers(model, (SENTENCE, "The capital of France is"))


def test_each_verb_looks_at_its_subject(model, found):
    (text, _) = found["texts"]
    assert "".join(text["tokens"]) == SENTENCE
    saw, flew = 5, 6
    assert np.argmax(text["weights"][saw]) == 4  # dog
    assert np.argmax(text["weights"][flew]) == 1  # bird
    tokens = model.tokenizer.encode(SENTENCE)
    weights = heads.head_weights(model, model.hidden(tokens))[live.LAYER - 1, live.HEAD - 1]
    for row, exact in zip(text["weights"], weights, strict=True):
        np.testing.assert_allclose(np.array(row) / 100, exact[: len(row)], atol=0.005001)


def test_what_is_said_after_the_last_layer_is_what_the_model_says(model, found):
    for text in found["texts"]:
        tokens = model.tokenizer.encode("".join(text["tokens"]))
        logits = model.logits(tokens, all=True)
        for said, row in zip(text["said"], logits, strict=True):
            assert said[-1][0][0] == lens.spell(model, int(row.argmax()))
            assert all(a[1] >= b[1] for words in said for a, b in pairwise(words))
    france = found["texts"][1]["said"][-1]
    assert len(france) == len(live.DEPTHS)
    assert france[-1][0][0] == "␣Paris"
    assert france[0][0][0] != "␣Paris"


def test_the_script_holds_the_numbers_and_ends_no_element(found):
    found = {**found, "odd": "</script>"}
    text = live.script(found)
    assert "</" not in text
    assert json.loads(text.removeprefix("window.courseLive = ").removesuffix(";\n")) == json.loads(
        json.dumps(found)
    )


def test_a_dozen_sentences_stay_below_a_megabyte(found):
    assert len(live.SENTENCES) == 12
    assert len(set(live.SENTENCES)) == 12
    assert len(live.script(found)) / 2 * 12 < 1_000_000


PAGE = """<!doctype html><meta charset="utf-8"><link rel="stylesheet" href="course.css">
<style>:root {{ --pst-color-border: #ccc; --pst-color-text-muted: #666;
--pst-color-background: #fff; }}</style><body>{place}"""


def test_it_is_worked_by_mouse_and_by_keyboard(found, tmp_path, browser):
    static = live.PLACE.replace("_static/", "")
    (tmp_path / "index.html").write_text(PAGE.format(place=static), encoding="utf-8")
    (tmp_path / "live-data.js").write_text(live.script(found), encoding="utf-8")
    for name in ("live.js", "course.css"):
        source = live.STATIC / name
        (tmp_path / name).write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    page = browser.new_page(viewport={"width": 390, "height": 800})
    faults = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto((tmp_path / "index.html").as_uri())
    assert "“flew” looks at bird" in page.inner_text(".live-looks")
    page.click(".live-tokens button:nth-child(6)")
    assert "“saw” looks at dog" in page.inner_text(".live-looks")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert "“flew” looks at bird" in page.inner_text(".live-looks")
    page.select_option("select", "1")
    rows = page.query_selector_all(".live-table tbody tr")
    assert len(rows) == len(live.DEPTHS)
    assert "␣Paris" in rows[-1].inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert faults == []
