"""Figures of the chapters. Every function returns a Matplotlib Figure and changes nothing else.

`base` holds the one style and the general forms; the other modules hold what one chapter draws.
"""

from lib.lab.figures.base import Part, bars, equation, lines, matrices, matrix, panels

__all__ = ["Part", "bars", "equation", "lines", "matrices", "matrix", "panels"]
