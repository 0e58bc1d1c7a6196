"""The model of `lib.engine.llama` at the speed of the memory.

The same file, the same layers in the same order, and the same methods. The weights stay in the
file's 8 and 4 bits, `lib.engine.kernels` runs them, and a team of threads shares the work.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from lib.engine import kernels, quant
from lib.engine.cache import GrowingCache
from lib.engine.config import LlamaConfig, check_tokens
from lib.engine.layout import head_of, places_of, read_parts, round_up
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
        self._state = new_state(config, min(CHUNK, config.context), team.threads)

    def new_cache(self, capacity: int | None = None) -> GrowingCache:
        """Return an empty cache that grows up to `capacity` tokens, by default the context."""
        c = self.config
        limit = c.context if capacity is None else min(capacity, c.context)
        return GrowingCache(c.L, c.H_kv, c.d_head, limit, self._cache_type)

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
        cache.make_room(len(ids))
        start, logits = cache.n, []
        try:
            for part, is_last in _chunks(ids):
                heads = len(part) if all else int(is_last)
                logits.append(self._pass(part, cache, heads))
                cache.n += len(part)
            # One part as a rule: (n or 1, vocabulary). A NaN is both its largest and its least.
            logits = logits[-1] if len(logits) == 1 or not all else np.concatenate(logits)
            if not (np.isfinite(logits.max()) and np.isfinite(logits.min())):
                raise CourseError("the logits should be finite; numbers left the range of float32")
        except BaseException:
            cache.n = start
            raise
        return logits if all else logits[0]

    def hidden(self, tokens: Sequence[int]) -> np.ndarray:
        """Return what enters the first layer and what leaves each layer: (L + 1, n, d).

        Parameters and errors are those of `logits`.
        """
        ids = check_tokens(tokens, self.config)
        cache, parts = self.new_cache(len(ids)), []
        cache.make_room(len(ids))
        for part, _ in _chunks(ids):
            with self._team.turn:
                self._enter(part, cache)
                seen = [self._vectors(len(part))]
                for layer in range(self.config.L):
                    self._run(cache, layer, layer + 1, len(part), 0, np.empty(0, np.float32))
                    seen.append(self._vectors(len(part)))
            cache.n += len(part)
            parts.append(np.stack(seen))
        return np.concatenate(parts, axis=1)

    def _pass(self, tokens, cache, heads):  # (n,) -> (heads, vocabulary)
        width = quant.GROUP * self._packed[head_of(self._packed)].groups
        logits = np.empty(heads * width, np.float32)
        with self._team.turn:
            self._enter(tokens, cache)
            self._run(cache, 0, self.config.L, len(tokens), heads, logits)
        return logits.reshape(heads, width)[:, : self.config.vocabulary]

    def _enter(self, tokens, cache):
        """Write the tokens' vectors and the rotations of their positions where kernels read."""
        c, state, n = self.config, self._state, len(tokens)
        X = state.X.reshape(-1, state.normed.width)
        X[:n, : c.d] = quant.unpack_rows(self._packed["token_embd.weight"], tokens)
        cos, sin = self._rotations(cache.n + n)  # each (positions, d_head / 2)
        state.cos[: n * cos.shape[1]] = cos[cache.n : cache.n + n].ravel()
        state.sin[: n * sin.shape[1]] = sin[cache.n : cache.n + n].ravel()

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

    def _run(self, cache, first, last, tokens, heads, logits):
        flat = cache.keys.reshape(-1), cache.values.reshape(-1)
        store = kernels.Store(*flat, cache.capacity, cache.values.shape[-1])
        records = self._weights, self._state, store, self._sizes
        counters = 1 + kernels.COUNTERS * (last - first + 1)
        layers = first, last, cache.n, tokens, heads, logits
        self._team.run(kernels.forward, counters, *records, *layers)


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
    floats = lambda n: np.zeros(n, np.float32)  # noqa: E731

    def rows(columns):
        width = round_up(columns, 64)
        blocks = tokens * width // 32
        q = np.zeros(tokens * width, np.int8)
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


def _chunks(tokens):
    for at in range(0, len(tokens), CHUNK):
        yield tokens[at : at + CHUNK], at + CHUNK >= len(tokens)
