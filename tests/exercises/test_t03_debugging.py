"""Exercise 03: every fault is found by its evidence, and by nothing else."""

import re

import pytest

from lib.exercises import Wrong, check
from lib.exercises.diagnosis import (
    EVIDENCE,
    NotJudged,
    check_component,
    check_evidence,
    differences,
    evidence_table,
)
from lib.exercises.judging import tasks_of
from lib.exercises.t03_debugging import DIAGNOSES
from lib.lab import faults
from lib.lab.faults import REAL_FAULTS, TOY_FAULTS, WARDS, deal, patient, real_stack, toy_patient
from lib.lab.installed import NoModel
from lib.lab.sick_toy import TASKS as TOYS
from tests.exercises.wrong.t03 import ATTENTION, ELSEWHERE, NETWORK, REPAIRS, RIGHT, WRONG

# What each fault is found by: all of the codes, and no other.
FOUND_BY = {
    "no_scaling": {"weights_too_sharp"},
    "no_mask": {"future_leaks"},
    "mask_ahead": {"future_leaks"},
    "mask_behind": {"own_token_unseen"},
    # The sum over the queries of a key takes in queries to the right: what is wrong leaks too.
    "wrong_axis": {"rows_do_not_sum", "future_leaks"},
    "uniform_weights": {"weights_ignore_the_query"},
    "values_unmixed": {"no_left_context", "weights_ignore_the_query"},
    "stale_cache": {"early_tokens_unseen"},
    "first_key_lost": {"first_token_unseen"},
    "left_out": {"ffn_adds_nothing"},
    "no_activation": {"ffn_is_linear"},
    "same_everywhere": {"ffn_constant"},
    "scrambled": {"ffn_mixes_positions"},
    "shifted": {"ffn_mixes_positions"},
    "residual_lost": {"residual_missing"},
    "attention_left_out": {"no_left_context"},
}
OTHER = {"attention": "FFN", "FFN": "attention"}
SEEDS = range(20)


def found(component, evidence="", seed=0):
    return {"seed": seed, "component": component, "evidence": evidence}


def test_every_task_has_a_right_answer_and_wrong_ones():
    assert set(RIGHT) == set(WRONG) == set(tasks_of("03")) == {f"03.{w}" for w in (*WARDS, *TOYS)}
    assert min(map(len, WRONG.values())) >= 20


@pytest.mark.parametrize("name", RIGHT)
def test_right_answers_print_one_line(name, capsys):
    check(name, RIGHT[name])
    line = f"{name}: right. Component and evidence fit the patient of seed 2026.\n"
    if name in REPAIRS:
        wrote = "the dog saw the bird fly ."
        line = f"{name}: right. Repaired, the patient of seed 2026 writes “{wrote}”\n"
    assert capsys.readouterr().out == line


@pytest.mark.parametrize("fault", TOY_FAULTS)
def test_every_fault_is_found_by_its_evidence_alone(fault):
    component = TOY_FAULTS[fault].component
    for seed in SEEDS:
        sick = toy_patient(seed, "patient_5", fault)
        assert {code for code, e in EVIDENCE.items() if e.read(sick).holds} == FOUND_BY[fault]
        for code in FOUND_BY[fault]:
            check_component(sick, found(component))
            check_evidence(sick, found(component, code))


@pytest.mark.parametrize("fault", TOY_FAULTS)
def test_the_wrong_component_is_refuted_by_numbers_and_without_the_key(fault):
    for seed in SEEDS:
        sick = toy_patient(seed, "patient_5", fault)
        with pytest.raises(Wrong, match=r"does not explain.* 0\.000 .* off by \d\.\d") as raised:
            check_component(sick, found(OTHER[TOY_FAULTS[fault].component]))
        assert not [code for code in [*EVIDENCE, fault] if code in str(raised.value)]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_healthy_layer_is_found_healthy_by_every_instrument(seed):
    sound = toy_patient(seed, "patient_5", None)
    assert [code for code, e in EVIDENCE.items() if e.read(sound).holds] == []
    assert differences(sound) == {"attention": 0.0, "FFN": 0.0}
    for component in OTHER:
        with pytest.raises(Wrong, match="does not explain"):
            check_component(sound, found(component))


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_is_wrong_here_is_right_elsewhere(name):
    for answer in ELSEWHERE[name]:
        check(name, answer)


@pytest.mark.parametrize("seed", range(4))
def test_the_right_diagnosis_passes_for_any_seed(seed):
    for task in (task for task, ward in WARDS.items() if ward.kind != "real"):
        fault, subject = deal(seed)[task], patient(seed, task)
        component = TOY_FAULTS[fault].component
        answer = {**found(component, min(FOUND_BY[fault]), seed), "because": ATTENTION + NETWORK}
        if task == "stack":
            layers = range(1, subject.L + 1)
            sick = [k for k in layers if max(differences(subject.layer(k)).values()) > 0]
            assert len(sick) == 1
            answer["layer"] = sick[0]
        check(f"03.{task}", answer)


@pytest.mark.parametrize("fault", REAL_FAULTS)
def test_faults_of_the_real_model_are_found(fault, monkeypatch):
    monkeypatch.setitem(faults.REAL_LAYERS, fault, (3,))
    sick = real_stack(5, "real_1", fault).layer(3)
    component = REAL_FAULTS[fault].component
    check_component(sick, found(component))
    for code in FOUND_BY[fault] - {"weights_ignore_the_query"}:
        check_evidence(sick, found(component, code))
    with pytest.raises(Wrong, match="does not explain"):
        check_component(sick, found(OTHER[component]))


def test_without_the_model_the_check_says_so_in_one_line(monkeypatch):
    def missing():
        raise NoModel("The model is not installed")

    monkeypatch.setattr(faults, "real_model", missing)
    monkeypatch.setattr(faults, "healthy_real_stack", missing)
    with pytest.raises(NotJudged, match="layer of the real model. The model is not inst") as raised:
        check("03.real_1", RIGHT["03.real_1"])
    (line,) = raised.value._render_traceback_()
    assert line.startswith("Cannot be judged here: this patient is a layer of the real model")


def test_the_table_has_every_code_once():
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", evidence_table().data, re.MULTILINE)
    assert rows == [(code, e.component) for code, e in EVIDENCE.items()]


def test_the_form_shows_no_evidence():
    for diagnosis in DIAGNOSES.values():
        assert not [code for code in EVIDENCE if code in diagnosis.form]


def test_the_form_asks_for_a_layer_where_one_is_to_be_found():
    for diagnosis in DIAGNOSES.values():
        assert ('"layer": 1' in diagnosis.form) is diagnosis.finds_layer
