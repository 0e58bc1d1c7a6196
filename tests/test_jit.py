"""The one place that names Numba options."""

import numpy as np

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


def test_a_kernel_divides_by_zero_as_numpy_does():
    @jit.kernel
    def ratio(a, b):
        return a / b

    assert ratio(1.0, 0.0) == np.inf
