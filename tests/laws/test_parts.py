"""What surrounds the layers: blocks of bits, caches, sampling, 16-bit floats."""

from functools import partial

import gguf
import numpy as np
import pytest
from hypothesis import strategies as st

pytest.importorskip("numba")
from lib.engine import quant
from lib.engine.cache import Cache, GrowingCache
from lib.engine.processor import HALVES
from lib.engine.sampling import generate, probabilities, sample
from lib.engine.simd import load, store
from lib.errors import CourseError
from lib.jit import vector_kernel
from tests.laws import bounds
from tests.laws.bounds import U, assert_near
from tests.laws.cases import COMPILED, FORMS, catches, law, made, plainly
from tests.laws.llama import facts, fast, texts
from tests.laws.test_values import as_32, named

SEEDS = st.integers(0, 2**16)


# --- Blocks of 8 and 4 bits -----------------------------------------------------------------------


@st.composite
def raw_blocks(draw):
    """Any bytes, with finite scales of any size, as files may hold them."""
    kind = draw(st.sampled_from(["Q4_0", "Q4_1", "Q8_0"]))
    rows, blocks = draw(st.integers(1, 70)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(SEEDS))
    size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]][1]
    data = rng.integers(0, 256, (rows, blocks, size), np.uint8)
    if kind == "Q8_0":
        data[..., 2:] = np.where(data[..., 2:] == 0x80, 0x81, data[..., 2:])
    for at in (0, 2)[: 2 if kind == "Q4_1" else 1]:
        halves = (rng.standard_normal((rows, blocks)) * 10.0 ** rng.integers(-8, 3)).astype("f2")
        data[..., at : at + 2] = halves[..., None].view(np.uint8)
    return kind, data, rng


def unpacked(source, kind, rows, columns, indices, other="float32"):
    k = quant.kind_of(kind, other)
    out = np.full(quant.layout(k, rows, columns), 0xAB, np.uint8)
    return quant.unpack_rows(quant.pack(source, kind, rows, columns, k, out), indices)


@law(raw_blocks())
def test_blocks_laid_out_anew_hold_the_same_bits(case):
    kind, data, rng = case
    rows, blocks, _ = data.shape
    qtype = gguf.GGMLQuantizationType[kind]
    numbers = gguf.quants.dequantize(data.reshape(rows, -1), qtype).reshape(rows, -1)
    indices = rng.integers(0, rows, 9)
    found = unpacked(data.reshape(-1), kind, rows, 32 * blocks, indices)
    np.testing.assert_array_equal(found, numbers[indices])


@st.composite
def matrices(draw):
    rows, columns = draw(st.lists(st.integers(1, 70), min_size=2, max_size=2, unique=True))
    kind = draw(st.sampled_from(["normal", "sparse", "few values", "all sizes"]))
    W = as_32(made((rows, columns), kind, draw(st.integers(-45, 6)), draw(SEEDS)))
    form = draw(st.sampled_from([f for f in FORMS if f not in ("a list", "big-endian")]))
    return FORMS[form](W), W


@law(matrices())
def test_floats_laid_out_anew_hold_the_same_bits(case):
    passed, W = case
    found = unpacked(passed, "F32", *W.shape, np.arange(len(W)))
    np.testing.assert_array_equal(found, W)


