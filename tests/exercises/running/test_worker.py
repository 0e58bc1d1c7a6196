"""What the confined process does with what it is asked, without the confinement around it."""

import importlib.util
import os
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from lib.exercises import counting, twins
from lib.exercises.building import Given
from lib.exercises.running import remote, wire
from lib.layer import random_layer


@pytest.fixture(scope="module")
def worker():
    """The file as a module; beside it lie `wire` and `twins`, as in the confinement."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "wire", wire)
        patch.setitem(sys.modules, "twins", twins)
        place = importlib.util.find_spec("lib.exercises.running.worker").origin
        spec = importlib.util.spec_from_file_location("lib.exercises.running.worker", place)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module


def line():
    """Return the two ends of a pipe: to read from and to write to."""
    end, begin = os.pipe()
    return os.fdopen(end, "rb"), os.fdopen(begin, "wb")


@pytest.fixture
def session(worker):
    """A session with a worker that serves in a thread of this process."""
    to_worker, from_judge = (
        os.fdopen(end, mode) for end, mode in zip(os.pipe(), ("rb", "wb"), strict=True)
    )
    to_judge, from_worker = (
        os.fdopen(end, mode) for end, mode in zip(os.pipe(), ("rb", "wb"), strict=True)
    )

    def serve():
        with pytest.raises(EOFError):
            worker.Worker(to_worker, from_worker).serve()
        from_worker.close()

    thread = threading.Thread(target=serve)
    thread.start()
    yield remote.Session(SimpleNamespace(stdin=from_judge, stdout=to_judge, pid=os.getpid()))
    from_judge.close()
    thread.join()
    to_judge.close()
    to_worker.close()


def cell(session, source):
    return session.request("cell", source=source)


def test_a_cell_runs_to_its_end_and_tells_what_failed_first(session):
    said = cell(session, "a = 1\n1 / 0\nb = [][3]\nc = a + 1")
    assert said == {"raised": ["ZeroDivisionError", "division by zero"]}
    assert session.request("look", name="c") == {"value": 2}
    assert session.request("look", name="b") == {"missing": True}
    assert cell(session, "d = 4") == {}
    name, text = cell(session, "def (")["raised"]
    assert name == "SyntaxError"
    assert text


def test_an_exit_is_told_and_the_process_goes_on(session):
    assert cell(session, "raise SystemExit('bye')")["raised"] == ["SystemExit", "bye"]
    assert cell(session, "class E(Exception):\n  def __str__(self): 1 / 0\nraise E")["raised"] == [
        "E",
        "",
    ]
    assert len(cell(session, "raise ValueError('x' * 5000)")["raised"][1]) == 600
    assert session.request("nonsense")["raised"][0] == "AttributeError"
    assert session.request("look", wrong=1)["raised"][0] == "TypeError"
    assert cell(session, "get_ipython().run_line_magic('matplotlib', 'inline')") == {}


def test_a_call_returns_values_and_tells_changed_arguments(session):
    cell(session, "def f(x, y):\n    x += 1\n    return x * y")
    f, x = remote.Function(session, "f"), np.arange(3.0)
    np.testing.assert_array_equal(f(x, 2.0), [2, 4, 6])
    np.testing.assert_array_equal(x, [1, 2, 3])
    assert "after" not in session.request("call", name="f", arguments=[1, 2], plainly=False)
    assert f.many([(1, 2), (3, 4)]) == [4, 16]
    with pytest.raises(Exception, match="missing 1 required positional") as told:
        f(1)
    assert type(told.value).__name__ == "TypeError"


def test_the_source_of_a_kernel_is_called_if_asked(session):
    source = "class K:\n  py_func = staticmethod(lambda: 'plain')\n  __call__ = lambda s: 'fast'"
    cell(session, f"{source}\nk = K()")
    assert remote.Function(session, "k")() == "fast"
    # `source_of` looks for py_func, as a kernel of Numba has it.
    assert remote.Function(session, "k", plainly=True)() == "plain"


def test_a_compiled_kernel_tells_whether_it_was_compiled(session):
    cell(
        session, "class K:\n  nopython_signatures = [1]\n  def __call__(self, x): x[0] = 7\nk = K()"
    )
    x = np.zeros(2)
    assert remote.Function(session, "k", do="compiled")(x) is True
    np.testing.assert_array_equal(x, [7, 0])


def test_what_cannot_be_sent_is_an_error_of_the_answer(session):
    cell(session, "deep = 1\nfor _ in range(99): deep = [deep]\ndef f(): return deep")
    with pytest.raises(Exception, match="what it returns: lists are nested too deeply"):
        remote.Function(session, "f")()
    assert session.request("look", name="missing") == {"missing": True}


def test_functions_among_the_arguments_are_run_by_the_judge(session):
    cell(session, "def f(g, x): return g(x) + 1")
    given = Given("g doubles", lambda x: 2 * x)
    assert remote.Function(session, "f")(given, 4) == 9
    broken = Given("g fails", lambda x: {}[x])
    with pytest.raises(Exception, match="'4'|4") as told:
        remote.Function(session, "f")(broken, 4)
    assert type(told.value).__name__ == "ValueError"  # a KeyError of the judge's is no business
    odd = Given("g divides", lambda x: x / 0)
    with pytest.raises(Exception) as told:
        remote.Function(session, "f")(odd, 4)
    assert type(told.value).__name__ == "ZeroDivisionError"


def test_weights_pass_both_ways(session):
    cell(session, "def f(w):\n    w.W_1[0, 0] = 5\n    return w.W_1")
    w = random_layer(3, 4, seed=0)
    before = w.W_1.copy()
    got = remote.Function(session, "f")(w)
    before[0, 0] = 5
    np.testing.assert_array_equal(got, before)
    np.testing.assert_array_equal(w.W_1, before)


MEAN = """
import numpy as np
def scale(x): return np.sqrt(x)
def mean(K, out):
    n, d = K.shape
    own = np.zeros(d)
    for c in range(d):
        total = 0.0
        for j in range(n):
            total += K[j, c] * K[j, c]
        own[c] = total / n
    out[:] = own
    top = K.T[0]
    for j in range(1, len(top)):
        if top[j] > top[0]:
            out[0] = -scale(+top[j]) - abs(-top[0]) ** 2 + 1 / float(2)
