"""JupyterLite with the course: chapters and exercises in a browser, with nothing installed.

What is built is a folder of static files. Python itself, Pyodide, comes from its public address
when a page is opened, or from a folder that is given here and copied in. Nothing is fetched while
building: the wheels are made of the packages that are installed.
"""

from __future__ import annotations

import http.server
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path

from lib import notebooks
from lib.engine.gguf import find_model
from lib.errors import CourseError
from lib.site import copies, wheels
from lib.site.launchable import launchable
from lib.wasm import build
from lib.wasm import model as browser_model

KERNEL = "@jupyterlite/pyodide-kernel-extension:kernel"
PACKAGES = ("micropip", "numpy", "matplotlib", "ipython", "jedi")  # of Pyodide
PYODIDE_FILES = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip")
LOCK = "pyodide-lock.json"
MARKER = "jupyter-lite.json"  # what every JupyterLite folder has
STATIC = Path(__file__).parent / "static"
SPEAKER = "speak"  # a page in which the real model writes, where it lies beside the site
# From the script that runs Pyodide to the root of the folder; wheels are found from there.
_FROM_WORKER = "../../../.."
REMEDY = {
    "folder": "The folder static/pyodide is missing or damaged: build the course again.",
    "network": "Check the network; who built the site can add Python to it, with `--pyodide`.",
}


def build_lite(
    out: Path,
    pyodide: Path | None = None,
    progress: Callable[[str], object] = lambda line: None,
    root: Path | None = None,
    home: str = "",
    kernels: Path | None = None,
) -> Path:
    """Build JupyterLite with the course.

    Parameters
    ----------
    out : Path
        The folder to write; what an earlier build left there is replaced.
    pyodide : Path, optional
        A folder with Pyodide and the packages that the course needs, to be copied in. Without it
        a page fetches Pyodide from its public address when it is opened.
    progress : callable
        Called with a few words at each of the `steps`.
    root : Path, optional
        The folder of the course.
    home : str
        Where the logo leads, relative to `out`: the site around it, if there is one.
    kernels : Path, optional
        What `make_kernels` returned: the real model then lies beside the pages and runs there.

    Returns
    -------
    Path
        `out`.

    Raises
    ------
    CourseError
        JupyterLite is not installed, the Pyodide folder lacks something, `out` holds something
        else, or JupyterLite fails.
    """
    root = root or notebooks.find_root()
    check_installed()
    check_out(out)
    if pyodide is not None:
        check_pyodide(pyodide)
    with tempfile.TemporaryDirectory(prefix="course-lite-") as scratch:
        folder = Path(scratch).resolve()
        progress("notebooks")
        copies.copy_all(list(launchable(root)), root, folder / "contents", kernels is not None)
        progress("wheels")
        packed = _wheels(folder, kernels)
        progress("JupyterLite")
        _configure(folder, packed, pyodide)
        _run_jupyterlite(folder)
        progress("pages")
        _add_scripts(folder / "out", pyodide, home)
        if kernels:
            browser_model.split(find_model(), folder / "out" / "model")
            _add_speaker(folder / "out", pyodide, packed)
        shutil.rmtree(out, ignore_errors=True)
        out.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(folder / "out", out)
    return out


STEPS = 4  # how often `build_lite` calls `progress`


# --- what is given -------------------------------------------------------------------------------


def check_installed(command: str = "lite") -> None:
    """Raise `CourseError` if the packages of the group `site` are not installed."""
    for package in ("jupyterlite_core", "jupyterlite_pyodide_kernel"):
        if importlib.util.find_spec(package) is None:
            raise CourseError(
                f"{package} is not installed; `uv run --group site course {command}` does it"
            )


def check_out(out: Path) -> None:
    """Raise `CourseError` if a folder holds something that is not of an earlier build."""
    if not out.exists() or (out / MARKER).is_file():
        return
    if not out.is_dir() or any(out.iterdir()):
        raise CourseError(
            f"{out} holds something else, so nothing was written; give an empty folder as --out"
        )


def check_pyodide(folder: Path) -> None:
    """Raise `CourseError` if a Pyodide folder lacks a file or a package, and name it."""
    for name in (*PYODIDE_FILES, LOCK):
        if not (folder / name).is_file():
            raise CourseError(f"--pyodide {folder} should hold Pyodide; {name} is not in it")
    try:
        known = json.loads((folder / LOCK).read_text(encoding="utf-8"))["packages"]
        needed = closure(PACKAGES, known)
        files = [known[name]["file_name"] for name in needed]
    except KeyError as missing:
        raise CourseError(
            f"--pyodide {folder} lacks the package {missing.args[0]}, which the course needs"
        ) from None
    except (OSError, ValueError, TypeError):
        raise CourseError(f"--pyodide {folder}: {LOCK} in it is damaged") from None
    for name in files:
        if not (folder / name).is_file():
            raise CourseError(f"--pyodide {folder} should hold {name}, as its {LOCK} says")


def closure(names: Iterable[str], known: dict[str, dict]) -> list[str]:
    """Return packages and all that they need, by the entries of Pyodide's list."""
    found, left = [], list(names)
    while left:
        name = re.sub(r"[-_.]+", "-", left.pop()).lower()
        if name not in found:
            found.append(name)
            left += known[name]["depends"]
    return found


def public_address() -> str:
    """Return where a page fetches Pyodide from if no folder was given."""
    from jupyterlite_pyodide_kernel import constants

    return f"{constants.PYODIDE_CDN_URL}/{constants.PYODIDE_MJS}"


