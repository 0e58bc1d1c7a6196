"""Exercise 06: build the stack, the next token and the cache; then run a real model."""

import numpy as np

from lib import reference
from lib.exercises import building
from lib.exercises.building import Building, Given, Rung, numbers
from lib.exercises.judging import Malformed, Task, Unanswered, Wrong
from lib.exercises.t04_build_attention import LAST_QUERIES, LN2, LN3, array
from lib.lab.installed import real_model

PROMPT = "Once upon a time"
NEW_TOKENS = 6


def stack(X, layers, step):
    """Return the output of the last layer: (n, d) -> (n, d)."""
    return reference.stack(X, layers, step)


def predictions(X, layers, step, head):
    """Return what the last token would be followed by at each stage: (n, d) -> (L + 1,)."""
    stages = [X]
    for w in layers:
        stages.append(step(stages[-1], w))
    return np.array([np.argmax(head(stage[-1])) for stage in stages])


def next_token(logits, temperature, u):
    """Return the token that the number u of [0, 1) draws from Softmax(logits / temperature)."""
    if temperature == 0:
        return np.argmax(logits)
    below = np.cumsum(reference.softmax(logits / temperature))  # probability up to each token
    return min(np.searchsorted(below, u, side="right"), len(logits) - 1)


def decode_step(x, K_cache, V_cache, W_Q, W_K, W_V):
    """Return the output of one more token, and the caches with its key and value."""
    K, V = np.vstack([K_cache, x @ W_K]), np.vstack([V_cache, x @ W_V])
    return reference.attend(x @ W_Q, K, V), K, V


ADD = Given("step(X, w) = X + w", lambda X, w: X + w)
TIMES = Given("step(X, w) = X @ w", lambda X, w: X @ w)
SAME = Given("head(x) = x", lambda x: x)

STACK = Building(
    name="stack",
    parameters=("X", "layers", "step"),
    definition=stack,
    rungs=(
        Rung("one layer", "The stack of one layer is that layer.",
             (array([1, 2], [3, 4], [5, 6]), [array([1, 0], [1, 1])], TIMES)),
        Rung("every layer once",
             "Each layer takes what the one before it made. They add 1, 10, 100 and 1000, "
             "so the digits tell which of them ran.",
             (array([1, 2], [3, 4], [5, 6]), [1.0, 10.0, 100.0, 1000.0], ADD)),
        Rung("the order of the layers", "The weights are those of matrices that do not commute.",
             (array([1, 2], [3, 4], [5, 6]), [array([1, 1], [0, 1]), array([0, 1], [2, 0])],
              TIMES)),
    ),
)  # fmt: skip

PREDICTIONS = Building(
    name="predictions",
    parameters=("X", "layers", "step", "head"),
    definition=predictions,
    rungs=(
        Rung("one prediction for each stage",
             "What enters counts as a stage, so three layers give four predictions. "
             "Each layer adds to what the one before it made.",
             (array([5, 4, 0]), [array(0, 3, 0), array(0, 0, 6), array(0, 0, 3)], ADD, SAME)),
        Rung("the last token",
             "The token that follows is predicted from the vector of the last token.",
             (array([0, 9, 0], [0, 9, 0], [3, 1, 2]), [array(0, 0, 5)], ADD, SAME)),
        Rung("the largest logit", "Logits of both signs: the largest one wins.",
             (array([-1, -2, -9, -3]), [array(-9, 0, 0, 0)], ADD, SAME)),
        Rung("the head",
             "The head turns a vector of width 3 into five logits. "
             "A layer reads the vector, not the logits.",
             (numbers(1, 2, 3), [numbers(2, 3), numbers(3, 3), 3 * numbers(4, 3)], ADD,
              Given("head(x) = x @ W, with W of shape (3, 5)", lambda x: x @ numbers(5, 3, 5)))),
    ),
)  # fmt: skip

FOUR_U = (0.1, 0.3, 0.7, 0.8)
ALMOST_ONE = float(np.nextafter(1.0, 0.0))

