"""How the course compiles: the one place that names a Numba option.

Numba turns a plain Python loop over arrays into machine code at its first call. Where Numba is
missing (Python in a browser) the decorators leave a function as it is, `NUMBA` is False, and the
public functions of the core run the definitions of `lib.reference` instead.
"""

import functools
import math
from pathlib import Path

import numpy as np

try:
    import numba
    import numba.extending
except ImportError:
    numba = None

NUMBA = numba is not None

# What the compiler may assume about float arithmetic. Sums may be reordered ("reassoc") and
# products fused into them ("contract"): without that a dot product cannot use vector registers.
# NaN and infinity keep their meaning: "nnan" and "ninf", which full fastmath includes, would let
# the compiler drop the very tests that guard a softmax.
FLOAT_RULES = {"reassoc", "contract", "arcp", "nsz", "afn"}


def _use_wide_registers():
    """Let LLVM use registers of 512 bits: where there are some it prefers halves of them.

    Has to come before anything is compiled.
    """
    from llvmlite import binding
    from numba.core.codegen import get_host_cpu_features

    if not binding.get_default_triple().startswith("x86_64"):
        return
    config = numba.config
    named = config.CPU_NAME not in (None, "", "host")
    features = config.CPU_FEATURES or ("" if named else get_host_cpu_features())
    if named or "+avx512vnni" in features.split(","):
        config.CPU_FEATURES = f"{features},-prefer-256-bit".lstrip(",")


if NUMBA:
    _use_wide_registers()


def kernel(function):
    """Compile a function over arrays and scalars at its first call, and keep the result on disk."""
    if not NUMBA:
        return function
    return _compile(numba.njit, function, error_model="numpy", fastmath=FLOAT_RULES)


def vector_kernel(function):
    """Compile a function that holds vectors of `lib.engine.simd`.

    It adds up in the order written, so that results don't depend on how the work is cut, and
    lets other Python threads run meanwhile.
    """
    if not NUMBA:
        return function
    return _compile(numba.njit, function, error_model="numpy", nogil=True)


def elementwise(function):
    """Compile a function of one number into one that maps over arrays, as a NumPy ufunc does."""
    if not NUMBA:
        return function
    if numba.config.DISABLE_JIT:  # which Numba heeds for `njit` alone
        return np.vectorize(function, otypes=[np.float32])
    return _compile(numba.vectorize, function, nopython=True, fastmath=FLOAT_RULES)


def exp(x):
    """Return e^x for one float32 number that is not above zero; e^−∞ is NaN in a kernel.

    The exponential of a library takes one number at a time. In a kernel this one is `_exp`, which
    the compiler can run on eight numbers or more at once.
    """
    return np.exp(x)


LOG2_E, LN_2 = np.float32(1 / math.log(2)), np.float32(math.log(2))


def _exp(x):
    """e^x = 2^k e^r, with r between ± ln 2 / 2 and e^r by its Taylor series.

    Its relative error is at most three roundings, and what one rounding of x would make.
    """
    if x < np.float32(-87.0):  # e^x is below the smallest normal number
        return np.float32(0.0 if x > -np.inf else np.nan)  # an infinite score has to show
    k = np.floor(x * LOG2_E + np.float32(0.5))
    r = x - k * LN_2
    power = np.float32(1.0)
    for i in range(7, 0, -1):
        power = np.float32(1.0) + r * power / np.float32(i)  # 1 + r/1 (1 + r/2 (1 + r/3 (…)))
    exponent = (np.int32(k) + 127) << 23  # of 2^k, where a float32 number keeps it
    return power * np.int32(exponent).view(np.float32)


if NUMBA:
    _options = {"error_model": "numpy", "fastmath": FLOAT_RULES}
    numba.extending.overload(exp, jit_options=_options)(lambda x: _exp)


def source_of(function):
    """Return the Python function behind a kernel, for those who want to read or run it plainly."""
    if isinstance(function, np.vectorize):
        return function.pyfunc
    dispatcher = getattr(function, "_dispatcher", function)
    return getattr(dispatcher, "py_func", function)


def is_kept(function):
    """Tell whether a kernel was compiled before and is kept on disk."""
    folder = getattr(getattr(function, "stats", None), "cache_path", None)
    if folder is None:  # nothing is kept, or nothing is compiled at all
        return not hasattr(function, "stats")
    return any(Path(folder).glob(f"*{source_of(function).__name__}-*.nbi"))


def cache_is_writable():
    """Tell whether kernels are kept on disk; otherwise each start of Python compiles anew."""
    return NUMBA and not _uncached


_uncached = []


def _compile(decorator, function, **options):
    try:
        made = decorator(cache=True, **options)(function)
    except RuntimeError:  # Numba found no folder that it may write to
        _uncached.append(function.__name__)
        return decorator(**options)(function)
    _watch_all_sources(made)
    return made


def _watch_all_sources(dispatcher):
    """Let a kernel be compiled anew when any file that kernels come from has changed.

    Numba looks at the kernel's own file alone, and a kernel has others compiled into it. The
    attributes are not documented: where a version lacks them, a kernel may be stale after an
    update until its `__pycache__` is deleted.
    """
    cache = getattr(dispatcher, "_cache", None) or getattr(dispatcher, "cache", None)
    index = getattr(cache, "_cache_file", None)
    if hasattr(index, "_source_stamp"):
        index._source_stamp = (index._source_stamp, _stamp_of_sources())


# Where kernels come from that are compiled into others.
SOURCES = [
    "jit",
    "attention",
    "ffn",
    "norm",
    "rope",
    "engine/simd",
    "engine/simd_llvm",
    "engine/kernels",
]


@functools.cache
def _stamp_of_sources():
    files = [Path(__file__).parent / f"{name}.py" for name in SOURCES]
    return tuple((file.name, file.stat().st_mtime, file.stat().st_size) for file in files)
