"""Diagnoses for exercise 03: the right ones of seed 2026, and plausible wrong ones."""

from lib.lab.sick_toy import PLACES
from lib.lab.toy import WORDS

ATTENTION = "Attention brings the left context to a token, and here its weights do not."
NETWORK = "The FFN works on each position alone, and here it does something else."


class Agreeable:
    """Equal to everything."""

    def __eq__(self, other):
        return True

    __hash__ = None


class Text(str):
    __slots__ = ()


def attention(evidence, **more):
    named = {"component": "attention", "evidence": evidence, "because": ATTENTION}
    return {"seed": 2026, **more, **named}


def network(evidence, **more):
    return {"seed": 2026, **more, "component": "FFN", "evidence": evidence, "because": NETWORK}


RIGHT = {
    "03.scenario": attention("no_left_context"),
    "03.patient_1": network("ffn_constant"),
    "03.patient_2": attention("future_leaks"),
    "03.patient_3": attention("weights_ignore_the_query"),
    "03.patient_4": attention("first_token_unseen"),
    "03.patient_5": network("residual_missing"),
    "03.stack": network("ffn_adds_nothing", layer=4),
    "03.real_1": attention("no_left_context"),
    "03.real_2": network("ffn_mixes_positions", layer=9),
}

# Toys without a twin: a repair, and the word that the patient says after a text.
REPAIRS = {
    "03.word_1": {"seed": 2026, "component": "attention", "repair": "mean", "next": "saw"},
    "03.word_2": {"seed": 2026, "component": "attention", "repair": "scores", "next": "bird"},
    "03.word_3": {"seed": 2026, "component": "FFN", "repair": "rows", "next": "dog"},
}

# Patients of other readers: right there, wrong for seed 2026.
ELSEWHERE = {
    "03.patient_1": [
        attention("weights_ignore_the_query", seed=3),
        network("ffn_adds_nothing", seed=1),
    ],
    "03.patient_2": [network("ffn_mixes_positions", seed=3)],
    "03.patient_3": [
        network("ffn_mixes_positions", seed=2),
        attention("weights_too_sharp", seed=1),
    ],
    "03.patient_4": [
        network("residual_missing", seed=2),
        attention("early_tokens_unseen", seed=4),
    ],
    "03.patient_5": [
        attention("weights_ignore_the_query", seed=1),
        network("ffn_adds_nothing", seed=6),
    ],
    "03.stack": [network("residual_missing", seed=1, layer=4)],
    "03.real_1": [network("ffn_mixes_positions", seed=1)],
}

