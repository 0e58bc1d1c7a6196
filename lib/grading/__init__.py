"""Grade what a class hands in, trusting none of it. The verdicts are those of `lib.exercises`.

`collect` finds the notebooks, `confine` starts processes that can do no harm, `batch` has all of
them judged; `report` and `similar` write it down.
"""
