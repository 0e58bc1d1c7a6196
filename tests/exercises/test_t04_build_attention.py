"""Exercise 04, and how a built function is judged: right passes, each mistake gets its words."""

import numpy as np
import pytest

from lib import attention, reference
from lib.exercises import Malformed, NotRight, Unanswered, Wrong, building, check
from lib.exercises import t04_build_attention as t04
from lib.exercises.building import Building, Given, Rung, numbers, plain


def test_the_core_passes_too():
    check("04.attend", attention.attend)
    check("04.last_queries", attention.attend_causal)


# What was computed by hand for the rungs: the sentences of the messages say these numbers.
BY_HAND = [
    (t04.SCORES, 0, [2, 6, -4]),
    (t04.SCORES, 1, [1, 2, -3, 1]),
    (t04.SCORES, 2, [4, 2, -4]),
    (t04.SOFTMAX, 1, [1 / 8, 2 / 8, 5 / 8]),
    (t04.SOFTMAX, 3, [[1 / 8, 2 / 8, 5 / 8], [3 / 5, 1 / 5, 1 / 5]]),
    (t04.ATTEND, 0, [5, -7]),
    (t04.ATTEND, 1, [3, 4]),
    (t04.ATTEND, 2, [10, 20]),
    (t04.ATTEND, 3, [3, 7, 3]),
    (t04.CAUSAL_WEIGHTS, 3, [[1, 0, 0], [2 / 3, 1 / 3, 0], [4 / 14, 1 / 14, 9 / 14]]),
    (t04.CAUSAL_WEIGHTS, 6, [[1, 0], [0, 1]]),
    (t04.ATTEND_CAUSAL, 1, [1, 2]),
    (t04.ATTEND_CAUSAL, 2, [[6, 0], [3, 6], [3, 5]]),
    (t04.LAST_QUERIES, 1, [[3, 4]]),
    (t04.LAST_QUERIES, 2, [[2, 4], [4, 2]]),
]


@pytest.mark.parametrize(("built", "number", "expected"), BY_HAND)
def test_rungs_expect_what_one_computes_by_hand(built, number, expected):
    rung = built.rungs[number]
    found = rung.run(built.definition, *rung.arguments)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


# --- building.py ---

TWICE = Building(
    "twice",
    ("x", "f"),
    lambda x, f: f(2 * x),
    (
        Rung("the factor", "f is the identity.",
             (np.array([1.0, 2, 4]), Given("f(x) = x", lambda x: x))),
        Rung("the function", "f squares.", (numbers(0, 2, 2), Given("f(x) = x²", np.square))),
    ),
)  # fmt: skip


def message(judged, built=TWICE, kind=NotRight):
    with pytest.raises(kind) as caught:
        built.judge(judged)
    return str(caught.value)


def test_the_message_names_mechanism_input_expected_and_came():
    assert message(lambda x, f: f(3 * x), kind=Wrong).split("\n") == [
        "twice fails at the factor. f is the identity.",
        "    x = [1., 2., 4.]",
        "    f = f(x) = x",
        "    expected = [2., 4., 8.]",
        "    came = [ 3.,  6., 12.]",
        "Every number is 1.5 times what it should be.",
    ]


def test_the_message_says_what_held_before():
    lines = message(lambda x, f: 2 * x, kind=Wrong).split("\n")
    assert lines[:2] == ["twice fails at the function. f squares.", "Right so far: the factor."]


def test_a_right_function_is_told_what_holds():
    assert TWICE.judge(lambda x, f: f(x + x)) == "It holds at the factor; the function."


@pytest.mark.parametrize(
    ("came", "remark"),
    [
        ([2, np.nan, 8], "NaN comes of infinity divided by infinity"),
        ([2, np.inf, 8], "Infinity comes of a number that outgrew"),
        ([1, 3, 7], "Every number is off by -1."),
        ([4, 2, 8], "The numbers are right, but they are not in their places."),
        ([-2, -4, -8], "Every number is -1 times what it should be."),
    ],
)
def test_remarks_on_one_row(came, remark):
    assert remark in message(lambda x, f: np.array(came, float))


