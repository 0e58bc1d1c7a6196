"""Run answers in a confinement: no network, an empty home, the interpreter to read, nothing else.

The first of these that works is taken, which is found out by trying: `bubblewrap`; the system's
namespaces by `unshare`; where root grades, first each of the two with the privileges of nobody.

bubblewrap: https://github.com/containers/bubblewrap
"""

from __future__ import annotations

import functools
import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path

from lib.exercises.running import process
from lib.exercises.running.process import LIB, Limits, Process

BUBBLEWRAP, NAMESPACES, AS_NOBODY = "bubblewrap", "namespaces", ", as nobody"
NOBODY = 65534  # the number that Linux gives to whoever has none
INSIDE = "/grading"  # where the worker's files lie
HOME = "/tmp/home"
DISK = 16 * 2**20  # bytes of all files together that a submission may write


@dataclass(frozen=True)
class Confined:
    """Runs code in the confinement that works on this machine."""

    @property
    def name(self) -> str:
        """What is used here; empty if nothing works."""
        return available()

    def start(self, limits: Limits, numba: bool) -> Process:
        """Start a worker (see `lib.exercises.running.process.Runner`)."""
        arguments = process.worker_arguments(Path(INSIDE), limits, numba, HOME)
        return Process(command(available(), process.worker_files(), arguments), outside())


@functools.cache
def available() -> str:
    """Return the confinement that works here, found out by trying; empty if none does."""
    for method in methods():
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


def methods() -> list[str]:
    """Return what may work here, the safest first.

    Root drops to nobody after all is mounted: nobody could not reach an interpreter below /root,
    but may read it where it is mounted. As root itself in a namespace of users code would still
    own root's files, if only to read them.
    """
    own = [BUBBLEWRAP, NAMESPACES]
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    return [f"{method}{AS_NOBODY}" for method in own] * root + own


def outside() -> dict[str, str]:
    """Return the variables of what makes a confinement: a submission can read them in there."""
    places = [os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"]
    return {"PATH": os.pathsep.join(places), "LANG": "C.UTF-8"}


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
        One of `methods`.
    inside : Path
        A folder to be seen as `INSIDE`.
    arguments : list of str
        For Python.
    """
    tool = method.removesuffix(AS_NOBODY)
    make = {BUBBLEWRAP: _bubblewrap, NAMESPACES: _namespaces}[tool]
    return make(inside, [sys.executable, *arguments], tool != method)


def _without_rights(as_nobody: bool) -> list[str]:
    """Return what a program is run by so that it has no privileges, and can gain none."""
    user = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if as_nobody else []
    return ["setpriv", *user, "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]


def _bubblewrap(inside: Path, program: list[str], as_nobody: bool) -> list[str]:
    line = ["bwrap", "--die-with-parent", "--new-session", "--clearenv"]
    line += ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    line += ["--unshare-cgroup-try", "--hostname", "grading"]
    line += [] if as_nobody else ["--unshare-user-try", "--uid", "1000", "--gid", "1000"]
    # First of all, since the course itself may lie in the system's folder for temporary files.
    everybody = ["--perms", "1777"] * as_nobody  # may write there
    line += [*everybody, "--size", str(DISK), "--tmpfs", "/tmp", *everybody, "--dir", HOME]
    for path in visible():
        for parent in reversed(path.parents[:-1]):  # by itself it makes them for their owner alone
            line += ["--dir", str(parent)]
        line += ["--ro-bind", str(path), str(path)]
    for path in hidden():
        line += ["--tmpfs", str(path), "--remount-ro", str(path)]
    line += ["--ro-bind", str(inside), INSIDE, "--proc", "/proc", "--dev", "/dev"]
    line += ["--ro-bind", "/proc/sys", "/proc/sys"]  # root could write there
    line += ["--size", "4096", "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
    line += ["--remount-ro", "/"]
    for name, value in process.environment().items():
        line += ["--setenv", name, value]
    return [*line, "--chdir", HOME, "--", *_without_rights(True) * as_nobody, *program]


def _namespaces(inside: Path, program: list[str], as_nobody: bool) -> list[str]:
    """Do by hand what bubblewrap does: a new root of what may be seen, and no rights in it."""
    new = _place_for_root(inside)
    q = shlex.quote
    script = ["set -e; umask 022", f"mount -t tmpfs -o mode=755 tmpfs {new}", f"mkdir {new}/tmp"]
    script += [f"mount -t tmpfs -o size={DISK} tmpfs {new}/tmp", f"mkdir {new}{HOME}"]
    script += [f"chown {NOBODY}:{NOBODY} {new}{HOME}"] * as_nobody
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
    variables = [f"{name}={value}" for name, value in process.environment().items()]
    run = shlex.join(["env", "-i", *variables, *_without_rights(as_nobody), *program])
    # The shell stays process 1, which no signal of its own ends and whose end ends all others:
    # code that kills itself has to die, and may not outlive what started this.
    script += [f"cd {HOME}", f"{run}; exit $?"]
    # `setpriv` lets it end with the grader, whatever ends that.
    line = ["setpriv", "--pdeathsig", "KILL", "unshare"]
    line += [] if as_nobody else ["--user", "--map-root-user"]
    line += ["--mount", "--pid", "--fork", "--kill-child", "--net", "--ipc", "--uts"]
    return [*line, "sh", "-c", "\n".join(script)]


def _place_for_root(inside: Path) -> str:
    """Return a folder to mount the new root on: one that hides nothing which is needed."""
    needed = [inside, *visible()]
    places = [Path(name) for name in ("/mnt", "/media", "/srv", "/opt", "/home")]
    free = [p for p in places if p.is_dir() and not any(p in n.parents for n in needed)]
    return str(free[0]) if free else "/mnt"
