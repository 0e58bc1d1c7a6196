"""The engine as WebAssembly, under Pyodide in Node, gives the bits of the native one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lib.engine.gguf import find_model
from lib.errors import ModelError
from lib.wasm import build
from tests.site.conftest import node, pyodide  # noqa: F401, fixtures

sys.path.insert(0, str(Path(__file__).parents[1] / "engine"))
import contextlib

from tiny_models import ODD, write_tiny

HERE = Path(__file__).parent
SCRIPT = HERE / "say_bits.py"


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """Return a folder with lib/, the kernels in it, a tiny model and, where it is, the real one."""
    pytest.importorskip("ziglang", reason="the group `site` is not installed")
    folder = tmp_path_factory.mktemp("course")
    shutil.copytree(HERE.parents[1] / "lib", folder / "lib", ignore=shutil.ignore_patterns("__py*"))
    build.build(folder / "lib" / "wasm")
    write_tiny(folder / "tiny.gguf", ODD)
    with contextlib.suppress(ModelError):
        shutil.copy(find_model(), folder / "model.gguf")
    return folder


def lines(command, **options):
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, encoding="utf-8", **options
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


@pytest.mark.slow
def test_bits_and_words_are_those_of_the_native_engine(course, pyodide, node):  # noqa: F811
    plain = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", "PYTHONPATH": str(course)}
    native = lines([sys.executable, SCRIPT, course], env=os.environ | plain, timeout=400)
    browser = lines([node, HERE / "in_node.mjs", pyodide, SCRIPT, course], timeout=400)
    kept = [line for line in browser if not line.startswith("#")]
    assert kept == [line for line in native if not line.startswith("#")]
    assert len(kept) in (3, 13)
    print(*(line for line in [*native, *browser] if line.startswith("#")), sep="\n")
