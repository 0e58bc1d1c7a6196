"""The kernels as WebAssembly: the same functions, made by the same compiler, for a browser.

`build` makes them where Numba is, `call` runs them where Python runs in a browser, and `model`
brings the real model there.
"""

import sys

BROWSER = sys.platform == "emscripten"  # no threads, no processes, no compiler
