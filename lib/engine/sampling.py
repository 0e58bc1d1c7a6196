"""From logits to the next token, and from a prompt to a text."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from lib.arguments import check_sampling, is_whole
from lib.errors import CourseError
from lib.reference import softmax

if TYPE_CHECKING:
    from lib.engine.cache import Cache
    from lib.engine.llama import Llama


def probabilities(
    logits: np.ndarray,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> np.ndarray:
    """Return the probability of each token.

    The logits are divided by the temperature; then only the `top_k` most likely tokens are kept
    (Fan et al. 2018, section 3.2); then, of the renormalised rest, the fewest that together have
    the probability `top_p` (Holtzman et al. 2020, section 3.1).

    Parameters
    ----------
    logits : ndarray, (vocabulary,)
    temperature : float
        Below 1 sharpens, above 1 flattens; 0 puts everything on the largest logit, the first of
        them among equals.
    top_k : int, optional
        At least 1.
    top_p : float, optional
        Above 0, at most 1.

    Returns
    -------
    ndarray, (vocabulary,), float64
        Sums to 1.

    Raises
    ------
    CourseError
        If an argument is out of its range, or the logits are not finite.
    """
    check_sampling(temperature, top_k, top_p)
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
    return p / p.sum()


# Far differences over a tiny temperature may be infinite on the way to the right limit, -1000.
probabilities = np.errstate(over="ignore")(probabilities)


def sample(
    logits: np.ndarray,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    rng: np.random.Generator | None = None,
) -> int:
    """Draw the next token.

    Parameters and errors are those of `probabilities`; `rng` is NumPy's generator, a fresh one by
    default. At temperature 0 nothing is drawn: the token of the largest logit is returned.
    """
    if temperature == 0:
        check_sampling(temperature, top_k, top_p)
        return int(np.argmax(_checked_logits(logits)))
    p = probabilities(logits, temperature, top_k, top_p)
    rng = np.random.default_rng() if rng is None else rng
    return int(rng.choice(len(p), p=p))


def generate(
    model: "Llama",
    prompt_tokens: Sequence[int],
    n: int,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    when_full: str = "error",
    cache: "Cache | None" = None,
) -> Iterator[int]:
    """Yield up to n tokens that follow a prompt, each as soon as it is known.

    Ends early at a token that ends a text (`model.tokenizer.stop`), which is not yielded.

    Parameters
    ----------
    model : Llama or FastLlama
    prompt_tokens : sequence of int
    n : int
        At least 0.
    temperature, top_k, top_p : float, int, float
        As in `probabilities`; at temperature 0 the text is always the same.
    seed : int, optional
        The same seed gives the same text.
    when_full : {"error", "slide"}
        What happens to a text longer than the context. Sliding forgets the older half of the
        context each time it is full, and reads the newer half again as if it were the whole text.
    cache : Cache, optional
        Holds the beginning of the prompt, which is then not read again, and takes up the rest. It
        has to leave at least the prompt's last token to be read.

    Returns
    -------
    iterator of int

    Raises
    ------
    CourseError
        At the call, before any work: if an argument is out of its range, the prompt is empty, or
        the prompt and n more tokens are longer than the context (when sliding: the prompt alone).
    """
    check_sampling(temperature, top_k, top_p)
    context = model.config.context
    for name, number in (("n", n), ("seed", 0 if seed is None else seed)):
        if not (is_whole(number) and number >= 0):
            raise CourseError(f"{name} should be a whole number of at least 0; it is {number!r}")
    if len(prompt_tokens) == 0:
        raise CourseError("prompt_tokens should hold at least one token; the prompt is empty")
    if when_full not in ("error", "slide"):
        raise CourseError(f"when_full should be error or slide; it is {when_full!r}")
    if len(prompt_tokens) + (n if when_full == "error" else 0) > context:
        raise CourseError(
            f"the prompt and n more tokens should fit into the context of {context} tokens; "
            f"the prompt has {len(prompt_tokens)} and n is {n}"
        )
    model.embed(prompt_tokens)  # names a token that the vocabulary lacks
    if when_full == "slide" and n > 0 and context < 2 + len(_head(model, prompt_tokens)):
        raise CourseError(f"the context should have room to slide; it has {context} tokens in all")
    if cache is None:
        cache = model.new_cache(len(prompt_tokens) + int(n))
    rng = np.random.default_rng(seed)
    return _steps(model, list(prompt_tokens), int(n), cache, (temperature, top_k, top_p, rng))


def _head(model: "Llama", text: Sequence[int]) -> list[int]:
    """Return what stays in front of a text that slides: the file's first token, if it has one."""
    bos = model.tokenizer.bos
    return [bos] if bos is not None and text[0] == bos else []


def _steps(
    model: "Llama", text: list[int], n: int, cache: "Cache", sampling: tuple
) -> Iterator[int]:
    head = _head(model, text)
    new = text[cache.n :]  # what was not read yet of the prompt first, then one token at a time
    for _ in range(n):
        if len(text) > model.config.context:  # slide: the newer half is the text from now on
            text = head + text[len(head) - max(model.config.context // 2, 1 + len(head)) :]
            new = list(text)
            cache.truncate(0)
        logits = model.logits(new, cache)
        token = sample(logits, *sampling)
        if token in model.tokenizer.stop:
            return
        yield token
        new = [token]
        text.append(token)


def _checked_logits(logits: np.ndarray) -> np.ndarray:  # -> (vocabulary,) float64
    found = np.asarray(logits, dtype=np.float64)
    if found.ndim != 1 or found.size == 0:
        raise CourseError(f"logits should have shape (vocabulary,); it has shape {found.shape}")
    if not np.isfinite(found).all():
        raise CourseError("logits should be finite; it holds NaN or infinity")
    return found
