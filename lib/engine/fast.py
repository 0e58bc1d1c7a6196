"""The model of `lib.engine.llama` at the speed of the memory.

The same file, the same layers in the same order, and the same methods. The weights stay in the
file's 8 and 4 bits, `lib.engine.kernels` runs them, and a team of threads shares the work.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from lib.engine import batch, kernels, quant
from lib.engine.cache import GrowingCache, Pages
from lib.engine.config import LlamaConfig, check_tokens
from lib.engine.layout import aligned, head_of, places_of, read_parts, round_up
from lib.engine.processor import HALVES
from lib.engine.team import Team
from lib.errors import CourseError
from lib.jit import is_kept
from lib.reference import rope_angles

CHUNK = 256  # tokens that go through the layers together, so that weights are read once for all


class FastLlama:
    """A model that is ready to run; see `load_fast`.

    Attributes
    ----------
    config : LlamaConfig
    tokenizer : Tokenizer
    threads : int
    nbytes : int
        Memory that the weights take up.
    """

    def __init__(self, config, tokenizer, weights, packed, team, cache_type=None):
        self.config = config
        self.tokenizer = tokenizer
        self.threads = team.threads
        self.nbytes = weights.arena.nbytes + weights.gains.nbytes
        self._weights = weights
        self._packed = packed  # name -> Packed
        self._team = team
        self._cache_type = _cache_type(cache_type)
        self._turns = (np.empty((0, config.d_head // 2)),) * 2
        self._sizes = kernels.Sizes(
            config.d, config.H, config.H_kv, config.d_head, config.d_ff, config.eps
        )
        self._state = new_state(config, CHUNK, team.threads)

    def new_cache(self, capacity: int | None = None, pages: Pages | None = None) -> GrowingCache:
        """Return an empty cache that grows up to `capacity` tokens, by default the context."""
        c = self.config
        limit = c.context if capacity is None else min(capacity, c.context)
        return GrowingCache(c.L, c.H_kv, c.d_head, limit, self._cache_type, pages)

    def new_pages(self) -> Pages:
        """Return pages for the caches of several texts; see `logits_of_texts`."""
        c = self.config
        return Pages(c.L, c.H_kv, c.d_head, self._cache_type)

    def bytes_per_token(self, n: int = 0) -> int:
        """Return the bytes that are read for one token after n others: weights and cache."""
        c, head = self.config, head_of(self._packed)
        weights = sum(p.nbytes for name, p in self._packed.items() if "blk" in name or name == head)
        one = 2 * c.L * c.H_kv * c.d_head * (4 if self._cache_type == "float32" else 2)
        return weights + self._weights.gains.nbytes + n * one

    def embed(self, tokens: Sequence[int]) -> np.ndarray:
        """Return the vectors that enter the first layer, one per token: (n, d).

        Raises
        ------
        CourseError
            If there are no tokens, or one is not in the vocabulary.
        """
        ids = check_tokens(tokens, self.config)
        return quant.unpack_rows(self._packed["token_embd.weight"], ids)

    def logits(
        self, tokens: Sequence[int], cache: GrowingCache | None = None, all: bool = False
    ) -> np.ndarray:
        """Return the logits of the token that follows, as `Llama.logits` does.

        Raises
        ------
        CourseError
            As there; also if numbers leave the range of float32. The cache is then as it was.
        """
        ids = check_tokens(tokens, self.config)
        cache = self.new_cache(len(ids)) if cache is None else cache
        (logits,) = self._read([ids], [cache], all)
        return logits if all else logits[0]

    def logits_of_texts(
        self, parts: Sequence[tuple[Sequence[int], GrowingCache]], all: bool = False
    ) -> list[np.ndarray]:
        """Return for each of several texts the logits of the token that follows.

        They go through the weights together. Each text's logits are the bits of `logits`, whoever
        comes along.

        Parameters
        ----------
        parts : sequence of tuple
            For each text the tokens that follow those in its cache, and its cache; the caches have
            their pages in common: ``new_cache(pages=pages)`` with ``pages = new_pages()``.
        all : bool
            Whether to return the logits after each token instead of the last alone.

        Returns
        -------
        list of ndarray
            For each text (vocabulary,), or (n, vocabulary) with `all`.

        Raises
        ------
        CourseError
            As `logits`, or if two texts have the same cache or caches with other pages. Nothing is
            computed or stored then.
        """
        texts = [check_tokens(tokens, self.config) for tokens, _ in parts]
        caches = [cache for _, cache in parts]
        if len(set(map(id, caches))) < len(caches):
            raise CourseError("parts should have a cache for each text; two have the same")
        if len({id(cache.pages) for cache in caches}) > 1:
            raise CourseError("parts should have their pages in common; the pages of two differ")
        found = self._read(texts, caches, all)
        return found if all else [logits[0] for logits in found]

    def hidden(self, tokens: Sequence[int]) -> np.ndarray:
        """Return what enters the first layer and what leaves each layer: (L + 1, n, d).

        Parameters and errors are those of `logits`.
        """
        ids = check_tokens(tokens, self.config)
        cache, parts = self.new_cache(len(ids)), []
        cache.make_room(len(ids))
        for runs in batch.passes([ids], CHUNK):
            n = len(runs[0].tokens)
            with self._team.turn:
                self._enter(runs, [cache])
                seen = [self._vectors(n)]
                for layer in range(self.config.L):
                    self._run(runs, [cache], [], layer, layer + 1)
                    seen.append(self._vectors(n))
            cache.n += n
            parts.append(np.stack(seen))
        return np.concatenate(parts, axis=1)

    def _read(self, texts, caches, all):  # -> (1 or n, vocabulary) of each text
        for ids, cache in zip(texts, caches, strict=True):
            cache.check_room(len(ids))
        for ids, cache in zip(texts, caches, strict=True):
            cache.make_room(len(ids))
        starts, found = [cache.n for cache in caches], [[] for _ in texts]
        try:
            for runs in batch.passes(texts, CHUNK):
                for run, logits in zip(runs, self._pass(runs, caches, all), strict=True):
                    caches[run.text].n += len(run.tokens)
                    found[run.text].append(logits)
            # One part as a rule. A NaN is both its largest and its least.
            found = [
                rows[-1] if len(rows) == 1 or not all else np.concatenate(rows) for rows in found
            ]
            bounds = [bound for rows in found for bound in (rows.max(), rows.min())]
            if not np.isfinite(bounds).all():
                raise CourseError("the logits should be finite; numbers left the range of float32")
        except BaseException:
            for cache, start in zip(caches, starts, strict=True):
                cache.n = start
            raise
        return found

    def _pass(self, runs, caches, all):  # -> for each run the logits that are wanted of it
        counts = [len(run.tokens) if all else int(run.is_last) for run in runs]
        ends = np.cumsum([len(run.tokens) for run in runs])
        wanted = [t for end, k in zip(ends, counts, strict=True) for t in range(end - k, end)]
        with self._team.turn:
            self._enter(runs, caches)
            logits = self._run(runs, caches, wanted, 0, self.config.L)
        return np.split(logits, np.cumsum(counts)[:-1])

    def _enter(self, runs, caches):
        """Write the tokens' vectors and the rotations of their positions where kernels read."""
        c, state = self.config, self._state
        tokens, positions = np.concatenate([r.tokens for r in runs]), batch.positions(runs, caches)
        X = state.X.reshape(-1, state.normed.width)
        X[: len(tokens), : c.d] = quant.unpack_rows(self._packed["token_embd.weight"], tokens)
        cos, sin = self._rotations(positions.max() + 1)  # each (positions, d_head / 2)
        state.cos[: len(tokens) * cos.shape[1]] = cos[positions].ravel()
        state.sin[: len(tokens) * sin.shape[1]] = sin[positions].ravel()

    def _rotations(self, positions):
        """Return cos and sin of every position's angles, from a table that grows."""
        c = self.config
        if len(self._turns[0]) < positions:
            factors = 1.0 if c.rope_factors is None else np.array(c.rope_factors)
            known = np.arange(min(c.context, 2 * positions))
            angles = rope_angles(known, c.d_head, c.rope_base, factors)
            self._turns = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        return self._turns

    def _vectors(self, n):  # -> (n, d)
        state = self._state
        return state.X.reshape(-1, state.normed.width)[:n, : self.config.d].copy()

    def _run(self, runs, caches, wanted, first, last):  # -> (wanted, vocabulary)
        pages, heads = caches[0].pages, len(wanted)
        flat = pages.keys.reshape(-1), pages.values.reshape(-1)
        store = kernels.Store(*flat, pages.capacity, pages.values.shape[-1])
        work = batch.plan(runs, caches, self._sizes, wanted)
        width = quant.GROUP * self._packed[head_of(self._packed)].groups
        logits = np.empty(heads * width, np.float32)
        counters = 1 + kernels.COUNTERS * (last - first + 1)
        records = self._weights, self._state, store, self._sizes, work
        self._team.run(kernels.forward, counters, *records, first, last, logits)
        return logits.reshape(heads, width)[:, : self.config.vocabulary]


