"""The key-value cache: what the left context has already computed.

The keys and values of a token depend on that token and those before it, so they never change when
a token is added. Each layer keeps its own.
"""

from dataclasses import dataclass

import numpy as np

from lib.errors import CourseError


@dataclass
class LayerCache:
    """Keys and values of one layer; the first `n` positions are filled."""

    keys: np.ndarray  # (H_kv, capacity, d_head)
    values: np.ndarray  # (H_kv, capacity, d_head)
    n: int = 0

    def append(self, K: np.ndarray, V: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Store the keys and values of m more tokens; return those of all tokens so far.

        Parameters
        ----------
        K, V : ndarray, (H_kv, m, d_head)
            The new tokens' keys, already rotated to their positions, and their values.

        Returns
        -------
        tuple of ndarray, each (H_kv, n, d_head)
            Views of the cache, the new tokens included.

        Raises
        ------
        CourseError
            If there is no room for m more tokens; nothing is stored then.
        """
        m = K.shape[1]
        _check_room(self.n, m, self.keys.shape[1])
        self.keys[:, self.n : self.n + m] = K
        self.values[:, self.n : self.n + m] = V
        self.n += m
        return self.keys[:, : self.n], self.values[:, : self.n]


class Cache:
    """The caches of all layers, and the number of tokens that have passed all of them.

    Parameters
    ----------
    L, H_kv, capacity, d_head : int
        Layers, key-value heads, tokens that there is room for, width of a head. The memory is
        2 · L · H_kv · capacity · d_head · 4 bytes, taken up as it fills.

    Attributes
    ----------
    layers : list of LayerCache
    n : int
        Tokens stored: the position of the next one.

    Raises
    ------
    CourseError
        If there is room for no token at all, or no memory for as many.
    """

    def __init__(self, L: int, H_kv: int, capacity: int, d_head: int):
        if capacity < 1:
            raise CourseError(f"capacity should be at least 1 token; it is {capacity}")
        shape = (H_kv, capacity, d_head)
        try:
            self.layers = [
                LayerCache(np.zeros(shape, np.float32), np.zeros(shape, np.float32))
                for _ in range(L)
            ]
        except (MemoryError, ValueError):  # a damaged file may claim any context
            raise CourseError(f"capacity should fit into memory; it is {capacity} tokens") from None
        self.capacity = capacity
        self.n = 0

    def check_room(self, m: int) -> None:
        """Raise a CourseError, before any work is done, if m more tokens don't fit."""
        _check_room(self.n, m, self.capacity)

    def truncate(self, n: int) -> None:
        """Forget all tokens from position n on, in every layer.

        Raises
        ------
        CourseError
            If n is not 0 to the number of tokens stored.
        """
        _check_kept(n, self.n)
        self.n = n
        for layer in self.layers:
            layer.n = n


def _check_kept(n: int, stored: int) -> None:
    if not 0 <= n <= stored:
        raise CourseError(f"n should be 0 to {stored}, the tokens in the cache; it is {n}")


def _check_room(n: int, m: int, capacity: int) -> None:
    if n + m > capacity:
        raise CourseError(
            f"tokens should fit into the context of {capacity}; {n} are in it and {m} more came"
        )


class GrowingCache:
    """The caches of all layers for the fast engine: laid out for vectors, growing as they fill.

    Parameters
    ----------
    L, H_kv, d_head : int
        Layers, key-value heads, width of a head.
    limit : int
        The most tokens that it may hold.
    dtype : {"float32", "float16"}
        How numbers are kept; float16 takes half the memory and its traffic.

    Attributes
    ----------
    n : int
        Tokens stored: the position of the next one.
    capacity : int
        A multiple of 64, doubled when it is full.
    keys : ndarray, (L, H_kv, capacity / 16, d_head, 16)
        16 keys lie interleaved, so that a lane of a vector is a key; float16 as uint16.
    values : ndarray, (L, H_kv, capacity, d_head)
        d_head filled up to a multiple of 16.

    Raises
    ------
    CourseError
        If there is room for no token at all, or the dtype is another.
    """

    STEP = 64

    def __init__(self, L: int, H_kv: int, d_head: int, limit: int, dtype: str = "float32"):
        if limit < 1:
            raise CourseError(f"capacity should be at least 1 token; it is {limit}")
        if dtype not in ("float32", "float16"):
            raise CourseError(f"cache_type should be float32 or float16; it is {dtype!r}")
        self.limit, self.n, self.d_head = limit, 0, d_head
        self._dtype = np.float32 if dtype == "float32" else np.uint16
        self._shape = L, H_kv
        self.keys, self.values = self._room(self.STEP)

    @property
    def capacity(self) -> int:
        """Tokens that there is room for at the moment."""
        return self.values.shape[2]

    @property
    def nbytes(self) -> int:
        """The memory that keys and values take up."""
        return self.keys.nbytes + self.values.nbytes

    def check_room(self, m: int) -> None:
        """Raise a CourseError, before any work is done, if m more tokens don't fit."""
        _check_room(self.n, m, self.limit)

    def make_room(self, m: int) -> None:
        """Grow until m more tokens fit; what is stored stays."""
        self.check_room(m)
        if self.n + m <= self.capacity:
            return
        wanted = max(self.n + m, min(2 * self.capacity, self.limit))
        old_keys, old_values = self.keys, self.values
        self.keys, self.values = self._room(-(-wanted // self.STEP) * self.STEP)
        self.keys[:, :, : old_keys.shape[2]] = old_keys
        self.values[:, :, : old_values.shape[2]] = old_values

    def truncate(self, n: int) -> None:
        """Forget all tokens from position n on, as `Cache.truncate` does."""
        _check_kept(n, self.n)
        self.n = n

    def layer(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Return keys and values of a layer, float32: each (H_kv, n, d_head)."""
        keys = self.keys[index].swapaxes(-1, -2)  # (H_kv, capacity / 16, 16, d_head)
        keys = keys.reshape(len(keys), -1, self.d_head)
        return tuple(
            (x if x.dtype == np.float32 else x.view(np.float16).astype(np.float32))[
                :, : self.n, : self.d_head
            ]
            for x in (keys, self.values[index])
        )

    def _room(self, capacity):
        L, H_kv = self._shape
        keys = (L, H_kv, capacity // 16, self.d_head, 16)
        values = (L, H_kv, capacity, -(-self.d_head // 16) * 16)
        return np.zeros(keys, self._dtype), np.zeros(values, self._dtype)
