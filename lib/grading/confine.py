"""Start the confined process: no network, an empty home, the interpreter to read, nothing else.

The first of these that works is taken, which is found out by trying: `bubblewrap`; the system's
namespaces by `unshare`, without privileges; nothing. Limits on memory, time, files and processes
are set by the process itself before it runs a line of a submission (`worker`).

bubblewrap: https://github.com/containers/bubblewrap
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

LIB = Path(__file__).resolve().parent.parent
BUBBLEWRAP, NAMESPACES, UNCONFINED = "bubblewrap", "namespaces", "unconfined"
INSIDE = "/grading"  # where the worker's files lie
ROOM = 16 * 2**20  # bytes of all files together that a submission may write


@dataclass(frozen=True)
class Limits:
    """What one confined process may use.

    Fields
    ------
    memory : int
        Bytes of its addresses. NumPy takes a quarter of this, Numba's compiler half.
    seconds : int
        Of processor time, over all tasks of a notebook.
    file_bytes : int
        Of one file that it writes.
    processes : bool
        Whether it may start others.
    """

    memory: int = 2 * 2**30
    seconds: int = 60
    file_bytes: int = 2**20
    processes: bool = False


ENVIRONMENT = {
    "HOME": "/tmp/home",
    "TMPDIR": "/tmp",
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    "PYTHONUTF8": "1",
    "PYTHONSAFEPATH": "1",
    "MPLBACKEND": "Agg",
    "NUMBA_CACHE_DIR": "/tmp/home/numba",
    **{f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "OMP", "MKL", "NUMBA")},
}


def environment() -> dict[str, str]:
    """Return all the variables that a confined process has."""
    compiled = {"PYTHONPYCACHEPREFIX": sys.pycache_prefix} if sys.pycache_prefix else {}
    return ENVIRONMENT | compiled


@functools.cache
def available() -> str:
    """Return the confinement that works here, found out by trying; empty if none does."""
    for method in (BUBBLEWRAP, NAMESPACES):
        try:
            probe = command(method, Path(tempfile.gettempdir()), ["-c", "print(6 * 7)"])
            done = subprocess.run(
                probe, capture_output=True, timeout=30, check=False, env=outside()
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.stdout.strip() == b"42":
            return method
    return ""


def start(method: str, limits: Limits, numba: bool) -> subprocess.Popen:
    """Start a worker; its stdin and stdout carry the frames of `wire`.

    Parameters
    ----------
    method : str
        What `available` returned, or `UNCONFINED`.
    limits : Limits
    numba : bool
        Whether the code needs Numba. Without it the course's functions run their definitions,
        which are as right and need not be compiled.
    """
    settings = asdict(limits) | {"numba": numba, "course": str(LIB.parent), "folder": "/tmp/home"}
    if method != UNCONFINED:
        arguments = ["-s", "-B", f"{INSIDE}/worker.py", json.dumps(settings)]
        return _popen(command(method, files(), arguments), outside())
    home = tempfile.mkdtemp(prefix="grading-")
    settings["folder"] = home
    own = {"HOME": home, "TMPDIR": home, "NUMBA_CACHE_DIR": str(Path(home, "numba"))}
    variables = {**os.environ, **environment(), **own, "PATH": os.environ.get("PATH", "")}
    arguments = ["-s", "-B", str(files() / "worker.py"), json.dumps(settings)]
    process = _popen([sys.executable, *arguments], variables)
    process.home = home  # `end` takes it away
    return process


def outside() -> dict[str, str]:
    """Return the variables of what makes a confinement: a submission can read them in there."""
    places = [os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"]
    return {"PATH": os.pathsep.join(places), "LANG": "C.UTF-8"}


def _popen(command: list[str], environment: dict[str, str]) -> subprocess.Popen:
    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
    return subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=nowhere, env=environment, cwd=str(files()),
        start_new_session=True, bufsize=0 if os.name == "nt" else -1,
    )  # fmt: skip


def kill(process: subprocess.Popen) -> None:
    """End a worker and whatever it started."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, 9)
    process.kill()


def end(process: subprocess.Popen) -> None:
    """End a worker, wait for it, and take away what it left."""
    kill(process)
    with contextlib.suppress(OSError):
        process.stdin.close()  # `remote` reads the other one to its end, and closes it
    process.wait()
    if home := getattr(process, "home", None):
        shutil.rmtree(home, ignore_errors=True)


