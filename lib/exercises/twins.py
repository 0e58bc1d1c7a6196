"""The twin of a function: the same code, with other numbers and other mathematics.

It is how a loop is made to work on numbers that keep count. What the numbers are is not told here:
`lib.exercises.counting` makes them, and so does the process of `lib.exercises.running`.
"""

import builtins
import math
import types
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lib.errors import CourseError
from lib.jit import source_of


@dataclass(frozen=True)
class Tools:
    """What a twin works with.

    Fields
    ------
    number : callable
        ``number(value)`` returns a number that counts; one that does already is returned as it is.
    apply : callable
        ``apply(name, x)`` returns the function of this name, ``"exp"`` say, of one number.
    new : callable
        ``new(shape, value)`` returns an array that counts, filled with one value.
    """

    number: Callable
    apply: Callable
    new: Callable


def twin(function, tools, made=None):
    """Return the function with each name that it uses replaced by what counts.

    Parameters
    ----------
    function : function
        In plain Python.
    tools : Tools
    made : dict, optional
        The twins that exist already, by their functions.
    """
    made = {} if made is None else made
    if function in made:
        return made[function]
    code, known = function.__code__, function.__globals__
    names = {"float": tools.number, "__builtins__": builtins}
    closure = tuple(types.CellType() for _ in function.__closure__ or ())
    same = types.FunctionType(code, names, function.__name__, function.__defaults__, closure)
    made[function] = same  # before its names are looked up: it may call itself
    for name in _names_in(code):
        if name in known:
            names[name] = _replaced(known[name], tools, made)
    for cell, own in zip(closure, function.__closure__ or (), strict=True):
        cell.cell_contents = _replaced(own.cell_contents, tools, made)
    return same


def _names_in(code):
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]  # comprehensions
    return set(code.co_names).union(*map(_names_in, inner))


def _replaced(value, tools, made):
    if value is np or value is math:
        return _Mathematics(tools)
    if isinstance(value, np.ufunc) or getattr(value, "__module__", "") == "math" or value is float:
        return getattr(_Mathematics(tools), value.__name__)
    if value is np.float32 or value is np.float64:
        return tools.number
    source = source_of(value)
    return twin(source, tools, made) if isinstance(source, types.FunctionType) else value


class _Mathematics:
    """What stands in for `numpy` and `math`: functions of single numbers, and new arrays."""

    def __init__(self, tools):
        new = tools.new
        self.float32 = self.float64 = self.float = tools.number
        self.exp = lambda x: tools.apply("exp", x)
        self.exp2 = lambda x: tools.apply("exp2", x)
        self.sqrt = lambda x: tools.apply("sqrt", x)
        self.maximum = self.fmax = max
        self.minimum = self.fmin = min
        self.abs = self.fabs = self.absolute = abs
        self.empty = self.zeros = lambda shape, dtype=None: new(shape, 0.0)
        self.ones = lambda shape, dtype=None: new(shape, 1.0)
        self.full = lambda shape, value, dtype=None: new(shape, value)
        self.empty_like = self.zeros_like = lambda array, dtype=None: new(array.shape, 0.0)

    def __getattr__(self, name):
        value = getattr(np, name, None)
        if isinstance(value, float | int):  # inf, pi, e
            return value
        raise CourseError(f"{name} is not a function of single numbers that can be counted")
