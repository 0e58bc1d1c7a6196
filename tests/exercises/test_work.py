"""How a kernel is judged where it compiles, step by step, without compiling one."""

import dataclasses
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from lib.exercises import Unanswered, Wrong, work
from lib.exercises import t07_make_it_fast as t07
from lib.jit import source_of
from tests.exercises.wrong.t07 import RIGHT

attend = source_of(RIGHT["07.attend"])


@pytest.fixture(autouse=True)
def compiling(monkeypatch):
    monkeypatch.setattr(work, "_compiles", lambda: True)
    monkeypatch.setattr(work, "attention", SimpleNamespace(_attend=object()))  # no plain function


def judge(compiled):
    return t07.ATTEND.judge_parts(
        attend, lambda arguments: work.counted(attend, arguments), compiled
    )


def off_by(gap):
    """Return what stands for a compiled kernel: right, but for this gap in one number."""

    def compiled(q, K, V, weights, out):
        attend(q, K, V, weights, out)
        out[-1] += gap
        return True

    return compiled


def test_a_compiled_kernel_gives_what_its_source_gives():
    said = judge(off_by(0))
    assert said.startswith("Right values, with 126 multiply-adds and 9 exponentials on 9 keys")
    assert ("Numba is not here" in said) != work.NUMBA
    assert judge(off_by(0.9 * work.TOLERANCE)) == said


@pytest.mark.parametrize("gap", [1.2 * work.TOLERANCE, -1.0, np.nan])
def test_another_result_of_the_compiled_kernel_is_wrong(gap):
    with pytest.raises(Wrong, match="compiled, does not give what it gives as plain Python"):
        judge(off_by(gap))


def test_the_gap_is_relative_to_the_largest_number():
    large = dataclasses.replace(
        t07.ATTEND, inputs=(*t07.ATTEND.inputs[:2], 100 * t07.ATTEND.inputs[2])
    )
    most = np.abs(t07.reference.attend(*large.inputs)).max()
    assert most > 10
    large._judge_compiled(off_by(0.9 * most * work.TOLERANCE))
    with pytest.raises(Wrong, match="compiled, does not give"):
        large._judge_compiled(off_by(1.2 * most * work.TOLERANCE))


def test_a_kernel_that_was_not_compiled_after_all_is_wrong():
    def only_called(*arguments):
        off_by(0)(*arguments)
        return False

    with pytest.raises(Wrong, match="compiled, does not give what it gives as plain Python"):
        judge(only_called)


def test_the_compiler_s_message_is_cut_to_the_lines_that_name_the_fault():
    def compiled(*arguments):
        raise TypeError(
            "Failed in nopython mode pipeline (step: nopython frontend)\n\n"
            "  Unknown attribute 'x'\nFile \"a.py\", line 3:\n    ^\n two\n three\n four"
        )

    with pytest.raises(Wrong) as refused:
        judge(compiled)
    assert str(refused.value) == (
        "attend_one runs as plain Python, but does not compile: Unknown attribute 'x' two three"
    )


def test_a_function_without_its_decorator_is_plain_python():
    with pytest.raises(Wrong, match="but it is plain Python"):
        t07.ATTEND.judge(attend)


def test_a_kernel_that_writes_elsewhere_has_not_answered():
    def attend_one(q, K, V, weights, out):
        weights[:] = 1.0

    with pytest.raises(Unanswered, match="attend_one writes nothing into out yet"):
        t07.ATTEND.judge(attend_one)


def test_a_warning_on_the_way_is_no_fault(recwarn):
    def attend_one(q, K, V, weights, out):
        warnings.warn("slow", stacklevel=1)
        attend(q, K, V, weights, out)

    with pytest.raises(Wrong, match="the right values with little work, but it is plain Python"):
        t07.ATTEND.judge(attend_one)
    assert not recwarn.list