@functools.cache
def files() -> Path:
    """Return a folder that holds the worker's files and nothing else."""
    import atexit

    folder = Path(tempfile.mkdtemp(prefix="grading-worker-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for path in (LIB / "grading/worker.py", LIB / "grading/wire.py", LIB / "exercises/twins.py"):
        shutil.copy(path, folder)
    return folder


# --- What can be seen ----------------------------------------------------------------------------


def visible() -> list[Path]:
    """Return the folders that may be read: the interpreter, its packages, the system, `lib`."""
    places = [sys.prefix, sys.base_prefix, sys.base_exec_prefix, sysconfig.get_path("platlib")]
    places += ["/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", str(LIB)]
    places += [sys.pycache_prefix] if sys.pycache_prefix else []  # what is compiled already
    paths = sorted({Path(place) for place in places if Path(place).exists()})
    return [p for p in paths if not any(q in p.parents for q in paths)]


def hidden() -> list[Path]:
    """Return the folders among these that may not be read: keys, solutions, answers."""
    root = LIB.parent
    secret = [LIB / "exercises", LIB / "grading", root / "solutions", root / "tests"]
    if sys.pycache_prefix:
        secret += [Path(f"{sys.pycache_prefix}{path}") for path in secret]
    seen = visible()
    return [
        path for path in secret if path.is_dir() and any(place in path.parents for place in seen)
    ]


def command(method: str, inside: Path, arguments: list[str]) -> list[str]:
    """Return the command line that runs this Python in a confinement.

    Parameters
    ----------
    method : str
    inside : Path
        A folder to be seen as `INSIDE`.
    arguments : list of str
        For Python.
    """
    make = {BUBBLEWRAP: _bubblewrap, NAMESPACES: _namespaces}[method]
    return make(inside, [sys.executable, *arguments])


def _bubblewrap(inside: Path, program: list[str]) -> list[str]:
    line = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--clearenv"]
    line += ["--uid", "1000", "--gid", "1000", "--hostname", "grading"]
    # First of all, since the course itself may lie in the system's folder for temporary files.
    line += ["--size", str(ROOM), "--tmpfs", "/tmp", "--dir", "/tmp/home"]
    for path in visible():
        line += ["--ro-bind", str(path), str(path)]
    for path in hidden():
        line += ["--tmpfs", str(path), "--remount-ro", str(path)]
    line += ["--ro-bind", str(inside), INSIDE, "--proc", "/proc", "--dev", "/dev"]
    line += ["--ro-bind", "/proc/sys", "/proc/sys"]  # root could write there
    line += ["--size", "4096", "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
    line += ["--remount-ro", "/"]
    for name, value in environment().items():
        line += ["--setenv", name, value]
    return [*line, "--chdir", "/tmp/home", "--", *program]


def _namespaces(inside: Path, program: list[str]) -> list[str]:
    """Do by hand what bubblewrap does: a new root of what may be seen, and no rights in it."""
    new = _place_for_root(inside)
    q = shlex.quote
    script = ["set -e", f"mount -t tmpfs -o mode=755 tmpfs {new}", f"mkdir {new}/tmp"]
    script += [f"mount -t tmpfs -o size={ROOM} tmpfs {new}/tmp", f"mkdir {new}/tmp/home"]
    for path, place in [*((p, p) for p in visible()), (inside, Path(INSIDE))]:
        at = q(f"{new}{place}")
        made = f"mkdir -p {at}" if path.is_dir() else f'mkdir -p "$(dirname {at})"; touch {at}'
        script += [made, f"mount --rbind {q(str(path))} {at}"]
        script += [f"mount -o remount,bind,ro,nosuid,nodev {at}"]
    for path in hidden():
        script.append(f"mount -t tmpfs -o ro,size=4k tmpfs {q(f'{new}{path}')}")
    script += [f"mkdir -p {new}/proc {new}/dev", f"mount -t proc proc {new}/proc"]
    script += [f"mount --bind {new}/proc/sys {new}/proc/sys"]  # root could write there
    script += [f"mount -o remount,bind,ro {new}/proc/sys"]
    for name in ("null", "zero", "urandom", "random"):
        script += [f"touch {new}/dev/{name}", f"mount --bind /dev/{name} {new}/dev/{name}"]
    script += [f"mount -o remount,bind,ro {new}", f"cd {new}", "pivot_root . .", "umount -l ."]
    variables = " ".join(f"{name}={q(value)}" for name, value in environment().items())
    drop = "setpriv --bounding-set=-all --inh-caps=-all --no-new-privs"
    # The shell stays process 1, which no signal of its own ends and whose end ends all others:
    # code that kills itself has to die, and may not outlive what started this.
    script += ["cd /tmp/home", f"env -i {variables} {drop} {shlex.join(program)}; exit $?"]
    # `setpriv` lets it end with the grader, whatever ends that.
    line = [
        "setpriv",
        "--pdeathsig",
        "KILL",
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
    ]
    return [*line, "--net", "--ipc", "--uts", "sh", "-c", "\n".join(script)]


def _place_for_root(inside: Path) -> str:
    """Return a folder to mount the new root on: one that hides nothing which is needed."""
    needed = [inside, *visible()]
    places = [Path(name) for name in ("/mnt", "/media", "/srv", "/opt", "/home")]
    free = [p for p in places if p.is_dir() and not any(p in n.parents for n in needed)]
    return str(free[0]) if free else "/mnt"
