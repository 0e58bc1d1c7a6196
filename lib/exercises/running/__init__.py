"""Where the code of an answer runs: a process of its own, which is asked and makes no verdict.

`process` starts and ends it, `remote` asks, `worker` answers at the other end, and `wire` carries
what passes between the two.
"""
