"""The running example: six tokens of width four, with numbers that one can check by hand.

The coordinates of a token's vector, in order: is it an article, is it a living thing, is it an
action, has it to do with the air. Chapter 1 builds these arrays one by one.
"""

import numpy as np

TOKENS = ["the", "dog", "saw", "the", "bird", "fly"]

_VECTORS = {
    "the": [1, 0, 0, 0],
    "dog": [0, 1, 0, 0],
    "saw": [0, 0, 1, 0],
    "bird": [0, 1, 0, 1],
    "fly": [0, 0, 1, 1],
}

X = np.array([_VECTORS[token] for token in TOKENS], np.float32)  # (n, d) = (6, 4)

# What a token looks for. A living thing looks for an article, an action for a living thing,
# and whatever has to do with the air for its like. An article looks for nothing.
W_Q = np.float32([[0, 0, 0, 0], [2, 0, 0, 0], [0, 2, 0, 0], [0, 0, 0, 2]])

# What a token offers to be found by: in this example, itself.
W_K = np.eye(4, dtype=np.float32)

# What a token passes on when it is found.
W_V = np.float32([[-2, -2, 1, 0], [4, 0, 0, 1], [0, -4, 1, 0], [-1, 4, 0, 2]])