# Evidence that belongs to the right component and is not there: code, and what is read instead.
HEALTHY = {
    "03.scenario": [
        ("rows_do_not_sum", r"sum farthest from one, .* query 0, is 1\.000"),
        ("future_leaks", r"moves earlier positions by at most 0\.000"),
        ("weights_too_sharp", "no query gives weight to two keys"),
        ("early_tokens_unseen", "that move no later position are: 0, 1, 2, 3, 4; .* twin .* every"),
        ("first_token_unseen", "that move no later position are: 0, 1, 2, 3, 4; .* twin .* every"),
    ],
    "03.patient_1": [
        ("ffn_adds_nothing", r"largest number that the FFN step adds is 0\.42"),
        ("ffn_is_linear", r"moves f by up to 0\.000"),
        ("ffn_mixes_positions", r"moves other positions by at most 0\.000"),
        ("residual_missing", r"should be M, is off by at most 0\.000"),
    ],
    "03.patient_2": [
        ("no_left_context", "5 of the 5 tokens"),
        ("rows_do_not_sum", r"is 1\.000; in the healthy twin"),
        ("own_token_unseen", r"gives its own token is 0\.\d*[1-9]"),
        ("weights_too_sharp", r"times factors from 1\.00 to 1\.00"),
    ],
    "03.patient_3": [
        ("weights_too_sharp", r"times factors from 0\.00 to 0\.00"),
        ("own_token_unseen", r"gives its own token is 0\.500"),
        ("rows_do_not_sum", r"is 1\.000"),
    ],
    "03.patient_4": [
        ("early_tokens_unseen", "that move no later position are: 0; in the healthy twin .* every"),
        ("no_left_context", "4 of the 5 tokens"),
        ("rows_do_not_sum", r"is 1\.000"),
        ("own_token_unseen", r"gives its own token is 0\.\d*[1-9]"),
    ],
    "03.patient_5": [
        ("ffn_adds_nothing", r"adds is [1-9]?\d?\.\d*[1-9]"),
        ("ffn_constant", r"moves them by up to \d\.\d*[1-9]"),
        ("ffn_is_linear", r"reaches \d\.\d*[1-9]"),
    ],
    "03.stack": [
        ("ffn_constant", r"adds numbers up to 0\.000"),
        ("ffn_is_linear", r"reaches 0\.000, .* by up to 0\.000"),
        ("residual_missing", r"is off by at most 0\.000"),
    ],
    "03.real_1": [
        ("early_tokens_unseen", "are: 0, 1, 2, 3; in the healthy twin .* every"),
        ("future_leaks", r"by at most 0\.000"),
        ("rows_do_not_sum", "cannot be read here: weights should be asked of a toy patient"),
    ],
    "03.real_2": [
        ("ffn_adds_nothing", r"adds is \d+\.\d"),
        ("ffn_is_linear", r"reaches \d+\.\d"),
        ("residual_missing", r"is off by at most 0\.000"),
    ],
}


def wrong_answers(name, right):
    """Yield (label, answer, message) for one task."""
    yield from components(right)
    for code, read in HEALTHY[name]:
        message = f"the evidence does not: `{code}`.*{read}.*seed 2026"
        if "cannot" in read:
            message = f"`{code}` {read}"
        yield f"healthy: {code}", {**right, "evidence": code}, message
    for there in ELSEWHERE.get(name, []):
        seed, same = there["seed"], there["component"] == right["component"]
        refuted = "the evidence does not: " if same else "does not explain this patient"
        yield f"right for seed {seed}", {**there, "seed": 2026}, f"{refuted}.* seed 2026"
        yield f"the patient of {seed}", {**right, "seed": seed}, rf"{refuted}.* seed {seed}\."
    yield from sentences(right)
    yield from forms(right)


def components(right):
    crossed = {"attention": ("the FFN", network), "FFN": ("attention", attention)}
    other, diagnosis = crossed[right["component"]]
    layer = {"layer": right["layer"]} if "layer" in right else {}
    code = {"the FFN": "ffn_adds_nothing", "attention": "no_left_context"}[other]
    refuted = rf"in {other} does not explain .* to within 0\.000 .* off by \d\.\d*[1-9]"
    yield "other component", diagnosis(code, **layer), refuted
    yield "other component, right evidence", diagnosis(right["evidence"], **layer), refuted
    yield (
        "evidence of the other component",
        {**right, "evidence": code},
        f"the evidence does not: .* is a reading of {other}, and you named",
    )


def sentences(right):
    yield "no sentence", {**right, "because": "  "}, '"because", is missing'
    yield (
        "a short one",
        {**right, "because": "Attention, not the FFN."},
        "five different words.* It has 4",
    )
    yield "one word", {**right, "because": "attention ffn " * 9}, "five different words.* It has 2"
    elsewhere = "Somebody made a mistake while they wrote this program."
    yield "about nothing", {**right, "because": elsewhere}, "the sentence does not speak of"
    crossed = {
        "attention": "The FFN adds what it should not add here.",
        "FFN": "The mask lets a query look at keys of the future.",
    }
    yield (
        "about the other component",
        {**right, "because": crossed[right["component"]]},
        f"the sentence does not speak of (the )?{right['component']}",
    )