def test_a_remark_on_a_difference_too_small_to_see():
    line = "The largest difference is 5.0e-04: more than rounding explains."
    assert line in message(lambda x, f: f(2 * x) + np.array([0, 5e-4, 0]))


def test_a_remark_names_the_rows_that_differ():
    def second_row_wrong(x, f):
        out = f(2 * x)
        if out.ndim == 2:
            out[1, 0] += 1
        return out

    assert message(second_row_wrong).endswith("Only row 1 differs.")


def test_several_rows_that_differ_are_listed():
    want = np.arange(12.0).reshape(4, 3)
    got = want + np.array([[0, 0, 0], [0, 1, 0], [0, 0, 2], [0, 0, 0]])
    assert list(building._remarks(got, want)) == ["Only rows 1 and 2 differ."]
    every = np.array([[0, 0, 1], [0, 1, 0], [0, 0, 2], [3, 0, 0]])
    assert list(building._remarks(want + every, want)) == []
    assert list(building._remarks(got[1:2], want[1:2])) == []  # there is but one


@pytest.mark.parametrize(("gap", "size", "close"), [
    (0.9e-5, 0, True), (1.2e-5, 0, False), (1.2e-5, 0.5, False), (1.2e-5, 1.5, True),
])  # fmt: skip
def test_the_tolerance_is_relative_to_the_largest_and_to_one_at_least(gap, size, close):
    want = np.array([0.0, size])
    assert building._close(want + np.array([gap, 0]), want, building.TOLERANCE) is close


@pytest.mark.parametrize(("value", "line"), [
    (np.array([1 / 3, -1e-9, 2]), "    x = [0.333, 0.   , 2.   ]"),
    (np.arange(24.0), "    x = [ 0.,  1.,  2.,  3.,  4.,  5.,  6.,  7.,  8.,  9., 10., 11., 12., "
                      "13., 14., 15., 16.,\n         17., 18., 19., 20., 21., 22., 23.]"),
    (np.arange(25.0), "    x = [ 0.,  1., ..., 23., 24.]  shape (25,)"),
    (np.zeros((0, 2)), "    x = []  shape (0, 2)"),
    (np.array([1e5, 1e-3]), "    x = [100000.   ,      0.001]"),
    ([np.ones(2), 3.0], "    x = [[1., 1.], 3.]"),
    (0.25, "    x = 0.25"),
])  # fmt: skip
def test_arguments_are_shown_in_lines_that_fit(value, line):
    assert building._line("x = ", value) == line


def test_a_factor_needs_two_numbers_that_are_not_zero():
    want = np.array([0.0, 2, 4])
    assert building._ratio(want * 3, want) == 3
    assert building._ratio(np.array([0.0, 6]), np.array([0.0, 2])) is None
    assert building._ratio(want * 3 + np.eye(3)[0], want) is None
    assert building._ratio(want * 0, want) is None
    assert building._ratio(want * np.array([1, 3, 3.1]), want) is None


class AlwaysEqual:
    __array_priority__ = 1e9

    def __eq__(self, other):
        return True

    __hash__ = None

    def __array__(self, *args, **kwargs):
        raise AssertionError("nobody should ask")


class Sly(np.ndarray):
    def __sub__(self, other):
        return np.zeros(self.shape)


NOT_NUMBERS = [
    (AlwaysEqual(), "something of type AlwaysEqual"),
    (np.zeros(3).view(Sly), "an array of the class Sly"),
    (np.ma.array([2.0, 4, 8]), "an array of the class MaskedArray"),
    ([AlwaysEqual()], "something of type AlwaysEqual"),
    (np.array([None] * 3), "an array of dtype object"),
    (np.array([2, 4, 8 + 0j]), "complex numbers"),
    (2j, "something of type complex"),
    (np.array([True, False, True]), "an array of dtype bool"),
    (True, "something of type bool"),
    ("2 4 8", "something of type str"),
    (np.array(["2", "4", "8"]), "an array of dtype <U1"),
    ((x for x in (2.0, 4, 8)), "a generator, which holds no numbers yet"),
    (map(float, (2, 4, 8)), "a map, which holds no numbers yet"),
    ({"x": 2}, "something of type dict"),
    ([2.0, None, 8.0], "None in one place"),
    ([[1.0], [1.0, 2.0]], "a list whose rows differ in length"),
    (np.float16([2, 4, 8]), "float16"),
]


