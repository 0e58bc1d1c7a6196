"""How far a pass in float32 may be from the exact one, when its sums have so many terms."""

import numpy as np

EPS = np.finfo(np.float32).eps  # 1.2e-7; a rounding errs by half of it, relative


def rounding_bound(run, arrays, terms, draws=6):
    """Return a bound on the error of each number that a pass in float32 returns.

    A sum of m products in float32 is the exact sum with every factor changed by at most m·EPS / 2,
    relative (Higham 2002, section 3.1). A function of one number errs by a few roundings, as much
    as if the row of a matrix that it meets next were changed by them. So a pass is, of first order,
    the exact pass with the numbers of its arrays changed by at most `terms` · EPS / 2. Here all are
    changed by all of it, with random signs; the largest change that is seen in any result bounds
    all of them. Roundings are smaller and cancel, so that much less is expected.

    Parameters
    ----------
    run : callable
        ``run(arrays)`` is the pass in float64.
    arrays : dict of ndarray
        What it computes with, inputs and weights.
    terms : int
        Terms of the longest sum, and the roundings of the functions between.
    """
    rng = np.random.default_rng(99)
    exact, largest = run(arrays), 0.0
    for _ in range(draws):
        changed = {
            name: array * (1 + terms * EPS / 2 * rng.choice([-1, 1], array.shape))
            for name, array in arrays.items()
        }
        largest = max(largest, np.abs(run(changed) - exact).max())
    return largest
