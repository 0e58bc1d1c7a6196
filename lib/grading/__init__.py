"""Grade what a class hands in, trusting none of it.

In the order in which a submission passes: `collect` finds and reads its notebooks, `literal` reads
the answers that are literals, `program` the code of those that are functions; `confine` starts a
process that can do no harm, `remote` asks it, with `worker` at the other end and `wire` between;
`judge` makes the verdicts; `batch` does all that for a class; `report` and `similar` write it down.
"""
