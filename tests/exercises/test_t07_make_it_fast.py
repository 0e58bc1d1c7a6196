"""Exercise 07: kernels judged by values and by counted work; and the counting itself."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from lib import attention
from lib.errors import CourseError
from lib.exercises import Unanswered, Wrong, check, counting
from lib.exercises import t07_make_it_fast as t07
from lib.exercises.counting import Number, Tally, counted, operations
from lib.exercises.judging import tasks_of
from lib.exercises.twins import twin
from lib.jit import kernel, source_of
from tests.exercises.wrong.t07 import ALSO_RIGHT, RIGHT

SAID = {
    "07.attend": "Right values, with 126 multiply-adds and 9 exponentials on 9 keys",
    "07.causal": "Right values, with 273 multiply-adds and 21 exponentials on 6 tokens",
    "07.multiply_adds": "It holds at one token of width 1; the width; the left context; both.",
    "07.bytes": "It holds at one key and one value; the keys and values seen; the width;",
    "07.bound": "What does little with each byte waits for the memory;",
    "07.online": "Right values, with ",
}


@pytest.mark.parametrize("name", tasks_of("07"))
def test_right_answers_pass(name, capsys):
    check(name, RIGHT[name])
    assert capsys.readouterr().out.startswith(f"{name}: right. {SAID[name]}")
    for answer in ALSO_RIGHT[name]:
        check(name, answer)


def test_an_empty_kernel_is_unanswered():
    @kernel
    def attend_one(q, K, V, weights, out):
        """Attend."""
        ...

    with pytest.raises(Unanswered, match="attend_one writes nothing into out yet"):
        check("07.attend", attend_one)


def test_where_numba_is_missing_a_plain_loop_is_enough(monkeypatch, capsys):
    monkeypatch.setattr("lib.exercises.work.NUMBA", False)
    check("07.attend", source_of(RIGHT["07.attend"]))
    said = capsys.readouterr().out
    assert said.startswith("07.attend: right.")
    assert said.endswith("Numba is not here, so it was not compiled.\n")


def test_where_nothing_is_compiled_a_kernel_is_a_plain_loop_and_right(monkeypatch, capsys):
    # As with NUMBA_DISABLE_JIT=1: @kernel returns the function itself.
    plain = source_of(attention._attend)
    monkeypatch.setattr("lib.exercises.work.attention", SimpleNamespace(_attend=plain))
    check("07.attend", source_of(RIGHT["07.attend"]))
    assert "07.attend: right." in capsys.readouterr().out


def test_where_kernels_compile_a_plain_loop_is_not_enough(compiled):
    with pytest.raises(Wrong, match="but it is plain Python. Put @kernel on a line of its own"):
        check("07.attend", source_of(RIGHT["07.attend"]))


def test_the_counts_on_paper_are_those_of_the_formulas():
    for n, d in [(1, 1), (3, 2), (7, 4)]:
        assert t07.multiply_adds(n, d) == n * (n + 1) * d
        assert t07.bytes_of_query(n, d, 2) == 4 * n * d


def test_the_bounds_are_far_from_the_ridge():
    for case in t07.CASES:
        slow, fast = sorted(case.seconds.values(), reverse=True)
        assert slow > 2 * fast
    assert "".join(case.bound for case in t07.CASES) == "MMAMAA"
    assert t07.CASES[0].bytes == 2 * 4096 * 64 * 4


def test_the_cases_of_the_bound_are_counted():
    W_1 = 576 * 1536
    counted = [(case.multiply_adds, case.bytes) for case in t07._cases()]
    assert counted == [
        (2 * 4096 * 64, 2 * 4096 * 64 * 4),
        (W_1, 4 * W_1 + 4 * 576 + 4 * 1536),
        (4096 * 4097 // 2 * 2 * 64, 4 * 4096 * 64 * 4),
        (W_1, W_1 + 4 * 576 + 4 * 1536),
        (256 * W_1, 4 * W_1 + 256 * 4 * (576 + 1536)),
        (16 * W_1, W_1 + 16 * 4 * (576 + 1536)),
    ]
    assert [(case.multiply_adds, case.bytes) for case in t07.CASES] == counted


def test_what_attention_may_do_on_21_pairs():
    limits = t07._limits(21, 6, 7)
    assert [(limit.needed, limit.allowed) for limit in limits] == [
        (273, 294),
        (21, 21),
        (21, 42),
        (42, 126),
        (42, 84),
    ]
    tally = counted(attention._attend_causal, dict(zip(
        ("Q", "K", "V", "weights", "out"),
        (*t07.CAUSAL.inputs, np.ones((6, 6)), np.ones((6, 7))), strict=True)))  # fmt: skip
    for limit, kept in zip(limits, t07.CAUSAL.limits, strict=True):
        assert (limit.needed, limit.allowed) == (kept.needed, kept.allowed)
        assert limit.measure(tally) <= limit.allowed


def test_what_a_kernel_gets_is_float32():
    assert t07.array([1, 2.5]).dtype == t07.numbers(1, 2, 3).dtype == np.float32
    np.testing.assert_array_equal(t07.array([1, 2.5], [3, 4]), [[1, 2.5], [3, 4]])
    assert t07.numbers(1, 2, 3).shape == (2, 3)


# --- Counting ------------------------------------------------------------------------------------


def dot(a, b):
    total = 0.0
    for c in range(len(a)):
        total += a[c] * b[c]
    return total


def test_a_dot_product_is_as_many_multiply_adds_as_it_is_long():
    assert operations(dot, a=np.ones(5), b=np.ones(5)) == {"multiply-adds": 5, "reads": 10}


def test_kernels_of_the_course_are_counted_with_the_kernels_that_they_call():
    n, d, d_v = 5, 3, 2
    arrays = {"q": (d,), "K": (n, d), "V": (n, d_v), "weights": (n,), "out": (d_v,)}
    done = operations(attention._attend, **{k: np.ones(s) for k, s in arrays.items()})
    assert done["multiply-adds"] == n * (d + d_v)
    assert done["exponentials"] == n
    assert done["multiplications"] == n  # the scale
    assert done["divisions"] == n + 1  # by the sum, and 1 / √d
    assert done["comparisons"] == n


def numbers(*values):
    tally = Tally()
    return tally, *(Number(value, tally) for value in values)


def test_a_product_is_added_once():
    tally, a, b = numbers(2, 3)
    product = a * b
    assert (product + 1).value == 7
    assert (product - 1).value == 5  # the product is there already: this one only subtracts
    assert tally.done == {"multiplications": 0, "multiply-adds": 1, "additions": 1}


def test_two_products_added_are_one_product_and_one_multiply_add():
    tally, a, b = numbers(2, 3)
    assert (a * b + b * b).value == 15
    assert tally.done == {"multiplications": 1, "multiply-adds": 1}


def test_signs_sizes_and_truth_cost_nothing():
    tally, a, b = numbers(2, -3)
    product = a * b
    assert ((-product).value, (+b).value, abs(b).value) == (6, -3, 3)
    assert (bool(a), bool(a - a)) == (True, False)
    assert repr(b) == "-3"
    assert tally.done == {"multiplications": 1, "additions": 1}
    # The product went into its negative, which one multiply-add may use up.
    assert (a - -(a * b)).value == -4
    assert tally.done["multiply-adds"] == 1
    assert (product + 1).value == -5
    assert tally.done["additions"] == 2


@pytest.mark.parametrize(
    ("work", "value", "operation"),
    [
        (lambda x: 1 - x, -3, "additions"),
        (lambda x: np.float32(2) * x, 8, "multiplications"),
        (lambda x: 2 / x, 0.5, "divisions"),
        (lambda x: x**2, 16, "multiplications"),
        (lambda x: x**0.5, 2, "exponentials"),
        (lambda x: math.e**x, math.exp(4), "exponentials"),
        (lambda x: 1 / (x - x), math.inf, "divisions"),
    ],
)
def test_each_operation_has_its_value_and_its_name(work, value, operation):
    tally, x = numbers(4)
    assert work(x).value == pytest.approx(value)
    assert tally.done[operation] == 1


def test_comparisons_are_counted():
    tally, x, y = numbers(4, 2)
    assert max(x, y, 3) is x
    assert x > y
    assert x != y
    assert tally.done == {"comparisons": 4}


def mathematics(x, out):
    out[0] = math.exp(x[0]) + np.exp(x[1])
    out[1] = np.sqrt(x[1]) * float(x[0])
    own = np.zeros((2, 3), dtype=np.float32)
    own[1, :] = x[0]
    out[2] = own[1, 2]
    out[3:] = own[1, :2]


def test_mathematics_own_arrays_and_parts():
    tally = Tally()
    x, out = (counting.counting(k, np.arange(1, 6.0), tally) for k in ("x", "out"))
    twin(mathematics, counting.tools(tally))(x, out)
    right = [math.e + math.exp(2), math.sqrt(2), 1, 1, 1]
    assert out.values.tolist() == pytest.approx(right)
    assert (tally.done["exponentials"], tally.done["square roots"]) == (2, 1)
    assert [place for name, place in tally.reads if name == "x"] == [0, 1, 1, 0, 0]


def test_parts_are_put_into_parts_of_the_same_shape():
    tally = Tally()
    a = counting.counting("a", np.arange(6.0).reshape(2, 3), tally)
    b = counting.counting("b", np.zeros((3, 2)), tally)
    b[:, 1] = a[1]
    assert b.values.tolist() == [0, 3, 0, 4, 0, 5]
    with pytest.raises(ValueError, match=r"cannot put shape \(3,\) into shape \(2,\)"):
        b[0] = a[1]
    b.fill(2.0)
    assert b.values.tolist() == [2.0] * 6
    assert (len(a), a.shape, a.size, a.ndim) == (2, (2, 3), 6, 2)


def test_reads_keep_their_places_through_views_and_transposes():
    def corner(K):
        return K.T[1][2]

    assert counted(corner, {"K": np.zeros((4, 3))}).reads == [("K", 7)]


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (lambda a: np.dot(a, a), CourseError),
        (lambda a: np.exp(a), CourseError),
        (lambda a: a @ a, TypeError),
        (lambda a: a * 2, TypeError),
        (lambda a: a[9], IndexError),
    ],
)
def test_what_hides_a_loop_is_refused(function, error):
    with pytest.raises(error):
        counted(function, {"a": np.ones(3)})


def test_one_pass_names_the_key_that_was_read_too_early():
    tally = Tally()
    tally.reads = [("K", 0), ("V", 0), ("K", t07.D), ("K", 2 * t07.D), ("V", t07.D_V)]
    assert t07.one_pass(tally).startswith("It reads key 2 before it has used value 1")
    tally.reads[3:] = [("V", t07.D_V), ("K", 2 * t07.D)]
    assert t07.one_pass(tally) == ""


def factorial(n, out):
    out[0] = own(n)


def own(n):
    if n < 2:
        return 1.0
    return n * own(n - 1)


def test_a_function_that_calls_itself_has_one_twin():
    tally = Tally()
    out = counting.counting("out", np.zeros(1), tally)
    twin(factorial, counting.tools(tally))(Number(4.0, tally), out)
    assert out.values.tolist() == [24]
    assert tally.done["multiplications"] == 3


def arrays(out):
    parts = (np.zeros(2), np.empty((1, 2)), np.ones(2), np.full(2, 7.0))
    like = (np.zeros_like(out), np.empty_like(out))
    out[0] = parts[0][1] + parts[2][0] + parts[3][1]
    out[1] = like[0][1] + len(like[1]) + parts[1].shape[1]


def test_new_arrays_hold_what_they_say():
    tally = Tally()
    out = counting.counting("out", np.full(2, 5.0), tally)
    assert out.dtype == np.float32
    twin(arrays, counting.tools(tally))(out)
    assert out.values.tolist() == [0 + 1 + 7, 0 + 2 + 2]
    assert counting.number(tally).value == 0


def largest(x, out):
    out[0] = np.maximum(x[0], x[1]) + np.fmax(x[0], x[1])
    out[1] = np.minimum(x[0], x[1]) + np.fmin(x[0], x[1])
    out[2] = np.abs(x[0]) + np.fabs(x[0]) + np.absolute(x[0])
    out[3] = np.exp2(x[1]) + np.float32(x[1]) + np.float64(x[1])


def test_functions_of_single_numbers():
    tally = Tally()
    x, out = (counting.counting(k, v, tally) for k, v in
              (("x", np.array([-2.0, 3.0])), ("out", np.zeros(4))))  # fmt: skip
    twin(largest, counting.tools(tally))(x, out)
    assert out.values.tolist() == [6, -4, 6, 14]
    assert tally.done["comparisons"] == 4
    assert tally.done["exponentials"] == 1


def test_what_is_no_array_is_given_as_it_is():
    assert counted(lambda n, out: out.fill(n), {"n": 3, "out": np.zeros(2)}).reads == []
    assert counting.counting("n", 3, Tally()) == 3