def check_quantised(function, case):
    """d = max / 127 and w / d rounded, q within half a step; d as float16 has 11 bits, or 2⁻²⁵."""
    passed, W = case
    rows, columns = W.shape
    padded = np.zeros((rows, -(-columns // 32) * 32))
    padded[:, :columns] = W
    top = np.abs(padded.reshape(rows, -1, 32)).max(2)
    d = top / 127
    bound = d * (0.5 + 127 * 4 * U) + 127 * np.maximum(2.0**-11 * d, 2.0**-25)
    right = bounds.Near(W.astype(float), np.repeat(bound, 32, axis=1)[:, :columns])
    assert_near(function(passed), right)


def in_8_bits(W):
    return unpacked(W, "F16", *W.shape, np.arange(len(W)), "int8")


@law(matrices())
def test_numbers_rounded_to_8_bits(case):
    check_quantised(in_8_bits, case)


WRONG_ROUNDINGS = {
    "towards zero": lambda W: in_steps(W, np.trunc, 127),
    "in 7 bits": lambda W: in_steps(W, np.rint, 63),
    "a scale for a whole row": lambda W: in_steps(W, np.rint, 127, np.shape(W)[1]),
}


def in_steps(W, to_whole, most, block=32):
    rows, columns = W.shape
    blocks = np.pad(W.astype(float), ((0, 0), (0, -columns % block))).reshape(rows, -1, block)
    d = np.abs(blocks).max(2, keepdims=True) / most
    steps = to_whole(blocks / np.where(d == 0, 1, d)) * d
    return steps.reshape(rows, -1)[:, :columns]


@pytest.mark.parametrize("wrong", named(WRONG_ROUNDINGS))
def test_the_law_of_roundings_finds(wrong):
    assert catches(check_quantised, wrong, matrices())


def test_a_block_whose_scale_is_no_float16_is_zeros():
    # d = 128/127 · 2⁻¹⁴⁹ is rounded to 2⁻¹⁴⁹: w / d is -128, which blocks of 8 bits lack.
    W = np.full((1, 32), -128 * 2.0**-149, np.float32)
    np.testing.assert_array_equal(in_8_bits(W), np.zeros((1, 32)))


def test_a_scale_beyond_float16_is_said_in_words():
    with pytest.raises(CourseError, match="scale of the weights should be finite"):
        in_8_bits(np.full((1, 33), 1e8, np.float32))


# --- 16-bit floats in compiled code ---------------------------------------------------------------


@vector_kernel
def to_and_from_halves(x, halves, back):
    for i in range(0, len(x), 16):
        store(halves, i, load(x, i))
        store(back, i, load(halves, i))


@pytest.mark.skipif(not COMPILED, reason="the definition itself")
def test_every_float16_and_what_lies_between():
    """All finite ones come back; halfway to the next and just beside it, NumPy rounds alike."""
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    middle = (halves[:-1] + halves[1:]) / 2  # exact: 12 bits
    near = [np.nextafter(middle, np.float32(side)) for side in (0, 1e9)]
    x = np.concatenate([halves, middle, *near])
    x = np.concatenate([x, -x, np.zeros(-2 * len(x) % 16, np.float32)])
    found, back = np.zeros(len(x), np.uint16), np.zeros_like(x)
    if not HALVES:  # an error while it is compiled, not a process that dies
        with pytest.raises(Exception, match="no instruction that makes float16 numbers"):
            to_and_from_halves(x, found, back)
        return
    to_and_from_halves(x, found, back)
    np.testing.assert_array_equal(found, x.astype(np.float16).view(np.uint16))
    np.testing.assert_array_equal(back, x.astype(np.float16))


# --- Caches ---------------------------------------------------------------------------------------

STEPS = st.lists(st.tuples(st.sampled_from("+++-"), st.integers(0, 40)), max_size=12)


@law(STEPS, SEEDS)
def test_a_cache_holds_what_a_list_would(steps, seed):
    rng, cache, kept = np.random.default_rng(seed), Cache(2, 3, 50, 5), np.zeros((3, 0, 5))
    for step, number in steps:
        if step == "-":
            n = min(number, kept.shape[1])
            cache.truncate(n)
            kept = kept[:, :n]
            continue
        K = as_32(rng.standard_normal((3, number, 5)))
        if kept.shape[1] + number > 50:
            with pytest.raises(CourseError, match="fit into the context of 50"):
                cache.layers[0].append(K, -K)
            continue
        kept = np.concatenate([kept, K], axis=1)
        found = cache.layers[0].append(K, -K)
        cache.layers[1].append(2 * K, K)
        cache.n += number
        np.testing.assert_array_equal(found, [kept, -kept])
        np.testing.assert_array_equal(cache.layers[1].keys[:, : cache.n], as_32(2 * kept))


@law(STEPS, SEEDS, st.sampled_from([3, 16, 21]), st.sampled_from(["float32", "float16"]))
def test_a_growing_cache_keeps_what_it_has(steps, seed, d_head, dtype):
    """Written place by place, as the layout says; read back as rows."""
    rng, cache = np.random.default_rng(seed), GrowingCache(2, 3, d_head, 230, dtype)
    kept = np.zeros((2, 2, 3, 0, d_head), np.float32)  # of keys and values, by layer and head
    for step, number in steps:
        if step == "-":
            cache.truncate(min(number, cache.n))
            kept = kept[..., : cache.n, :]
            continue
        if cache.n + number > 230:
            with pytest.raises(CourseError, match="fit into the context of 230"):
                cache.make_room(number)
            continue
        cache.make_room(number)
        new = rng.standard_normal((2, 2, 3, number, d_head)).astype("f2").astype(np.float32)
        bits = new if dtype == "float32" else new.astype("f2").view(np.uint16)
        for place in range(number):
            at = cache.n + place
            cache.keys[:, :, at // 16, :, at % 16] = bits[0, ..., place, :]
            cache.values[:, :, at, :d_head] = bits[1, ..., place, :]
        cache.n += number
        kept = np.concatenate([kept, new], axis=3)
    assert cache.capacity % 64 == 0
    assert cache.n <= cache.capacity < 2 * 230
    for layer in range(2):
        np.testing.assert_array_equal(cache.layer(layer), kept[:, layer])


# --- Sampling -------------------------------------------------------------------------------------


@st.composite
def logits_cases(draw):
    n = draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(SEEDS))
    logits = made(n, draw(st.sampled_from(["normal", "few values"])), draw(st.integers(-3, 3)),
                  draw(SEEDS))  # fmt: skip
    temperature = draw(st.sampled_from([1.0, 0.5, 0.05, 3, 1e-30]))
    top_k = draw(st.one_of(st.none(), st.integers(1, n + 2)))
    top_p = None if rng.random() < 0.4 else float(1 - rng.random())
    return logits, temperature, top_k, top_p


def check_probabilities(function, case):
    """Unrestricted within what float32 rounds; restricted to the fewest that suffice, rescaled."""
    logits, temperature, top_k, top_p = case
    s = np.maximum((logits - logits.max()) / temperature, -1000.0)
    right = bounds.softmax(bounds.Near(s, U * np.abs(s)))
    everything = function(logits, temperature)
    # Made to sum to 1 once more: what it was off by is the error of a sum and of divisions.
    assert_near(everything, bounds.rounded(right, 5))
    found = function(logits, temperature, top_k, top_p)
    assert abs(found.sum() - 1) < 1e-12
    order = np.argsort(-everything, kind="stable")
    first = order[:top_k]
    share = everything[first] / everything[first].sum()
    kept = int(np.count_nonzero(found[first]))
    np.testing.assert_array_equal(np.delete(found, first[:kept]), 0)  # the likeliest, ties in order
    np.testing.assert_allclose(found[first[:kept]], share[:kept] / share[:kept].sum(), rtol=1e-12)
    if top_p is None:
        assert kept == np.count_nonzero(share)
    else:
        assert share[:kept].sum() >= top_p - 1e-12
        assert share[: kept - 1].sum() < top_p + 1e-12


@law(logits_cases())
def test_probabilities(case):
    check_probabilities(probabilities, case)


def other_order(logits, temperature, top_k=None, top_p=None):
    p = probabilities(logits, temperature, None, top_p)
    p[np.argsort(-p, kind="stable")[top_k or len(p) :]] = 0
    return p / p.sum()


def without_the_last(logits, temperature, top_k=None, top_p=None):
    p = probabilities(logits, temperature, top_k, top_p)
    if top_p is not None and np.count_nonzero(p) > 1:
        p[np.where(p > 0, p, 9).argmin()] = 0
    return p / p.sum()


WRONG_PROBABILITIES = {
    "times the temperature": lambda s, t, k=None, p=None: probabilities(
        s, 1 / t if t > 1e-9 else t, k, p
    ),
    "one more than top_k": lambda s, t, k=None, p=None: probabilities(s, t, k and k + 1, p),
    "top_p before top_k": other_order,
    "without the token that reaches top_p": without_the_last,
    "not made to sum to 1": lambda s, t, k=None, p=None: (
        probabilities(s, t) * (probabilities(s, t, k, p) > 0)
    ),
    "ties to the last": lambda s, t, k=None, p=None: probabilities(s[::-1], t, k, p)[::-1],
}


@pytest.mark.parametrize("wrong", named(WRONG_PROBABILITIES))
def test_the_law_of_probabilities_finds(wrong):
    assert catches(check_probabilities, wrong, logits_cases())


@law(logits_cases(), SEEDS)
def test_what_is_drawn_can_be_drawn(case, seed):
    logits, temperature, top_k, top_p = case
    p = probabilities(logits, temperature, top_k, top_p)
    draws = [sample(logits, temperature, top_k, top_p, np.random.default_rng(seed + k))
             for k in range(5)]  # fmt: skip
    assert (p[draws] > 0).all()
    assert sample(logits, 0) == int(np.argmax(logits))


@law(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5),
     st.floats(min_value=0, allow_nan=False, allow_infinity=False))  # fmt: skip
def test_probabilities_of_any_numbers_at_any_temperature(logits, temperature):
    p = probabilities(logits, temperature)
    assert np.isfinite(p).all()
    assert abs(p.sum() - 1) < 1e-12
    assert p[int(np.argmax(logits))] == p.max()


@pytest.mark.skipif(not COMPILED, reason="takes long without compiled kernels")
@law(facts(("F32", "Q4_1")), texts(most=5), share=0.5)
def test_generated_text_is_the_likeliest_token_over_and_over(model, tokens):
    model, text = fast(model), list(map(int, tokens))
    found = list(generate(model, tokens, 6))
    for token in found:
        assert token == int(np.argmax(model.logits(text)))
        text.append(token)
    if len(found) < 6:
        assert int(np.argmax(model.logits(text))) in model.tokenizer.stop


def test_a_law_is_tried_on_plain_functions_too():
    assert plainly(partial(as_32, [1.5]))().tolist() == [1.5]
