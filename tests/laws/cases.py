"""What a law is tried on, and how.

Arrays are drawn as a few small facts (shape, seed, size, kind, form), from which NumPy makes the
numbers: a case that breaks a law can then be made smaller, and is quick to draw.
"""

import os
import warnings
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisWarning

from lib.errors import CourseError

VARIABLE, DEFAULT = "LAWS_EXAMPLES", 8
EXAMPLES = int(os.environ.get(VARIABLE, DEFAULT))
COMPILED = os.environ.get("NUMBA_DISABLE_JIT", "0") == "0"
in_float64 = pytest.mark.skipif(
    not COMPILED, reason="the mean is float64 in compiled code; in plain Python NumPy keeps float32"
)


class Given(NamedTuple):
    """An array as a caller passes it, and the float32 numbers that it stands for."""

    passed: object
    X: np.ndarray


def law(*strategies, share=1.0):
    """Try a test on drawn cases: the same ones each time, unless a longer run asks for others.

    `share` of the usual number of cases is for laws that take longer.
    """

    def decorate(test):
        chosen = settings(
            max_examples=max(1, round(EXAMPLES * share)),
            derandomize=VARIABLE not in os.environ,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        return chosen(given(*strategies)(test))

    return decorate


def catches(check, wrong, cases, most=400):
    """Tell whether a law fails for a wrong function within so many cases.

    A law that failed for another reason than what is wrong would prove nothing: the definition
    itself is tried in the same way.
    """

    @settings(
        max_examples=most,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
        report_multiple_bugs=False,
        verbosity=Verbosity.quiet,
    )
    @given(cases)
    def trial(case):
        with np.errstate(all="ignore"):
            check(wrong, case)

    try:
        with warnings.catch_warnings():  # some versions warn of a case that is long to print
            warnings.simplefilter("ignore", HypothesisWarning)
            trial()
    except AssertionError:
        return True
    return False


def answer(function, *arguments, **options):
    """Return what a function returns, or the words of its CourseError."""
    try:
        return function(*arguments, **options)
    except CourseError as error:
        return str(error)


def plainly(function):
    """Call a function without NumPy's warnings where kernels run as plain Python.

    A compiled kernel warns of nothing; the same lines in Python say when a number overflows.
    """
    if COMPILED:
        return function

    def quiet(*arguments, **options):
        with np.errstate(all="ignore"):
            return function(*arguments, **options)

    return quiet


def different(n, most=9):
    """Draw n sizes from 1 up, no two alike."""
    return st.lists(st.integers(1, most), min_size=n, max_size=n, unique=True)


# How an array with the same numbers may lie in memory.
FORMS = {
    "as it is": lambda X: X,
    "by columns": np.asfortranarray,
    "reversed": lambda X: X[::-1].copy()[::-1],
    "every second": lambda X: np.repeat(X, 2, axis=0)[::2],
    "a part": lambda X: np.pad(X, 1)[(slice(1, -1),) * X.ndim],
    "read-only": lambda X: np.frombuffer(X.tobytes(), X.dtype).reshape(X.shape),
    "big-endian": lambda X: X.astype(X.dtype.newbyteorder(">")),
    "a list": lambda X: X.tolist(),
}
KINDS = ["normal", "sparse", "few values", "all sizes"]
DTYPES = ["float32", "float32", "float64", "float16", "int8", "uint16", "int64"]


def made(shape, kind, exponent, seed):
    """Make float64 numbers of about the size 10^exponent."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal(shape)
    if kind == "sparse":
        X = X * (rng.random(shape) < 0.4)
    elif kind == "few values":
        X = rng.integers(-2, 3, shape) / 2.0
    elif kind == "all sizes":
        X = X * 10.0 ** rng.uniform(-10, 0, shape)
    return X * 10.0**exponent


def as_dtype(X, dtype):
    """Round to a type of NumPy, within its range."""
    if dtype.startswith("float"):
        limit = float(np.finfo(dtype).max)
        return np.clip(X, -limit, limit).astype(dtype)
    info = np.iinfo(dtype)
    return np.clip(np.rint(3 * X), max(info.min, -1000), min(info.max, 1000)).astype(dtype)


@st.composite
def numbers(draw, shape, least=-45, most=30, plain=False):
    """Draw a `Given` of a shape; numbers of size 1 in half the cases, else 10^least to 10^most.

    With `plain` it is always float32, as it is.
    """
    exponent = draw(st.one_of(st.just(0), st.integers(least, most)))
    X = made(shape, draw(st.sampled_from(KINDS)), exponent, draw(st.integers(0, 2**16)))
    dtype = "float32" if plain else draw(st.sampled_from(DTYPES))
    X = as_dtype(X, dtype)
    form = "as it is" if plain else draw(st.sampled_from(list(FORMS)))
    return Given(FORMS[form](X), X.astype(np.float32))
