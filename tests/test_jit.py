"""The one place that names Numba options."""

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


def test_files_whose_kernels_go_into_others_are_watched():
    home = Path(jit.__file__).parent
    floors = [*home.glob("*.py"), *(home / "engine").glob("*.py")]
    marks = ("@kernel", "@vector_kernel", "@elementwise", "overload(")
    with_kernels = {
        file.relative_to(home).with_suffix("").as_posix()
        for file in floors
        if any(mark in file.read_text(encoding="utf-8") for mark in marks)
    }
    assert with_kernels <= set(jit.SOURCES)
    assert {"attention", "engine/kernels"} <= with_kernels
