"""Diagnose a patient: component, evidence, and a sentence of reasoning.

Evidence is a reading of one instrument. The judge takes the reading that the answer claims, on the
patient that the answer names and on its healthy twin. The sentence is not judged, but for being
there and being about the component; it stays in the answer for the teacher.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lib.errors import CourseError
from lib.exercises.judging import Malformed, NotRight, Unanswered, Wrong, quoted
from lib.lab.faults import PatientStack, patient
from lib.lab.installed import NoModel
from lib.lab.probes import movements, nonlinearity, score_factors


class NotJudged(NotRight):
    """The answer cannot be judged on this machine."""

    heading = "Cannot be judged here"


class Reading(NamedTuple):
    """What an instrument shows on one layer."""

    holds: bool  # whether the evidence is there
    words: str  # the numbers, in a clause


@dataclass(frozen=True)
class Evidence:
    """A claim about one component, and the instrument that reads it."""

    component: str
    claim: str
    read: Callable  # read(patient) -> Reading


# --- Readings of the attention step ---


def no_left_context(p):
    """Read whether no token moves a later position."""
    heard = len(p.X) - 1 - len(_silent(p))
    return Reading(
        heard == 0,
        f"in the attention step {heard} of the {len(p.X) - 1} tokens that have a position after "
        "them move a later position",
    )


def first_token_unseen(p):
    """Read whether token 0, and it alone, moves no later position."""
    return Reading(_silent(p) == [0], _silence(p))


def early_tokens_unseen(p):
    """Read whether the first tokens, but not all, move no later position."""
    silent = _silent(p)
    some = 2 <= len(silent) < len(p.X) - 1 and silent == list(range(len(silent)))
    return Reading(some, _silence(p))


def future_leaks(p):
    """Read whether a token moves an earlier position."""
    reach = movements(p.attention_step, p.X)
    leak = np.triu(reach, 1).max()
    return Reading(
        bool(leak > p.tolerance * reach.max()),
        f"in the attention step a changed token moves earlier positions by at most {leak:.3f}",
    )


def own_token_unseen(p):
    """Read whether no query gives its own token weight, the first query aside."""
    own = p.weights(p.X).diagonal()[1:].max()
    return Reading(
        bool(own == 0),
        f"the largest weight that a query from position 1 on gives its own token is {own:.3f}",
    )


def rows_do_not_sum(p):
    """Read whether the weights of some query do not sum to one."""
    sums = p.weights(p.X).sum(axis=1)
    worst = int(np.abs(sums - 1).argmax())
    return Reading(
        bool(abs(sums[worst] - 1) > p.tolerance),
        f"the sum farthest from one, of the weights of query {worst}, is {sums[worst]:.3f}",
    )


def weights_ignore_the_query(p):
    """Read whether the weights stay the same whatever the vectors are."""
    moved = movements(p.weights, p.X).max()
    return Reading(bool(moved == 0), f"a changed token moves the weights by up to {moved:.3f}")


def weights_too_sharp(p):
    """Read whether all differences of score are multiplied by one factor above 1."""
    factors = score_factors(p.weights(p.X), p.healthy.weights(p.X))
    if len(factors) == 0:
        return Reading(False, "no query gives weight to two keys, so there is no score to compare")
    least, most = factors.min(), factors.max()
    return Reading(
        bool(least > 1.01 and most - least < 1e-3 * most),
        "the differences of score are those of the healthy twin times factors from "
        f"{_factor(least)} to {_factor(most)}",
    )


def _factor(number):
    return f"{round(float(number), 2) + 0.0:.2f}".replace("-", "−")  # a zero has no sign


def _silent(p):
    """Return the tokens that move no later position in the attention step."""
    reach = movements(p.attention_step, p.X)
    limit = p.tolerance * reach.max()
    return [j for j in range(len(p.X) - 1) if reach[j + 1 :, j].max() <= limit]


def _silence(p):
    silent = _silent(p)
    if not silent:
        return "in the attention step every token moves the positions after it"
    listed = ", ".join(map(str, silent))
    return f"in the attention step the tokens that move no later position are: {listed}"


# --- Readings of the FFN step ---


def ffn_adds_nothing(p):
    """Read whether the FFN step adds zeros."""
    most = np.abs(p.ffn_step(p.M)).max()
    return Reading(bool(most == 0), f"the largest number that the FFN step adds is {most:.3f}")


def ffn_constant(p):
    """Read whether the FFN step adds the same, and not zero, whatever enters it."""
    moved, most = movements(p.ffn_step, p.M).max(), np.abs(p.ffn_step(p.M)).max()
    return Reading(
        bool(moved == 0 < most),
        f"the FFN step adds numbers up to {most:.3f}, and a changed vector moves them by up to "
        f"{moved:.3f}",
    )


def ffn_is_linear(p):
    """Read whether the FFN, which is not constant, adds up as a linear function does."""
    A, B = p.M, p.M[::-1] + 1
    gap, moved = nonlinearity(p.ffn_step, A, B), movements(p.ffn_step, A).max()
    return Reading(
        bool(moved > 0 and gap <= p.tolerance * np.abs(p.ffn_step(A + B)).max()),
        f"f(A) + f(B) − f(A + B) − f(0) reaches {gap:.3f}, where a changed vector moves f by up to "
        f"{moved:.3f}",
    )


def ffn_mixes_positions(p):
    """Read whether one position's vector moves what the FFN adds to another."""
    reach = movements(p.ffn_step, p.M)
    across = (reach - np.diag(reach.diagonal())).max()
    return Reading(
        bool(across > p.tolerance * reach.max()),
        f"in the FFN step a changed vector moves other positions by at most {across:.3f}",
    )


