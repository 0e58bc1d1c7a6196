"""Repair a toy that has no healthy twin: component, place of the repair, and a prediction.

The judge runs the repair. The reason is judged by a reading that the reader has to predict: what
the patient, before its repair, says after a text that no cell of the exercise shows.
"""

from dataclasses import dataclass

import numpy as np

from lib.exercises.judging import Malformed, Wrong
from lib.exercises.roles import entries
from lib.lab import toy
from lib.lab.sick_toy import PLACES, SOUND, repaired, sick_toy

KINDS = {"seed": int, "component": str, "repair": str, "next": str}
OPENINGS = ("the dog", "the bird")
SAME = 1e-9  # two layers in float64 that do the same


def places_table():
    """Show the places that can be repaired, as Markdown."""
    from lib.lab.show import table

    return table(
        ["place", "in", "repaired, it does this"],
        [[f"`{place}`", component, does] for place, (component, does) in PLACES.items()],
    )


@dataclass(frozen=True)
class Repair:
    """A toy to repair.

    Fields
    ------
    task : str
        One of `lib.lab.sick_toy.TASKS`.
    probe : str
        The text after which the next word of the unrepaired patient is to be predicted.
    """

    task: str
    probe: str
    form = (
        '{"seed": 2026, "component": "attention" or "FFN", "repair": a place of the table, "next": '
        "a word of the toy}"
    )

    def judge(self, answer):
        """Run the repair and the probe; raise `NotRight`, or say what the patient writes now."""
        found = self.parse(answer)
        patient = sick_toy(found["seed"], self.task)
        judged = f"(Judged: the patient of seed {found['seed']}.)"
        check_component(patient, found["component"], judged)
        check_repair(patient, found, judged)
        if found["next"] != patient.next_word(self.probe):
            raise Wrong(
                "component and repair fit; the prediction does not. After "
                f"“{self.probe}” the patient, before its repair, does not say “{found['next']}”. "
                f"What do its faulty {found['component']} and its sound other step make of the "
                f"last word? {judged}"
            )
        wrote = repaired(patient, found["repair"]).write(OPENINGS[0])
        return f"Repaired, the patient of seed {found['seed']} writes “{wrote}”"

    def parse(self, answer):
        """Return the answer as a dict whose values are of the right kinds."""
        found = entries(answer, KINDS, self.form, lambda value: value)
        for name, kind in KINDS.items():
            if type(found[name]) is not kind:
                raise Malformed(
                    f"{name!r} should be {'a whole number' if kind is int else 'a string'}; "
                    f"it is of type {type(found[name]).__name__}."
                )
        if not 0 <= found["seed"] <= 10**18:
            raise Malformed('"seed" should be from 0 to 10¹⁸, the one that made your patient.')
        known = {
            "component": {"attention": "attention", "ffn": "FFN"},
            "repair": {place: place for place in PLACES},
            "next": {word: word for word in toy.WORDS},
        }
        for name, values in known.items():
            value = values.get(found[name].strip().lower())
            if value is None:
                raise Malformed(
                    f"{name!r} should be one of {', '.join(values.values())}; "
                    f"it is {found[name]!r:.40}."
                )
            found[name] = value
        return found


def off(patient):
    """Return how far each step is from its definition, at most, on the same vectors: a dict."""
    far = {"attention": 0.0, "FFN": 0.0}
    for text in (*OPENINGS, "the dog saw the bird", "the bird saw the dog run", "dog saw bird"):
        X = np.float64(toy.embed(text))
        M = X + SOUND.attention_step(X)
        for name, step, vectors in (("attention", "attention_step", X), ("FFN", "ffn_step", M)):
            gap = np.abs(getattr(patient, step)(vectors) - getattr(SOUND, step)(vectors)).max()
            far[name] = max(far[name], float(gap))
    return far


def check_component(patient, named, judged):
    """Raise `Wrong` where the named component does what it should."""
    here = off(patient)
    if here[named] > SAME:
        return
    other = "FFN" if named == "attention" else "attention"
    raise Wrong(
        f"a fault in {_the(named)} does not explain this patient. Given the vectors that should "
        f"enter it, its {named} step is off from the definition by {here[named]:.3f} at most; its "
        f"{other} step by {here[other]:.3f}. {judged}"
    )


def check_repair(patient, found, judged):
    """Raise `Wrong` where the repair was run and the patient is not sound."""
    place = found["repair"]
    if PLACES[place][0] != found["component"]:
        raise Wrong(
            f"the component fits, the repair does not: `{place}` is a place of "
            f"{_the(PLACES[place][0])}, and you named {_the(found['component'])}. {judged}"
        )
    mended = repaired(patient, place)
    if max(off(mended).values()) > SAME:
        text = next(t for t in OPENINGS if patient.write(t) != SOUND.write(t))
        raise Wrong(
            f"the component fits, the repair does not. It was run: with the right `{place}` the "
            f"patient writes “{mended.write(text)}”, as it did before. {judged}"
        )


def _the(component):
    return "the FFN" if component == "FFN" else "attention"
