"""The contest behind `course bench`: who runs, whose turn it is, what came of it.

In the order in which data flows: `rows` says what is measured, `contest` gives the contestants
their turns, `results` keeps what they answered, `run` puts the three together. `limits` measures
what the machine can do at most, and `work` counts what a token costs. The contestants themselves
are scripts in the folder `bench`, beside this package: a peer runs in a Python of its own.
"""
