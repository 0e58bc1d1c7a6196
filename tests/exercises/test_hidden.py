"""The inputs that nobody has seen: drawn of a seed, for each mechanism, fair to right answers."""

import copy
import dataclasses

import numpy as np
import pytest

from lib.exercises import hidden, judging, questions
from lib.exercises import t04_build_attention as t04
from lib.exercises import t05_build_a_layer as t05
from lib.exercises import t07_make_it_fast as t07
from lib.exercises.building import Building, Given
from lib.exercises.work import Kernel
from lib.jit import source_of
from tests.exercises.caught import answer_files

SEED = 5
FILES = answer_files()
TASKS = [
    task
    for number in ("04", "05", "06", "07", "08", "09")
    for task in judging.tasks_of(number)
    if isinstance(questions.owner(task), Building | Kernel)
]
# Wrong at one shape alone, which the ladder shows: who knows the ladder by heart is right then.
ONE_SHAPE = {"right for up to 16 coordinates", "right for square V only"}


def made(name, which=0, seed=SEED):
    return hidden.ARGUMENTS[name][which](hidden._Chance(seed))


def ladder(task, seed):
    """Return the ladder of a task with its hidden rungs; of a kernel, that of its values."""
    owner = questions.owner(task)
    if isinstance(owner, Kernel):
        return hidden.kernel(owner, seed).values
    return hidden.building(owner, seed)


def function(task, answer):
    owner = questions.owner(task)
    return owner._returning(source_of(answer)) if isinstance(owner, Kernel) else answer


def word(building, answer):
    """Return the class of what is raised for an answer: empty if it is right."""
    try:
        Building.judge(building, answer)  # of no model
    except judging.NotRight as refusal:
        return type(refusal).__name__
    return ""


def key(value):
    if isinstance(value, Given):
        return value.words
    if dataclasses.is_dataclass(value):
        return key(list(vars(value).values()))
    if isinstance(value, dict):
        return key(list(value.items()))
    if isinstance(value, list | tuple):
        return tuple(map(key, value))
    if isinstance(value, str):
        return value
    array = np.asarray(value, np.float64)
    return array.shape, array.tobytes()


def by_heart(building, wrong):
    """Return a function that knows the results of a ladder, and is wrong everywhere else."""
    known = set()

    def remember(*arguments):
        known.add(key(arguments))
        return building.definition(*arguments)

    for rung in building.rungs:
        rung.run(remember, *copy.deepcopy(rung.arguments))
    return lambda *a: building.definition(*a) if key(a) in known else wrong(*a)


@pytest.mark.parametrize("task", TASKS)
def test_who_knows_the_ladder_by_heart_is_still_wrong(task):
    owner = questions.owner(task)
    shown = owner.values if isinstance(owner, Kernel) else owner
    passed, tried = [], 0
    for label, answer, _ in FILES[task[:2]].WRONG[task]:
        if not callable(answer) or isinstance(answer, type) or label in ONE_SHAPE:
            continue
        wrong = function(task, answer)
        if word(shown, wrong) == "Wrong":
            tried += 1
            knowing = by_heart(shown, wrong)
            assert word(shown, knowing) == ""
            passed += [label for seed in (1, 2) if not word(ladder(task, seed), knowing)]
    assert tried > 5
    assert passed == []


@pytest.mark.parametrize("task", TASKS)
def test_no_seed_costs_a_right_answer_anything(task):
    answers = FILES[task[:2]]
    right = [answers.RIGHT[task], *getattr(answers, "ALSO_RIGHT", {}).get(task, [])]
    few = {"07.multiply_adds": 2, "07.bytes": 2, "08.encode": 10, "08.merge": 20}
    seeds = range(few.get(task, 40))
    ladders = [ladder(task, seed) for seed in seeds]
    assert {word(one, function(task, answer)) for one in ladders for answer in right} == {""}


def test_scores_are_as_large_as_they_are_said_to_be_and_exact_in_float32():
    for near, sign in ((hidden._high, 1), (hidden._low, -1)):
        q, K = hidden._scored(hidden._Chance(SEED), near(hidden._Chance(SEED), 6))
        scores = K @ q / 2
        assert (sign * scores > 790).all()
        assert (sign * scores < 1210).all()
        assert (np.float32(K) @ np.float32(q) / np.float32(2) == scores).all()
    rising = hidden._rising(hidden._Chance(SEED), 4)
    falling = hidden._falling(hidden._Chance(SEED), 4)
    assert (np.diff(rising) >= 800).all()
    assert (np.diff(falling) <= -800).all()
    assert (rising.max(), falling.argmax()) == (0, 0)


