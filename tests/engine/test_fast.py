"""The fast engine: the same tokens and logits as the float32 one, however the work is cut."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

pytest.importorskip("numba")
from tiny_models import BLOCKS, ODD, plain_logits, round_to_8_bits

from lib.engine import fast
from lib.engine.cache import GrowingCache
from lib.engine.fast import load_fast
from lib.engine.gguf import read_gguf
from lib.engine.llama import load_model
from lib.engine.processor import HALVES
from lib.engine.sampling import generate, probabilities
from lib.errors import CourseError, ModelError

LONG = {"llama.context_length": 300}
SUBMIT = ThreadPoolExecutor.submit
TOKENS = [5, 9, 4, 200, 31, 77, 8, 8, 120, 64, 3]


def long_text(n, vocabulary):
    return np.random.default_rng(n).integers(3, vocabulary, n)


@pytest.fixture(scope="module")
def quick(compiled):
    """The real model on two threads, read once."""
    return load_fast(threads=2)


@pytest.fixture
def block_model(tiny):
    return load_fast(tiny(sizes=BLOCKS, kind="Q4_1", metadata=LONG), threads=2)


@pytest.mark.parametrize("untied", [False, True])
@pytest.mark.parametrize("sizes", [ODD, BLOCKS])
def test_float32_weights(tiny, sizes, untied):
    """Sizes that fill no vector and no block, three heads to a group; the head tied and not."""
    path = tiny(sizes=sizes, untied=untied)
    expected, found = load_model(path), load_fast(path, 2, "float32")
    np.testing.assert_array_equal(found.embed(TOKENS), expected.embed(TOKENS))
    # Two float32 passes in different orders of summation; the numbers are of size 1 to 10.
    for ours, theirs in zip(found.hidden(TOKENS), expected.hidden(TOKENS), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4)
    all_logits = expected.logits(TOKENS, all=True)
    np.testing.assert_allclose(found.logits(TOKENS, all=True), all_logits, rtol=0, atol=1e-4)
    np.testing.assert_allclose(found.logits(TOKENS), all_logits[-1], rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q5_0"])
def test_other_types_take_the_road_of_float32(tiny, kind):
    path = tiny(sizes=BLOCKS, kind=kind)
    expected, found = load_model(path), load_fast(path, 1, "float32")
    expected, found = expected.logits(TOKENS), found.logits(TOKENS)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0"])
def test_quantised_weights(tiny, kind):
    """The definition: a plain pass that rounds what enters each matrix to 8 bits.

    Where a number lies at the edge of two steps, the last bits of float32 decide, so a few differ
    by a step; a pass that does not round is much further away.
    """
    path = tiny(sizes=BLOCKS, kind=kind)
    found = load_fast(path, 2, "float32").logits(TOKENS, all=True)
    file = read_gguf(path)
    # What enters a head of 8 bits is not rounded, that of a head of 4 bits is.
    last = round_to_8_bits if kind != "Q8_0" else lambda x: x
    exact = plain_logits(file, TOKENS)
    rounded = plain_logits(file, TOKENS, round_to_8_bits, last)
    assert (found - rounded).std() < 0.2 * (found - exact).std()
    assert (found - exact).std() < 0.05 * exact.std()


def test_other_types_in_8_bits_if_asked(tiny):
    path = tiny(sizes=BLOCKS, kind="F16")
    exact = load_fast(path, threads=1).logits(TOKENS)
    found = load_fast(path, threads=1, other="int8")
    assert found.nbytes < 0.3 * load_fast(path, threads=1).nbytes
    assert 1e-3 < (found.logits(TOKENS) - exact).std() / exact.std() < 0.05


def test_rope_factors(tiny):
    path = tiny(sizes=ODD, metadata={"llama.rope.scaling.factor": 4.0})
    expected = load_model(path).logits(TOKENS)
    found = load_fast(path, 1, "float32").logits(TOKENS)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


@pytest.mark.usefixtures("compiled")
def test_cached_equals_uncached_at_every_split(block_model):
    text = long_text(70, block_model.config.vocabulary)
    whole = block_model.logits(text, all=True)
    for split in (1, 2, 5, 63, 64, 65, 69):
        cache = block_model.new_cache()
        first = block_model.logits(text[:split], cache, all=True)
        second = block_model.logits(text[split:], cache, all=True)
        np.testing.assert_array_equal(np.concatenate([first, second]), whole)
        assert cache.n == 70
    cache = block_model.new_cache()
    steps = [block_model.logits([token], cache) for token in text]
    np.testing.assert_array_equal(steps, whole)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("chunk", [1, 3, 7, 64, 128])
def test_chunks_of_any_size(tiny, monkeypatch, chunk):
    path = tiny(sizes=BLOCKS, kind="Q4_0", metadata=LONG)
    text = long_text(140, 200)
    whole = load_fast(path, threads=1).logits(text, all=True)
    monkeypatch.setattr(fast, "CHUNK", chunk)
    model = load_fast(path, threads=1)
    np.testing.assert_array_equal(model.logits(text, all=True), whole)
    np.testing.assert_array_equal(model.logits(text), whole[-1])
    assert model.hidden(text).shape == (3, 140, 64)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("threads", [2, 3, 5])
def test_any_number_of_threads(tiny, threads):
    path = tiny(sizes=BLOCKS, kind="Q8_0", metadata=LONG)
    text = long_text(130, 200)
    alone, team = load_fast(path, threads=1), load_fast(path, threads=threads)
    np.testing.assert_array_equal(team.logits(text, all=True), alone.logits(text, all=True))
    np.testing.assert_array_equal(team.hidden(text), alone.hidden(text))


@pytest.mark.usefixtures("compiled")
def test_a_later_token_changes_nothing_before_it(block_model):
    text = long_text(90, block_model.config.vocabulary)
    before = block_model.logits(text, all=True)
    text[-1] = text[-1] % 100 + 3
    after = block_model.logits(text, all=True)
    np.testing.assert_array_equal(after[:-1], before[:-1])
    assert np.abs(after[-1] - before[-1]).max() > 0.1


def test_the_first_key_is_stored(tiny):
    """Faults 6 and 11: against the float32 engine's cache, head by head."""
    path = tiny(sizes=ODD)
    model, other = load_fast(path, 2, "float32"), load_model(path)
    cache, expected = model.new_cache(), other.new_cache()
    model.logits(TOKENS, cache)
    other.logits(TOKENS, expected)
    for index, layer in enumerate(expected.layers):
        keys, values = cache.layer(index)
        np.testing.assert_allclose(keys, layer.keys[:, : len(TOKENS)], rtol=0, atol=1e-4)
        np.testing.assert_allclose(values, layer.values[:, : len(TOKENS)], rtol=0, atol=1e-4)


