"""An instrument for code: which functions are called while something runs, and how often."""

from contextlib import ExitStack
from unittest.mock import patch


def count_calls(run, module, names):
    """Call ``run()`` and count how often it calls functions by their names in a module.

    Parameters
    ----------
    run : callable
        Takes no arguments; what it returns is dropped.
    module : module
        Where the calls are written: a function is counted as that module knows it.
    names : list of str

    Returns
    -------
    dict of str to int
        In the order of ``names``. The functions do their work and are as before afterwards.

    Raises
    ------
    AttributeError
        The module has no such name.
    """
    with ExitStack() as stack:
        spies = {
            name: stack.enter_context(patch.object(module, name, wraps=getattr(module, name)))
            for name in names
        }
        run()
    return {name: spy.call_count for name, spy in spies.items()}
