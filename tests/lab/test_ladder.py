"""The ladder of chapter 8: every rung computes what the one below it does, within its rounding."""

import numpy as np
import pytest

from lib import reference
from lib.engine import simd
from lib.engine.fast import load_fast
from lib.engine.gguf import TensorInfo
from lib.engine.llama import LlamaConfig
from lib.engine.work import multiply_adds
from lib.errors import CourseError
from lib.lab import ladder
from lib.lab.figures import speed as pictures

ROWS, COLUMNS = 70, 96  # rows that don't fill the last piece of 64; three blocks
CONFIG = LlamaConfig(
    L=3,
    d=96,
    H=4,
    H_kv=2,
    d_head=16,
    d_ff=160,
    vocabulary=200,
    context=64,
    rope_base=1e4,
    eps=1e-5,
)


def made(seed=0, rows=ROWS):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((rows, COLUMNS)).astype(np.float32)


def as_file(blocks):
    """Return blocks of 4 bits as the tensor of a file; d and m have to be float16 numbers."""
    halves = np.stack([blocks.d, blocks.m], axis=2).astype("<f2").view(np.uint8)
    low, high = blocks.codes[..., :16], blocks.codes[..., 16:]
    data = np.concatenate([halves, low | high << 4], axis=2)
    rows, count, _ = blocks.codes.shape
    return TensorInfo((rows, 32 * count), "Q4_1", data.reshape(-1))


def four_bits(seed=0, rows=ROWS):
    rounded = ladder.round_to(made(seed, rows), 4)
    d, m = (np.float32(np.float16(a)) for a in (rounded.d, rounded.m))
    return ladder.Blocks(rounded.codes, d, m)


def test_a_block_by_hand():
    w = np.zeros((1, 32), np.float32)
    w[0, :4] = [-2, 4, 0.1, -1]  # steps of 6 / 15 = 0.4 from -2 on; 2.1 / 0.4 is 5.25
    blocks = ladder.round_to(w, 4)
    assert blocks.codes[0, 0, :5].tolist() == [0, 15, 5, 2, 5]
    np.testing.assert_allclose(ladder.unpack(blocks)[0, :4], [-2, 4, 0, -1.2], atol=1e-6)


@pytest.mark.parametrize("bits", [1, 2, 3, 5, 8])
def test_no_error_exceeds_half_a_step_and_the_ends_stay(bits):
    W = made(bits)
    blocks = ladder.round_to(W, bits)
    assert blocks.codes.max() == 2**bits - 1
    errors = np.abs(ladder.unpack(blocks) - W).reshape(ROWS, -1, 32)
    assert (errors <= blocks.d[..., None] / 2 + 1e-6).all()
    assert errors.max() > 0.4 * blocks.d.max()
    back = ladder.unpack(blocks).reshape(ROWS, -1, 32)
    np.testing.assert_allclose(back.max(2), W.reshape(ROWS, -1, 32).max(2), atol=1e-6)


def test_what_has_sixteen_values_survives_4_and_8_bits_but_not_5():
    W = ladder.unpack(ladder.round_to(made(), 4))
    for bits, same in ((4, True), (8, True), (5, False), (6, False)):
        back = ladder.unpack(ladder.round_to(W, bits))
        assert np.allclose(back, W, atol=1e-6) == same  # 1e-6: rounding of numbers up to 4


def test_a_constant_block_keeps_its_value():
    W = np.full((2, 32), 0.3, np.float32)
    assert np.array_equal(ladder.unpack(ladder.round_to(W, 4)), W)


def test_blocks_of_a_file_are_read_bit_for_bit():
    blocks = four_bits()
    found = ladder.file_blocks(as_file(blocks))
    for name in ("codes", "d", "m"):
        np.testing.assert_array_equal(getattr(found, name), getattr(blocks, name))


def test_a_vector_in_whole_numbers():
    x = made(1, 1)[0]
    x[32:64] = 0
    q, s = ladder.round_vector(x)
    assert np.abs(q[[0, 2]]).max(axis=1).tolist() == [127, 127]
    assert s[1] == 0
    assert not q[1].any()
    errors = np.abs((s[:, None] * q).reshape(-1) - x).reshape(-1, 32)
    assert (errors.max(axis=1) <= s / 2 + 1e-7).all()


def test_every_rung_agrees_with_the_definition_of_the_rounded_numbers():
    blocks, x = four_bits(), made(1, 1)[0]
    q, s = ladder.round_vector(x)
    W, back = reference.float64(ladder.unpack(blocks), (s[:, None] * q).reshape(-1))
    expected = W @ back
    close = {"rtol": 0, "atol": 1e-5}  # 96 float32 products of size 1 to 10, rounded at 6e-8
    np.testing.assert_allclose(ladder.whole_product(blocks, q, s), expected, **close)
    out = np.full(ROWS, np.nan, np.float32)
    ladder.whole_kernel(blocks.codes, blocks.d, blocks.m, q, s, out)
    np.testing.assert_allclose(out, expected, **close)
    ladder.product(ladder.unpack(blocks), x, out)
    np.testing.assert_allclose(out, W @ np.float64(x), **close)
    found = ladder.VectorMatrices([as_file(blocks)], threads=1).products(x[None])
    np.testing.assert_allclose(found[0, 0], expected, **close)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("n", [1, 4, 7])  # one by one, a tile, a tile and a rest