def forms(right):
    stub = {key: 2026 if key == "seed" else ... for key in right}
    yield "the stub", stub, 'still open: .*"component", "evidence" and "because"'
    yield "no seed", {k: v for k, v in right.items() if k != "seed"}, 'still open: "seed"'
    yield "nothing at all", {}, 'still open: "seed"'
    yield "only the component", right["component"], "should be a dict .* of type str"
    yield "a list", list(right.values()), "should be a dict .* of type list"
    yield "always equal", Agreeable(), "should be a dict .* of type Agreeable"
    yield "always equal inside", {**right, "evidence": Agreeable()}, "'evidence' should be a string"
    yield (
        "a kind of string",
        {**right, "component": Text(right["component"])},
        "'component' .* of type Text",
    )
    yield "a seed in words", {**right, "seed": "2026"}, "'seed' should be a whole number"
    yield "a seed that is true", {**right, "seed": True}, "'seed' should be a whole number"
    yield "a seed below zero", {**right, "seed": -1}, '"seed" should be from 0'
    yield "both components", {**right, "component": "both"}, "one of the two"
    yield "evidence in words", {**right, "evidence": "sums"}, "one code of the table; it is 'sums'"
    yield "one more name", {**right, "fault": "mask"}, "not for 'fault'"
    yield "a name that is no string", {**right, 1: "mask"}, "not for a name of type int"
    if "layer" in right:
        yield "no such layer", {**right, "layer": 0}, '"layer" should be from 1'
        yield "counted from 0", {**right, "layer": right["layer"] - 1}, "is sound: .* 0\\.000"
        yield "a layer in words", {**right, "layer": "4"}, "'layer' should be a whole number"
        yield "far too many", {**right, "layer": 10**5000}, '"layer" should be from 1'


WRONG = {name: list(wrong_answers(name, right)) for name, right in RIGHT.items()}
WRONG["03.stack"] += [
    (f"layer {k}", {**RIGHT["03.stack"], "layer": k}, f"layer {k} is sound") for k in (1, 2)
]
WRONG["03.real_2"] += [
    ("one too far", {**RIGHT["03.real_2"], "layer": 10}, "layer 10 is sound"),
    ("another layer", {**RIGHT["03.real_2"], "layer": 3}, "layer 3 is sound"),
]


def wrong_repairs(right):
    """Yield (label, answer, message) for one toy without a twin."""
    other = {"attention": "FFN", "FFN": "attention"}[right["component"]]
    there = [place for place, (component, _) in PLACES.items() if component == other]
    for place in there:
        yield (
            f"in the other component: {place}",
            {**right, "component": other, "repair": place},
            rf"fault in (the )?{other} does not explain .* by 0\.000 .* by [1-9\d]*\d\.\d+",
        )
    yield (
        "a place of the other component",
        {**right, "repair": there[0]},
        f"`{there[0]}` is a place of (the )?{other}, and you named",
    )
    for place in [p for p in PLACES if p not in (*there, right["repair"])]:
        message = f"with the right `{place}` the patient writes “the .*”, as it did before"
        yield f"another place: {place}", {**right, "repair": place}, message
    for word in [word for word in WORDS if word != right["next"]]:
        message = f"the prediction does not.* does not say “{word}”"
        yield f"next: {word}", {**right, "next": word}, message
    yield "the stub", dict.fromkeys(right, ...), "still open"
    yield "no seed", {k: v for k, v in right.items() if k != "seed"}, 'still open: "seed"'
    yield "a list", list(right.values()), "the answer should be {.seed.*; it is .2026, "
    yield "always equal inside", {**right, "next": Agreeable()}, "'next' should be a string"
    yield "a kind of string", {**right, "repair": Text(right["repair"])}, "'repair' .* type Text"
    yield "a seed below zero", {**right, "seed": -1}, '"seed" should be from 0'
    yield "no place", {**right, "repair": "softmax"}, "one of queries, .*; it is 'softmax'"
    yield "no word", {**right, "next": "cat"}, "one of the, dog, .*; it is 'cat'"
    yield "one more name", {**right, "because": "x"}, "not for 'because'"


RIGHT |= REPAIRS
WRONG |= {name: list(wrong_repairs(right)) for name, right in REPAIRS.items()}
