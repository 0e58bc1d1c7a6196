"""Answers to exercise 02: the right ones, and plausible wrong ones with their messages."""

import numpy as np

RIGHT = {
    "02.roles": "E",
    "02.sorting": {
        "A": "both",
        "B": "both",
        "C": "ffn",
        "D": "attention",
        "E": "neither",
        "F": "attention",
        "G": "neither",
        "H": "neither",
        "I": "attention",
        "J": "ffn",
        "K": "ffn",
        "L": "attention",
    },
    "02.jobs": {
        "A": "attention",
        "B": "neither",
        "C": "ffn",
        "D": "ffn",
        "E": "ffn",
        "F": "attention",
    },
    "02.without": {
        "the dog saw the bird, without attention": "saw",
        "the dog saw the bird, without FFN": "bird",
        "the bird saw the dog, without attention": "saw",
        "the bird saw the dog run, without attention": ".",
        "the bird saw the dog run, without FFN": "run",
        "the dog, without attention": "saw",
    },
    "02.one_step": {"attention": [2, 3, 4, 5], "ffn": [2], "layer": [2, 3, 4, 5]},
    "02.intermediates": {
        "row 0": [],
        "row 5": ["scores", "weights", "O", "A", "M", "hidden", "F", "Y"],
    },
    "02.changes": {
        "A": True,
        "B": False,
        "C": False,
        "D": True,
        "E": True,
        "F": False,
        "G": True,
        "H": False,
    },
    "02.depths": {
        "nothing silenced": 1,
        "FFN silenced in 1, 2, 3": 1,
        "attention silenced in 1, 2, 3": 0,
        "attention silenced in 1": 2,
        "attention silenced in 1, 2": 3,
    },
    "02.window": {
        "after layer 1": [1, 2, 3],
        "after layer 2": [1, 2, 3, 4, 5],
        "after layer 3": [1, 2, 3, 4, 5, 6, 7],
    },
    "02.hops": {"Bob": 3, "Cid": 2, "Dee": 0, "Eve": 1, "Fay": 0},
    "02.lengths": {
        "text: projections": 2,
        "text: scores and mean": 4,
        "text: FFN": 2,
        "token: projections": 1,
        "token: scores and mean": 2,
        "token: FFN": 1,
    },
}

MOVED = r"which moved by (?!0\.00)\d+\.\d\d"
STAYED = r"which moved by 0\.00"


class Yes:
    """An object that equals everything."""

    def __eq__(self, other):
        return True

    def __hash__(self):
        return hash("A")


class Text(str):
    """A string in disguise."""


class Numbers(list):
    """A list in disguise."""


class Dict(dict):
    """A dict in disguise."""


def but(task, **changes):
    """Return the right answer to a task with something changed."""
    return {**RIGHT[task], **changes}


def each(task, value):
    """Return an answer that says the same of everything."""
    return dict.fromkeys(RIGHT[task], value)


def without(task, name):
    """Return the right answer without one entry."""
    return {key: value for key, value in RIGHT[task].items() if key != name}


def one_wrong(letter, value, words):
    """Return a wrong answer to the sorting task, with the message meant for it."""
    right = RIGHT["02.sorting"][letter]
    message = rf"Right: 11 of 12\. The first that is not is {letter} .*you say “{value}”\. {words}"
    return f"{letter}: {value} for {right}", but("02.sorting", **{letter: value}), message