def is_compiled() -> bool:
    """Tell whether the engine was compiled before, so that its first pass is quick."""
    return is_kept(kernels.forward)


def load_fast(
    path: str | Path | None = None,
    threads: int | None = None,
    cache_type: str | None = None,
    other: str = "float32",
    progress: Callable[[int, int], None] | None = None,
) -> FastLlama:
    """Read a GGUF file of the Llama architecture into a model whose weights stay quantised.

    Parameters
    ----------
    path : str or Path, optional
        The file; by default the model that comes with the course.
    threads : int, optional
        By default one for each processor, at most 8. The results don't depend on it.
    cache_type : {"float32", "float16"}, optional
        How keys and values are kept; by default as float16, where the processor converts it.
    other : {"float32", "int8"}
        What becomes of weights that are neither Q4_0, Q4_1 nor Q8_0.
    progress : callable, optional
        Called as `progress(done, total)`, in bytes, while the weights are laid out.

    Returns
    -------
    FastLlama

    Raises
    ------
    ModelError
        If the file is missing, damaged, or of a kind that would not run as it was trained.
    CourseError
        If another argument is not one of those named.
    """
    team = Team(threads)
    cache_type = _cache_type(cache_type)
    parts = read_parts(path, team.threads, other, progress)
    return FastLlama(*parts, team, cache_type)


