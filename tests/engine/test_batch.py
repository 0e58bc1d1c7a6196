"""Several texts at once: each gets the bits that it gets alone, whoever comes along."""

import numpy as np
import pytest

pytest.importorskip("numba")
from tiny_models import BLOCKS, write_tiny

from lib.engine import fast
from lib.engine.batch import passes
from lib.engine.cache import GrowingCache, Pages
from lib.engine.fast import load_fast
from lib.engine.sampling import Sampler, generate
from lib.engine.scheduler import Scheduler, common, continuations
from lib.errors import CourseError

LONG = {"llama.context_length": 700}
pytestmark = pytest.mark.usefixtures("compiled")


@pytest.fixture(scope="module")
def tiny_fast(tmp_path_factory):
    path = tmp_path_factory.mktemp("batch") / "tiny.gguf"
    model = load_fast(write_tiny(path, sizes=BLOCKS, kind="Q4_1", metadata=LONG), threads=2)
    model.tokenizer.stop = frozenset()
    return model


def random_texts(count, longest, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(3, 200, rng.integers(1, longest)).tolist() for _ in range(count)]


# ------------------------------------------------------------------ one pass


@pytest.mark.parametrize("count", [1, 2, 8, 32])
def test_a_pass_over_several_texts_gives_each_the_bits_it_gets_alone(tiny_fast, count):
    texts, pages = random_texts(count, 40), tiny_fast.new_pages()
    caches = [tiny_fast.new_cache(pages=pages) for _ in texts]
    parts = list(zip(texts, caches, strict=True))
    for found, text in zip(tiny_fast.logits_of_texts(parts, all=True), texts, strict=True):
        np.testing.assert_array_equal(found, tiny_fast.logits(text, all=True))
    more = [([7], cache) for cache in caches]
    for found, text in zip(tiny_fast.logits_of_texts(more), texts, strict=True):
        np.testing.assert_array_equal(found, tiny_fast.logits([*text, 7]))


def test_texts_that_come_and_go_at_random_keep_their_bits(tiny_fast):
    """Parts of any length in any company, steps back, forks and departures, on shared pages."""
    rng, pages = np.random.default_rng(5), tiny_fast.new_pages()
    texts = [([], tiny_fast.new_cache(pages=pages))]
    for _ in range(60):
        what = rng.random()
        k = int(rng.integers(len(texts)))
        tokens, cache = texts[k]
        if what < 0.25 and len(texts) < 32:  # another text, often one that begins the same
            n = int(rng.integers(cache.n + 1))
            texts.append((tokens[:n], cache.fork(n)))
        elif what < 0.35:
            n = int(rng.integers(cache.n + 1))
            texts[k] = tokens[:n], cache
            cache.truncate(n)
        elif what < 0.42 and len(texts) > 1:
            cache.truncate(0)
            texts.pop(k)
        chosen = rng.permutation(len(texts))[: rng.integers(1, len(texts) + 1)]
        news = [rng.integers(3, 200, rng.integers(1, 6)).tolist() for _ in chosen]
        parts = [(new, texts[k][1]) for new, k in zip(news, chosen, strict=True)]
        rows = tiny_fast.logits_of_texts(parts)
        for k, new, row in zip(chosen, news, rows, strict=True):
            texts[k] = texts[k][0] + new, texts[k][1]
            assert texts[k][1].n == len(texts[k][0])
            np.testing.assert_array_equal(row, tiny_fast.logits(texts[k][0]))
    assert len(texts) > 4
    held = [page for _, cache in texts for page in cache.table]
    assert [held.count(page) for page in range(len(pages.users))] == pages.users


@pytest.mark.parametrize("chunk", [1, 3, 7])
def test_passes_of_any_size(tiny_fast, monkeypatch, chunk):
    texts, pages = random_texts(3, 12, seed=2), tiny_fast.new_pages()
    expected = [tiny_fast.logits(text, all=True) for text in texts]
    monkeypatch.setattr(fast, "CHUNK", chunk)
    for all_of_them in (True, False):
        parts = [(text, tiny_fast.new_cache(pages=pages)) for text in texts]
        found = tiny_fast.logits_of_texts(parts, all=all_of_them)
        for ours, right in zip(found, expected, strict=True):
            np.testing.assert_array_equal(ours, right if all_of_them else right[-1])


