"""Where each engine stands below the roof: from rows that were measured to points of a picture.

The bytes of a point are those that must be read: all weights and the cache, once for each pass. An
engine that reads more than it must stands further left than it is drawn, never further right.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from lib.bench.results import Measured, Point, Results
from lib.engine import work

if TYPE_CHECKING:
    from lib.bench.contest import Answer
    from lib.engine.gguf import GGUF

HALF = 2  # bytes of a number in llama.cpp's cache
_PEAKS = {"float32": "limits/prefill", "int8": "limits/prefill-int8"}


def fill(found: Results, files: Mapping[str, GGUF]) -> None:
    """Fill in bandwidth, peaks and points, as far as their rows were measured.

    Parameters
    ----------
    found : Results
        Gets them.
    files : mapping of str to GGUF
        The model file of each contestant that does not count its bytes itself.
    """
    if (row := found.row("limits/decode")) is not None:
        found.bandwidth = _median_rate("bytes", row.answers[1], row.answers[1])
    for kind, key in _PEAKS.items():
        if (row := found.row(key)) is not None:
            found.peaks[kind] = _median_rate("multiply_adds", row.answers[1], row.answers[1])
    for row in found.rows:
        if row.key.split("/")[0] in ("decode", "prefill"):
            found.points += _points(row, files, {point.name for point in found.points})


def _points(row: Measured, files: Mapping[str, GGUF], known: set[str]) -> list[Point]:
    points = []
    ours = row.answers[0]  # counts the multiply-adds; the peer did the same work
    for contestant, answers in zip(row.names, row.answers, strict=True):
        name = f"{contestant}, {row.key.split('/')[0]}"
        if name not in known:
            read = _bytes(answers[0], files.get(contestant))
            rate = _median_rate("multiply_adds", ours, answers)
            points.append(Point(name, ours[0]["multiply_adds"] / read, rate))
    return points


def _median_rate(what: str, counted: list[Answer], timed: list[Answer]) -> float:
    pairs = zip(counted, timed, strict=True)
    return float(np.median([count[what] / time["seconds"] for count, time in pairs]))


def _bytes(answer: Answer, file: GGUF | None) -> int:
    """Return the bytes that a turn had to read."""
    if "bytes" in answer:
        return answer["bytes"]
    from lib.engine.config import read_config

    cache = work.cache_bytes(read_config(file), answer["cached"], HALF)
    return answer["passes"] * work.file_bytes(file) + cache
