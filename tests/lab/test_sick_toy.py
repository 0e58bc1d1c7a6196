"""Toys with one fault and no sound one beside them."""

import numpy as np
import pytest

from lib.errors import CourseError
from lib.exercises.repairing import OPENINGS, SAME, off
from lib.exercises.t03_debugging import REPAIRS
from lib.lab import sick_toy as sick
from lib.lab import toy

SOUND = ["the dog saw the bird fly .", "the bird saw the dog run ."]


def test_a_sound_one_writes_what_the_toy_writes():
    assert [sick.SOUND.write(text) for text in OPENINGS] == SOUND
    assert [toy.write(text) for text in OPENINGS] == SOUND
    X = np.float64(toy.embed("the dog saw"))
    np.testing.assert_allclose(sick.SOUND.weights(X).sum(axis=1), 1, rtol=1e-15)


@pytest.mark.parametrize("fault", sick.FAULTS)
def test_every_fault_shows_in_the_words_and_one_place_mends_it(fault):
    patient = sick.SickToy(fault, sick.FAULTS[fault])
    assert [patient.write(text) for text in OPENINGS] != SOUND
    component = "attention" if fault in sick.OF_ATTENTION else "FFN"
    far = off(patient)
    assert [name for name, gap in far.items() if gap > 0.1] == [component]
    mends = [p for p in sick.PLACES if max(off(sick.repaired(patient, p)).values()) <= SAME]
    assert [sick.PLACES[place][0] for place in mends] == [component]
    mended = sick.repaired(patient, mends[0])
    assert [mended.write(text) for text in OPENINGS] == SOUND


@pytest.mark.parametrize("task", REPAIRS)
def test_a_probe_is_no_constant_of_the_faults(task):
    patients = [sick.SickToy(fault, places) for fault, places in sick.FAULTS.items()]
    said = [patient.next_word(REPAIRS[task].probe) for patient in patients]
    assert len(set(said)) >= 3
    assert max(map(said.count, said)) <= len(said) // 2


@pytest.mark.parametrize("seed", range(20))
def test_a_reader_meets_three_faults_of_both_components(seed):
    faults = list(sick.deal(seed).values())
    assert len(set(faults)) == 3
    assert {fault in sick.OF_ATTENTION for fault in faults} == {True, False}
    for task in sick.TASKS:
        patient = sick.sick_toy(seed, task)
        assert repr(patient) == f"<{task} of seed {seed}>"
        place = next(p for p in sick.PLACES if max(off(sick.repaired(patient, p)).values()) <= SAME)
        component, probe = sick.PLACES[place][0], REPAIRS[task].probe
        answer = {"seed": seed, "component": component, "repair": place}
        assert "writes “the dog saw the bird fly .”" in REPAIRS[task].judge(
            {**answer, "next": patient.next_word(probe)}
        )


@pytest.mark.parametrize(
    ("seed", "task", "message"),
    [
        ("7", "word_1", "seed should be a whole number"),
        (True, "word_1", "seed should be a whole number"),
        (-1, "word_1", "from 0 to 10¹⁸; it is -1"),
        (1, "word_4", "task should be one of word_1, word_2, word_3; it is 'word_4'"),
    ],
)
def test_what_is_no_patient_is_named(seed, task, message):
    with pytest.raises(CourseError, match=message):
        sick.sick_toy(seed, task)
