"""What came of a run: samples, ratios, the machine. Written as JSON, and read again.

Everything that was measured is kept, so that a median can be doubted. There are no paths in it
and no name of a machine, so that it can be passed on.
"""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from lib.bench.contest import Answer
from lib.bench.rows import Row, ratio, value
from lib.doctor import FEATURES
from lib.errors import CourseError

PACKAGES = ("left-context", "numpy", "numba", "llvmlite")
FORM = 1  # of the JSON; another number where its fields change their meaning


@dataclass(frozen=True)
class Measured:
    """A row and its numbers, in the row's unit; one of each for each round."""

    key: str
    title: str
    unit: str
    share: bool
    names: tuple[str, str]  # ours, peer
    answers: tuple[list[Answer], list[Answer]]  # as they came
    ours: list[float]
    peer: list[float]
    ratios: list[float]  # how many times ours is better, pair by pair

    @property
    def ratio(self) -> float:
        """The median of the ratios."""
        return float(np.median(self.ratios))

    @property
    def quartiles(self) -> tuple[float, float]:
        """The first and the third quartile of the ratios."""
        low, high = np.quantile(self.ratios, [0.25, 0.75])
        return float(low), float(high)

    @property
    def medians(self) -> tuple[float, float]:
        """The medians of ours and of the peer."""
        return float(np.median(self.ours)), float(np.median(self.peer))


@dataclass(frozen=True)
class Point:
    """One point of the roofline."""

    name: str
    intensity: float  # multiply-adds per byte that must be read
    rate: float  # multiply-adds a second


@dataclass
class Results:
    """All that a run found."""

    machine: dict[str, Any]
    versions: dict[str, str]
    settings: dict[str, Any]
    rows: list[Measured] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)  # key of a row -> why
    bandwidth: float | None = None  # bytes a second
    peaks: dict[str, float] = field(default_factory=dict)  # kind -> multiply-adds a second
    points: list[Point] = field(default_factory=list)

    def row(self, key: str) -> Measured | None:
        """Return the row of that key, or None if it was not measured."""
        return next((row for row in self.rows if row.key == key), None)


def measured(row: Row, pairs: list[tuple[Answer, Answer]]) -> Measured:
    """Return a row with its numbers, from pairs of answers of ours and of the peer."""
    answers = tuple([pair[side] for pair in pairs] for side in (0, 1))
    ours, peer = ([value(row, answer) for answer in side] for side in answers)
    ratios = [ratio(row, a, b) for a, b in zip(ours, peer, strict=True)]
    names = row.ours.contestant, row.peer.contestant
    return Measured(row.key, row.title, row.unit, row.share, names, answers, ours, peer, ratios)


def this_machine() -> dict[str, Any]:
    """Return what speed depends on."""
    import psutil

    found = {
        "system": platform.system(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "memory": psutil.virtual_memory().total,
    }
    try:
        from llvmlite import binding
    except (ImportError, OSError):
        return found
    has = binding.get_host_cpu_features()
    features = [label for name, label in FEATURES.items() if has.get(name)]
    return found | {"kind": binding.get_host_cpu_name(), "features": features}


def these_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that our side runs on."""
    versions = {"Python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def store(results: Results, folder: Path) -> list[Path]:
    """Write the results as JSON and, where the machine's bandwidth was measured, the roofline.

    Parameters
    ----------
    results : Results
    folder : Path
        Made if it is not there; what an earlier run wrote is replaced.

    Returns
    -------
    list of Path
        What was written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / "bench.json"]
    write(results, paths[0])
    if results.bandwidth:
        from lib.lab.figures.bench import roofline

        figure = roofline(results.bandwidth, results.peaks, results.points)
        paths.append(folder / "roofline.png")
        figure.savefig(paths[1], dpi=150)
    return paths


def write(results: Results, path: Path) -> None:
    """Write results as JSON, with the medians beside the samples."""
    data = {"form": FORM} | asdict(results)
    for found, row in zip(data["rows"], results.rows, strict=True):
        found |= {"medians": row.medians, "ratio": row.ratio, "quartiles": row.quartiles}
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read(path: str | Path) -> Results:
    """Read what `write` wrote.

    Raises
    ------
    CourseError
        The file is not there, or not one of `course bench`.
    """
    path = Path(path)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data.pop("form") != FORM:
            raise KeyError("form")
        data["rows"] = [_measured_again(row) for row in data["rows"]]
        data["points"] = [Point(**point) for point in data["points"]]
        return Results(**data)
    except OSError as error:
        raise CourseError(f"{path} can't be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CourseError(f"{path} should be a file that this `course bench` wrote") from None


def _measured_again(row: dict[str, Any]) -> Measured:
    kept = {name: row[name] for name in Measured.__dataclass_fields__}
    return Measured(**kept | {"names": tuple(row["names"]), "answers": tuple(row["answers"])})
