"""Exercise 02: what attention does, and what the FFN does."""

from lib.exercises.judging import Task
from lib.exercises.roles import (
    MOVES,
    Call,
    Choice,
    Factor,
    FirstLayer,
    Moving,
    NextWord,
    Prediction,
    Property,
    Sorting,
    Statement,
    YesNo,
)
from lib.lab import experiments as lab
from lib.lab import toy

# The seed of the course: which statement tells the roles of the two steps apart?
# fmt: off
STATEMENTS = Choice(
    statements=(
        Statement(
            "Self-attention lets each token gather from its left context and itself, as a weighted "
            "mean of values. The FFN then works on the vector of each position separately."),
        Statement(
            "Self-attention works on the vector of each token separately. The FFN then gathers for "
            "each token what the tokens to its left hold, more of those that fit better.",
            "A changed token moves the outputs of other tokens by up to {:.2f} in the attention "
            "step, and by up to {:.2f} in the FFN step.",
            (Call(lab.others_move, (lab.attention,)), Call(lab.others_move, (lab.ffn,)))),
        Statement(
            "Both steps combine the tokens of the sequence: self-attention by its weights, the FFN "
            "by a hidden layer that reads all of them at once.",
            "A changed token moves the outputs of other tokens in the FFN step by up to {:.2f}; "
            "its own output moves by {:.2f} or more.",
            (Call(lab.others_move, (lab.ffn,)), Call(lab.own_moves, (lab.ffn,)))),
        Statement(
            "Self-attention makes a query, a key and a value of each token, by three matrices. The "
            "FFN then compares the tokens with one another and adds up their values by weight.",
            "The weighted mean of the values, times W_O, differs by {:.2f} from what leaves the "
            "attention step, so the adding up is done by then. And if all tokens but the last are "
            "taken away, the output of the FFN step for the last one moves by {:.2f}.",
            (Call(lab.mean_gap), Call(lab.run_alone, (lab.ffn,)))),
        Statement(
            "The vector of the current token is all that either step reads. Self-attention "
            "decides which of its coordinates matter, and the FFN transforms those.",
            "If all tokens but the last are taken away, the output of the attention step for the "
            "last one moves by {:.2f}.",
            (Call(lab.run_alone, (lab.attention,)),)),
        Statement(
            "Self-attention selects the one token that fits best and passes on its value alone. "
            "The FFN then blends this value with the vector of the current token.",
            "The last query gives its six keys weights from {:.2f} to {:.2f}: what is passed on "
            "holds something of every value.",
            (Call(lab.extreme_weights),)),
        Statement(
            "Self-attention reads the whole sequence, what comes before a token and what comes "
            "after it. The FFN then cuts this down to the left context.",
            "In the attention step a changed token moves the outputs to its left by up to "
            "{:.2f}, so there is nothing to cut off. In the FFN step it moves those of other "
            "tokens, left or right, by up to {:.2f}.",
            (Call(lab.earlier_move, (lab.attention,)), Call(lab.others_move, (lab.ffn,)))),
    ),
    seed=6,
)


def there(number):
    """Tell whether something moves or differs."""
    return number > MOVES


def not_there(number):
    """Tell whether nothing moves or differs."""
    return number <= MOVES


def most(share):
    """Tell whether a share is more than half."""
    return share > 0.5


BOTH = "{:.2f} in the attention step and {:.2f} in the FFN step."