@pytest.mark.parametrize(("value", "words"), NOT_NUMBERS)
def test_what_is_not_numbers_gets_its_own_words(value, words):
    assert f"twice returns {words}" in message(lambda x, f: value, kind=Malformed)


@pytest.mark.parametrize("value", [None, ...])
def test_an_empty_body_is_unanswered(value):
    assert "twice returns nothing yet" in message(lambda x, f: value, kind=Unanswered)


@pytest.mark.parametrize(
    "value", [[2, 4, 8], (2.0, 4, 8), np.float32([2, 4, 8]), [np.float64(2), 4, np.int8(8)]]
)
def test_plain_numbers_in_any_wrapping_are_taken(value):
    found = plain(value)
    assert type(found) is np.ndarray
    assert found.dtype == np.float64
    assert found.tolist() == [2, 4, 8]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("f", "type str"),
        (np.zeros(3), "Hand it over by its name, without calling it"),
        (3.0, "Hand it over by its name, without calling it"),
        (int, f"should be {TWICE.form}; it is the class int."),
        (AlwaysEqual(), "type AlwaysEqual"),
    ],
)
def test_what_is_not_a_function_is_malformed(answer, words):
    assert TWICE.form == "a function twice(x, f), with your code as its body"
    assert words in message(answer, kind=Malformed)


def test_an_exception_is_told_with_its_input():
    def divides(x, f):
        raise ZeroDivisionError("by nothing")

    assert message(divides, kind=Wrong).split("\n") == [
        "twice raises ZeroDivisionError: by nothing. The input was:",
        "    x = [1., 2., 4.]",
        "    f = f(x) = x",
    ]


def test_exit_is_an_exception_like_others():
    def leaves(x, f):
        raise SystemExit(0)

    assert "twice raises SystemExit: 0" in message(leaves, kind=Wrong)


def test_a_student_cannot_raise_a_verdict():
    def verdict(x, f):
        raise Unanswered("fine")

    assert "twice raises Unanswered: fine" in message(verdict, kind=Wrong)


def test_a_warning_is_no_fault(recwarn):
    import warnings

    def warns(x, f):
        warnings.warn("slow", UserWarning, stacklevel=1)
        return f(2 * x)

    assert TWICE.judge(warns).startswith("It holds")
    assert not recwarn.list


def test_a_change_in_place_is_named_and_spoils_nothing():
    def in_place(x, f):
        x *= 2
        return f(x)

    assert "twice changes its argument x in place" in message(in_place, kind=Wrong)
    np.testing.assert_array_equal(TWICE.rungs[0].arguments[0], [1, 2, 4])


def test_several_results_are_asked_for_by_name():
    both = Building(
        "both", ("x",), lambda x: (x, x + 1), (Rung("it", "It.", (np.ones(2),)),), ("a", "b")
    )
    assert both.judge(lambda x: [x, x + 1]) == "It holds at it."
    assert "both should return 2 things, a, b" in message(lambda x: x, both, Malformed)
    assert "it returns a tuple of 3" in message(lambda x: (x, x, x), both, Malformed)
    assert "returns something of type str, where" in message(lambda x: (x, "x"), both, Malformed)
    assert " as b." in message(lambda x: (x, "x"), both, Malformed)
    assert "expected (b) = [2., 2.]" in message(lambda x: (x, x), both, Wrong)
    assert "b should have shape (2,); it has shape (1,)" in message(
        lambda x: (x, x[:1]), both, Wrong
    )


def test_the_tolerance_lets_float32_pass_and_not_the_tanh_of_gelu():
    x = np.array([2.7, -2.7])
    gap = np.abs(reference.gelu(x) - reference.gelu_tanh(x)).min()
    assert gap > 10 * Rung("", "", ()).tolerance * np.abs(reference.gelu(x)).max()
