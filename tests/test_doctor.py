"""The examination of an installation, also of crippled ones."""

import json
import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from lib import doctor, jit, notebooks
from lib.doctor import MISSING, NOTE, OK, Finding
from lib.engine import gguf
from lib.errors import CourseError, ModelError

NAMES = [
    "Python",
    "NumPy",
    "Numba",
    "Threads",
    "Kernel cache",
    "Processor",
    "Memory",
    "Packages",
    "JupyterLab",
    "Kernel",
    "Chapters",
    "Model",
]


def found(name):
    return next(finding for finding in doctor.examine() if finding.name == name)


def test_what_is_here_is_told():
    findings = {finding.name: finding for finding in doctor.examine()}
    assert list(findings) == NAMES
    assert findings["Python"] == Finding(
        "Python", OK, platform.python_version(), place=sys.executable
    )
    assert findings["NumPy"].value == version("numpy")
    assert findings["Numba"].value == version("numba")
    assert findings["JupyterLab"].value == version("jupyterlab")
    assert findings["Packages"].status == OK
    assert findings["Model"].status == OK
    assert findings["Model"].place == str(gguf.find_model())
    assert findings["Processor"].value.startswith(platform.machine())
    assert {finding.status for finding in findings.values()} <= {OK, NOTE, MISSING}
    assert all(finding.advice for finding in findings.values() if finding.status != OK)


def test_the_threading_layer_is_the_one_that_numba_takes():
    # In a process of its own: it runs a parallel kernel, and that settles the layer for good.
    code = (
        "import numba, numpy as np; from lib import doctor\n"
        "foretold = doctor._threading_layer(numba.config)\n"
        "numba.vectorize(['f8(f8)'], target='parallel')(lambda x: x + 1)(np.ones(9))\n"
        "print(foretold, numba.threading_layer())"
    )
    foretold, taken = run_python(code).split()
    assert foretold == taken


def test_an_unknown_threading_layer_is_noted(monkeypatch):
    class Config:
        THREADING_LAYER = "default"
        THREADING_LAYER_PRIORITY = ()

    monkeypatch.setattr(jit.numba, "config", Config)
    assert found("Threads").status == NOTE
    assert "NUMBA_THREADING_LAYER" in found("Threads").advice


def run_python(code):
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )
    return done.stdout


def test_without_numba_the_course_still_runs():
    code = (
        "import sys; sys.modules.update(numba=None, llvmlite=None, psutil=None)\n"
        "from lib.doctor import examine\n"
        "for f in examine(): print(f.name, f.status, f.value, f.advice, sep='|')"
    )
    rows = dict(line.split("|", 1) for line in run_python(code).splitlines())
    assert rows["Numba"].startswith("note|")
    assert "the course runs its NumPy definitions, slower" in rows["Numba"]
    for name in ("Threads", "Kernel cache", "Processor", "Memory"):
        assert rows[name].startswith("ok|"), rows[name]


def test_numba_not_installed(monkeypatch):
    monkeypatch.setattr(jit, "NUMBA", False)
    monkeypatch.setattr(doctor, "_version", lambda _: None)
    assert found("Numba").value == "not installed"
    assert "`pip install numba`" in found("Numba").advice
    assert found("Numba").status == NOTE


