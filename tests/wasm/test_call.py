"""The words for types, and how arguments are laid flat, agree with Numba's own."""

import ctypes

import numpy as np
import pytest

from lib.wasm import call

numba = pytest.importorskip("numba")

from lib.engine import kernels, layout  # noqa: E402
from lib.wasm.build import _key  # noqa: E402

A = np.zeros((3, 4, 5), np.float32)
VALUES = [
    A,
    A[:, 1],
    A.T,
    np.zeros(3, np.int8),
    np.zeros(2, np.uint8),
    np.zeros((2, 2), np.int64),
    np.recarray(2, layout.LAYER),
    np.float32(1),
    np.float64(1),
    3,
    2.5,
    kernels.Store(A[0, 0], A[0, 0], 16, 16),
    (1, (A[0, 0], 2.0)),
]


@pytest.mark.parametrize("value", VALUES, ids=[call._word(value) for value in VALUES])
def test_a_type_has_the_same_word_for_a_value_and_for_numba(value):
    assert call.key_of([value]) == _key([numba.typeof(value)])


def test_arrays_are_five_words_then_shape_and_strides():
    part = A[1:, 2]  # (2, 5)
    kinds, words = zip(*call.flat(part, "f4:2A"), strict=True)
    assert words == (0, 0, 10, 4, part.ctypes.data, 2, 5, *part.strides)
    assert (
        kinds
        == (*(ctypes.c_void_p,) * 2, *(ctypes.c_int64,) * 2, ctypes.c_void_p)
        + (ctypes.c_int64,) * 4
    )


def test_a_tuple_is_its_parts():
    words = [word for _, word in call.flat((1, (2.5, np.float32(3))), "(i8 (f8 f4))")]
    kinds = [kind for kind, _ in call.flat((1, (2.5, np.float32(3))), "(i8 (f8 f4))")]
    assert words == [1, 2.5, 3]
    assert kinds == [ctypes.c_int64, ctypes.c_double, ctypes.c_float]


def test_the_convention_is_that_of_compiled_code():
    """A kernel's own address is called as the browser calls it, with arrays, numbers, a result."""

    @numba.njit
    def weigh(X, scale, pair, out):
        total = 0.0
        for i in range(X.shape[0]):
            out[i] = X[i, 1] * scale + pair.keys[i]
            total += out[i]
        return total

    X = np.arange(12, dtype=np.float32).reshape(4, 3)[::2]  # strides that are not the usual ones
    pair = kernels.Store(np.float32([10, 20]), np.float32([0]), 7, 8)
    out, right = np.zeros(2, np.float32), np.zeros(2, np.float32)
    arguments = X, 2.0, pair, out
    total = weigh(X, 2.0, pair, right)
    (signature,) = weigh.signatures
    compiled = weigh.overloads[signature]
    address = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)

    class Kernel:
        def __getitem__(self, symbol):
            class Function:
                argtypes = restype = None

                def __call__(self, *words):
                    return ctypes.CFUNCTYPE(self.restype, *self.argtypes)(address)(*words)

            return Function()

    found = call._call(Kernel(), "weigh", "f8", arguments)
    np.testing.assert_array_equal(out, right)
    assert found == total


def test_without_a_library_a_function_stays_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(call, "FOLDER", tmp_path)
    call.library.cache_clear()
    try:
        assert call.compiled(len) is len
    finally:
        call.library.cache_clear()
