"""From logits to the next token, and from a prompt to a text."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lib.arguments import check_sampling, is_number, is_whole, shown
from lib.engine.guess import Guesser, kept
from lib.errors import CourseError
from lib.reference import softmax

if TYPE_CHECKING:
    from lib.engine.cache import Cache, GrowingCache
    from lib.engine.constraint import Constraint
    from lib.engine.fast import FastLlama
    from lib.engine.llama import Llama


def probabilities(
    logits: np.ndarray,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
) -> np.ndarray:
    """Return the probability of each token.

    The logits are divided by the temperature; then only the `top_k` most likely tokens are kept
    (Fan et al. 2018, section 5.4); then, of the renormalised rest, the fewest that together have
    the probability `top_p` (Holtzman et al. 2020, section 3.1); then those that are at least
    `min_p` times as likely as the likeliest (Nguyen et al. 2024, section 3).

    Parameters
    ----------
    logits : ndarray, (vocabulary,)
        −∞ bans a token: its probability is 0.
    temperature : float
        Below 1 sharpens, above 1 flattens; 0 puts everything on the largest logit, the first of
        them among equals.
    top_k : int, optional
        At least 1.
    top_p : float, optional
        Above 0, at most 1.
    min_p : float, optional
        0 to 1.

    Returns
    -------
    ndarray, (vocabulary,), float64
        Sums to 1.

    Raises
    ------
    CourseError
        If an argument is out of its range, the logits hold NaN or +∞, or all tokens are banned.
    """
    _check(temperature, top_k, top_p, min_p)
    logits = _checked_logits(logits)
    if temperature == 0:
        return np.eye(1, len(logits), int(np.argmax(logits)))[0]
    # Differences to the largest, since only they matter. Below -1000 the probability is 0 in any
    # case, and a tiny temperature would overflow float32.
    scaled = np.maximum((logits - logits.max()) / temperature, -1000.0)
    p = softmax(scaled)  # float64: shares are compared with top_p below
    order = np.argsort(-p, kind="stable")  # most likely first
    p[order[len(p) if top_k is None else top_k :]] = 0.0
    p /= p.sum()
    if top_p is not None and top_p < 1:
        before = np.cumsum(p[order]) - p[order]  # what the more likely tokens have together
        # A sum of n numbers is off by some n roundings: what misses top_p by that has reached it.
        reached = top_p * (1 - len(p) * np.finfo(np.float64).eps)
        p[order[before >= reached]] = 0.0
    if min_p is not None:
        p[p < min_p * p.max()] = 0.0
    return p / p.sum()


# Far differences over a tiny temperature may be infinite on the way to the right limit, -1000.
probabilities = np.errstate(over="ignore")(probabilities)


def sample(
    logits: np.ndarray,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    rng: np.random.Generator | None = None,
    min_p: float | None = None,
) -> int:
    """Draw the next token.

    Parameters and errors are those of `probabilities`; `rng` is NumPy's generator, a fresh one by
    default. At temperature 0 nothing is drawn: the token of the largest logit is returned.
    """
    if temperature == 0:
        _check(temperature, top_k, top_p, min_p)
        return int(np.argmax(_checked_logits(logits)))
    p = probabilities(logits, temperature, top_k, top_p, min_p)
    rng = np.random.default_rng() if rng is None else rng
    return int(rng.choice(len(p), p=p))


def penalise(logits: np.ndarray, text: Iterable[int], penalty: float) -> np.ndarray:
    """Make the tokens of a text less likely to come again: (vocabulary,) -> (vocabulary,).

    Keskar et al. 2019, section 4.1: their logits are divided by the penalty; those below zero are
    multiplied with it instead, or they would become likelier.
    """
    logits, seen = np.array(logits, np.float64), list(set(text))
    logits[seen] = np.where(logits[seen] > 0, logits[seen] / penalty, logits[seen] * penalty)
    return logits


class Sampler:
    """Draws the tokens of one text, each once.

    Parameters
    ----------
    temperature, top_k, top_p, min_p : float, int, float, float
        As in `probabilities`.
    penalty : float
        As in `penalise`, at least 1; 1 changes nothing.
    constraint : Constraint, optional
        What the text may be; see `lib.engine.constraint`.
    seed : int, optional
        The same seed gives the same tokens.

    Raises
    ------
    CourseError
        If an argument is out of its range.
    """

    def __init__(
        self,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        penalty: float = 1.0,
        constraint: "Constraint | None" = None,
        seed: int | None = None,
    ):
        _check(temperature, top_k, top_p, min_p)
        if not is_number(penalty) or not 1 <= penalty < np.inf:
            raise CourseError(
                f"penalty should be a finite number, 1 or more; it is {shown(penalty)}"
            )
        _check_whole("seed", 0 if seed is None else seed)
        self._how = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
        self._rng = np.random.default_rng(seed)
        self._penalty, self._constraint = penalty, constraint
        self._state: Any = None if constraint is None else constraint.start

    def draw(self, logits: np.ndarray, text: Iterable[int]) -> int:
        """Return the token that follows a text, from the logits after it."""
        if self._penalty != 1:
            logits = penalise(logits, text, self._penalty)
        if self._constraint is not None:
            logits = np.where(self._constraint.allowed(self._state), logits, -np.inf)
        token = sample(logits, rng=self._rng, **self._how)
        if self._constraint is not None:
            self._state = self._constraint.after(self._state, token)
        return token


def generate(
    model: "Llama | FastLlama",
    prompt_tokens: Sequence[int],
    n: int,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    when_full: str = "error",
    cache: "Cache | GrowingCache | None" = None,
    *,
    min_p: float | None = None,
    penalty: float = 1.0,
    constraint: "Constraint | None" = None,
    guess: "int | str | Guesser | None" = None,
) -> Iterator[int]:
    """Yield up to n tokens that follow a prompt, each as soon as it is known.

    Ends early at a token that ends a text (`model.tokenizer.stop`), which is not yielded.

    Parameters
    ----------
    model : Llama or FastLlama
    prompt_tokens : sequence of int
    n : int
        At least 0.
    temperature, top_k, top_p, min_p : float, int, float, float
        As in `probabilities`; at temperature 0 the text is always the same.
    seed : int, optional
        The same seed gives the same text.
    when_full : {"error", "slide"}
        What happens to a text longer than the context. Sliding forgets the older half of the
        context each time it is full, and reads the newer half again as if it were the whole text.
    cache : Cache, optional
        Holds the beginning of the prompt, which is then not read again, and takes up the rest. It
        has to leave at least the prompt's last token to be read. Where the iterator is left early,
        it may hold guesses that were right and were not taken any more.
    penalty, constraint : float, Constraint
        As in `Sampler`.
    guess : int, "auto" or Guesser, optional
        Tokens guessed ahead for each pass, as in `Guesser`. The text stays the same, as the fast
        engine computes the same bits for one token and for several.

    Returns
    -------
    iterator of int

    Raises
    ------
    CourseError
        At the call, before any work: if an argument is out of its range, the prompt is empty, or
        the prompt and n more tokens are longer than the context (when sliding: the prompt alone).
    """
    sampler = Sampler(temperature, top_k, top_p, min_p, penalty, constraint, seed)
    guesser = guess if guess is None or isinstance(guess, Guesser) else Guesser(guess)
    if when_full not in ("error", "slide"):
        raise CourseError(f"when_full should be error or slide; it is {when_full!r}")
    check_prompt(model, prompt_tokens, n, when_full == "slide")
    context = model.config.context
    if when_full == "slide" and n > 0 and context < 2 + len(_head(model, prompt_tokens)):
        raise CourseError(f"the context should have room to slide; it has {context} tokens in all")
    if cache is None:
        cache = model.new_cache(len(prompt_tokens) + int(n))
    return _steps(model, list(prompt_tokens), int(n), cache, sampler, guesser)


def check_prompt(
    model: "Llama | FastLlama", prompt_tokens: Sequence[int], n: int, may_slide: bool = False
) -> None:
    """Check that n tokens can follow a prompt.

    Raises
    ------
    CourseError
        If the prompt is empty or has a token that the vocabulary lacks, or the prompt and n more
        tokens are longer than the context (when they may slide: the prompt alone).
    """
    _check_whole("n", n)
    if len(prompt_tokens) == 0:
        raise CourseError("prompt_tokens should hold at least one token; the prompt is empty")
    context = model.config.context
    if len(prompt_tokens) + (0 if may_slide else n) > context:
        raise CourseError(
            f"the prompt and n more tokens should fit into the context of {context} tokens; "
            f"the prompt has {len(prompt_tokens)} and n is {n}"
        )
    model.embed(prompt_tokens)  # names a token that the vocabulary lacks


def _head(model: "Llama | FastLlama", text: Sequence[int]) -> list[int]:
    """Return what stays in front of a text that slides: the file's first token, if it has one."""
    bos = model.tokenizer.bos
    return [bos] if bos is not None and text[0] == bos else []


