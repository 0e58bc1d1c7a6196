"""Several texts at once: a pass takes tokens of all, and texts join and leave between passes.

Continuous batching (Yu et al. 2022, section 3.1: iteration-level scheduling). A text that has said
all leaves at once, and another takes its place, so no text waits for the longest of its group. A
long prompt is read in parts, so that the others go on meanwhile (Agrawal et al. 2023). A text that
begins like one that is there shares its pages (Kwon et al. 2023).
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from lib.arguments import is_whole
from lib.engine.cache import Pages
from lib.engine.fast import FastLlama
from lib.engine.sampling import Sampler, check_prompt
from lib.errors import CourseError


class Text:
    """A prompt and what the model says after it.

    Attributes
    ----------
    number : int
        Its place in the order of arrival, from 0.
    tokens : list of int
        The prompt, and what was said so far.
    said : list of int
        What was said so far.
    is_done : bool
    """

    def __init__(self, number: int, prompt: Sequence[int], n: int, sampler: Sampler):
        self.number, self.tokens, self.is_done = number, list(prompt), n == 0
        self.cache: Any = None  # a GrowingCache while it is among those that run
        self._prompt, self._end, self._sampler = len(prompt), len(prompt) + n, sampler

    @property
    def said(self) -> list[int]:
        """Return what the model said so far."""
        return self.tokens[self._prompt :]

    def draw(self, logits, stop: frozenset) -> None:
        """Take up the next token, or end at one that ends a text."""
        token = self._sampler.draw(logits, self.tokens)
        if token not in stop:
            self.tokens.append(token)
        self.is_done = token in stop or len(self.tokens) == self._end


class Scheduler:
    """Lets the model continue several texts at once.

    Parameters
    ----------
    model : FastLlama
    at_once : int
        Texts that run together at most; the others wait for their turn.
    part : int
        Tokens of a prompt that one pass reads at most.

    Raises
    ------
    CourseError
        If `at_once` or `part` is not a whole number of at least 1.
    """

    def __init__(self, model: FastLlama, at_once: int = 8, part: int = 128):
        for name, number in (("at_once", at_once), ("part", part)):
            if not (is_whole(number) and number >= 1):
                raise CourseError(
                    f"{name} should be a whole number of at least 1; it is {number!r}"
                )
        self.model, self.at_once, self.part = model, at_once, part
        self.pages = model.new_pages()
        self.waiting: deque[Text] = deque()
        self.running: list[Text] = []
        self._left: list[Text] = []  # done, with pages that those who join next may share
        self._added = 0

    def add(self, prompt: Sequence[int], n: int, sampler: Sampler | None = None) -> Text:
        """Put a text in line: up to n tokens that follow a prompt.

        Raises
        ------
        CourseError
            If the prompt is empty, has a token that the vocabulary lacks, or does not fit into the
            context with n more. The other texts are not affected.
        """
        check_prompt(self.model, prompt, n)
        text = Text(self._added, prompt, n, sampler or Sampler())
        self._added += 1
        self.waiting.append(text)
        return text

    def step(self) -> list[Text]:
        """Run one pass, and return the texts that are done with it."""
        self._join()
        self._release()
        parts = [(text.tokens[text.cache.n :][: self.part], text.cache) for text in self.running]
        rows = self.model.logits_of_texts(parts)
        for text, logits in zip(self.running, rows, strict=True):
            if text.cache.n == len(text.tokens) and not text.is_done:  # all of it is read
                text.draw(logits, self.model.tokenizer.stop)
        return self._leave()

    def run(self) -> Iterator[Text]:
        """Yield each text as soon as it is done, until none is left."""
        while self.waiting or self.running:
            yield from self.step()

    def drop(self, text: Text) -> None:
        """Take a text out, whether it waits or runs; what it said so far stays in it."""
        text.is_done = True
        if text in self.waiting:
            self.waiting.remove(text)
        self._leave()

    def _join(self) -> None:
        """Let waiting texts in. One whose beginning is still being read waits for that."""
        for text in list(self.waiting):
            if len(self.running) == self.at_once:
                return
            like, n = self._most_alike(text)
            if like is not None and n >= like.cache.n + Pages.TOKENS:
                continue
            self.waiting.remove(text)
            if like is None:
                text.cache = self.model.new_cache(pages=self.pages)
            else:
                text.cache = like.cache.fork(min(n, like.cache.n))
            self.running.append(text)

    def _most_alike(self, text: Text) -> tuple[Text | None, int]:
        """Return the text with the longest common beginning, and its length.

        The last token of a prompt has to be read, for its logits.
        """
        others = self.running + self._left
        lengths = [common(text.tokens[:-1], other.tokens) for other in others]
        longest = max(lengths, default=0)
        return (others[lengths.index(longest)], longest) if longest else (None, 0)

    def _leave(self) -> list[Text]:
        done = [text for text in self.running if text.is_done]
        self.running = [text for text in self.running if not text.is_done]
        self._left += done
        if not self.waiting:
            self._release()
        return done

    def _release(self) -> None:
        for text in self._left:
            text.cache.truncate(0)  # gives its pages back
        self._left = []


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many tokens two texts begin with in common."""
    pairs = zip(one, other, strict=False)
    return next((k for k, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def continuations(
    model: FastLlama, prompts: Iterable[Sequence[int]], n: int, at_once: int = 8, **how
) -> Iterator[tuple[int, list[int] | CourseError]]:
    """Yield what the model says after each of several prompts, as they finish.

    Parameters
    ----------
    model : FastLlama
    prompts : iterable of sequences of int
    n, at_once : int
        Tokens for each at most; texts at once at most.
    **how
        Arguments of `Sampler`, for each text anew.

    Returns
    -------
    iterator of tuple
        The prompt's number from 0, and the tokens; or the error that names what is wrong with it.
    """
    scheduler, numbers = Scheduler(model, at_once), {}
    for number, prompt in enumerate(prompts):
        try:
            numbers[scheduler.add(prompt, n, Sampler(**how)).number] = number
        except CourseError as error:
            yield number, error
    for text in scheduler.run():
        yield numbers[text.number], text.said
