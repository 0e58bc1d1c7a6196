"""Both engines against the definition, layer by layer; and the same bits however work is cut."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import strategies as st

pytest.importorskip("numba")
from lib.engine import fast as fast_engine
from lib.engine.cache import Cache
from lib.engine.llama import llama_layer
from lib.engine.processor import HALVES
from lib.errors import ModelError
from tests.laws import bounds
from tests.laws.bounds import assert_near, exact
from tests.laws.cases import COMPILED, answer, catches, law, plainly
from tests.laws.llama import VOCABULARY, Definition, Facts, facts, fast, plain, texts
from tests.laws.test_values import named

BLOCKS = ("Q4_0", "Q4_1", "Q8_0")
SEEDS = st.integers(0, 2**16)
# Without compiled kernels a pass takes a hundred times as long.
SHARE = 0.5 if COMPILED else 0.1
SHORT = texts() if COMPILED else texts(most=4).map(lambda text: text[:5])


# --- Values ---------------------------------------------------------------------------------------


@st.composite
def passes(draw, kinds=("F32",)):
    """Draw a model, a text, and whether the cache keeps float16.

    In blocks one step of each layer is turned off. A number that may be rounded to either of two
    of 255 steps makes the bound wide, and what follows wider: two steps in a row would be too many.
    """
    model, halves = draw(facts(kinds)), False
    if model.kind in BLOCKS:
        halves = HALVES and draw(st.booleans())
        model = model._replace(off=draw(st.sampled_from(["attn_output", "ffn_down"])))
    return model, draw(SHORT), halves


def check_plain(definition, case):
    facts, tokens, _ = case
    model = plain(facts)
    check_layers(model, definition(model), tokens)


def check_fast(definition, case):
    facts, tokens, halves = case
    model = fast(facts, cache_type="float16" if halves else "float32")
    check_layers(model, definition(plain(facts), facts.kind, halves), tokens)


def check_layers(model, right, tokens):
    """Hold each layer to the definition of it on what entered, and the head as well."""
    hidden = plainly(model.hidden)(tokens)
    np.testing.assert_array_equal(hidden[0], right.model.embedding[tokens])
    for index, (before, after) in enumerate(pairwise(hidden)):
        assert_near(after, right.layer(exact(before), index))
    logits = right.head(exact(hidden[-1]))
    assert_near(plainly(model.logits)(tokens, all=True), logits)
    assert_near(plainly(model.logits)(tokens), logits[-1])


@law(passes())
def test_the_plain_engine(case):
    check_plain(Definition, case)


@law(passes(), share=2 * SHARE)
def test_the_fast_engine_in_float32(case):
    check_fast(Definition, case)


@law(passes(BLOCKS), share=2 * SHARE)
def test_the_fast_engine_in_8_and_4_bits(case):
    check_fast(Definition, case)


@law(passes(BLOCKS), share=0.3)
def test_the_plain_engine_on_weights_in_8_and_4_bits(case):
    check_plain(Definition, case)


class OtherScale(Definition):
    """√d in place of √d_head."""

    def attend(self, Q, K, V):
        root = np.sqrt(self.config.d_head / self.config.d)
        return super().attend(bounds.Near(Q.value * root, Q.error), K, V)


class HeadsInTurn(Definition):
    """Key-value heads 0 1 0 1 in place of 0 0 1 1."""

    def served(self, h):
        return h % self.config.H_kv


class Halves(Definition):
    """The other pairing."""

    def turn(self, X):
        angles = bounds.reference.rope_angles(np.arange(len(X.value)), self.config.d_head, 500.0)
        return bounds.rope(X, angles, "halves")


class FactorForgotten(Definition):
    """Positions that are not scaled."""

    def positions(self, n):
        factors = self.config.rope_factors
        return np.arange(n) * (1.0 if factors is None else factors[0])


class PositionsFromOne(Definition):
    """Queries and keys by different clocks: the second position is skipped."""

    def positions(self, n):
        return np.arange(n) + (np.arange(n) > 0)


class HeadsBackwards(Definition):
    """Heads merged in the wrong order."""

    def merge(self, heads):
        return super().merge(heads[::-1])


class SplitByLanes(Definition):
    """Heads that take every H-th number."""

    def heads(self, X, H):
        turned = [part.reshape(len(part), -1, H).swapaxes(1, 2) for part in X]
        return bounds.Near(*turned)


class NoMask(Definition):
    """Each token sees the next one, too."""

    def attend(self, Q, K, V):
        rows = super().attend(Q, K, V)
        seen = np.minimum(np.arange(len(Q.value)) + 1, len(Q.value) - 1)
        return rows[seen]


class NoResidual(Definition):
    """Steps that replace what entered them."""

    def add(self, X, step):
        return step


class OtherGate(Definition):
    """W_up gates W_gate."""

    def ffn(self, X, w):
        hidden = bounds.gated(self.product(X, w.W_up), self.product(X, w.W_gate))
        return self.product(hidden, w.W_down)


class EpsOutside(Definition):
    """√(mean of squares) + eps."""

    def norm(self, X, gain):
        right, eps = super().norm(X, gain), self.config.eps
        root = np.sqrt((X.value**2).mean(-1, keepdims=True))
        return bounds.Near(right.value * np.sqrt(root**2 + eps) / (root + eps), right.error)


class OneGain(Definition):
    """The gain of the first norm for both."""

    def layer(self, X, index):
        w = self.weights[index]
        X = self.add(X, self.attention(self.norm(X, w.attention_gain), w))
        return self.add(X, self.ffn(self.norm(X, w.attention_gain), w))


class NoLastNorm(Definition):
    """A head without the norm before it."""

    def head(self, X):
        return self.product(X, self.model.W_head)


class NotRounded(Definition):
    """Blocks that meet numbers in float32."""

    def enter(self, X):
        return X


class SixBits(Definition):
    """Numbers rounded to 127 steps in place of 255."""

    def enter(self, X):
        if self.kind == "F32":
            return X
        return bounds.Near(bounds.to_8_bits(X).value + bounds.to_8_bits(
            bounds.Near(X.value / 2, X.error)).value, 2 * bounds.to_8_bits(X).error)  # fmt: skip


class RoundedHead(Definition):
    """A head of 8 bits that meets rounded numbers."""

    def head(self, X):
        return self.product(self.norm(X, self.model.output_gain), self.model.W_head)


WRONG = [OtherScale, HeadsInTurn, Halves, FactorForgotten, PositionsFromOne, HeadsBackwards]
WRONG += [SplitByLanes, NoMask, NoResidual, OtherGate, EpsOutside, OneGain, NoLastNorm]
WRONG = {wrong.__name__: wrong for wrong in WRONG}


@pytest.mark.parametrize("wrong", named(WRONG))
def test_the_law_of_the_plain_engine_finds(wrong):
    assert catches(check_plain, wrong, passes())


@pytest.mark.skipif(not COMPILED, reason="takes long without compiled kernels")
@pytest.mark.parametrize("wrong", named(WRONG))
def test_the_law_of_the_fast_engine_finds(wrong):
    assert catches(check_fast, wrong, passes())


@pytest.mark.skipif(not COMPILED, reason="takes long without compiled kernels")
@pytest.mark.parametrize(
    "wrong", named(WRONG | {w.__name__: w for w in (NotRounded, SixBits, RoundedHead)})
)
def test_the_law_of_blocks_finds(wrong):
    assert catches(check_fast, wrong, passes(BLOCKS))


# --- The same bits --------------------------------------------------------------------------------


@st.composite
def fast_models(draw):
    kinds = ("F32", *BLOCKS)
    return fast(draw(facts(kinds)), cache_type="float16" if HALVES and draw(st.booleans()) else
                "float32")  # fmt: skip


@law(fast_models(), SHORT, share=SHARE)
def test_cached_equals_uncached_at_every_split(model, tokens):
    whole = plainly(model.logits)(tokens, all=True)
    for split in range(1, len(tokens)) if len(tokens) < 20 else (1, 31, 63, 64, 65):
        cache = model.new_cache()
        first = plainly(model.logits)(tokens[:split], cache, all=True)
        second = plainly(model.logits)(tokens[split:], cache, all=True)
        np.testing.assert_array_equal(np.concatenate([first, second]), whole)


@law(fast_models(), SHORT, SEEDS, share=SHARE)
def test_a_prompt_in_parts_with_steps_back(model, tokens, seed):
    """Feed, forget, feed again: what is in the cache is all that counts."""
    rng, cache, text = np.random.default_rng(seed), model.new_cache(), []
    for _ in range(5):
        part = rng.choice(tokens, rng.integers(1, 5))
        found = plainly(model.logits)(part, cache, all=True)
        text.extend(part)
        assert cache.n == len(text)
        right = plainly(model.logits)(text, all=True)
        np.testing.assert_array_equal(found, right[-len(part) :])
        text = text[: rng.integers(len(text) + 1)]
        cache.truncate(len(text))


@law(fast_models(), SHORT, SEEDS, share=SHARE)
def test_later_tokens_leave_the_very_bits(model, tokens, seed):
    before, k = plainly(model.logits)(tokens, all=True), seed % len(tokens)
    changed = tokens.copy()
    changed[k:] = (changed[k:] + 1 + seed % (VOCABULARY - 1)) % VOCABULARY
    after = plainly(model.logits)(changed, all=True)
    np.testing.assert_array_equal(after[:k], before[:k])
    assert (after[k] != before[k]).any()
    if k:  # also where they were never there
        np.testing.assert_array_equal(plainly(model.logits)(tokens[:k], all=True), before[:k])
    hidden = plainly(model.hidden)(tokens)
    np.testing.assert_array_equal(plainly(model.hidden)(changed)[:, :k], hidden[:, :k])


@pytest.mark.skipif(not COMPILED, reason="threads share counters in compiled kernels alone")
@law(facts(("F32", *BLOCKS)), SHORT, st.sampled_from([2, 3]), share=SHARE)
def test_any_number_of_threads_gives_the_same_bits(model, tokens, threads):
    alone, team = fast(model), fast(model, threads)
    np.testing.assert_array_equal(team.logits(tokens, all=True), alone.logits(tokens, all=True))
    np.testing.assert_array_equal(team.hidden(tokens), alone.hidden(tokens))


@law(fast_models(), SHORT, st.integers(1, 9), share=SHARE)
def test_chunks_of_any_size_give_the_same_bits(model, tokens, chunk):
    whole, hidden = plainly(model.logits)(tokens, all=True), plainly(model.hidden)(tokens)
    before = fast_engine.CHUNK
    try:
        fast_engine.CHUNK = chunk
        np.testing.assert_array_equal(plainly(model.logits)(tokens, all=True), whole)
        np.testing.assert_array_equal(plainly(model.hidden)(tokens), hidden)
    finally:
        fast_engine.CHUNK = before


@law(facts(("F32", *BLOCKS)), SHORT, share=0.5 * SHARE)
def test_a_model_of_fewer_layers_is_the_beginning_of_the_larger_one(model, tokens):
    """The seed makes the layers in order: those of the smaller model are the first of the other."""
    larger = model._replace(L=model.L + 2, untied=False)
    for load in (plain, fast):
        fewer, more = load(model._replace(untied=False)), load(larger)
        found = plainly(more.hidden)(tokens)
        np.testing.assert_array_equal(found[: model.L + 1], plainly(fewer.hidden)(tokens))
        # What a layer adds is normed: beside much larger vectors it is less than a rounding.
        assert model.embedded > 1e4 or (found[-1] != found[-2]).any()


# --- The plain engine, which agrees up to rounding ------------------------------------------------


@law(facts(), SHORT, share=0.5)
def test_the_plain_model_is_its_layers_one_after_another(model, tokens):
    model = plain(model)
    c, X = model.config, model.embedding[tokens]
    hidden = plainly(model.hidden)(tokens)
    for index, weights in enumerate(model.layers):
        cache = Cache(1, c.H_kv, len(tokens), c.d_head).layers[0]
        X = plainly(llama_layer)(X, (weights, cache), c)
        np.testing.assert_array_equal(hidden[index + 1], X)
    np.testing.assert_array_equal(plainly(model.logits)(tokens, all=True), model.head(X))


@law(facts(), SHORT, SEEDS, share=0.5)
def test_later_tokens_leave_the_very_bits_of_the_plain_model(model, tokens, seed):
    """The same number of tokens: NumPy then adds up in the same order."""
    model, k = plain(model), seed % len(tokens)
    before = plainly(model.logits)(tokens, all=True)
    changed = tokens.copy()
    changed[k:] = (changed[k:] + 1 + seed % (VOCABULARY - 1)) % VOCABULARY
    after = plainly(model.logits)(changed, all=True)
    np.testing.assert_array_equal(after[:k], before[:k])
    assert (after[k] != before[k]).any()


@law(facts(most=2), texts(most=7).map(lambda text: text[:7]), share=0.5)
def test_the_plain_model_cached_at_every_split(model, tokens):
    """A step of few tokens may sum in another order: both ways are held to the definition."""
    model = plain(model)
    right = Definition(model)
    X = exact(model.embedding[tokens])
    for index in range(model.config.L):
        X = right.layer(X, index)
    logits = right.head(X)
    for split in range(1, len(tokens)):
        cache = model.new_cache()
        found = [plainly(model.logits)(part, cache, all=True)
                 for part in (tokens[:split], tokens[split:])]  # fmt: skip
        assert_near(np.concatenate(found), logits)


# --- No silence -----------------------------------------------------------------------------------


@st.composite
def damaged(draw):
    model = draw(facts(most=2))
    rng = np.random.default_rng(draw(SEEDS))
    layer = f"blk.{rng.integers(model.L)}."
    names = ["attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate"]
    names = [layer + name for name in (*names, "ffn_up", "ffn_down")]
    name = rng.choice([*names, "output_norm", "token_embd"])
    number = rng.choice([np.nan, np.inf, -np.inf])
    return model._replace(damage=((f"{name}.weight", int(rng.integers(2**31)), float(number)),))


def run(load, model, tokens):
    """Return logits, or the words of an error."""
    return answer(lambda: plainly(load(model).logits)(tokens, all=True))


@pytest.mark.parametrize("load", [plain, fast])
@law(damaged(), share=0.5)
def test_damage_is_said_in_words_when_a_model_is_read(load, model):
    name = model.damage[0][0]
    with pytest.raises(ModelError) as caught:
        load(model)
    assert name in str(caught.value) or (
        "norm" in name and "gains of the norms" in str(caught.value)
    )


def test_vectors_whose_squares_leave_float32():
    model = Facts(L=1, d=3, H=2, H_kv=1, d_head=4, d_ff=5, untied=True, embedded=1e20)
    found, right = run(fast, model, [5]), run(plain, model, [5])
    assert isinstance(found, str) or np.abs(found - right).max() < 1e-3 * np.abs(right).max()


@law(facts(), SHORT, st.integers(-30, 35), share=SHARE)
def test_weights_of_any_size_give_numbers_or_words(model, tokens, exponent):
    model = model._replace(scale=10.0**exponent, embedded=1.0)
    for load in (plain, fast):
        found = run(load, model, tokens)
        assert isinstance(found, str) or np.isfinite(found).all()
