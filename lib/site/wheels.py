"""Wheels for the browser, made of what is installed here: nothing is fetched.

A wheel is a zip file of a package and its metadata (PEP 427). Parts compiled for this machine are
left out, so only packages that run without them can be packed.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path, PurePosixPath

import lib
from lib.errors import CourseError

COURSE = "left-context"
COURSE_FILE = "left_context-"  # how the name of its wheel begins
# What the chapters import that Pyodide does not bring; each after what it needs.
NEEDED = ("typing-extensions", "comm", "jupyterlab-widgets", "ipywidgets", "psygnal", "anywidget")
NEEDED += ("markupsafe", "jinja2")
_LEFT_OUT = {"__pycache__", "site", "grading"}  # of the course
_COMPILED = (".so", ".pyd", ".pyc")
_OF_THIS_MACHINE = {"WHEEL", "RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}
_WHEEL = "Wheel-Version: 1.0\nGenerator: course\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_DATE = (2020, 1, 1, 0, 0, 0)  # the same files make the same bytes


def pack_all(folder: Path, kernels: Path | None = None) -> list[Path]:
    """Write the wheels of the course and of what it needs in a browser.

    Parameters
    ----------
    folder : Path
        Made if it does not exist.
    kernels : Path, optional
        A folder with what `lib.wasm.build` made, to lie in the course's own wheel.

    Returns
    -------
    list of Path
        In the order in which they can be installed.

    Raises
    ------
    CourseError
        A package is not installed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    return [*(_pack(name, folder) for name in NEEDED), _pack_course(folder, kernels)]


def digest(paths: Iterable[Path]) -> str:
    """Return 12 letters that change when one of the files does."""
    whole = hashlib.sha256()
    for path in paths:
        whole.update(path.read_bytes())
    return whole.hexdigest()[:12]


def _pack(name: str, folder: Path) -> Path:
    try:
        package = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        raise CourseError(f"the package {name} is not installed; `course doctor` helps") from None
    files = {
        PurePosixPath(file).as_posix(): Path(package.locate_file(file))
        for file in package.files or []
        if ".." not in file.parts and not file.name.endswith(_COMPILED)
    }
    contents = {
        place: file.read_bytes()
        for place, file in files.items()
        if not (".dist-info/" in place and file.name in _OF_THIS_MACHINE)
    }
    return _write(folder, name, package.version, contents)


def _pack_course(folder: Path, kernels: Path | None) -> Path:
    home = Path(lib.__file__).parent
    files = [file.relative_to(home) for file in sorted(home.rglob("*")) if file.is_file()]
    kept = [file for file in files if not _LEFT_OUT & set(file.parts)]
    contents = {f"lib/{file.as_posix()}": (home / file).read_bytes() for file in kept}
    for file in kernels.iterdir() if kernels else ():
        contents[f"lib/wasm/{file.name}"] = file.read_bytes()
    about = f"Metadata-Version: 2.1\nName: {COURSE}\nVersion: {lib.__version__}\n"
    info = f"{_stem(COURSE, lib.__version__)}.dist-info"
    return _write(folder, COURSE, lib.__version__, {**contents, f"{info}/METADATA": about.encode()})


def _stem(name: str, version: str) -> str:
    return f"{name.replace('-', '_')}-{version}"


def _write(folder: Path, name: str, version: str, contents: dict[str, bytes]) -> Path:
    info = f"{_stem(name, version)}.dist-info"
    contents = contents | {f"{info}/WHEEL": _WHEEL.encode(), f"{info}/RECORD": b""}
    path = folder / f"{_stem(name, version)}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for place in sorted(contents):
            entry = zipfile.ZipInfo(place, _DATE)
            wheel.writestr(entry, contents[place], zipfile.ZIP_DEFLATED)
    return path
