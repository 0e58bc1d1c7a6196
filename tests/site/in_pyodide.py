"""What the course does under Pyodide; run by `test_in_node.py`, in Node, without a browser."""

import sys

import numpy as np
from IPython.core.interactiveshell import InteractiveShell

from lib import attention, jit, reference, stack
from lib.exercises import Wrong, check
from lib.exercises.t01_ordering import ONE_QUERY
from lib.lab import installed, show, widgets
from lib.lab.figures.attention import weights_of_one
from lib.lab.ordering import order_widget

assert sys.platform == "emscripten"
assert not jit.NUMBA

# The core runs its definitions.
rng = np.random.default_rng(0)
Q, K, V = (rng.standard_normal((7, width)).astype(np.float32) for width in (3, 3, 5))
exact = reference.attend_causal(Q[4:], K, V)
assert attention.attend_causal(Q[4:], K, V).tolist() == np.float32(exact).tolist()
layers = stack.random_stack(L=3, d=4, d_ff=8, seed=1)
X = rng.standard_normal((5, 4))
assert np.allclose(stack.stack(X, layers), reference.stack(X, layers), rtol=0, atol=1e-5)
assert stack.stack(X, layers).dtype == np.float32
print("core")

# Figures and widgets are made.
assert widgets.png(weights_of_one([0.25, 0.75], ["a", "b"])).startswith(b"\x89PNG")
slider = widgets.slider("k", 0, 9, 3)
explorer = widgets.explorer(lambda k: weights_of_one([k / 9, 1 - k / 9], ["a", "b"]), k=slider)
before = explorer.children[-1].value
slider.value = 6
assert explorer.children[-1].value != before
print("widgets")

# Answers are judged: one is wrong, one right.
order = order_widget(ONE_QUERY, "attention_order").literal.split('"')[1]
try:
    check("01.one_query", order)
except Wrong as refusal:
    print("Wrong:", refusal)
check("04.attend", reference.attend)

# What needs an installation says so.
shell = InteractiveShell.instance()
installed.load_ipython_extension(shell)
shell.run_cell(f"{installed.MARK}\nraise RuntimeError('this must not run')").raise_error()
show.say_if_not_compiled()
