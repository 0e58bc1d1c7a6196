"""What the chapters print."""

import numpy as np
import pytest

from lib import attention, ffn
from lib.lab import example, show


def test_source_shows_kernels_ufuncs_and_functions_as_they_stand():
    text = show.source(attention._mix, ffn._relu, attention.attend).data
    heads, whole = text.split("\n\n<details>\n<summary>The whole source: ")
    assert heads.endswith("\n    ...\n```")
    assert heads.count("    ...") == 3
    assert "Attention for one query" in heads or "def attend(q, K, V):" in heads
    assert "V[j, c]" not in heads
    lines, text = whole.split(" lines</summary>\n\n", 1)
    assert int(lines) == text.count("\n") - 3
    assert text.endswith("\n```\n\n</details>")
    text = text.removesuffix("\n\n</details>")
    assert text.startswith("```python\n@kernel\ndef _mix(weights, V, out):")
    assert "\n\n@elementwise\ndef _relu(x):\n" in text
    assert (
        '\n\n@operation("(d),(n,d),(n,d_v)->(d_v)", reference.attend)\ndef attend(q, K, V):\n'
        in text
    )
    assert text.endswith("\n```")


def test_a_short_source_is_shown_whole():
    text = show.source(ffn._relu).data
    assert text.startswith("```python\n@elementwise\ndef _relu(x):\n")
    assert "details" not in text


def test_table_is_markdown():
    got = show.table(["a", "b"], [[1, -0.5], ["x|y", np.float32(2)]]).data
    assert got == "| a | b |\n| --- | --- |\n| 1 | −0.500 |\n| x\\|y | 2.000 |"


def test_median_seconds_calls_once_more_than_it_counts():
    calls = []
    assert show.median_seconds(lambda: calls.append(1), repeats=3) >= 0
    assert len(calls) == 4


def test_the_running_example_is_what_chapter_1_works_out_by_hand():
    q = (example.X @ example.W_Q)[-1]
    scores = q @ (example.X @ example.W_K).T / 2
    np.testing.assert_array_equal(scores, [0, 1, 0, 0, 2, 1])
    total = 3 + 2 * np.e + np.e**2
    np.testing.assert_allclose(
        attention.softmax(scores), np.exp([0, 1, 0, 0, 2, 1]) / total, rtol=1e-6
    )
    assert [example.TOKENS[i] for i in (0, 3)] == ["the", "the"]
    assert pytest.approx(total, abs=1e-3) == 15.826
