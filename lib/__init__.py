"""Left Context: how a transformer runs, from six tokens to a real language model.

The floors of the house, in the order in which data flows:

``reference``  every operation as its definition, in NumPy and float64: the oracle of every test
``jit``        the one place that names a Numba option
``attention`` ``ffn`` ``norm`` ``rope`` ``layer`` ``stack``
               the taught core: float32 kernels, each short enough to print in a notebook
``engine``     the same stack on a real model file
``lab``        what the chapters show: probes, figures, widgets

A floor uses the floors above it in this list, never those below.
"""

__version__ = "0.1.0"