PROPERTIES = Sorting(
    properties=(
        Property(
            "It mixes positions: a change of one token's vector moves the outputs of other tokens.",
            lab.others_move, there, f"Other outputs move by up to {BOTH}"),
        Property(
            "It needs a cache of what earlier tokens have made, if the next token is to be "
            "computed without running them again.",
            lab.run_alone, there,
            "Run on the last token's vector alone, without a cache, its output is off by "
            + BOTH),
        Property(
            "Its work for one more token grows with the left context.",
            lab.growth_of_work, lambda factor: factor > 1,
            f"From 100 tokens to 200 it grows by the factor {BOTH}"),
        Property(
            "It can give two equal tokens different outputs.",
            lab.equal_tokens, there, f"After it, the two “the” of the text are apart by {BOTH}"),
        Property(
            "It is the same function at every position: if the rows that enter are shuffled, "
            "the same rows leave, shuffled in the same way.",
            lab.shuffle_gap, not_there,
            f"Shuffled before and shuffled after, the results differ by up to {BOTH}"),
        Property(
            "It holds most of the layer's parameters, where d_ff = 4 d.",
            lab.share_of_parameters, most, f"Its share is {BOTH}"),
        Property(
            "It takes most of the layer's multiply-adds, for a text of six tokens and d_ff = 4 d.",
            lab.share_of_work, most, f"Its share is {BOTH}"),
        Property(
            "If the tokens before the last one change places, the output of the last one stays as "
            "it is.",
            lab.context_shuffled, not_there,
            "If the tokens before the last one change places, the last output moves by "
            + BOTH),
        Property(
            "If a token gets another vector, the output at that token's own position moves.",
            lab.own_moves, there, f"A token's own output moves by at least {BOTH}"),
        Property(
            "If a token gets another vector, outputs to its left move.",
            lab.earlier_move, there, f"Outputs to the left move by up to {BOTH}"),
        Property(
            "It is linear in all that enters, up to a constant: for any two inputs A and B, "
            "f(A + B) = f(A) + f(B) − f(0).",
            lab.not_additive, not_there, f"The two differ by up to {BOTH}"),
        Property(
            "During inference it draws random numbers: two runs on the same vectors differ.",
            lab.run_twice, there, f"Two runs differ by {BOTH}"),
    ),
    seed=8,
)

TO_THE_RIGHT = "A changed token moves outputs to its right by up to " + BOTH
TOGETHER = (
    "What the two features do together, beyond the sum of what each does alone, is up to " + BOTH
)

# Three jobs need another token's vector, three an effect that two features have only together.
JOBS = Sorting(
    properties=(
        Property(
            "Find what *it* refers to. In *the dog saw the bird and it*, the vector of *it* has to "
            "get something from the vector of *dog* or *bird*.",
            lab.later_move, there, TO_THE_RIGHT),
        Property(
            "Notice that a bird is meant. In *above the nest hung a crane*, the vector of *crane* "
            "has to get something from the vector of *nest*.",
            lab.later_move, there, TO_THE_RIGHT),
        Property(
            "Notice that a bird is meant. In *the crane laid an egg*, the vector of *crane* has to "
            "get something from the vector of *egg*.",
            lab.earlier_move, there, "A changed token moves outputs to its left by up to " + BOTH),
        Property(
            "Recall a capital. In a text of one token, its vector may hold the features *France* "
            "and *a capital is asked for*. With both, *Paris* has to be added; with one of them, "
            "or none, no part of it.",
            lab.together, there, TOGETHER),
        Property(
            "Choose a verb. In a text of one token, its vector may hold the features *a bird* and "
            "*an action was seen*. With both, *fly* has to be added; with one of them, or none, no "
            "part of it.",
            lab.together, there, TOGETHER),
        Property(
            "Undo a double negation. In a text of one token, its vector may hold the features "
            "*not* and *un-*. With exactly one of them, *denied* has to be added; with both, or "
            "none, no part of it.",
            lab.together, there, TOGETHER),
    ),
    seed=3,
)

DOG, BIRD = "the bird saw the dog", "the dog saw the bird"

WITHOUT = Prediction(
    parts={
        f"{text}, without {step}": Call(lab.toy_says, (text, step))
        for text, step in [
            (BIRD, "attention"),
            (BIRD, "FFN"),
            (DOG, "attention"),
            (f"{DOG} run", "attention"),
            (f"{DOG} run", "FFN"),
            ("the dog", "attention"),
        ]
    },
    kind=NextWord(tuple(toy.WORDS)),
)