def test_passes_hold_each_token_once_in_order():
    texts = [np.arange(5), np.arange(10, 12), np.arange(20, 29)]
    for most in range(1, 18):
        cut, seen = list(passes(texts, most)), {0: [], 1: [], 2: []}
        for runs in cut:
            assert sum(len(run.tokens) for run in runs) <= most
            for run in runs:
                seen[run.text] += run.tokens.tolist()
                assert run.is_last == (len(seen[run.text]) == len(texts[run.text]))
        assert list(seen.values()) == [text.tolist() for text in texts]
        assert len(cut) == -(-16 // most)


# ------------------------------------------------------------------ known faults of shared caches


@pytest.mark.parametrize("n", [1, 15, 16, 17, 40])
def test_a_shared_prefix_keeps_positions_and_the_first_text(tiny_fast, n):
    """Positions go on after the prefix; what is written goes to pages of one's own."""
    text = random_texts(1, 2, seed=n)[0] * 41
    first = tiny_fast.new_cache()
    tiny_fast.logits(text, first)
    second = first.fork(n)
    found = tiny_fast.logits([9, 8, 7], second)
    np.testing.assert_array_equal(found, tiny_fast.logits([*text[:n], 9, 8, 7]))
    np.testing.assert_array_equal(tiny_fast.logits([5], first), tiny_fast.logits([*text, 5]))
    np.testing.assert_array_equal(
        tiny_fast.logits([6], second), tiny_fast.logits([*text[:n], 9, 8, 7, 6])
    )
    full = n // Pages.TOKENS
    assert first.table[:full] == second.table[:full]
    assert not set(first.table[full:]) & set(second.table[full:])


def poison(pages, spare=()):
    """Fill all pages but those to spare with NaN."""
    bad = np.nan if pages.keys.dtype == np.float32 else np.uint16(0x7E00)
    for page in set(range(len(pages.users))) - set(spare):
        pages.keys[:, :, page] = bad
        pages.values[:, :, 16 * page : 16 * page + 16] = bad


def test_no_text_reads_the_pages_of_another(tiny_fast):
    pages = tiny_fast.new_pages()
    one, other = tiny_fast.new_cache(pages=pages), tiny_fast.new_cache(pages=pages)
    tiny_fast.logits_of_texts([([5, 6, 7] * 9, one), ([9] * 30, other)])
    poison(pages, spare=one.table)
    np.testing.assert_array_equal(
        tiny_fast.logits([8], one), tiny_fast.logits([*([5, 6, 7] * 9), 8])
    )


def test_nothing_is_left_of_the_text_that_had_a_page_before(tiny_fast):
    pages = tiny_fast.new_pages()
    cache = tiny_fast.new_cache(pages=pages)
    tiny_fast.logits([5, 6, 7] * 20, cache)
    cache.truncate(0)
    poison(pages)
    later, text = tiny_fast.new_cache(pages=pages), [9, 8, 7] * 7
    np.testing.assert_array_equal(tiny_fast.logits(text, later), tiny_fast.logits(text))


def test_a_page_cannot_be_given_back_twice():
    pages = Pages(1, 1, 16)
    taken = pages.take(2)
    pages.give_back(taken[:1])
    with pytest.raises(CourseError, match="page 0 should be in use; it was given back before"):
        pages.give_back(taken[:1])
    assert pages.take(2) == [0, 2]  # not page 1, which is in use


def test_a_page_is_free_when_its_last_user_leaves():
    pages = Pages(1, 1, 16)
    first = GrowingCache(1, 1, 16, 100, pages=pages)
    first.make_room(40)
    first.n = 40
    second, third = first.fork(), first.fork(17)
    assert (pages.used, pages.users[:3]) == (3, [3, 3, 2])
    first.truncate(0)
    second.truncate(10)
    assert (pages.used, pages.users[:3]) == (2, [2, 1, 0])
    second.truncate(0)
    third.truncate(0)
    assert pages.used == 0
    with pytest.raises(CourseError, match="n should be 0 to 0"):
        third.fork(1)


def test_bad_input_is_told_before_any_work(tiny_fast):
    pages = tiny_fast.new_pages()
    good, small = tiny_fast.new_cache(pages=pages), tiny_fast.new_cache(4, pages=pages)
    for parts, message in (
        ([([5], good), ([], small)], "at least one token"),
        ([([5], good), ([1, 2, 3, 4, 5], small)], "fit into the context of 4"),
        ([([5], good), ([99999], small)], "one is 99999"),
        ([([5], good), ([6], good)], "a cache for each text; two have the same"),
        ([([5], good), ([6], tiny_fast.new_cache())], "pages in common; the pages of two differ"),
    ):
        with pytest.raises(CourseError, match=message):
            tiny_fast.logits_of_texts(parts)
        assert good.n == small.n == 0
    assert tiny_fast.logits_of_texts([]) == []


# ------------------------------------------------------------------ the scheduler


@pytest.mark.parametrize("at_once", [1, 2, 8, 32])
def test_scheduled_texts_are_those_that_each_prompt_gets_alone(tiny_fast, at_once):
    """They join while others run; some share a beginning, and each has its own way of drawing."""
    rng, scheduler, expected = np.random.default_rng(at_once), Scheduler(tiny_fast, at_once, 16), {}
    prompts = random_texts(10, 60, seed=3) + [list(range(5, 45)) + [k] * (k + 1) for k in range(8)]
    done = []
    for k, prompt in enumerate(prompts):
        how = {"temperature": k % 3 * 0.4, "seed": k, "penalty": 1.0 + 0.1 * (k % 2)}
        n = int(rng.integers(0, 12))
        text = scheduler.add(prompt, n, Sampler(**how))
        expected[text.number] = list(generate(tiny_fast, prompt, n, **how))
        for _ in range(rng.integers(3)):
            done += scheduler.step()
    done += scheduler.run()
    assert {text.number: text.said for text in done} == expected
    assert scheduler.pages.used == 0


def test_a_common_beginning_is_kept_once(tiny_fast):
    """32 continuations of a prefix of 512 tokens take less than twice the memory of one."""
    prefix, alone = np.random.default_rng(1).integers(3, 200, 512).tolist(), tiny_fast.new_cache()
    tiny_fast.logits(prefix, alone)
    alone.make_room(8)
    scheduler, used = Scheduler(tiny_fast, at_once=32), 0
    texts = [scheduler.add([*prefix, 3 + k], 6) for k in range(32)]
    while scheduler.waiting or scheduler.running:
        scheduler.step()
        used = max(used, scheduler.pages.used)
    assert used < 2 * alone.pages.used
    assert scheduler.pages.nbytes < 2 * alone.nbytes
    for text in texts[::8]:
        assert text.said == list(generate(tiny_fast, text.tokens[:513], 6))


def test_a_common_beginning_is_read_once(tiny_fast, monkeypatch):
    counts, real = [], tiny_fast.logits_of_texts

    def watched(parts):
        counts.append(sum(len(tokens) for tokens, _ in parts))
        return real(parts)

    monkeypatch.setattr(tiny_fast, "logits_of_texts", watched, raising=False)
    list(continuations(tiny_fast, [[*range(5, 65), k] for k in range(3, 9)], 1, at_once=6))
    assert sum(counts) == 61 + 5 * 1


def test_a_text_is_dropped_and_the_others_go_on(tiny_fast):
    scheduler = Scheduler(tiny_fast, at_once=2)
    texts = [scheduler.add([5, 6, k], 5) for k in range(3, 7)]
    scheduler.step()
    scheduler.drop(texts[0])
    scheduler.drop(texts[3])
    assert {text.number for text in scheduler.run()} == {1, 2}
    for text in texts[1:3]:
        assert text.said == list(generate(tiny_fast, [5, 6, text.number + 3], 5))
    assert scheduler.pages.used == 0


def test_a_bad_prompt_is_told_and_the_others_are_continued(tiny_fast):
    prompts = [[5, 6], [], [7] * 699, [99999], [8]]
    found = dict(continuations(tiny_fast, prompts, 4))
    assert str(found[1]).endswith("the prompt is empty")
    assert "context of 700 tokens; the prompt has 699 and n is 4" in str(found[2])
    assert "one is 99999" in str(found[3])
    for k in (0, 4):
        assert found[k] == list(generate(tiny_fast, prompts[k], 4))


def test_a_short_text_does_not_wait_for_a_long_one(tiny_fast):
    order = [k for k, _ in continuations(tiny_fast, [[5] * 300, [6], [7]], 4, at_once=2)]
    assert order == [1, 0, 2] or order == [1, 2, 0]


@pytest.mark.parametrize("name", ["at_once", "part"])
@pytest.mark.parametrize("number", [0, -1, 1.5, True])
def test_the_scheduler_checks_its_numbers(tiny_fast, name, number):
    with pytest.raises(CourseError, match=f"{name} should be a whole number of at least 1"):
        Scheduler(tiny_fast, **{name: number})


def test_common_beginnings():
    assert common([1, 2, 3], [1, 2, 4]) == 2
    assert common([1, 2], [1, 2, 4]) == 2
    assert common([], [1]) == 0
    assert common([2], [1]) == 0