def out_of_reach(address: str, seconds: float = 5) -> str:
    """Return why an address cannot be reached from this machine; nothing if it can."""
    try:
        request = urllib.request.Request(address, method="HEAD")
        with urllib.request.urlopen(request, timeout=seconds):
            return ""
    except (OSError, ValueError) as error:
        return str(getattr(error, "reason", error))


def make_kernels(folder: Path, say: Callable[[str], object]) -> Path | None:
    """Compile the engine for a browser into a folder, where the model is here to lie beside it.

    Returns
    -------
    Path or None
        The folder. None if the model is missing, or the compiler is or has changed: ``say`` is
        then told why, and cells that need the model say that they need an installation.
    """
    try:
        find_model()
        build.build(folder)
    except CourseError as error:
        say(f"The browser edition is built without the real model: {error}")
        return None
    return folder


# --- the steps -----------------------------------------------------------------------------------


def _wheels(home: Path, kernels: Path | None) -> list[str]:
    """Pack the wheels; return where they will lie, seen from the root of the site."""
    packed = wheels.pack_all(home / "packed", kernels)
    # A folder of another name for other wheels: no browser keeps old ones.
    place = Path("files-of-python") / wheels.digest(packed)
    (home / place.parent).mkdir()
    shutil.move(home / "packed", home / place)
    return [(place / wheel.name).as_posix() for wheel in packed]


def _configure(home: Path, packed: list[str], pyodide: Path | None) -> None:
    """Write what JupyterLite reads: how to build, and what a page does."""
    if pyodide is not None:
        shutil.copytree(pyodide, home / "static" / "pyodide")
    build = {
        "contents": [str(home / "contents")],
        "output_dir": str(home / "out"),
        "cache_dir": str(home / "cache"),
        "apps": ["lab", "notebooks", "tree"],
        "no_sourcemaps": True,
        "ignore_sys_prefix": False,
    }
    kernel = {
        "disablePyPIFallback": True,
        "loadPyodideOptions": {
            "packages": [*PACKAGES, *(f"{_FROM_WORKER}/{wheel}" for wheel in packed)]
        },
    }
    page = {
        "appName": "Left Context",
        "litePluginSettings": {KERNEL: kernel},
        "disabledExtensions": ["@jupyterlab/extensionmanager-extension"],
    }
    _write_json(home / "jupyter_lite_config.json", {"LiteBuildConfig": build})
    _write_json(home / MARKER, {"jupyter-lite-schema-version": 0, "jupyter-config-data": page})


def _write_json(path: Path, content: dict) -> None:
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")


def _run_jupyterlite(home: Path) -> None:
    command = [sys.executable, "-m", "jupyterlite_core", "build"]
    done = subprocess.run(
        command, cwd=home, capture_output=True, text=True, encoding="utf-8", errors="replace"
    )
    if done.returncode or not (home / "out" / MARKER).is_file():
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise CourseError(f"JupyterLite could not be built: {' | '.join(said[-3:])}")
    shutil.copytree(home / "files-of-python", home / "out" / "files-of-python")


def _add_scripts(out: Path, pyodide: Path | None, home: str) -> None:
    """Let every page say it in words when Python cannot be fetched, and lead back to the site."""
    for page in sorted(out.glob("*/index.html")):
        up = "../" * len(page.relative_to(out).parent.parts)
        address = public_address() if pyodide is None else f"{up}static/pyodide/pyodide.mjs"
        remedy = REMEDY["network" if pyodide is None else "folder"]
        scripts = {"reach.js": f'data-pyodide="{address}" data-remedy="{remedy}"'}
        if home:
            scripts["home.js"] = f'data-home="{up}{home}"'
        tags = "".join(
            f'\n    <script src="{up}{name}" {data}></script>' for name, data in scripts.items()
        )
        for name in scripts:
            shutil.copy(STATIC / name, out / name)
        text = page.read_text(encoding="utf-8").replace("<head>", f"<head>{tags}", 1)
        page.write_text(text, encoding="utf-8", newline="\n")


def _add_speaker(out: Path, pyodide: Path | None, packed: list[str]) -> None:
    """Add the page in which the real model writes on what a visitor types."""
    shutil.copytree(STATIC / SPEAKER, out / SPEAKER)
    worker = out / SPEAKER / "worker.mjs"
    (wheel,) = (name for name in packed if Path(name).name.startswith(wheels.COURSE_FILE))
    address = public_address() if pyodide is None else "../static/pyodide/pyodide.mjs"
    text = worker.read_text(encoding="utf-8").replace("@WHEEL@", f"../{wheel}")
    worker.write_text(text.replace("@PYODIDE@", address), encoding="utf-8", newline="\n")


# --- serving -------------------------------------------------------------------------------------


class _Files(http.server.SimpleHTTPRequestHandler):
    """Static files, with the types that browsers insist on, and nothing kept by the browser."""

    extensions_map = http.server.SimpleHTTPRequestHandler.extensions_map | {
        ".js": "text/javascript",
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
        ".json": "application/json",
        ".css": "text/css",
        ".svg": "image/svg+xml",
    }

    def end_headers(self):
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()

    def log_message(self, *_):
        """Say nothing: a page asks for hundreds of files."""


def server(folder: Path, port: int = 0) -> http.server.ThreadingHTTPServer:
    """Return a server of a folder on this machine alone; its `serve_forever` serves.

    Parameters
    ----------
    folder : Path
    port : int
        0 takes one that is free; it is then `server_port`.

    Raises
    ------
    CourseError
        The port cannot be had.
    """

    def handler(*arguments):
        return _Files(*arguments, directory=str(folder))

    try:
        return http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CourseError(f"--port should be free; {port} is not to be had: {reason}") from None