ONE_STEP = Prediction(
    parts={
        "attention": Call(lab.moved, (lab.attention, 2)),
        "ffn": Call(lab.moved, (lab.ffn, 2)),
        "layer": Call(lab.moved, (lab.layer, 2)),
    },
    kind=Moving(tuple(range(6)), "output", (0, 1)),
)

INTERMEDIATES = Prediction(
    parts={
        "row 0": Call(lab.intermediates, (1, 0)),
        "row 5": Call(lab.intermediates, (1, 5)),
    },
    kind=Moving(tuple(lab.stages(lab.X)), "the row of", ("X", "Q")),
)

CHANGES = Prediction(
    parts={
        letter: Call(lab.output_moves, (change,))
        for letter, change in {
            "A": lab.last_pair_twice,
            "B": lab.pairs_shuffled,
            "C": lab.keys_shifted,
            "D": lab.query_doubled,
            "E": lab.values_shifted,
            "F": lab.pairs_twice,
            "G": lab.keys_shuffled,
            "H": lab.query_doubled_keys_halved,
        }.items()
    },
    kind=YesNo("the output"),
)

ALL = (1, 2, 3)

DEPTHS = Prediction(
    parts={
        "nothing silenced": Call(lab.moved_at_depths),
        "FFN silenced in 1, 2, 3": Call(lab.moved_at_depths, ((), ALL)),
        "attention silenced in 1, 2, 3": Call(lab.moved_at_depths, (ALL, ())),
        "attention silenced in 1": Call(lab.moved_at_depths, ((1,), ())),
        "attention silenced in 1, 2": Call(lab.moved_at_depths, ((1, 2), ())),
    },
    kind=FirstLayer(3, "the last token's vector"),
)

WINDOW = Prediction(
    parts={
        f"after layer {depth}": Call(lab.moved_in_window, (depth,)) for depth in ALL
    },
    kind=Moving(tuple(range(8)), "output", (0, 7)),
)

HOPS = Prediction(
    parts={name: Call(lab.pointer_wiped, (name,)) for name in lab.NAMES[1:-1]},
    kind=FirstLayer(3, "Gus's vector"),
)

LENGTHS = Prediction(
    parts={
        f"{case}: {part}": Call(run, (part,))
        for case, run in {"text": lab.work_for_a_text, "token": lab.work_for_a_token}.items()
        for part in ("projections", "scores and mean", "FFN")
    },
    kind=Factor("100 tokens", "200"),
)

TASKS = [
    Task("02.roles", "The roles of the two steps", STATEMENTS.form, 5, 1, STATEMENTS.judge),
    Task("02.sorting", "Attention, FFN, both, neither", PROPERTIES.form, 9, 2, PROPERTIES.judge),
    Task("02.jobs", "Six jobs", JOBS.form, 6, 2, JOBS.judge),
    Task("02.without", "The toy without a step", WITHOUT.form, 4, 1, WITHOUT.judge),
    Task("02.one_step", "A token changes: one layer", ONE_STEP.form, 3, 1, ONE_STEP.judge),
    Task("02.intermediates", "A token changes: inside the layer", INTERMEDIATES.form, 6, 2,
         INTERMEDIATES.judge),
    Task("02.changes", "What attention cannot notice", CHANGES.form, 7, 3, CHANGES.judge),
    Task("02.depths", "Silenced steps in a stack", DEPTHS.form, 5, 2, DEPTHS.judge),
    Task("02.window", "A window of three", WINDOW.form, 5, 2, WINDOW.judge),
    Task("02.hops", "Who knows whom", HOPS.form, 6, 2, HOPS.judge),
    Task("02.lengths", "Twice as many tokens", LENGTHS.form, 6, 3, LENGTHS.judge),
]
# fmt: on
