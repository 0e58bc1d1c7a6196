"""The toy with one fault, and no sound one beside it: what must hold has to be known.

The layer is cut into nine places. A fault is another function in one of them, and a repair puts the
right function there. Everything is in float64, with a residual around each step and without norms.
"""

import math
import random
from dataclasses import dataclass, replace

import numpy as np

from lib import reference
from lib.lab import toy
from lib.lab.faults import check_patient

W = toy.WEIGHTS
OLD = np.float64(toy.embed("the bird saw the dog run"))  # what a cache held before


@dataclass(frozen=True)
class Places:
    """What a layer is made of, in the order in which it runs; the defaults are sound."""

    queries: object = lambda X: X @ W.W_Q  # (n, d) -> (n, d)
    cache: object = lambda K, V: (K, V)  # what the queries find as keys and values
    scores: object = lambda Q, K: Q @ K.T / math.sqrt(toy.d)  # (n, d), (n, d) -> (n, n)
    mask: object = lambda n: np.tri(n, dtype=bool)  # True where a query sees a key: (n, n)
    mean: object = lambda weights, V: weights @ V  # (n, n), (n, d) -> (n, d)
    rows: object = lambda M: M  # what the FFN reads: (n, d) -> (n, d)
    biases: object = lambda: W.b_1  # (d_ff,)
    activation: object = lambda x: np.maximum(x, 0)
    output: object = lambda hidden: hidden @ W.W_2 + W.b_2  # (n, d_ff) -> (n, d)


PLACES = {
    "queries": ("attention", "the queries are $X W_Q$"),
    "cache": ("attention", "the keys and values are those of this text"),
    "scores": ("attention", "the scores are $Q K^{\\mathsf T} / \\sqrt d$"),
    "mask": ("attention", "query $i$ sees the keys $0 \\dots i$"),
    "mean": ("attention", "the values are multiplied by their weights and added up"),
    "rows": ("FFN", "the FFN reads at each position the vector of that position"),
    "biases": ("FFN", "$b_1$ is added before the activation"),
    "activation": ("FFN", "the activation is ReLU"),
    "output": ("FFN", "the hidden vector is multiplied by $W_2$"),
}


def half_of_another_text(K, V):
    """Leave the first half of the cache as another text has filled it."""
    old = np.arange(len(K))[:, None] < (len(K) + 1) // 2
    before = OLD[np.arange(len(K)) % len(OLD)]
    return np.where(old, before @ W.W_K, K), np.where(old, before @ W.W_V, V)


FAULTS = {
    "no_queries": Places(queries=np.zeros_like),
    "stale_cache": Places(cache=half_of_another_text),
    "turned_scores": Places(scores=lambda Q, K: -Q @ K.T / math.sqrt(toy.d)),
    "own_key_only": Places(mask=lambda n: np.eye(n, dtype=bool)),
    "two_keys_only": Places(mask=lambda n: np.tri(n, dtype=bool) & ~np.tri(n, k=-2, dtype=bool)),
    "own_value": Places(mean=lambda weights, V: V),
    "neighbour": Places(rows=lambda M: np.vstack([M[:1], M[:-1]])),
    "no_biases": Places(biases=lambda: 0.0),
    "absolute": Places(activation=np.abs),
    "nothing_added": Places(output=lambda hidden: np.zeros((len(hidden), toy.d))),
}


class SickToy:
    """A toy under examination; it takes texts of the toy's words, or the vectors of one."""

    def __init__(self, label, places):
        self._label, self._places = label, places

    def __repr__(self):
        return f"<{self._label}>"

    def weights(self, X):
        """Return the weights of attention, a row for each query: (n, d) -> (n, n)."""
        p = self._places
        K, _ = p.cache(X @ W.W_K, X @ W.W_V)
        return reference.softmax(p.scores(p.queries(X), K), p.mask(len(X)))

    def attention_step(self, X):
        """Run the first step, without its residual: (n, d) -> (n, d)."""
        p = self._places
        _, V = p.cache(X @ W.W_K, X @ W.W_V)
        return p.mean(self.weights(X), V) @ W.W_O

    def ffn_step(self, M):
        """Run the second step, without its residual: (n, d) -> (n, d)."""
        p = self._places
        return p.output(p.activation(p.rows(M) @ W.W_1 + p.biases()))

    def layer(self, X):
        """Run the layer: (n, d) -> (n, d)."""
        M = X + self.attention_step(X)
        return M + self.ffn_step(M)

    def write(self, text, limit=8):
        """Continue a text up to a full stop, or to ``limit`` words."""
        return toy.write(text, [W], lambda X, w: self.layer(np.float64(X)), limit)

    def next_word(self, text):
        """Return the word that comes next."""
        return self.write(text, len(text.split()) + 1).split()[-1]


def repaired(patient, place):
    """Return a toy with the right function in one of its `PLACES`."""
    sound = getattr(Places(), place)
    return SickToy(f"{patient._label}, repaired", replace(patient._places, **{place: sound}))


SOUND = SickToy("a sound toy", Places())
TASKS = ("word_1", "word_2", "word_3")
OF_ATTENTION = ("no_queries", "stale_cache", "turned_scores", "own_key_only", "two_keys_only",
                "own_value")  # fmt: skip
OF_FFN = tuple(fault for fault in FAULTS if fault not in OF_ATTENTION)


def deal(seed):
    """Return the fault that a seed gives in each task: three faults, of both components."""
    draw = random.Random(f"toys of {seed}")
    more = draw.choice(["attention", "FFN"])
    components = ["attention", "FFN", more]
    draw.shuffle(components)
    dealt = {}
    for task, component in zip(TASKS, components, strict=True):
        choice = OF_ATTENTION if component == "attention" else OF_FFN
        dealt[task] = draw.choice([fault for fault in choice if fault not in dealt.values()])
    return dealt


def sick_toy(seed, task):
    """Return the toy that a seed gives in a task, the same one for the same seed.

    Raises
    ------
    CourseError
        A seed or task of another kind.
    """
    check_patient(seed, task, TASKS)
    return SickToy(f"{task} of seed {seed}", FAULTS[deal(seed)[task]])
