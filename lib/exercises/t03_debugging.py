"""Exercise 03: find the fault of a layer, beside a healthy twin and without one."""

from lib.exercises.diagnosis import Diagnosis
from lib.exercises.judging import Task
from lib.exercises.repairing import Repair
from lib.lab.probes import movement


def nothing_arrives(layer, named):
    """Say what the scenario shows from outside, where the FFN is named."""
    moved = movement(layer.layer, layer.X, 0)[-1]
    twin = movement(layer.healthy.layer, layer.X, 0)[-1]
    return (
        f"When token 0 changes, the last output of the layer moves by {moved:.3f}; in the healthy "
        f"twin by {twin:.3f}. The FFN reads one position at a time: it neither brings token 0 to "
        "the last position nor keeps it away."
    )


DIAGNOSES = {
    "scenario": Diagnosis("scenario", outside=nothing_arrives),
    **{f"patient_{k}": Diagnosis(f"patient_{k}") for k in range(1, 6)},
    "stack": Diagnosis("stack", finds_layer=True),
    "real_1": Diagnosis("real_1"),
    "real_2": Diagnosis("real_2", finds_layer=True),
}

REPAIRS = {
    "word_1": Repair("word_1", probe="dog saw bird"),
    "word_2": Repair("word_2", probe="bird run the"),
    "word_3": Repair("word_3", probe="bird saw the dog"),
}


def _task(word, title, minutes, difficulty):
    judge = (DIAGNOSES | REPAIRS)[word]
    return Task(f"03.{word}", title, judge.form, minutes, difficulty, judge.judge)


TASKS = [
    _task("scenario", "A layer that does not listen", 5, 1),
    _task("patient_1", "Weights and additions", 5, 1),
    _task("patient_2", "The future arrives", 5, 2),
    _task("patient_3", "The first output is right", 6, 2),
    _task("patient_4", "The cache is suspected", 6, 2),
    _task("patient_5", "Everything moves where it should", 7, 3),
    _task("stack", "One of four layers", 7, 3),
    _task("real_1", "A layer of the real model", 6, 2),
    _task("real_2", "One of thirty layers", 8, 3),
    _task("word_1", "A toy that lost its thread", 10, 2),
    _task("word_2", "Another toy", 8, 3),
    _task("word_3", "A last toy", 8, 3),
]