def test_sizes_are_of_each_seed_and_no_two_are_equal():
    seen = set()
    for seed in range(60):
        q, K, V = made("attend", seed=seed)
        assert len({*K.shape, V.shape[1]}) == 3
        assert q.shape == K.shape[1:]
        x, K, V, *_ = made("decode_step", seed=seed)
        assert len(K) == len(V) != len(x) != len(K) + 1  # nor after the new token
        X, w = made("layer", seed=seed)
        assert len({*X.shape, w.W_1.shape[1]}) == 3
        seen.add(X.shape)
    assert len(seen) > 20


def test_what_next_token_is_asked_has_one_answer_for_each_mechanism():
    drawn = [draw(hidden._Chance(SEED)) for draw in dict.fromkeys(hidden.ARGUMENTS["next_token"])]
    general, largest, equals, large, impossible, beyond = drawn
    assert 0.3 <= general[1] <= 2.4
    assert largest[1] == equals[1] == 0
    assert (equals[0] == equals[0].max()).sum() == 2
    assert large[0].min() > 790
    assert impossible[0][0] <= -1e6
    assert impossible[2] == 0
    assert np.cumsum(np.full(len(beyond[0]), 1 / len(beyond[0])))[-1] < 1
    assert beyond[2] == np.nextafter(1.0, 0.0)


def test_a_next_token_that_draws_nothing_meets_an_unused_variable_often_enough():
    assert hidden.ARGUMENTS["next_token"][:40] == (hidden._drawn,) * 40
    r = hidden._Chance(SEED)
    drawn = [hidden._drawn(r) for _ in range(40)]
    hits = sum(
        questions.owner("06.next_token").definition(*one) == np.argmax(one[0]) for one in drawn
    )
    assert hits < 30


def test_counts_are_many_and_within_their_limits():
    for name, limits in {"multiply_adds": [(4, 30), (2, 40)],
                         "bytes_of_query": [(3, 90), (2, 90), (1, 9)]}.items():  # fmt: skip
        drawn = [made(name, seed=seed) for seed in range(400)]
        for found, (low, high) in zip(map(set, zip(*drawn, strict=True)), limits, strict=True):
            assert low <= min(found) < max(found) < high
            assert len(found) > 0.9 * (high - low - 1)  # too many to be guessed
        assert len(hidden.ARGUMENTS[name]) == 12


def test_a_seed_depends_on_every_text_and_on_where_one_ends():
    seeds = [hidden.seed_of(*texts) for texts in [("a", "b"), ("ab",), ("b", "a"), ("a", "b", "")]]
    assert len(set(seeds)) == 4
    assert all(0 <= seed < 2**64 for seed in seeds)
    assert max(seeds) > 2**60  # all of the eight bytes are used
    assert hidden.seed_of("a", "b") == seeds[0]
    assert hidden.seed_of("\ud800")  # a text that no file can hold


def test_a_building_gets_more_rungs_each_with_other_numbers():
    more = hidden.building(t04.ATTEND, SEED)
    shown, count = len(t04.ATTEND.rungs), len(hidden.ARGUMENTS["attend"])
    assert more.rungs[:shown] == t04.ATTEND.rungs
    assert len(more.rungs) == shown + count
    np.testing.assert_array_equal(more.rungs[shown].arguments[1], made("attend")[1])
    assert {rung.mechanism for rung in more.rungs[shown:]} == {"numbers of its own"}
    assert len({rung.arguments[0].tobytes() for rung in more.rungs[shown:]}) > count - 3
    assert hidden.building(t05.RESIDUAL, SEED).rungs[-1].arguments[1] not in (
        t05.SQUARE,
        t05.DOUBLE,
    )


def test_a_kernel_is_counted_on_numbers_of_its_own_with_scores_in_the_same_order():
    more = hidden.kernel(t07.ONLINE, SEED)
    draws = hidden.ARGUMENTS["attend_online"]
    assert len(more.values.rungs) == len(t07.ONLINE.values.rungs) + len(draws)
    assert all(array.dtype == np.float32 for array in more.values.rungs[-1].arguments)
    r = hidden._Chance(SEED)
    for draw in draws:
        draw(r)
    q, K, V = t07.ONLINE.inputs
    right = q * r.rng.uniform(0.6, 1.4), K * r.rng.uniform(0.6, 1.4), r(*V.shape)
    assert more.inputs is t07.ONLINE.inputs
    for mine, array in zip(more.counted, right, strict=True):
        assert mine.dtype == np.float32
        np.testing.assert_array_equal(mine, np.float32(array))