def _steps(
    model: "Llama | FastLlama",
    text: list[int],
    n: int,
    cache: "Any",
    sampler: Sampler,
    guesser: Guesser | None,
) -> Iterator[int]:
    head, stop = _head(model, text), model.tokenizer.stop
    new = text[cache.n :]  # what was not read yet of the prompt first, then one token at a time
    end = len(text) + n
    while len(text) < end:
        if len(text) > model.config.context:  # slide: the newer half is the text from now on
            end -= len(text)
            text = head + text[len(head) - max(model.config.context // 2, 1 + len(head)) :]
            new = list(text)
            end += len(text)
            cache.truncate(0)
        if guesser is None:
            said = [sampler.draw(model.logits(new, cache), text)]
        else:
            room = min(end, model.config.context + 1) - len(text) - 1
            said = _checked_pass(model, text, new, cache, sampler, guesser, room)
        for token in said:
            if token in stop:
                return
            text.append(token)
            yield token
        new = text[-1:]


def _checked_pass(model, text, new, cache, sampler, guesser, room):  # -> tokens that follow
    """Read what is new and the guesses in one pass, and forget the guesses that were wrong."""
    guesses = guesser.guess(text, room)
    if guesses:
        if len(new) > 1:  # a prompt: the logits of its last token are enough
            model.logits(new[:-1], cache)
        rows = model.logits([*new[-1:], *guesses], cache, all=True)
    else:
        rows = model.logits(new, cache)[None]
    drawn = list(text)

    def draw(logits):
        drawn.append(sampler.draw(logits, drawn))
        return drawn[-1]

    said = kept(rows, guesses, draw, model.tokenizer.stop)
    if guesses:
        cache.truncate(len(text) + len(said) - 1)
    guesser.learn(said)
    return said


def until(pieces: Iterable[str], stops: Sequence[str]) -> Iterator[str]:
    """Yield the pieces of a text up to the first stop string in it, which is left out.

    What may be the beginning of a stop string is held back until the next piece.

    Parameters
    ----------
    pieces : iterable of str
        What `Tokenizer.stream_text` yields, for one.
    stops : sequence of str

    Raises
    ------
    CourseError
        If one of them is empty.
    """
    if "" in stops:
        raise CourseError("stops should hold strings of at least one character; one is empty")
    return _until(pieces, stops)


def _until(pieces: Iterable[str], stops: Sequence[str]) -> Iterator[str]:
    held = ""
    for piece in pieces:
        held += piece
        places = [held.find(stop) for stop in stops if stop in held]
        if places:
            if before := held[: min(places)]:
                yield before
            return
        keep = max((_overlap(held, stop) for stop in stops), default=0)
        if ready := held[: len(held) - keep]:
            yield ready
        held = held[len(held) - keep :]
    if held:
        yield held


def _overlap(text: str, stop: str) -> int:
    """Return how many characters at the end of a text may be the beginning of a stop string."""
    lengths = range(min(len(text), len(stop) - 1), 0, -1)
    return next((length for length in lengths if stop.startswith(text[-length:])), 0)


def _check(temperature, top_k, top_p, min_p) -> None:
    check_sampling(temperature, top_k, top_p)
    if min_p is not None and not (is_number(min_p) and 0 <= min_p <= 1):
        raise CourseError(f"min_p should be 0 to 1; it is {shown(min_p)}")


def _check_whole(name: str, number: object) -> None:
    if not (is_whole(number) and number >= 0):
        raise CourseError(f"{name} should be a whole number of at least 0; it is {shown(number)}")


def _checked_logits(logits: np.ndarray) -> np.ndarray:  # -> (vocabulary,) float64
    found = np.asarray(logits, dtype=np.float64)
    if found.ndim != 1 or found.size == 0:
        raise CourseError(f"logits should have shape (vocabulary,); it has shape {found.shape}")
    top = found.max()  # NaN if there is one
    if not top < np.inf:
        raise CourseError("logits should be finite, or −∞ for a banned token; it holds NaN or +∞")
    if top == -np.inf:
        raise CourseError("logits should leave at least one token; all are banned")
    return found
