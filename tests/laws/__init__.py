"""Laws: what holds for every input, tried on inputs that `hypothesis` draws.

    bounds.py       how far float32 may be from the definition: derived, stated, nowhere tuned
    cases.py        shapes, sizes of numbers, forms of arrays; how a law is tried
    llama.py        a layer of the Llama architecture by its definition, and tiny model files
    test_values.py  each operation of the core against `lib.reference`
    test_same.py    what changes nothing, and what leaves the very bits
    test_refusals.py  no NaN and no infinity goes in or comes out in silence
    test_engine.py  both engines against the definition, and how the work is cut
    test_parts.py   blocks of bits, caches, sampling, vectors

The suite tries the same few dozen cases each time. A longer run draws others:

    uv run python -m tests.laws --minutes 10

and prints, if a law breaks, the command that finds the case again.
"""
