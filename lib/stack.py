"""The stack: L layers, one after the other; the output of the L-th is the result.

The layers share one architecture, and each has its own weights.
"""

from lib.errors import CourseError
from lib.layer import layer, random_layer


def stack(X, layers, step=layer):
    """Run the stack and return what its last layer returns.

    Parameters
    ----------
    X : array_like, (n, d)
        The vectors that enter the first layer, one per token.
    layers : sequence, length L
        What each layer runs on: its weights, for the layer of chapter 3.
    step : callable
        ``step(X, weights)`` runs one layer: (n, d) -> (n, d).

    Returns
    -------
    ndarray, float32, (n, d)
        Row i stands for token i and carries the context of all tokens before it.

    Raises
    ------
    CourseError
        There are no layers; or what ``step`` raises.
    """
    for weights in _at_least_one(layers):
        X = step(X, weights)
    return X


def stack_outputs(X, layers, step=layer):
    """Run the stack and keep every stage: a list of L + 1 arrays, what enters and each output."""
    stages = [X]
    for weights in _at_least_one(layers):
        stages.append(step(stages[-1], weights))
    return stages


def random_stack(L, d, d_ff, seed, activation="gelu"):
    """Return L layers of random weights, each its own."""
    return [random_layer(d, d_ff, [seed, index], activation) for index in range(L)]


def _at_least_one(layers):
    if len(layers) == 0:
        raise CourseError("layers should hold at least one layer; it holds none")
    return layers