WRONG = {
    "02.roles": [
        (
            "both mix positions",
            "A",
            r"A is refuted.*FFN step by up to 0\.00; its own output moves by 0\.[1-9]",
        ),
        ("one token is selected", "B", r"B is refuted.*six keys weights from 0\.08 to 0\.22"),
        (
            "roles swapped",
            "C",
            r"C is refuted.*by up to 0\.67 in the attention step, and by up to 0\.00 in the FFN",
        ),
        ("the FFN weighs", "D", r"D is refuted.*differs by 0\.00 .* the last one moves by 0\.00"),
        ("the current token alone", "F", r"F is refuted.*for the last one moves by 0\.92"),
        ("attention sees the future", "G", r"G is refuted.*to its left by up to 0\.00"),
        ("a small letter, swapped roles", "c", "C is refuted"),
        ("two letters", "E F", r"one letter from A to G; it is 'E F'"),
        ("a letter that is not there", "H", "one letter from A to G"),
        ("the empty string", "", "one letter from A to G"),
        ("a list", ["E"], "should be one letter in a string.*type list"),
        ("always equal", Yes(), "it is of type Yes"),
        ("a string in disguise", Text("E"), "it is of type Text"),
    ],
    "02.sorting": [
        one_wrong("A", "attention", r"If the tokens .* moves by 0\.00 in the .* and 0\.00 in the"),
        one_wrong("B", "ffn", r"A token's own output moves by at least 0\.[1-9]"),
        one_wrong("C", "both", r"Shuffled .* up to 1\.37 in the attention step and 0\.00 in the F"),
        one_wrong("D", "both", r"Run on the last .* off by 0\.92 in the attention step and 0\.00"),
        one_wrong("E", "attention", r"Outputs to the left move by up to 0\.00 .* and 0\.00"),
        one_wrong("F", "both", r"Other outputs move by up to 0\.67 .* and 0\.00 in the FFN"),
        one_wrong("G", "attention", r"The two differ by up to 0\.71 .* and 0\.19 in the FFN"),
        one_wrong("H", "both", r"Two runs differ by 0\.00 .* and 0\.00"),
        one_wrong("I", "both", r"From 100 tokens .* factor 1\.93 in the .* and 1\.00 in the FFN"),
        one_wrong("J", "attention", r"Its share is 0\.42 in the attention step and 0\.58"),
        one_wrong("K", "attention", r"Its share is 0\.30 in the attention step and 0\.70"),
        one_wrong("L", "neither", r"After it, the two “the” .* by 0\.29 .* and 0\.00"),
        ("all attention", each("02.sorting", "attention"), r"Right: 4 of 12\. .* is A "),
        (
            "roles swapped",
            {
                k: {"attention": "ffn", "ffn": "attention"}.get(v, v)
                for k, v in RIGHT["02.sorting"].items()
            },
            r"Right: 5 of 12\. The first that is not is C ",
        ),
        (
            "both and neither swapped",
            {
                k: {"both": "neither", "neither": "both"}.get(v, v)
                for k, v in RIGHT["02.sorting"].items()
            },
            r"Right: 7 of 12\. The first that is not is A ",
        ),
        ("one open", without("02.sorting", "J"), 'Not answered yet: still open: "J"'),
        ("a word that is none", but("02.sorting", C="mlp"), "“C”: it should be .attention.*'mlp'"),
        ("two words", but("02.sorting", A=["attention", "ffn"]), "“A”: it should be .attention"),
        ("always equal", but("02.sorting", A=Yes()), "“A”: it should be .* it is of type Yes"),
        ("a string", "both both ffn", "the answer should be a dict .* it is 'both both ffn'"),
        ("a dict in disguise", Dict(RIGHT["02.sorting"]), "it is of type Dict"),
        ("a key in disguise", {Yes(): "both"}, "has a place for .*, not for of type Yes"),
    ],
    "02.jobs": [
        (
            "the FFN finds what it refers to",
            but("02.jobs", A="ffn"),
            r"Right: 5 of 6\. .* is A .* right by up to 0\.67 in the .* and 0\.00 in",
        ),
        (
            "both find it",
            but("02.jobs", F="both"),
            r"is F .*you say “both”\. .* by up to 0\.67 in the attention step and 0\.00",
        ),
        (
            "attention reads the egg",
            but("02.jobs", B="attention"),
            r"is B .* outputs to its left by up to 0\.00 in the attention step and 0\.00",
        ),
        (
            "the FFN reads the egg",
            but("02.jobs", B="ffn"),
            r"is B .*you say “ffn”\. .* to its left by up to 0\.00",
        ),
        (
            "attention recalls",
            but("02.jobs", C="attention"),
            r"is C .* features do together, .* up to 0\.00 in the attention step and 0\.23",
        ),
        ("both recall", but("02.jobs", C="both"), r"is C .* up to 0\.00 in the attention step and"),
        ("attention denies", but("02.jobs", D="attention"), r"is D .* up to 0\.00 in the att"),
        ("no step denies", but("02.jobs", D="neither"), r"is D .* and 0\.23 in the FFN"),
        ("attention chooses", but("02.jobs", E="attention"), r"is E .* up to 0\.00 in the att"),
        ("all attention", each("02.jobs", "attention"), r"Right: 2 of 6\. .* is B "),
        ("all FFN", each("02.jobs", "ffn"), r"Right: 3 of 6\. .* is A "),
        ("one open", but("02.jobs", D=...), 'Not answered yet: still open: "D"'),
        ("the way of properties", but("02.jobs", A="either"), "“A”: it should be .*'either'"),
        ("a list", list("aabfff"), "the answer should be a dict"),
    ],
    "02.without": [
        (
            "as if attention were there",
            but("02.without", **{"the dog saw the bird, without attention": "fly"}),
            r"Right: 5 of 6\. .*“fly” comes next\. Its probability is 0\.01; .* is 0\.95",
        ),
        (
            "a noun repeats itself",
            but("02.without", **{"the dog, without attention": "dog"}),
            r"Right: 5 of 6\. .*“dog” comes next\. Its probability is 0\.02; .* is 0\.95",
        ),
        (
            "the dog runs",
            but("02.without", **{"the bird saw the dog, without attention": "run"}),
            r"“run” comes next\. Its probability is 0\.01",
        ),
        (
            "as if the FFN were there",
            but("02.without", **{"the dog saw the bird, without FFN": "fly"}),
            r"“fly” comes next\. Its probability is 0\.11; .* is 0\.31",
        ),
        (
            "no FFN, so saw",
            but("02.without", **{"the dog saw the bird, without FFN": "saw"}),
            r"“saw” comes next\. Its probability is 0\.11; .* is 0\.31",
        ),
        (
            "the end needs attention",
            but("02.without", **{"the bird saw the dog run, without attention": "the"}),
            r"“the” comes next\. Its probability is 0\.01; .* is 0\.95",
        ),
        (
            "the end without FFN",
            but("02.without", **{"the bird saw the dog run, without FFN": "."}),
            r"“\.” comes next\. Its probability is 0\.11; .* is 0\.31",
        ),
        ("all saw", each("02.without", "saw"), r"Right: 3 of 6\. .*bird, without FFN”"),
        ("a word it does not know", each("02.without", "cat"), "one word of: the dog .* 'cat'"),
        ("True", each("02.without", True), "it should be one word of: .* it is True"),
        ("one open", but("02.without", **{"the dog, without attention": ...}), "still open"),
        ("always equal", each("02.without", Yes()), "it is of type Yes"),
    ],
    "02.one_step": [
        (
            "its own token not",
            but("02.one_step", attention=[3, 4, 5]),
            f"“attention”.*out output 2, {MOVED}",
        ),
        (
            "its own token alone",
            but("02.one_step", attention=[2]),
            f"“attention”.*out output 3, {MOVED}",
        ),
        (
            "all move",
            each("02.one_step", [0, 1, 2, 3, 4, 5]),
            rf"Right: 0 of 3.*“attention”.*name output 0, {STAYED}",
        ),
        ("the neighbours", but("02.one_step", attention=[1, 2, 3]), f"name output 1, {STAYED}"),
        ("the left", but("02.one_step", attention=[0, 1, 2]), f"name output 0, {STAYED}"),
        (
            "the FFN mixes",
            but("02.one_step", ffn=[2, 3, 4, 5]),
            rf"Right: 2 of 3.*“ffn”.*name output 3, {STAYED}",
        ),
        ("the FFN does nothing", but("02.one_step", ffn=[]), f"“ffn”.*out output 2, {MOVED}"),
        ("the layer is its FFN", but("02.one_step", layer=[2]), f"“layer”.*out output 3, {MOVED}"),
        (
            "the layer without the residual",
            but("02.one_step", layer=[3, 4, 5]),
            f"“layer”.*out output 2, {MOVED}",
        ),
        (
            "counted from 1",
            but("02.one_step", attention=[3, 4, 5, 6]),
            "hold some of 0, 1, .*; it holds 6",
        ),
        (
            "one number",
            but("02.one_step", ffn=2),
            "“ffn”: it should be a list, tuple or set of whole numbers.*it is 2",
        ),
        (
            "strings",
            but("02.one_step", ffn=["2"]),
            "“ffn”: it should be a list, tuple or set of whole",
        ),
        (
            "True for 1",
            but("02.one_step", ffn=[True]),
            "“ffn”: it should be a list, tuple or set of whole",
        ),
        ("an array", but("02.one_step", ffn=np.array([2])), "“ffn”: .* it is of type ndarray"),
        ("always equal", but("02.one_step", ffn=Yes()), "“ffn”: .* it is of type Yes"),
        (
            "a list in disguise",
            but("02.one_step", ffn=Numbers([2])),
            "“ffn”: .* it is of type Numbers",
        ),
        ("an empty dict for none", but("02.one_step", ffn={}), "“ffn”: {} is an empty dict; write"),
        ("one open", but("02.one_step", ffn=...), 'Not answered yet: still open: "ffn"'),
        ("another key", {**RIGHT["02.one_step"], "FFN": [2]}, "not for 'FFN'"),
    ],
    "02.intermediates": [
        (
            "the key of the last token",
            {"row 0": [], "row 5": ["K", *RIGHT["02.intermediates"]["row 5"]]},
            rf"Right: 1 of 2.*“row 5”: you name the row of K, {STAYED}",
        ),
        (
            "its value",
            {"row 0": [], "row 5": ["V", "O", "A"]},
            f"“row 5”: you name the row of V, {STAYED}",
        ),
        (
            "everything moves",
            each("02.intermediates", ["X", "Q", "K", "V"]),
            f"“row 0”: you name the row of X, {STAYED}",
        ),
        (
            "the first row listens",
            {"row 0": ["scores"], "row 5": []},
            f"“row 0”: you name the row of scores, {STAYED}",
        ),
        (
            "nothing moves",
            each("02.intermediates", []),
            f"“row 5”: you leave out the row of scores, {MOVED}",
        ),
        (
            "the weights stay",
            {"row 0": [], "row 5": ["scores", "O", "A", "M", "hidden", "F", "Y"]},
            f"“row 5”: you leave out the row of weights, {MOVED}",
        ),
        (
            "the FFN undoes it",
            {"row 0": [], "row 5": ["scores", "weights", "O", "A", "M"]},
            f"“row 5”: you leave out the row of hidden, {MOVED}",
        ),
        (
            "the result alone",
            {"row 0": [], "row 5": ["Y"]},
            f"“row 5”: you leave out the row of scores, {MOVED}",
        ),
        (
            "attention's own alone",
            {"row 0": [], "row 5": ["scores", "weights", "O", "A"]},
            f"“row 5”: you leave out the row of M, {MOVED}",
        ),
        (
            "one string",
            but("02.intermediates", **{"row 5": "scores O"}),
            "“row 5”: it should be a list.*strings",
        ),
        (
            "a name that is none",
            but("02.intermediates", **{"row 5": ["alpha"]}),
            "it holds 'alpha'",
        ),
        (
            "the letters of other books",
            {"row 0": [], "row 5": ["scores", "weights", "O", "S", "H", "hidden", "F", "Y"]},
            "“row 5”: it should hold some of X, Q, .*, A, M, hidden, F, Y; it holds 'S'",
        ),
        (
            "disguised",
            but("02.intermediates", **{"row 5": [Text("O")]}),
            "“row 5”: .* it is a list that holds a Text",
        ),
    ],
    "02.changes": [
        *(
            (
                f"{letter} the other way",
                but("02.changes", **{letter: not right}),
                rf"Right: 7 of 8\..*“{letter}”: you say that the output "
                + (
                    r"stays as it is\. It moved by (?!0\.00)"
                    if right
                    else r"moves\. It moved by 0\.00"
                ),
            )
            for letter, right in RIGHT["02.changes"].items()
        ),
        ("all move", each("02.changes", True), r"Right: 4 of 8\. .* “B”"),
        ("none moves", each("02.changes", False), r"Right: 4 of 8\. .* “A”"),
        ("numbers", each("02.changes", 1), "“A”: it should be True or False; it is 1"),
        ("words", each("02.changes", "yes"), "“A”: it should be True or False; it is 'yes'"),
        (
            "NumPy's",
            each("02.changes", np.True_),
            "“A”: it should be True or False; it is of type bool",
        ),
        (
            "always equal",
            each("02.changes", Yes()),
            "“A”: it should be True or False; it is of type Yes",
        ),
    ],
    "02.depths": [
        (
            "a layer for each token between",
            but("02.depths", **{"nothing silenced": 3}),
            r"Right: 4 of 5\..*“nothing silenced”: you say 3\. After 2 layers .* moved by 1\.73",
        ),
        (
            "the FFN is needed",
            but("02.depths", **{"FFN silenced in 1, 2, 3": 0}),
            r"“FFN silenced in 1, 2, 3”: you say never\. After 3 layers .* moved by 1\.50",
        ),
        (
            "residuals carry it",
            but("02.depths", **{"attention silenced in 1, 2, 3": 1}),
            r"“attention silenced in 1, 2, 3”: you say 1\. After 1 layer .* moved by 0\.00",
        ),
        (
            "the FFN carries it",
            but("02.depths", **{"attention silenced in 1": 1}),
            r"“attention silenced in 1”: you say 1\. After 1 layer .* moved by 0\.00",
        ),
        (
            "off by one",
            but("02.depths", **{"attention silenced in 1": 3}),
            r"“attention silenced in 1”: you say 3\. After 2 layers .* moved by 0\.33",
        ),
        (
            "lost for ever",
            but("02.depths", **{"attention silenced in 1, 2": 0}),
            r"“attention silenced in 1, 2”: you say never\. After 3 layers .* moved by 0\.19",
        ),
        ("all 1", each("02.depths", 1), r"Right: 2 of 5\..*“attention silenced in 1, 2, 3”"),
        (
            "counted from 0",
            each("02.depths", 4),
            "“nothing silenced”: it should be a whole number from 1 to 3",
        ),
        (
            "False for never",
            each("02.depths", False),
            "should be a whole number from 1 to 3.*it is False",
        ),
        ("a float", each("02.depths", 1.0), "should be a whole number .* it is 1.0"),
        ("None for never", each("02.depths", None), "Not answered yet: still open"),
        ("always equal", each("02.depths", Yes()), "it is of type Yes"),
    ],
    "02.window": [
        (
            "no window",
            each("02.window", [1, 2, 3, 4, 5, 6, 7]),
            rf"Right: 1 of 3\..*“after layer 1”: you name output 4, {STAYED}",
        ),
        (
            "the window does not move on",
            each("02.window", [1, 2, 3]),
            rf"Right: 1 of 3\..*“after layer 2”: you leave out output 4, {MOVED}",
        ),
        (
            "one too few",
            but("02.window", **{"after layer 1": [1, 2]}),
            f"leave out output 3, {MOVED}",
        ),
        (
            "one too many",
            but("02.window", **{"after layer 1": [1, 2, 3, 4]}),
            f"name output 4, {STAYED}",
        ),
        (
            "both sides",
            but("02.window", **{"after layer 1": [0, 1, 2, 3]}),
            f"“after layer 1”: you name output 0, {STAYED}",
        ),
        (
            "its own token not",
            but("02.window", **{"after layer 1": [2, 3]}),
            f"leave out output 1, {MOVED}",
        ),
        (
            "three more a layer",
            but("02.window", **{"after layer 2": [1, 2, 3, 4, 5, 6]}),
            f"“after layer 2”: you name output 6, {STAYED}",
        ),
        (
            "one more a layer",
            but("02.window", **{"after layer 2": [1, 2, 3, 4]}),
            f"“after layer 2”: you leave out output 5, {MOVED}",
        ),
        (
            "not to the end",
            but("02.window", **{"after layer 3": [1, 2, 3, 4, 5, 6]}),
            f"“after layer 3”: you leave out output 7, {MOVED}",
        ),
        ("beyond the text", but("02.window", **{"after layer 3": [8]}), "it holds 8"),
        ("a range", but("02.window", **{"after layer 1": range(1, 4)}), "it is of type range"),
    ],
    "02.hops": [
        (
            "one layer for all",
            each("02.hops", 1),
            r"Right: 1 of 5\..*“Bob”: you say 1\. After 1 layer .*0\.00",
        ),
        (
            "Eve at once",
            but("02.hops", Eve=0),
            r"“Eve”: you say never\. After 3 layers .* by 1\.00",
        ),
        (
            "one too late",
            {"Bob": 0, "Cid": 3, "Dee": 0, "Eve": 2, "Fay": 0},
            r"Right: 2 of 5\..*“Bob”: you say never\. After 3 layers .* moved by 1\.00",
        ),
        (
            "Cid one too late",
            but("02.hops", Cid=3),
            r"“Cid”: you say 3\. After 2 layers .* by 1\.00",
        ),
        (
            "Cid one too early",
            but("02.hops", Cid=1),
            r"“Cid”: you say 1\. After 1 layer .* by 0\.00",
        ),
        (
            "Bob one too early",
            but("02.hops", Bob=2),
            r"“Bob”: you say 2\. After 2 layers .* by 0\.00",
        ),
        (
            "Eve one too late",
            but("02.hops", Eve=2),
            r"“Eve”: you say 2\. After 1 layer .* by 1\.00",
        ),
        ("the neighbour", but("02.hops", Fay=1), r"“Fay”: you say 1\. After 1 layer .* by 0\.00"),
        (
            "everybody in the end",
            but("02.hops", Dee=3),
            r"“Dee”: you say 3\. After 3 layers .* by 0\.00",
        ),
        ("the distance", {"Bob": 5}, "Not answered yet: still open: .Cid"),
        (
            "beyond the stack",
            but("02.hops", Bob=4),
            "“Bob”: it should be a whole number from 1 to 3",
        ),
        ("a word", but("02.hops", Dee="never"), "“Dee”: .* or 0 for never; it is 'never'"),
    ],
    "02.lengths": [
        (
            "everything doubles",
            each("02.lengths", 2),
            r"Right: 3 of 6\..*“text: scores and mean”: .* 2\. Counted were 40,400 .* 160,800",
        ),
        (
            "everything squares",
            each("02.lengths", 4),
            r"Right: 1 of 6\..*“text: projections”: .* 4\. Counted were 6,400 .* 12,800",
        ),
        (
            "the FFN squares",
            but("02.lengths", **{"text: FFN": 4}),
            r"“text: FFN”: .* Counted were 12,800 .* 25,600",
        ),
        (
            "three times",
            but("02.lengths", **{"text: scores and mean": 3}),
            "“text: scores and mean”: .* factor 3",
        ),
        (
            "projections stay",
            but("02.lengths", **{"text: projections": 1}),
            r"“text: projections”: .* factor 1\. ",
        ),
        (
            "the cache redoes them",
            but("02.lengths", **{"token: projections": 2}),
            r"“token: projections”: .* Counted were 64 .* 64 for",
        ),
        (
            "a token squares",
            but("02.lengths", **{"token: scores and mean": 4}),
            r"“token: scores and mean”: .* Counted were 800 .* 1,600",
        ),
        (
            "the cache saves all",
            but("02.lengths", **{"token: scores and mean": 1}),
            "“token: scores and mean”: .* factor 1",
        ),
        (
            "the FFN grows",
            but("02.lengths", **{"token: FFN": 2}),
            r"“token: FFN”: .* Counted were 128 .* 128 for",
        ),
        (
            "not rounded",
            but("02.lengths", **{"text: scores and mean": 3.98}),
            r"“text: scores and mean”: .* factor 3\.98",
        ),
        (
            "zero where nothing grows",
            but("02.lengths", **{"token: FFN": 0}),
            "“token: FFN”: it should be a number above 0",
        ),
        (
            "not a number",
            but("02.lengths", **{"token: FFN": float("nan")}),
            "“token: FFN”: it should be a number above 0",
        ),
        (
            "a formula",
            but("02.lengths", **{"token: FFN": "n"}),
            "“token: FFN”: it should be a number .* it is 'n'",
        ),
        (
            "True",
            but("02.lengths", **{"token: FFN": True}),
            "“token: FFN”: it should be a number .* it is True",
        ),
    ],
}
