"""The one place that names Numba options."""

import errno
import importlib.util
import os
import pickle
import re
from pathlib import Path

import numpy as np
import pytest

from lib import jit
from lib.attention import _mix
from lib.ffn import _gelu


def test_nan_and_infinity_keep_their_meaning():
    assert not {"nnan", "ninf", "fast"} & jit.FLOAT_RULES

    @jit.kernel
    def special(x):
        return np.isnan(x), x == -np.inf

    assert special(np.float32(np.nan)) == (True, False)
    assert special(np.float32(-np.inf)) == (False, True)


def test_source_of_finds_the_python_behind_a_kernel():
    assert jit.source_of(_mix).__name__ == "_mix"
    assert jit.source_of(_gelu)(1.0) == np.float32(0.8413447460685429)
    assert jit.source_of(len) is len


@pytest.mark.usefixtures("compiled")
def test_a_kernel_divides_by_zero_as_numpy_does():
    @jit.kernel
    def ratio(a, b):
        return a / b

    assert ratio(1.0, 0.0) == np.inf


@jit.kernel
def exponentials(x, out):
    for j in range(len(x)):
        out[j] = jit.exp(x[j])


def test_exp_in_a_kernel():
    x = np.linspace(-87, 0, 100_003, dtype=np.float32)
    got, right = np.empty_like(x), np.exp(x.astype(np.float64))
    exponentials(x, got)
    # Three roundings; where the processor has no fused multiply-add, also one of k ln 2 ≈ x.
    eps = np.finfo(np.float32).eps
    assert (abs(got - right) <= eps * (3 + abs(x) / 2) * right).all()
    assert got[-1] == 1.0


@pytest.mark.usefixtures("compiled")
def test_exp_where_the_power_is_no_normal_number():
    x = np.float32([-88, -200, -3.4e38, -np.inf, np.nan])
    got = np.empty_like(x)
    exponentials(x, got)
    np.testing.assert_array_equal(got, [0, 0, 0, np.nan, np.nan])
    assert not np.signbit(got[:3]).any()


def test_exp_by_itself_is_numpy_s():
    assert jit.exp(-1.0) == np.exp(-1.0)


MARKS = ("@kernel", "@vector_kernel", "@elementwise", "overload(", "lower_builtin(")


def test_all_that_goes_into_kernels_of_other_files_is_watched():
    home = Path(jit.__file__).parent
    for file in [*home.glob("*.py"), *(home / "engine").glob("*.py")]:
        text = file.read_text(encoding="utf-8")
        if any(mark in text for mark in MARKS):
            assert file.relative_to(home).with_suffix("").as_posix() in jit.SOURCES
            for module, names in re.findall(
                r"^from lib\.(\S+) import (\(.*?\)|.*?$)", text, re.M | re.S
            ):
                if re.search(r"\b[A-Z][A-Z_0-9]+\b", names):  # a constant is compiled in
                    assert module.replace(".", "/") in [*jit.SOURCES, "errors"]


TOY = """
from lib.jit import kernel
@kernel
def double(x):
    return 2 * x
"""


@pytest.fixture
def toy(tmp_path, monkeypatch, compiled):
    """Load a file with one kernel, each time as a new start of Python would."""
    monkeypatch.setattr(jit.numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    file = tmp_path / "toy.py"
    file.write_text(TOY, encoding="utf-8")

    def start():
        jit._digest.cache_clear()
        jit._say_once.cache_clear()
        spec = importlib.util.spec_from_file_location("toy", file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.double

    start.file, start.kept = file, lambda end: next((tmp_path / "cache").rglob(f"*.{end}"))
    return start


def compiles(kernel):
    assert kernel(21) == 42
    return not kernel.stats.cache_hits


def test_a_new_time_compiles_nothing_and_an_edit_does(toy):
    assert not jit.is_kept(toy())
    assert compiles(toy())
    os.utime(toy.file, (1, 1))
    assert jit.is_kept(toy())
    assert not compiles(toy())
    toy.file.write_text(TOY.replace("2 * x", "x + x"), encoding="utf-8")
    assert not jit.is_kept(toy())
    assert compiles(toy())


def test_a_constant_of_another_file_compiles_anew(toy, tmp_path, monkeypatch):
    source = tmp_path / "constants.py"
    monkeypatch.setattr(jit, "_source_files", lambda: [source])
    source.write_text("BLOCK = 32", encoding="utf-8")
    assert compiles(toy())
    assert not compiles(toy())
    source.write_text("BLOCK = 64", encoding="utf-8")
    assert compiles(toy())


class Gone:
    """A class that the next start does not find."""


DAMAGE = {
    "empty": lambda raw: b"",
    "cut in the middle": lambda raw: raw[: len(raw) // 2],
    "a changed byte": lambda raw: raw[:-300] + bytes([raw[-300] ^ 255]) + raw[-299:],
    "other things": lambda raw: pickle.dumps(jit.numba.__version__) + pickle.dumps(7),
    "a class that moved": lambda raw: pickle.dumps(Gone()).replace(b"Gone", b"Went"),
    "text": lambda raw: b"<html>quota exceeded</html>",
}


@pytest.mark.parametrize("end", ["nbi", "nbc"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_cache_is_made_anew(toy, end, damage):
    assert compiles(toy())
    file = toy.kept(end)
    file.write_bytes(DAMAGE[damage](file.read_bytes()))
    if end == "nbi":
        assert not jit.is_kept(toy())
    kernel = toy()
    with pytest.warns(UserWarning, match="could not be read; it is compiled anew"):
        assert compiles(kernel)
    assert not compiles(toy())  # it is whole again


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EDQUOT, errno.EROFS])
def test_no_room_for_the_cache_is_said_once(toy, monkeypatch, code):
    kernel = toy()

    def full(path):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(kernel._cache._cache_file, "_open_for_write", full)
    with pytest.warns(UserWarning, match=rf"cannot be kept \({os.strerror(code)}\)") as said:
        assert [kernel(21), kernel(2.5)] == [42, 5.0]
    assert len(said) == 1
