"""Schedules on paper, and attention that forgets."""

import numpy as np
import pytest

from lib import reference
from lib.lab import batching
from lib.lab.figures import batch as pictures

LENGTHS = [3, 1, 2, 4, 1]


def test_a_group_waits_for_its_longest():
    assert batching.in_groups(LENGTHS, 2) == [
        [0, 1], [0, None], [0, None], [2, 3], [2, 3], [None, 3], [None, 3], [4, None],
    ]  # fmt: skip


def test_a_place_is_taken_at_once():
    assert batching.as_they_come(LENGTHS, 2) == [[0, 1], [0, 2], [0, 2], [3, 4], [3, None],
                                                 [3, None], [3, None]]  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
def test_each_text_gets_its_tokens_in_a_row_and_no_place_is_free_while_one_waits(seed):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 9, 12).tolist()
    for places in (1, 3, 8):
        for schedule in (batching.in_groups, batching.as_they_come):
            passes = schedule(lengths, places)
            assert {len(row) for row in passes} == {places}
            for text, length in enumerate(lengths):
                at = [k for k, row in enumerate(passes) if text in row]
                assert at == list(range(at[0], at[0] + length))
            latest = np.maximum.accumulate(
                [max(text for text in row if text is not None) for row in passes]
            )
            if schedule is batching.as_they_come:
                waits = latest < 11  # somebody is still in line
                assert not any(None in row for row, w in zip(passes, waits, strict=True) if w)


def test_attention_with_a_window_as_wide_as_the_text_is_causal_attention():
    rng = np.random.default_rng(0)
    Q, K, V = rng.standard_normal((3, 7, 4))
    whole = reference.attend_causal(Q, K, V)
    np.testing.assert_allclose(batching.attend_to(7, 0)(Q, K, V), whole, atol=1e-6)
    np.testing.assert_allclose(batching.attend_to(1, 0)(Q, K, V), V, atol=1e-6)
    some = batching.attend_to(2, 1)(Q[-2:], K, V)  # the last query sees tokens 0, 5 and 6
    mine = reference.attend(Q[-1], K[[0, 5, 6]], V[[0, 5, 6]])
    np.testing.assert_allclose(some[-1], mine, atol=1e-6)


def test_surprise_by_hand():
    logits = np.log([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1], [1, 1, 1]])
    np.testing.assert_allclose(batching.surprise(logits, [0, 2, 1]), -np.log([0.25, 0.8]))


def test_the_figures_draw_the_numbers_given():
    passes = batching.in_groups(LENGTHS, 2)
    figure = pictures.timelines({"groups": passes}, title="t")
    assert len(figure.axes[0].patches) == sum(LENGTHS)
    assert "groups: 8 passes, 69% of the places taken." in figure.alt
    left, right = pictures.throughput([1, 2, 4], [10, 19, 30], [1, 1.1, 1.3]).axes
    assert left.lines[0].get_ydata().tolist() == [10, 19, 30]
    assert right.lines[0].get_ydata().tolist() == [1, 1.1, 1.3]