def residual_missing(p):
    """Read whether what entered the second step is missing from what leaves the layer."""
    M = p.M
    gap = np.abs(p.second_half(M) - p.ffn_step(M) - M).max()
    return Reading(
        bool(gap > p.tolerance * np.abs(M).max()),
        f"Y − ffn_step(M), which should be M, is off by at most {gap:.3f}",
    )


EVIDENCE = {
    "no_left_context": Evidence(
        "attention", "no token moves a later position in the attention step", no_left_context
    ),
    "first_token_unseen": Evidence(
        "attention",
        "token 0, and it alone, moves no later position in the attention step",
        first_token_unseen,
    ),
    "early_tokens_unseen": Evidence(
        "attention",
        "the first tokens, two or more but not all, move no later position in the attention step",
        early_tokens_unseen,
    ),
    "future_leaks": Evidence(
        "attention", "a token moves an earlier position in the attention step", future_leaks
    ),
    "own_token_unseen": Evidence(
        "attention", "no query after the first gives its own token weight", own_token_unseen
    ),
    "rows_do_not_sum": Evidence(
        "attention", "the weights of some query do not sum to one", rows_do_not_sum
    ),
    "weights_ignore_the_query": Evidence(
        "attention",
        "the weights stay the same, whatever vectors enter",
        weights_ignore_the_query,
    ),
    "weights_too_sharp": Evidence(
        "attention",
        "all differences of score are larger than in the healthy twin, by one factor",
        weights_too_sharp,
    ),
    "ffn_adds_nothing": Evidence("FFN", "the FFN step adds zeros", ffn_adds_nothing),
    "ffn_constant": Evidence(
        "FFN", "the FFN step adds the same numbers, not zeros, whatever enters it", ffn_constant
    ),
    "ffn_is_linear": Evidence(
        "FFN", "the FFN adds up as a linear function does, and is not constant", ffn_is_linear
    ),
    "ffn_mixes_positions": Evidence(
        "FFN", "one position's vector moves what the FFN adds to another", ffn_mixes_positions
    ),
    "residual_missing": Evidence(
        "FFN", "what entered the second step is missing from what leaves it", residual_missing
    ),
}


def evidence_table():
    """Show the codes of the evidence, as Markdown."""
    from lib.lab.show import table

    return table(
        ["code", "concerns", "claims that"],
        [[f"`{code}`", e.component, e.claim] for code, e in EVIDENCE.items()],
    )


# --- Judging ---

# A word that shows what the sentence is about, by component; the start of a word is enough.
ABOUT = {
    "attention": "attention attend weight mask softmax key query queries value score scale scaling "
    "cache context head",
    "FFN": "ffn feedforward activation position hidden residual linear relu gelu w_1 w_2 b_1 b_2",
}

KINDS = {"seed": int, "layer": int, "component": str, "evidence": str, "because": str}


@dataclass(frozen=True)
class Diagnosis:
    """A patient to diagnose.

    Fields
    ------
    task : str
        One of `lib.lab.faults.WARDS`.
    finds_layer : bool
        Whether the reader has to find the sick layer of a stack too.
    outside : callable, optional
        ``outside(patient, component)`` says, in a sentence, what was seen from outside the layer
        that no fault of the wrong component explains.
    """

    task: str
    finds_layer: bool = False
    outside: Callable | None = None

    @property
    def form(self):
        """What an answer looks like."""
        layer = '"layer": 1, ' if self.finds_layer else ""
        return (
            f'{{"seed": 2026, {layer}"component": "attention" or "FFN", "evidence": a code of the '
            'table, "because": a sentence}'
        )

    def judge(self, answer):
        """Judge a diagnosis; raise `NotRight`, or say on what it was judged."""
        found = self.parse(answer)
        try:
            layer = self._layer(patient(found["seed"], self.task), found)
            check_component(layer, found, self.outside)
            check_evidence(layer, found)
        except NoModel as missing:
            raise NotJudged(f"this patient is a layer of the real model. {missing}") from None
        check_sentence(found)
        return f"Component and evidence fit the patient of seed {found['seed']}."

    def parse(self, answer):
        """Return the answer as a dict whose values are of the right kinds."""
        names = [n for n in KINDS if n != "layer" or self.finds_layer]
        if type(answer) is not dict:
            raise Malformed(
                f"the answer should be a dict such as {self.form}; "
                f"it is of type {type(answer).__name__}."
            )
        if unknown := [n for n in answer if type(n) is not str or n not in names]:
            raise Malformed(
                f"the answer has a place for {quoted(names)}, not for {_shown(unknown[0])}."
            )
        if open_ := [n for n in names if answer.get(n) is None or answer[n] is ...]:
            raise Unanswered(f"still open: {quoted(open_)}. The form is {self.form}.")
        for name in names:
            if type(answer[name]) is not KINDS[name]:
                raise Malformed(
                    f"{name!r} should be {'a whole number' if KINDS[name] is int else 'a string'}; "
                    f"it is of type {type(answer[name]).__name__}."
                )
        return self._known(dict(answer))

    def _known(self, found):
        found["component"] = {"attention": "attention", "ffn": "FFN"}.get(
            found["component"].strip().lower()
        )
        if found["component"] is None:
            raise Malformed('"component" should be "attention" or "FFN", one of the two.')
        if found["evidence"] not in EVIDENCE:
            raise Malformed(
                f'"evidence" should be one code of the table; it is {_shown(found["evidence"])}.'
            )
        if not 0 <= found["seed"] <= 10**18:
            raise Malformed('"seed" should be from 0 to 10¹⁸, the one that made your patient.')
        return found

    def _layer(self, subject, found):
        """Return the layer that the answer speaks of."""
        if not isinstance(subject, PatientStack):
            return subject
        if not self.finds_layer:
            return subject.layer(subject.suspect)
        if not 1 <= found["layer"] <= subject.L:
            raise Malformed(f'"layer" should be from 1 to {subject.L}.')
        layer = subject.layer(found["layer"])
        if max(differences(layer).values()) <= layer.tolerance:
            raise Wrong(
                f"layer {found['layer']} is sound: from the vectors that enter it, it makes what "
                f"its healthy twin makes, to within {max(differences(layer).values()):.3f} of its "
                f"size. {_judged(found)}"
            )
        return layer


