"""Answers to exercise 01: the right ones, and plausible wrong ones with their messages."""

RIGHT = {
    "01.one_query": "B A C E F D",
    "01.one_layer": "E I F C D A G H",
    "01.pre_norm": "K J E C D H G",
    "01.next_token": "E G B J D I H F",
    "01.decoding_step": "D C A B I H G",
}

NEEDS = "needs .*no step before it has made that"
MALFORMED = "the answer should "

WRONG = {
    "01.one_query": [
        ("reversed", "D F E C A B", rf"step 1 is D .*{NEEDS}"),
        (
            "softmax before the scale",
            "B C E F A D",
            r"step 2 is C .* needs the scores, and no",
        ),
        ("swapped: sum and division", "B A C F E D", r"step 4 is F .* needs the sum of the exp"),
        ("mean before the weights", "B A C E D F", r"step 5 is D .* needs the weights α"),
        ("scaled by d", "B H C E F D", r"step 2 is H .* has size √d, not d"),
        ("mixes the keys", "B A C E F G", r"step 6 is G .* passed on are the values"),
        ("scaled twice", "B A H C E F D", r"step 3 is H .* does not belong"),
        ("no mean of the values", "B A C E F", "none of them has made the output"),
        ("no scale", "B C E F D", rf"step 2 is C .*{NEEDS}"),
        ("a step twice", "B A A C E F D", "at most once; A stands there twice"),
        ("a letter that is no step", "B A C E F Z", MALFORMED),
        ("the empty answer", "", MALFORMED),
        ("numbers", [2, 1, 3, 5, 6, 4], "it is of type list"),
        ("always equal", type("Yes", (), {"__eq__": lambda *_: True})(), "it is of type Yes"),
        ("a string in disguise", type("Text", (str,), {})("B A C E F D"), "it is of type Text"),
    ],
    "01.one_layer": [
        ("reversed", "H G A D C F I E", rf"step 1 is H .*{NEEDS}"),
        ("FFN first", "G H E I F C D A", r"step 1 is G .* needs the vector that leaves the att"),
        ("FFN on what entered", "E I F C D A B H", r"step 7 is B .* never sees the left context"),
        ("FFN without attention", "B H", r"step 2 is H .* needs the vector that leaves the att"),
        ("FFN mixes positions", "E I F C D A G J H", r"step 8 is J .* only attention mixes"),
        ("weights before the keys", "E C I F D A G H", r"step 2 is C .* needs the keys"),
        ("mean before the weights", "E I F D C A G H", r"step 4 is D .* needs the weights α"),
        (
            "stops after attention",
            "E I F C D A",
            "none of them has made the vector that leaves the",
        ),
        ("stops in the FFN", "E I F C D A G", "none of them has made the vector that leaves the"),
        ("values forgotten", "E I C D A G H", r"step 4 is D .* needs the values"),
        ("two swapped at the end", "E I F C D A H G", r"step 7 is H .* needs the hidden vector"),
        ("a number", 8, "it is of type int"),
    ],
    "01.pre_norm": [
        ("reversed", "G H D C E J K", rf"step 1 is G .*{NEEDS}"),
        ("norm after attention", "J E K C D H G", r"step 1 is J .* needs the normed vectors that"),
        ("attention without a norm", "A E C D H G", r"step 1 is A .* each step reads normed vec"),
        (
            "a norm for nothing",
            "K A E C D H G",
            r"step 2 is A .*\. With your steps the vector .* is another one, though it too names",
        ),
        ("residual of normed vectors", "K J F C D H G", r"step 3 is F .* goes around the norm"),
        ("FFN without a norm", "K J E I H G", r"step 4 is I .* FFN too reads a normed vector"),
        (
            "the second norm for nothing",
            "K J E C I H G",
            r"step 5 is I .* it too names “fly",
        ),
        ("residual of the normed sum", "K J E C D H B", r"step 7 is B .* goes around the norm"),
        ("the norm after the sum", "K J C E D H G", r"step 3 is C .* needs the sum that leaves"),
        ("FFN first", "K C D H G J E", r"step 2 is C .* needs the sum that leaves"),
        ("stops at the FFN", "K J E C D H", "none of them has made the vector that leaves"),
        ("stops after attention", "K J E", "none of them has made the vector that leaves"),
        ("added twice", "K J E C D H G B", r"step 8 is B .* does not belong"),
    ],
    "01.next_token": [
        ("reversed", "F H I D J B G E", rf"step 1 is F .*{NEEDS}"),
        ("layers swapped", "E G J B D I H F", r"step 3 is J .* needs the output of layer 1"),
        ("one layer only", "E G B D I H F", r"step 4 is D .* needs the output of layer 2"),
        ("mean of the layers", "E G B J A I H F", r"step 5 is A .* last layer alone"),
        ("first row", "E G B J C I H F", r"step 5 is C .* the last one"),
        ("softmax before the head", "E G B J D H I F", r"step 6 is H .* needs the logits"),
        ("choice before the softmax", "E G B J D I F H", r"step 7 is F .* needs the prob"),
        ("stops at probabilities", "E G B J D I H", "none of them has made the id of the next"),
        ("no embedding", "E B J D I H F", r"step 2 is B .* needs the vectors that enter"),
    ],
    "01.decoding_step": [
        ("reversed", "G H I B A C D", rf"step 1 is G .*{NEEDS}"),
        ("attends before it appends", "D C A H B I G", r"step 4 is H .* needs the cache of keys"),
        ("mixes before it appends", "D C A B H G I", r"step 6 is G .* needs the cache of values"),
        ("overwrites the last key", "D C A F I H G", r"step 4 is F .* part of the left context"),
        ("own value as the output", "D C A B I E", r"step 6 is E .* nothing of the left context"),
        ("value never appended", "D C B H", "none of them has made the output"),
        ("appends before it is made", "D B C A I H G", r"step 2 is B .* needs the key of the new"),
        ("overwrites after the fact", "D C A B I H G F", r"step 8 is F .* does not belong"),
    ],
}
