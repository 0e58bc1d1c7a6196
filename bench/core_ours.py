"""The core of the course as a contestant: cases on standard input, see `core_cases`."""

import sys
from pathlib import Path

from core_cases import arrays, serve

sys.path.insert(0, str(Path(__file__).parents[1]))

from lib.attention import attend, attend_causal
from lib.layer import LayerWeights, layer


def prepare(case, *sizes):
    """Return a call that computes the case with the public functions of `lib`."""
    given = arrays(case, *sizes)
    if case == "product":
        X, W = given
        return lambda: X @ W
    if case == "layer":
        x, weights = given
        w = LayerWeights(**weights)
        return lambda: layer(x, w)
    function = {"attend": attend, "attend_causal": attend_causal}[case]
    return lambda: function(*given)


if __name__ == "__main__":
    serve(prepare)
