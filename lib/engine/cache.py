"""The key-value cache: what the left context has already computed.

The keys and values of a token depend on that token and those before it, so they never change when
a token is added. Each layer keeps its own.
"""

import heapq
from collections.abc import Sequence
from copy import copy
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


class Pages:
    """Room for the keys and values of many texts, in pages of 16 tokens (Kwon et al. 2023).

    A text has a list of its pages, its block table. Several texts may use a page, if they begin
    with the same tokens; it is free again when the last of them gives it back.

    Parameters
    ----------
    L, H_kv, d_head : int
        Layers, key-value heads, width of a head.
    dtype : {"float32", "float16"}
        How numbers are kept; float16 takes half the memory and its traffic.
    limit : int, optional
        Tokens beyond which the room no longer doubles, but grows by what is needed.

    Attributes
    ----------
    capacity : int
        Tokens that there is room for at the moment, a multiple of 64; it grows.
    keys : ndarray, (L, H_kv, capacity / 16, d_head, 16)
        16 keys lie interleaved, so that a lane of a vector is a key; float16 as uint16.
    values : ndarray, (L, H_kv, capacity, d_head)
        d_head filled up to a multiple of 16.
    users : list of int
        How many texts use each page.

    Raises
    ------
    CourseError
        If the dtype is another.
    """

    TOKENS = 16  # of a page
    STEP = 64  # tokens by which the room grows at least

    def __init__(
        self, L: int, H_kv: int, d_head: int, dtype: str = "float32", limit: int | None = None
    ):
        if dtype not in ("float32", "float16"):
            raise CourseError(f"cache_type should be float32 or float16; it is {dtype!r}")
        self.d_head, self._limit = d_head, limit
        self._dtype = np.float32 if dtype == "float32" else np.uint16
        self._shape = L, H_kv
        self.users: list[int] = []
        self._free: list[int] = []  # a heap: the first page is taken first
        self.keys, self.values = self._room(0)
        self._grow(self.STEP)

    @property
    def capacity(self) -> int:
        """Tokens that there is room for at the moment."""
        return self.values.shape[2]

    @property
    def used(self) -> int:
        """Pages that texts use."""
        return len(self.users) - len(self._free)

    @property
    def nbytes(self) -> int:
        """The memory that keys and values take up."""
        return self.keys.nbytes + self.values.nbytes

    def take(self, count: int) -> list[int]:
        """Return pages that nobody else uses."""
        if count > len(self._free):
            needed, limit = self.TOKENS * (self.used + count), self._limit or np.inf
            self._grow(int(max(needed, min(2 * self.capacity, limit))))
        pages = [heapq.heappop(self._free) for _ in range(count)]
        self.share(pages)
        return pages

    def share(self, pages: Sequence[int]) -> None:
        """Note one more user of each page."""
        for page in pages:
            self.users[page] += 1

    def give_back(self, pages: Sequence[int]) -> None:
        """Note one user less of each page.

        Raises
        ------
        CourseError
            If nobody uses one of them.
        """
        for page in pages:
            if self.users[page] == 0:
                raise CourseError(f"page {page} should be in use; it was given back before")
            self.users[page] -= 1
            if self.users[page] == 0:
                heapq.heappush(self._free, page)

    def copy(self, page: int) -> int:
        """Give back a page that others use too, and return one of one's own with its contents."""
        (own,) = self.take(1)
        self.keys[:, :, own] = self.keys[:, :, page]
        tokens, here = slice(16 * own, 16 * own + 16), slice(16 * page, 16 * page + 16)
        self.values[:, :, tokens] = self.values[:, :, here]
        self.give_back([page])
        return own

    def _grow(self, tokens: int) -> None:
        old_keys, old_values = self.keys, self.values
        self.keys, self.values = self._room(-(-tokens // self.STEP) * self.STEP)
        self.keys[:, :, : old_keys.shape[2]] = old_keys
        self.values[:, :, : old_values.shape[2]] = old_values
        for page in range(len(self.users), self.keys.shape[2]):
            self.users.append(0)
            heapq.heappush(self._free, page)

    def _room(self, capacity: int) -> tuple[np.ndarray, np.ndarray]:
        L, H_kv = self._shape
        keys = (L, H_kv, capacity // 16, self.d_head, 16)
        values = (L, H_kv, capacity, -(-self.d_head // 16) * 16)
        return np.zeros(keys, self._dtype), np.zeros(values, self._dtype)


class GrowingCache:
    """The caches of all layers for the fast engine: the pages of one text, more as it grows.

    Parameters
    ----------
    L, H_kv, d_head : int
        Layers, key-value heads, width of a head.
    limit : int
        The most tokens that it may hold.
    dtype : {"float32", "float16"}
        How numbers are kept.
    pages : Pages, optional
        Where several texts have their pages; by default pages of its own.

    Attributes
    ----------
    n : int
        Tokens stored: the position of the next one.
    table : list of int
        The block table: position p lies in page table[p // 16], at place p % 16.

    Raises
    ------
    CourseError
        If there is room for no token at all, or the dtype is another.
    """

    def __init__(
        self,
        L: int,
        H_kv: int,
        d_head: int,
        limit: int,
        dtype: str = "float32",
        pages: Pages | None = None,
    ):
        if limit < 1:
            raise CourseError(f"capacity should be at least 1 token; it is {limit}")
        self.pages = Pages(L, H_kv, d_head, dtype, limit) if pages is None else pages
        self.limit, self.n = limit, 0
        self.table: list[int] = []

    @property
    def keys(self) -> np.ndarray:
        """All pages' keys; see `Pages`."""
        return self.pages.keys

    @property
    def values(self) -> np.ndarray:
        """All pages' values; see `Pages`."""
        return self.pages.values

    @property
    def capacity(self) -> int:
        """Tokens that there is room for at the moment, in all pages."""
        return self.pages.capacity

    @property
    def nbytes(self) -> int:
        """The memory that all pages take up."""
        return self.pages.nbytes

    def check_room(self, m: int) -> None:
        """Raise a CourseError, before any work is done, if m more tokens don't fit."""
        _check_room(self.n, m, self.limit)

    def make_room(self, m: int) -> None:
        """Take pages until m more tokens fit, and copy a page that is written to and shared."""
        self.check_room(m)
        for place in range(self.n // Pages.TOKENS, len(self.table)):
            if self.pages.users[self.table[place]] > 1:
                self.table[place] = self.pages.copy(self.table[place])
        missing = _pages_of(self.n + m) - len(self.table)
        if missing > 0:
            self.table += self.pages.take(missing)

    def truncate(self, n: int) -> None:
        """Forget all tokens from position n on, as `Cache.truncate` does."""
        _check_kept(n, self.n)
        self.n = n
        kept = _pages_of(n)
        self.table, rest = self.table[:kept], self.table[kept:]
        self.pages.give_back(rest)

    def fork(self, n: int | None = None) -> "GrowingCache":
        """Return the cache of another text that begins with the first n tokens, by default all.

        Nothing is copied: both use the pages of what they share.
        """
        n = self.n if n is None else n
        _check_kept(n, self.n)
        other = copy(self)
        other.n, other.table = n, self.table[: _pages_of(n)]
        self.pages.share(other.table)
        return other

    def layer(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Return keys and values of a layer, float32: each (H_kv, n, d_head)."""
        keys, values = self.keys[index], self.values[index]
        keys = keys[:, self.table].swapaxes(-1, -2)  # (H_kv, pages, 16, d_head)
        values = values.reshape(len(values), -1, Pages.TOKENS, values.shape[-1])[:, self.table]
        return tuple(
            (x if x.dtype == np.float32 else x.view(np.float16).astype(np.float32)).reshape(
                len(x), -1, x.shape[-1]
            )[:, : self.n, : self.pages.d_head]
            for x in (keys, values)
        )


def _pages_of(tokens: int) -> int:
    return -(-tokens // Pages.TOKENS)