def _cache_type(name):
    if name is None:
        return "float16" if HALVES else "float32"
    GrowingCache(1, 1, 16, 1, name)  # names what is neither, before the model is read
    if name == "float16" and not HALVES:
        raise CourseError("cache_type should be float32: this processor does not convert float16")
    return name


def new_state(config: LlamaConfig, tokens: int, threads: int) -> kernels.State:
    """Return what a pass over some tokens writes to."""
    _, (qkv, gates) = places_of(config)
    floats = lambda n: aligned(n, np.float32)  # noqa: E731

    def rows(columns):
        width = round_up(columns, 64)
        blocks = tokens * width // 32
        q = aligned(tokens * width, np.int8)
        return kernels.Activations(floats(tokens * width), q, floats(blocks), floats(blocks), width)

    half = tokens * config.d_head // 2
    room = round_up(config.d_head, 16) + kernels.KEYS_AT_ONCE
    return kernels.State(
        X=floats(tokens * round_up(config.d, 64)),
        normed=rows(config.d),
        mixed=rows(config.H * config.d_head),
        hidden=rows(config.d_ff),
        qkv=floats(tokens * qkv),
        gates=floats(tokens * gates),
        cos=floats(half),
        sin=floats(half),
        scratch=floats(threads * kernels.SCRATCH_ROWS * room),
        qkv_width=qkv,
        gates_width=gates,
    )