def test_matrices_tokens_and_threads_keep_their_places(threads, n):
    all_blocks = [four_bits(seed) for seed in range(3)]
    X = made(9, n)
    several = ladder.VectorMatrices([as_file(b) for b in all_blocks], threads)
    found = several.products(X)
    assert found.shape == (n, 3, ROWS)
    for t, i in np.ndindex(n, 3):
        expected = ladder.whole_product(all_blocks[i], *ladder.round_vector(X[t]))
        np.testing.assert_allclose(found[t, i], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("threads", [1, 3])
def test_each_piece_is_taken_once_and_all_is_done_when_threads_have_met(threads):
    blocks, x = four_bits(rows=640), made(1, 1)[0]
    several = ladder.VectorMatrices([as_file(blocks)], threads)
    y, who, seen = several.tickets(x)
    assert len(who) == 10
    assert set(who.tolist()) <= set(range(threads))
    assert seen.tolist() == [10] * threads
    np.testing.assert_array_equal(y, several.products(x[None])[0, 0])


def test_the_twins_of_the_vectors_compute_the_same_lanes():
    blocks, x = four_bits(), made(1, 1)[0]
    packed = ladder.VectorMatrices([as_file(blocks)], threads=1).packed[0]
    q, _ = ladder.round_vector(x)
    unit, sums = packed.data[1, 2], simd.no_dots()  # rows 16 to 31, block 2
    for v in range(4):
        w = simd.load_bytes(unit, 64 * (v + 1))
        sums = simd.dot_nibbles(sums, simd.low_nibbles(w), simd.spread_four(q[2], 4 * v))
        sums = simd.dot_nibbles(sums, simd.high_nibbles(w), simd.spread_four(q[2], 16 + 4 * v))
    expected = blocks.codes[16:32, 2].astype(int) @ q[2].astype(int)
    assert sums.tolist() == expected.tolist()


def test_the_cost_of_a_pass_counted_by_hand():
    # a layer: 96 · (2 · 64 + 2 · 32 + 3 · 160) = 64,512 weights; three of them; head 200 · 96
    adds, read = ladder.pass_cost(CONFIG, bits=5, tokens=2, before=3)
    assert adds == multiply_adds(CONFIG, 2, 3)
    cache = 2 * 3 * 2 * 16 * 3 * 4
    assert read == 3 * 64_512 * 5 / 8 + 200 * 96 * 8.5 / 8 + 4 * 7 * 96 + cache


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ladder.round_to(made(), 9), "bits should be 1 to 8; it is 9"),
        (lambda: ladder.round_to(made()[:, :40], 4), "a multiple of 32; the shape is"),
        (lambda: ladder.round_vector(np.float32(3)), "a multiple of 32; the shape is"),
        (
            lambda: ladder.file_blocks(TensorInfo((1, 32), "Q8_0", np.zeros(34, np.uint8))),
            "Q4_1; it is Q8_0",
        ),
        (lambda: ladder.VectorMatrices([], 1), "4-bit ones of one shape"),
        (
            lambda: ladder.VectorMatrices([as_file(four_bits())], 1).products(made()[:, :32]),
            r"X should be \(n, 96\); its shape is \(70, 32\)",
        ),
        (lambda: ladder.pass_cost(CONFIG, 0), "bits should be above 0; they are 0 and 8.5"),
        (lambda: ladder.pass_cost(CONFIG, 5, 0), "tokens should be at least 1"),
    ],
)
def test_mistakes_are_named(call, words):
    with pytest.raises(CourseError, match=words):
        call()


def test_the_figures_draw_the_numbers_given():
    w = np.linspace(-1, 1, 32)
    codes = np.rint((w + 1) * 7.5)
    figure = pictures.rounding(w, codes, 2 / 15, -1.0)
    errors = [bar.get_height() for bar in figure.axes[1].patches]
    np.testing.assert_allclose(errors, codes * 2 / 15 - 1 - w, atol=1e-12)

    strips = pictures.pieces([0, 1, 1, 0, 2], 4).axes[0].patches
    taken = sorted((round(b.get_x() + 0.45), round(b.get_y() + 0.4)) for b in strips)
    assert taken == [(0, 0), (1, 1), (2, 1), (3, 0), (4, 2)]

    left, right = pictures.layout(chosen=3).axes
    assert [len(c.get_paths()) for c in left.collections] == [15 * 6, 6]
    assert [len(c.get_paths()) for c in right.collections] == [15 * 6, 6]
    chosen = right.collections[1].get_paths()[2].vertices  # the word v0 of row 3
    assert chosen[:, 0].min() == 6


@pytest.mark.parametrize(("intensity", "rate"), [(2.0, 40.0), (50.0, 100.0)])
def test_a_pass_is_drawn_on_the_slope_or_on_the_level_roof(intensity, rate):
    axis = pictures.one_pass(20e9, 100e9, intensity).axes[0]
    roof, point = axis.lines
    assert roof.get_xdata().tolist() == [0.1, 5.0, 400.0]
    np.testing.assert_allclose(roof.get_ydata(), [2, 100, 100])
    assert (point.get_xdata()[0], point.get_ydata()[0]) == (intensity, rate)


def test_the_parts_of_a_token_add_up_to_it(compiled):
    fast = load_fast(threads=2)
    spent = ladder.token_time(fast, [504, 3575, 282], 4649, times=4)
    assert list(spent) == ["layers", "head", "start of threads", "Python"]
    assert all(seconds >= 0 for seconds in spent.values())
    assert "run" not in vars(fast._team)  # nothing stays patched
    layers, head = ladder.bytes_of_parts(fast.config)
    assert layers + head == ladder.pass_cost(fast.config, 5)[1]
    assert head == 49152 * 576 * 8.5 / 8
    axis = pictures.parts_of_a_token(spent, {"layers": 0.002, "head": 0.001}).axes[0]
    assert [bar.get_width() for bar in axis.patches[:2]] == [2.0, 1.0]
    measured = sum(bar.get_width() for bar in axis.patches[2:])
    assert np.isclose(measured, 1e3 * sum(spent.values()))