def differences(layer):
    """Return how far each step is from the healthy twin's, on the same input, relative to its size.

    The FFN step counts with the residual that ends the layer.
    """
    X, M, twin = layer.X, layer.M, layer.healthy
    pairs = {
        "attention": (layer.attention_step(X), twin.attention_step(X)),
        "FFN": (layer.second_half(M), twin.second_half(M)),
    }
    return {
        name: float(np.abs(np.float64(a) - b).max() / np.abs(b).max())
        for name, (a, b) in pairs.items()
    }


def check_component(layer, found, outside=None):
    """Raise `Wrong` where the named component does what its healthy twin does.

    Parameters
    ----------
    layer : Patient
    found : dict
        The diagnosis, as `Diagnosis.parse` returns it.
    outside : callable, optional
        As in `Diagnosis`.
    """
    here, named = differences(layer), found["component"]
    if here[named] > layer.tolerance:
        return
    other = "FFN" if named == "attention" else "attention"
    seen = f"{outside(layer, named)} " if outside else ""
    raise Wrong(
        f"a fault in {_the(named)} does not explain this patient. {seen}On the same input its "
        f"{named} step makes what the healthy twin's makes, to within {here[named]:.3f} of its "
        f"size; its {other} step is off by {here[other]:.3f}. {_judged(found)}"
    )


def check_evidence(layer, found):
    """Raise `Wrong` where the claimed reading is healthy, or concerns the other component."""
    code = found["evidence"]
    evidence = EVIDENCE[code]
    try:
        here, sound = evidence.read(layer), evidence.read(layer.healthy)
    except CourseError as mistake:  # an instrument that this layer has no place for
        raise Wrong(f"`{code}` cannot be read here: {mistake}. {_judged(found)}") from None
    read = f"In this patient {here.words}; in the healthy twin {sound.words}. {_judged(found)}"
    unfit = "the component fits, the evidence does not:"
    if evidence.component != found["component"]:
        raise Wrong(
            f"{unfit} `{code}` is a reading of {_the(evidence.component)}, and you named "
            f"{_the(found['component'])}. {read}"
        )
    if not here.holds or sound.holds:
        raise Wrong(f"{unfit} `{code}` claims that {evidence.claim}. {read}")


def check_sentence(found):
    """Raise `Wrong` where the sentence is missing, too short, or not about the component."""
    text, named = found["because"].lower(), found["component"]
    words = set(re.findall(r"[^\W_]+", text))
    if not words:
        raise Wrong('component and evidence fit; the sentence of reasoning, "because", is missing.')
    if len(words) < 5:
        raise Wrong(
            'component and evidence fit; "because" should be a sentence of at least five different '
            f"words, for your teacher. It has {len(words)}."
        )
    spaced = re.sub(r"feed[ _-]?forward", "feedforward", text)
    if not any(re.search(rf"\b{re.escape(word)}", spaced) for word in ABOUT[named].split()):
        raise Wrong(
            f"component and evidence fit; the sentence does not speak of {_the(named)} or of "
            "anything in it. Say how the component makes the reading."
        )


def _the(component):
    return "the FFN" if component == "FFN" else "attention"


def _judged(found):
    return f"(Judged: the patient of seed {found['seed']}.)"


def _shown(value):
    """Return what the reader wrote, cut short; of anything but a string, the type alone."""
    return f"{value!r:.60}" if type(value) is str else f"a name of type {type(value).__name__}"
