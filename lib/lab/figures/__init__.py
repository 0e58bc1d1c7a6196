"""Figures of the chapters. Every function returns a Matplotlib Figure and changes nothing else.

`base` holds the one style and the general forms; the other modules hold what one chapter draws.
"""

from lib.lab.figures.base import bars, lines, matrices, matrix, panels

__all__ = ["bars", "lines", "matrices", "matrix", "panels"]
