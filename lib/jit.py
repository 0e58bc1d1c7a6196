"""How the course compiles: the one place that names a Numba option.

Numba turns a plain Python loop over arrays into machine code at its first call. Where Numba is
missing (Python in a browser) the decorators leave a function as it is, `NUMBA` is False, and the
public functions of the core run the definitions of `lib.reference` instead.
"""

import functools
import hashlib
import inspect
import math
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from lib.wasm.call import compiled

numba: Any  # a module, or None
try:
    import numba
    import numba.extending
except (ImportError, OSError):  # missing, or not fit for this NumPy or this system
    numba = None

NUMBA = numba is not None
TARGET = None  # "wasm32" where `lib.wasm.build` compiles for a browser
COMPILES = NUMBA and not numba.config.DISABLE_JIT  # which NUMBA_DISABLE_JIT=1 sets

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
        return compiled(function)
    return _compile(numba.njit, function, error_model="numpy", fastmath=FLOAT_RULES)


def vector_kernel(function):
    """Compile a function that holds vectors of `lib.engine.simd`.

    It adds up in the order written, so that results don't depend on how the work is cut, and
    lets other Python threads run meanwhile.
    """
    if not NUMBA:
        return compiled(function)
    return _compile(numba.njit, function, error_model="numpy", nogil=True)


def elementwise(function):
    """Compile a function of one number into one that maps over arrays, as a NumPy ufunc does."""
    if not NUMBA:
        return function
    if not COMPILES:  # Numba heeds that for `njit` alone
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
    """Return the Python function behind a kernel or a contract, to be read or run plainly."""
    if isinstance(function, np.vectorize):
        return function.pyfunc
    dispatcher = getattr(function, "_dispatcher", function)
    return getattr(dispatcher, "py_func", None) or inspect.unwrap(function)


def is_kept(function):
    """Tell whether a kernel was compiled before and is kept on disk, or need not be compiled."""
    cache = _cache_of(function)
    if cache is None:
        return not COMPILES
    try:
        return bool(cache._cache_file._load_index())
    except Exception:  # a damaged file: see `_forgive`
        return False


def cache_is_writable():
    """Tell whether kernels are kept on disk; otherwise each start of Python compiles anew."""
    return NUMBA and not _uncached


_uncached = []


def _compile(decorator, function, **options):
    try:
        made = decorator(cache=True, **options)(function)
    except (RuntimeError, OSError):  # Numba found no folder that it may write to
        _uncached.append(function.__name__)
        _say_once(
            "compiled kernels cannot be kept, since no folder for them can be written; "
            "NUMBA_CACHE_DIR may name one"
        )
        return decorator(**options)(function)
    cache = _cache_of(made)
    if cache is not None:
        _stamp_contents(cache)
        _forgive(cache)
    return made


def _cache_of(function):
    """Return what keeps a kernel on disk, if something does.

    Its attributes are not documented: where a version of Numba lacks them, kernels are kept as
    Numba itself does it.
    """
    dispatcher = getattr(function, "_dispatcher", function)
    cache = getattr(dispatcher, "_cache", None) or getattr(dispatcher, "cache", None)
    return cache if hasattr(getattr(cache, "_cache_file", None), "_source_stamp") else None


# Files whose code or constants go into kernels of other files.
SOURCES = ["jit", "contract", "attention", "ffn", "norm", "rope"]
SOURCES += [
    f"engine/{name}" for name in ("kernels", "layout", "processor", "quant", "simd", "simd_llvm")
]


def _stamp_contents(cache):
    """Let a kernel be compiled anew when what it was made of has changed, and only then.

    Numba looks at the time of the kernel's own file. A kernel has others compiled into it, and a
    checkout or a copy gives the same files new times.
    """
    file = Path(getattr(cache._impl.locator, "_py_file", ""))
    # A cell of a notebook has no file; Numba itself goes by what is in it.
    own = _digest(file) if file.is_file() else cache._cache_file._source_stamp
    cache._cache_file._source_stamp = (own, *(_digest(source) for source in _source_files()))


def _source_files():
    return [Path(__file__).parent / f"{name}.py" for name in SOURCES]


@functools.cache
def _digest(file):
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()


def _forgive(cache):
    """Compile where the cache fails: damaged or cut files, a full disk, another version's types.

    A checksum finds what was damaged in a kernel's machine code, which would end the process.
    """
    file, load, save = cache._cache_file, cache.load_overload, cache.save_overload

    def load_data(name):
        raw = Path(file._data_path(name)).read_bytes()
        if hashlib.sha256(raw[32:]).digest() != raw[:32]:
            raise ValueError("a kernel is damaged")
        return pickle.loads(raw[32:])

    def save_data(name, data):
        raw = file._dump(data)
        with file._open_for_write(file._data_path(name)) as out:
            out.write(hashlib.sha256(raw).digest() + raw)

    def load_overload(signature, context):
        try:
            return load(signature, context)
        except Exception:  # a damaged pickle may raise anything
            _say_once("a kernel that was kept on disk could not be read; it is compiled anew")
            return None

    def save_overload(signature, data):
        try:
            try:
                save(signature, data)
            except OSError:
                raise
            except Exception:  # the index is damaged: begin a new one
                cache.flush()
                save(signature, data)
        except OSError as error:
            why = error.strerror or error
            _say_once(
                f"compiled kernels cannot be kept ({why}), so each start of Python "
                "compiles them anew; NUMBA_CACHE_DIR may name another folder for them"
            )

    file._load_data, file._save_data = load_data, save_data
    cache.load_overload, cache.save_overload = load_overload, save_overload


@functools.cache
def _say_once(words):
    warnings.warn(words, stacklevel=2)