@pytest.mark.usefixtures("compiled")
@pytest.mark.skipif(not HALVES, reason="this processor does not convert float16")
def test_a_cache_of_float16(tiny):
    path = tiny(sizes=BLOCKS, kind="Q4_1", metadata=LONG)
    text = long_text(150, 200)
    full, half = load_fast(path, 2, "float32"), load_fast(path, 2, "float16")
    expected, found = full.logits(text, all=True), half.logits(text, all=True)
    error = (found - expected).std() / expected.std()
    assert 1e-5 < error < 0.02  # keys and values keep 11 bits
    cache, other = half.new_cache(), full.new_cache()
    half.logits(text, cache)
    full.logits(text, other)
    assert cache.nbytes * 2 == other.nbytes
    for a, b in zip(cache.layer(0), other.layer(0), strict=True):
        np.testing.assert_allclose(a, b, rtol=2.0**-11, atol=1e-7)


@pytest.mark.usefixtures("compiled")
def test_the_cache_grows_and_keeps_what_it_has(block_model):
    text = long_text(200, block_model.config.vocabulary)
    cache = block_model.new_cache()
    sizes = set()
    for at in range(0, 200, 20):
        block_model.logits(text[at : at + 20], cache)
        sizes.add(cache.capacity)
    assert sizes == {64, 128, 256}
    width = 2 if HALVES else 4
    # K and V · layers · heads · tokens · width of a head · bytes of a number
    assert cache.nbytes == 2 * 2 * 2 * 256 * 16 * width
    cache.truncate(100)
    again = block_model.logits(text[100:], cache)
    np.testing.assert_array_equal(again, block_model.logits(text))


def test_a_full_context_is_an_error_before_any_work(tiny):
    model = load_fast(tiny(sizes=ODD), threads=1)  # 12 tokens
    cache = model.new_cache()
    model.logits(TOKENS[:8], cache)
    with pytest.raises(CourseError, match="fit into the context of 12; 8 are in it and 5 more"):
        model.logits(TOKENS[:5], cache)
    assert cache.n == 8
    expected = model.logits(TOKENS)
    np.testing.assert_array_equal(model.logits(TOKENS[8:], cache), expected)


