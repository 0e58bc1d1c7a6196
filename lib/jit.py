"""How the course compiles: the one place that names a Numba option.

Numba turns a plain Python loop over arrays into machine code at its first call. Where Numba is
missing (Python in a browser) the decorators leave a function as it is, `NUMBA` is False, and the
public functions of the core run the definitions of `lib.reference` instead.
"""

try:
    import numba
except ImportError:
    numba = None

NUMBA = numba is not None

# What the compiler may assume about float arithmetic. Sums may be reordered ("reassoc") and
# products fused into them ("contract"): without that a dot product cannot use vector registers.
# NaN and infinity keep their meaning: "nnan" and "ninf", which full fastmath includes, would let
# the compiler drop the very tests that guard a softmax.
FLOAT_RULES = {"reassoc", "contract", "arcp", "nsz", "afn"}


def kernel(function):
    """Compile a function over arrays and scalars at its first call, and keep the result on disk."""
    if not NUMBA:
        return function
    return _compile(numba.njit, function, error_model="numpy", fastmath=FLOAT_RULES)


def elementwise(function):
    """Compile a function of one number into one that maps over arrays, as a NumPy ufunc does."""
    if not NUMBA:
        return function
    return _compile(numba.vectorize, function, nopython=True, fastmath=FLOAT_RULES)


def source_of(function):
    """Return the Python function behind a kernel, for those who want to read or run it plainly."""
    dispatcher = getattr(function, "_dispatcher", function)
    return getattr(dispatcher, "py_func", function)


def cache_is_writable():
    """Tell whether kernels are kept on disk; otherwise each start of Python compiles anew."""
    return NUMBA and not _uncached


_uncached = []


def _compile(decorator, function, **options):
    try:
        return decorator(cache=True, **options)(function)
    except RuntimeError:  # Numba found no folder that it may write to
        _uncached.append(function.__name__)
        return decorator(**options)(function)
