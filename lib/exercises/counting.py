"""Count what a loop does: its source is run on numbers that keep count.

A number that counts remembers each multiplication, addition, comparison and exponential it takes
part in; an array of them remembers which of its elements were read, and in which order. So the work
of a kernel is known exactly, on any machine, and without a clock. A multiply-add is one operation:
a product that is added to something, as processors do it in one instruction.
"""

import operator
from collections import Counter
from functools import partial

import numpy as np

from lib.errors import CourseError
from lib.exercises.twins import Tools, twin
from lib.jit import source_of


class Tally:
    """What was done so far.

    Fields
    ------
    done : Counter
        Operations by name, such as ``"multiply-adds"``.
    reads : list of (str, int)
        For each element that was read: the name of the array, and the element's flat index.
    """

    def __init__(self):
        self.done = Counter()
        self.reads = []


class Number:
    """A float that keeps count. ``product`` tells that it has just come of a multiplication."""

    __array_ufunc__ = None  # NumPy's scalars leave the arithmetic to this class
    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __init__(self, value, tally, product=False):
        self.value, self.tally, self.product = float(value), tally, product

    def __add__(self, other):
        return self._sum(self.value + value_of(other), other)

    def __sub__(self, other):
        return self._sum(self.value - value_of(other), other)

    def __rsub__(self, other):
        return self._sum(value_of(other) - self.value, other)

    __radd__ = __add__

    def _sum(self, value, other):
        for operand in (self, other):
            if getattr(operand, "product", False):
                operand.product = False  # the product becomes part of a multiply-add, once
                self.tally.done["multiplications"] -= 1
                return self._made("multiply-adds", value)
        return self._made("additions", value)

    def __mul__(self, other):
        return self._made("multiplications", self.value * value_of(other), product=True)

    __rmul__ = __mul__

    def __truediv__(self, other):
        return self._made("divisions", _quotient(self.value, value_of(other)))

    def __rtruediv__(self, other):
        return self._made("divisions", _quotient(value_of(other), self.value))

    def __pow__(self, other):
        if other == 2:
            return self * self
        return self._made("exponentials", np.float64(self.value) ** value_of(other))

    def __rpow__(self, other):
        return self._made("exponentials", np.float64(value_of(other)) ** self.value)

    def __neg__(self):
        product, self.product = self.product, False
        return Number(-self.value, self.tally, product)  # a sign costs nothing

    def __pos__(self):
        return self

    def __abs__(self):
        return Number(abs(self.value), self.tally)

    def __bool__(self):
        return self.value != 0

    def _made(self, operation, value, product=False):
        self.tally.done[operation] += 1
        return Number(value, self.tally, product)

    def __repr__(self):
        return f"{self.value:g}"


def _compared(relation):
    def compare(self, other):
        self.tally.done["comparisons"] += 1
        return relation(self.value, value_of(other))

    return compare


for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Number, f"__{_name}__", _compared(getattr(operator, _name)))


def value_of(number):
    """Return the float behind a number that counts, or any other number as a float."""
    return number.value if type(number) is Number else float(number)


def _quotient(a, b):
    with np.errstate(all="ignore"):
        return np.float64(a) / np.float64(b)  # as in a kernel: a division by zero gives infinity


class Array:
    """An array of numbers that count. Parts of it are views, as in NumPy.

    Single elements can be read and written, parts can be taken and filled. Arithmetic on whole
    arrays is not there, since it hides the loop that is to be counted.
    """

    __array_ufunc__ = None

    def __init__(self, name, values, tally, places=None):
        self.name, self.values, self.tally = name, values, tally  # values is flat and shared
        self.places = np.arange(len(values)) if places is None else places
        self.shape, self.size, self.ndim = self.places.shape, self.places.size, self.places.ndim
        self.dtype = np.dtype(np.float32)

    @property
    def T(self):
        """The same elements, with the axes in reverse."""
        return Array(self.name, self.values, self.tally, self.places.T)

    def __len__(self):
        return len(self.places)

    def __getitem__(self, key):
        places = self.places[key]
        if places.ndim:
            return Array(self.name, self.values, self.tally, places)
        self.tally.reads.append((self.name, int(places)))
        return Number(self.values[places], self.tally)

    def __setitem__(self, key, value):
        places = self.places[key]
        if isinstance(value, Array):
            if value.shape != places.shape:
                raise ValueError(f"cannot put shape {value.shape} into shape {places.shape}")
            value = [value_of(value[k]) for k in np.ndindex(value.shape)]
            self.values[places.ravel()] = value
        else:
            self.values[places] = value_of(value)

    def fill(self, value):
        """Put one value into every element."""
        self[...] = value


def counted(function, arguments):
    """Run the source of a function on numbers that count, and return the tally.

    Parameters
    ----------
    function : kernel or function
        With plain loops over single numbers. Kernels and functions that it calls are counted too.
    arguments : dict
        In the order of the function's parameters: a name for each, and an array or a number.

    Returns
    -------
    Tally

    Raises
    ------
    CourseError
        The function does something that hides its loop: it calls NumPy on whole arrays, say.
    """
    tally = Tally()
    given = [counting(name, value, tally) for name, value in arguments.items()]
    twin(source_of(function), tools(tally))(*given)
    return tally


def operations(function, **arguments):
    """Return how often a function does what, as a dict of operation to count.

    ``arguments`` are arrays and numbers, in the order of the function's parameters.

    Raises
    ------
    CourseError
        As for `counted`.
    """
    tally = counted(function, arguments)
    tally.done["reads"] = len(tally.reads)
    return {name: tally.done[name] for name in NAMES if tally.done[name]}


NAMES = (
    "multiply-adds",
    "multiplications",
    "additions",
    "divisions",
    "comparisons",
    "exponentials",
    "square roots",
    "reads",
)


def counting(name, value, tally):
    """Return an array as one that counts; anything else as it is."""
    if not isinstance(value, np.ndarray):
        return value
    places = np.arange(value.size).reshape(value.shape)
    return Array(name, value.astype(np.float64).ravel(), tally, places)


# --- What a twin works with ----------------------------------------------------------------------

FUNCTIONS = {
    "exp": (np.exp, "exponentials"),
    "exp2": (np.exp2, "exponentials"),
    "sqrt": (np.sqrt, "square roots"),
}


def tools(tally):
    """Return what a function's twin works with, so that it counts into a tally."""
    return Tools(partial(number, tally), partial(apply, tally), partial(new, tally))


def number(tally, value=0.0):
    """Return a number that counts."""
    return value if type(value) is Number else Number(value, tally)


def apply(tally, name, x):
    """Return a function of one number; ``name`` is a key of `FUNCTIONS`."""
    ufunc, operation = FUNCTIONS[name]
    if isinstance(x, Array):
        raise CourseError(f"{ufunc.__name__} of a whole array hides a loop")
    tally.done[operation] += 1
    with np.errstate(all="ignore"):
        return Number(ufunc(value_of(x)), tally)


def new(tally, shape, value):
    """Return a new array that counts."""
    shape = tuple(shape) if isinstance(shape, tuple | list) else (int(shape),)
    return counting("its own array", np.full(shape, value_of(value), np.float64), tally)