NEXT_TOKEN = Building(
    name="next_token",
    parameters=("logits", "temperature", "u"),
    definition=next_token,
    rungs=(
        Rung("temperature 0", "Nothing is drawn: the largest logit wins, whatever u is.",
             (array(1, 3, 2), 0, 0.99)),
        Rung("the choice among equals", "Of equal logits at temperature 0 the first one wins.",
             (array(1, 3, 0, 3), 0, 0.99)),
        Rung("the share of each token",
             "The probabilities are 1/4, 1/2 and 1/4, so u = 0.1, 0.3, 0.7 and 0.8 draw "
             "tokens 0, 1, 1 and 2.",
             (array(0, LN2, 0), 1, 0.1),
             run=lambda call, logits, t, _: np.array([call(logits, t, u) for u in FOUR_U]),
             part="tokens for these u"),
        Rung("the temperature",
             "At temperature 0.5 the logits 0 and ln 3 give the probabilities 1/10 and 9/10; at "
             "temperature 2 they give 0.37 and 0.63.",
             (array(0, LN3), 0.5, 0.2),
             run=lambda call, logits, _, u: np.array([call(logits, t, u) for t in (0.5, 1, 2)]),
             part="tokens for the temperatures 0.5, 1 and 2"),
        Rung("large logits", "The logits are 1000 and 1001. Only their difference matters.",
             (array(1000, 1001), 1, 0.5)),
        Rung("a token of probability zero", "It must not be drawn, not even by u = 0.",
             (array(-1e6, 0, 0), 1, 0.0)),
        Rung("the last token",
             "Rounding leaves the sum of ten tenths just below 1, and u is the float before 1.",
             (np.zeros(10), 1, ALMOST_ONE)),
    ),
)  # fmt: skip


def step_by_step(call, X, K_cache, V_cache, *weights):
    """Return the outputs of all tokens of X, decoded one after the other: (n, d)."""
    outputs = []
    for x in X:
        out, K_cache, V_cache = call(x, K_cache, V_cache, *weights)
        outputs.append(out)
    return np.array(outputs)


_W = (numbers(6, 2, 2), numbers(7, 2, 2), numbers(8, 2, 2))
_EMPTY = np.zeros((0, 2))
_EYE = np.eye(2)

DECODE_STEP = Building(
    name="decode_step",
    parameters=("x", "K_cache", "V_cache", "W_Q", "W_K", "W_V"),
    definition=decode_step,
    results=("out", "K_cache", "V_cache"),
    rungs=(
        Rung("what is stored",
             "The cache is empty before the first token. After it, it holds one key and one value: "
             "those of that token.",
             (array(1, 2), _EMPTY, _EMPTY, *_W),
             run=lambda call, *a: np.stack(call(*a)[1:]), part="K_cache, V_cache"),
        Rung("the first token",
             "The cache is empty, so the token sees only itself: its own value comes out.",
             (array(1, 2), _EMPTY, _EMPTY, *_W),
             run=lambda call, *a: call(*a)[0], part="out"),
        Rung("the left context in the cache",
             "Two tokens are in the cache. Their rows stay, and the new row comes after them.",
             (array(1, 2), numbers(9, 2, 2), numbers(10, 2, 2), *_W),
             run=lambda call, *a: np.stack(call(*a)[1:]), part="K_cache, V_cache"),
        Rung("who is seen",
             "The query is zero, so all scores are equal. The token sees the two in the cache and "
             "itself: the output is the mean of three values.",
             (array(3, 6), numbers(11, 2, 2), array([6, 0], [0, 3]), 0 * _EYE, _EYE, _EYE)),
        Rung("the query and the keys",
             "The scores are 0, 2 ln 3 / √2 and, for the token itself, 1 / √2.",
             (array(1, 0), array([0, 5], [2 * LN3, 0]), array([0, 0], [4, 8]), _EYE, _EYE, _EYE),
             run=lambda call, *a: call(*a)[0], part="out"),
        Rung("large scores", "The scores are 1000, 1001 and, for the token itself, 0.",
             (array(2, 0, 0, 0), array([1000, 0, 0, 0], [1001, 0, 0, 0]),
              array([1, 0, 0, 0], [0, 1, 0, 0]), np.eye(4), np.zeros((4, 4)), np.eye(4)),
             run=lambda call, *a: call(*a)[0], part="out"),
        Rung("cached against uncached",
             "Five tokens, one after the other, from an empty cache. x is each row in turn; the "
             "outputs must be those of causal attention over all of them at once.",
             (numbers(12, 5, 2), _EMPTY, _EMPTY, *(2 * w for w in _W)),
             run=step_by_step, part="the five outputs"),
    ),
)  # fmt: skip