@pytest.mark.parametrize(
    ("name", "advice", "cripple"),
    [
        ("Python", "Python 99.1 or later", lambda m: m.setattr(doctor, "OLDEST_PYTHON", (99, 1))),
        ("NumPy", "`pip install numpy`", lambda m: m.setattr(doctor, "_version", lambda _: None)),
        (
            "JupyterLab",
            "`pip install jupyterlab`",
            lambda m: m.setattr(doctor, "_version", lambda _: None),
        ),
        (
            "Packages",
            "`pip install nothere`",
            lambda m: m.setattr(doctor, "PACKAGES", ("gguf", "nothere")),
        ),
        ("Chapters", "the one that holds `notebooks`", lambda m: fail(m, notebooks, "find_root")),
        ("Model", "get it with `pip", lambda m: fail(m, gguf, "find_model", "get it with `pip …`")),
    ],
)
def test_what_is_missing_stops_the_course_and_says_what_to_do(monkeypatch, name, advice, cripple):
    cripple(monkeypatch)
    finding = found(name)
    assert finding.status == MISSING
    assert advice in finding.advice
    assert not doctor.can_run([finding])
    # In a browser nothing can be installed; the chapters that need it are marked there.
    monkeypatch.setattr(sys, "platform", "emscripten")
    if name in ("Packages", "JupyterLab", "Model"):
        assert found(name).status == NOTE


def fail(monkeypatch, module, function, message="gone"):
    def raises(*_):
        raise (ModelError if module is gguf else CourseError)(message)

    monkeypatch.setattr(module, function, raises)


def test_a_cache_that_cannot_be_written_is_a_note_with_its_consequence(monkeypatch):
    assert found("Kernel cache").status == OK
    monkeypatch.setattr(jit, "cache_is_writable", lambda: False)
    finding = found("Kernel cache")
    assert (finding.status, finding.value) == (NOTE, "not writable")
    assert "compiled anew at each start" in finding.advice
    assert "NUMBA_CACHE_DIR" in finding.advice
    assert doctor.can_run([finding])


@pytest.mark.parametrize(("free", "status"), [(999_999_999, NOTE), (1_000_000_000, OK)])
def test_memory(monkeypatch, free, status):
    import psutil

    class Memory:
        available, total = free, 3_400_000_000

    monkeypatch.setattr(psutil, "virtual_memory", lambda: Memory)
    assert found("Memory").status == status
    assert found("Memory").value == "1.0 of 3.4 GB free"


@pytest.mark.parametrize(
    ("features", "shown"),
    [
        ({"avx2": True, "avx512f": True, "avx512vnni": True, "sse2": True}, "AVX-512 VNNI"),
        ({"neon": True, "avx2": False}, "NEON"),
        ({}, "no vectors"),
    ],
)
def test_vector_features(monkeypatch, features, shown):
    from llvmlite import binding

    monkeypatch.setattr(binding, "get_host_cpu_features", lambda: features)
    value = found("Processor").value
    assert value.endswith(shown)
    assert ("AVX2" in value) == bool(features.get("avx2"))


def test_the_report_is_a_markdown_table_without_paths():
    rows = doctor.report([Finding("a", NOTE, "1 | 2", "do `x`", "/some/place")]).splitlines()
    assert rows == [
        "| what | status | found | what to do |",
        "|---|---|---|---|",
        "| a | note | 1 \\| 2 | do `x` |",
    ]
    whole = doctor.report()
    assert [row.split(" | ")[0] for row in whole.splitlines()[2:]] == [f"| {n}" for n in NAMES]
    for place in (sys.prefix, str(Path(doctor.__file__).parent.parent), str(Path.home())):
        assert place not in whole


def test_a_kernel_of_another_python_is_told(tmp_path, monkeypatch):
    folder = tmp_path / "kernels" / "python3"
    folder.mkdir(parents=True)
    spec = {"argv": ["/opt/other/python", "-m", "x"], "display_name": "o", "language": "python"}
    (folder / "kernel.json").write_text(json.dumps(spec), encoding="utf-8")
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    found = doctor._kernel()
    assert (found.status, found.value) == (NOTE, "python3 is another Python")
    assert "/opt/other/python" in found.place
    assert str(folder) in found.place


@pytest.mark.usefixtures("compiled")
def test_a_compiler_that_is_switched_off_is_told(monkeypatch):
    from lib import jit

    monkeypatch.setattr(jit, "COMPILES", False)
    found = doctor._numba()
    assert found.status == NOTE
    assert "unset NUMBA_DISABLE_JIT" in found.advice