"""


def test_a_kernel_is_counted_as_it_is_here(session):
    cell(session, MEAN)
    K = np.array([[1.0, 2.0], [4.0, -1.0], [0.5, 3.0]])
    arguments = {"K": K, "out": np.zeros(2)}
    seen = []
    found = remote.count(session, "mean", lambda values: seen.append(values.copy()), arguments)
    names = {}
    exec(MEAN, names)
    expected = counting.counted(names["mean"], arguments)
    assert found.done == expected.done
    assert found.reads == expected.reads
    np.testing.assert_allclose(seen[0], [-2 - 1 + 0.5, (4 + 1 + 9) / 3])
    assert session.counter is None


@pytest.mark.parametrize(
    ("body", "error", "words"),
    [
        ("a[9]", "IndexError", "out of bounds"),
        ("a[0] + a", "TypeError", "hides a loop"),
        ("a.fill(2.0)\n    a[:2] = a", "ValueError", r"cannot put shape \(3,\) into shape \(2,\)"),
        ("np.zeros(10 ** 6)[0] > 1", "ValueError", "so large an array"),
        ("bool(a[0] ** 'x')", "TypeError", "arithmetic on whole arrays"),
    ],
)
def test_what_cannot_be_counted_is_told(session, body, error, words):
    cell(session, f"import numpy as np\ndef f(a):\n    {body}")
    with pytest.raises(Exception, match=words) as told:
        remote.count(session, "f", lambda values: None, {"a": np.ones(3)})
    assert type(told.value).__name__ == error


def test_many_things_are_told_in_parts(session):
    cell(session, "def f(a):\n    for _ in range(700): a[0] = a[0] + a[1]")
    found = remote.count(session, "f", lambda values: None, {"a": np.array([0.0, 1.0])})
    assert found.done == {"additions": 700}
    assert len(found.reads) == 1400


# --- The doors ------------------------------------------------------------------------------------


def test_the_exercises_are_empty_modules_in_there(worker):
    spec = worker.Nothing.find_spec("lib.exercises.judging")
    module = worker.Nothing.create_module(spec)
    worker.Nothing.exec_module(module)
    assert spec.submodule_search_locations == []
    assert module.check("01.one_query", 3) is None
    with pytest.raises(AttributeError):
        module.__wrapped__  # noqa: B018
    for name in ("lib", "lib.attention", "numpy", "library.exercises"):
        assert worker.Nothing.find_spec(name) is None


def test_an_incomplete_cell_is_a_syntax_error(worker):
    error = type("_IncompleteInputError", (SyntaxError,), {})("incomplete input")
    assert worker.raised(error) == {"raised": ["SyntaxError", "incomplete input"]}


def test_limits_are_set_as_far_as_the_system_knows_them(worker, monkeypatch):
    resource = pytest.importorskip("resource")
    asked = {}

    def setrlimit(which, limits):
        asked[which] = limits
        if which == resource.RLIMIT_CPU:
            raise ValueError

    monkeypatch.setattr(resource, "setrlimit", setrlimit)
    worker.limit(1000, 7, 50)
    named = {"RLIMIT_AS": 1000, "RLIMIT_CPU": 7, "RLIMIT_FSIZE": 50, "RLIMIT_NOFILE": 64}
    named["RLIMIT_CORE"] = 0
    assert asked == {getattr(resource, name): (value, value) for name, value in named.items()}
    monkeypatch.setitem(sys.modules, "resource", None)
    worker.limit(1, 1, 1)  # as on Windows