class InTheModel:
    """A reader's attention in the place of the engine's: compared at each call, and counted.

    Fields
    ------
    calls : int
    fault : str
        Where it first differed from the definition, and how; empty if it never did.
    """

    def __init__(self, function):
        self.function = function
        self.calls = 0
        self.fault = ""

    def __call__(self, Q, K, V):  # (m, d_head), (n, d_head), (n, d_head) -> (m, d_head)
        """Attend as the reader does; note the first result that differs."""
        out = self._run(Q.copy(), K.copy(), V.copy())
        expected = reference.attend_causal(Q, K, V)
        if out.shape != expected.shape or not np.isfinite(out).all():
            raise Wrong(
                f"{self._where(Q, K)}, it returned an array of shape {out.shape} where finite "
                f"numbers of shape {expected.shape} were expected."
            )
        # The arrays are float32, and so may be the sums: 1e-4 is a thousand times their rounding.
        if not self.fault and np.abs(out - expected).max() > 1e-4 * max(1, np.abs(expected).max()):
            self.fault = f"{self._where(Q, K)}, {_first_three(out, expected)}"
        self.calls += 1
        return out.astype(np.float32)

    def _run(self, Q, K, V):
        try:
            returned = self.function(Q, K, V)
        except (Exception, SystemExit) as error:
            raise Wrong(f"{self._where(Q, K)}, it raised {type(error).__name__}: {error}") from None
        if returned is None:
            raise Unanswered(f"your attention returns nothing yet: {building.EMPTY_BODY}.")
        try:
            return building.plain(returned)
        except Malformed as fault:
            raise Malformed(f"{self._where(Q, K)}, it returned {fault}.") from None

    def _where(self, Q, K):
        config = real_model().config
        layer, head = self.calls // config.H % config.L, self.calls % config.H
        return (
            f"in layer {layer + 1}, head {head + 1} of the real model, "
            f"with {len(Q)} queries and {len(K)} keys of width {K.shape[1]}"
        )


def _first_three(out, expected):
    row = np.abs(out - expected).max(axis=1).argmax()
    came, right = ([round(float(x), 3) for x in array[row, :3]] for array in (out, expected))
    return f"row {row} should begin {right}; it begins {came}"


def finish(prompt, attention, n=NEW_TOKENS):
    """Let the real model finish a sentence with an attention of yours in all its heads.

    Parameters
    ----------
    prompt : str
    attention : callable
        ``attention(Q, K, V)`` for the queries of the last m of n positions: (m, d), (n, d),
        (n, d) -> (m, d).
    n : int
        Tokens to add at most; the most likely one each time.

    Returns
    -------
    str
        The text that follows the prompt.

    Raises
    ------
    NotRight
        The attention raises, or returns something that is not an array of the right shape.
    ModelError
        The model is not installed.
    """
    return _finish(prompt, InTheModel(attention), n)


def _finish(prompt, attention, n):
    from lib.engine.sampling import generate

    model = real_model().using(attend=attention)
    tokens = generate(model, model.tokenizer.encode(prompt), n)
    return model.tokenizer.decode(list(tokens))


class InTheModelToo(Building):
    """Attention to build, of arrays small enough to print and then of all heads of the model."""

    def judge(self, function):
        """Climb the ladder first, as it names the mechanism; then let the model speak."""
        super().judge(function)
        attention = InTheModel(function)
        text = _finish(PROMPT, attention, NEW_TOKENS)
        if attention.fault:
            raise Wrong(
                f"my_attention holds on small arrays, but {attention.fault}. "
                f"With it the model says: “{PROMPT}{text}”."
            )
        return (
            f"It was called {attention.calls:,} times, once for each head of each layer at each "
            f"step, and the model says: “{PROMPT}{text}”."
        )


REAL = InTheModelToo("my_attention", ("Q", "K", "V"), reference.attend_causal, LAST_QUERIES.rungs)

TASKS = [
    Task("06.stack", "L layers", STACK.form, 5, 1, STACK.judge),
    Task("06.predictions", "What each layer would say", PREDICTIONS.form, 10, 2,
         PREDICTIONS.judge),
    Task("06.next_token", "From logits to the next token", NEXT_TOKEN.form, 15, 3,
         NEXT_TOKEN.judge),
    Task("06.decode_step", "One step with a cache", DECODE_STEP.form, 10, 2, DECODE_STEP.judge),
    Task("06.real_model", "Your attention in the real model", REAL.form, 10, 2, REAL.judge),
]  # fmt: skip