def test_what_a_reader_may_pass(block_model):
    with pytest.raises(CourseError, match="at least one token"):
        block_model.logits([])
    with pytest.raises(CourseError, match=r"tokens should be 0 to \d+; one is 99999"):
        block_model.logits([99999])
    with pytest.raises(CourseError, match="threads should be a whole number of at least 1; it is"):
        load_fast(threads=0)
    with pytest.raises(CourseError, match="cache_type should be float32 or float16; it is 'int8'"):
        load_fast(cache_type="int8")
    with pytest.raises(CourseError, match="capacity should be at least 1 token; it is 0"):
        block_model.new_cache(0)
    with pytest.raises(CourseError, match="n should be 0 to 0"):
        GrowingCache(1, 1, 16, 10).truncate(1)
    with pytest.raises(ModelError, match="There is no file"):
        load_fast("nowhere.gguf")


def test_damaged_weights_are_named(tiny):
    bad = np.ones((160, 64), np.float32)
    bad[3, 5] = np.nan
    path = tiny(sizes=BLOCKS, tensors={"blk.1.ffn_up.weight": bad})
    with pytest.raises(ModelError, match=r"blk\.1\.ffn_up\.weight.*NaN or infinity"):
        load_fast(path)
    gains = np.full(64, np.inf, np.float32)
    path = tiny(sizes=BLOCKS, tensors={"blk.0.ffn_norm.weight": gains})
    with pytest.raises(ModelError, match="gains of the norms"):
        load_fast(path)


def test_numbers_that_leave_float32_leave_the_cache_as_it_was(tiny):
    huge = np.full((160, 64), 1e30, np.float32)
    names = ("blk.1.ffn_up.weight", "blk.1.ffn_gate.weight")
    model = load_fast(tiny(sizes=BLOCKS, tensors=dict.fromkeys(names, huge)), threads=1)
    cache = model.new_cache()
    with pytest.raises(CourseError, match="logits should be finite"):
        model.logits(TOKENS, cache)
    assert cache.n == 0


def test_progress_is_told(tiny):
    seen = []
    model = load_fast(tiny(sizes=BLOCKS), progress=lambda done, total: seen.append((done, total)))
    assert len(seen) == 2 * 7 + 1
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1] < model.nbytes


@pytest.mark.usefixtures("compiled")
def test_two_python_threads_take_turns(block_model):
    text = long_text(40, block_model.config.vocabulary)
    expected = block_model.logits(text, all=True)
    found = [None] * 4

    def work(k):
        found[k] = block_model.logits(text, all=True)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    for logits in found:
        np.testing.assert_array_equal(logits, expected)


@pytest.mark.usefixtures("compiled")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_runs_too(tiny):
    path = tiny(sizes=BLOCKS, kind="Q4_1")
    code = f"""
import os
from lib.engine.fast import load_fast
from lib.engine.gguf import read_gguf
model = load_fast({str(path)!r}, threads=2)
first = model.logits([5, 9, 4])
pid = os.fork()
if pid == 0:
    os._exit(0 if (model.logits([5, 9, 4]) == first).all() else 3)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", code], timeout=120)
    assert done.returncode == 0


@pytest.mark.usefixtures("compiled")
def test_an_interrupt_leaves_the_engine_whole(block_model, monkeypatch):
    text = long_text(40, block_model.config.vocabulary)
    expected = block_model.logits(text)
    kernel = fast.kernels.forward

    def interrupted(thread, *rest):
        if thread == 0:
            raise KeyboardInterrupt
        kernel(thread, *rest)

    cache = block_model.new_cache()
    monkeypatch.setattr(fast.kernels, "forward", interrupted)
    with pytest.raises(KeyboardInterrupt):
        block_model.logits(text, cache)
    monkeypatch.undo()
    assert cache.n == 0
    np.testing.assert_array_equal(block_model.logits(text, cache), expected)


def test_a_cache_that_grows_copies_what_it_has():
    cache = GrowingCache(2, 3, 5, limit=200)
    assert cache.capacity == 64
    rng = np.random.default_rng(0)
    cache.keys[:], cache.values[:] = (rng.normal(size=x.shape) for x in (cache.keys, cache.values))
    keys, values = cache.keys, cache.values
    cache.n = 60
    cache.make_room(4)
    assert cache.keys is keys
    cache.make_room(5)  # twice as much
    assert cache.capacity == 128
    np.testing.assert_array_equal(cache.keys[:, :, : keys.shape[2]], keys)
    np.testing.assert_array_equal(cache.values[:, :, :64], values)
    cache.n = 128
    cache.make_room(60)  # twice as much would be more than the limit
    assert (cache.capacity, cache.n) == (256, 128)
    with pytest.raises(CourseError, match="fit into the context of 200; 128 are in it and 73"):
        cache.make_room(73)


# ------------------------------------------------------------------ short enough for Python

SMALL = {"L": 1, "d": 32, "H": 2, "H_kv": 1, "d_head": 16, "d_ff": 64}


@pytest.mark.parametrize(("threads", "cache_type"), [(1, "float32"), (2, "float16")])
def test_a_short_text_in_pieces(tiny, monkeypatch, threads, cache_type):
    """Chunks, splits, steps and a cache that grows give the same bits, also in plain Python."""
    if cache_type == "float16" and not HALVES:
        pytest.skip("this processor does not convert float16")
    path = tiny(sizes=SMALL, kind="Q4_0")
    model, text = load_fast(path, threads, cache_type), TOKENS[:8]
    whole = model.logits(text, all=True)
    expected = plain_logits(read_gguf(path), text, round_to_8_bits, round_to_8_bits)
    assert (whole - expected).std() < 0.05 * expected.std()
    monkeypatch.setattr(fast, "CHUNK", 3)
    np.testing.assert_array_equal(model.logits(text), whole[-1])
    cache = model.new_cache()
    parts = [model.logits(text[:5], cache, all=True), model.logits(text[5:7], cache, all=True)]
    parts.append(model.logits(text[7:], cache)[None])
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    cache.truncate(6)
    np.testing.assert_array_equal(model.logits(text[6:], cache), whole[-1])
    assert (cache.n, model.hidden(text).shape) == (8, (2, 8, 32))


def test_an_interrupt_while_threads_are_started(block_model, monkeypatch):
    text = long_text(40, block_model.config.vocabulary)
    expected = block_model.logits(text)
    started = []

    def submit(pool, *work):
        started.append(SUBMIT(pool, *work))
        raise KeyboardInterrupt  # the thread runs, and nobody knows of it

    monkeypatch.setattr(ThreadPoolExecutor, "submit", submit)
    with pytest.raises(KeyboardInterrupt):
        block_model.logits(text)
    monkeypatch.undo()
    assert started
    assert all(thread.done() for thread in started)  # none is left that waits for ever
    np.testing.assert_array_equal(block_model.logits(text), expected)


# ------------------------------------------------------------------ the real model

TEXT = "The left context of a token is all that stands before it: 1 word, or 100."


def test_the_real_model_writes_the_golden_text_where_the_choice_is_clear(quick, model):
    prompt = quick.tokenizer.encode("Once upon a time")
    golden = [28, 260, 2240, 282, 23324, 27108, 436, 253, 15114, 39228]
    plain, found = (
        engine.logits(prompt + golden[:-1], all=True)[len(prompt) - 1 :]
        for engine in (model, quick)
    )
    second, first = np.sort(plain, axis=1)[:, -2:].T
    clear = first - second > 0.43  # three σ of what rounding to 8 bits does: tests/witnesses
    assert clear.sum() == 7
    assert plain.argmax(axis=1).tolist() == golden
    np.testing.assert_array_equal(found.argmax(axis=1)[clear], np.array(golden)[clear])
    assert next(generate(quick, prompt, 1)) == golden[0]


def test_the_real_model_is_as_sure_as_in_float32(quick, model):
    tokens = quick.tokenizer.encode(TEXT)
    found, expected = quick.logits(tokens, all=True), model.logits(tokens, all=True)
    p = np.array([probabilities(row) for row in expected])
    q = np.array([probabilities(row) for row in found])
    kl = (p * np.log(p / q)).sum(axis=1)
    # 0.0038 is what another engine with vectors in 8 bits reaches on a longer text.
    assert kl.mean() < 0.006
    best, ours = p.argmax(1), q.argmax(1)
    rows = np.arange(len(p))
    assert (p[rows, best] - p[rows, ours]).max() < 0.05  # another token only where it is close


def test_the_real_model_cached_and_chunked(quick):
    tokens = quick.tokenizer.encode(TEXT)
    whole = quick.logits(tokens, all=True)
    cache = quick.new_cache()
    quick.logits(tokens[:7], cache)
    steps = [quick.logits([token], cache) for token in tokens[7:]]
    np.testing.assert_array_equal(steps, whole[7:])


def test_what_a_token_reads(quick):
    # 106,168,320 weights of 4 bits with 4 bytes a block, the head's 28,311,552 of 8 with 2, gains.
    blocks = 106_168_320 // 32 * 20 + 28_311_552 // 32 * 34
    assert quick.bytes_per_token() == blocks + 61 * 576 * 4 == quick.nbytes
    width = 2 if HALVES else 4
    assert quick.bytes_per_token(100) - quick.nbytes == 100 * 30 * 3 * 64 * 2 * width
