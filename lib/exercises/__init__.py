"""What the exercises ask, and the one way in which an answer is read, run and judged.

In the order in which a notebook passes: `reading` takes it cell by cell, `answers` finds what
answers a question of `questions`, `literal` reads an answer that is written out, `program` puts
together the code of one that is a function, and `running` has it run. `verdicts` asks the judges:
`ordering`, `roles`, `diagnosis`, `building` with `hidden` inputs, `work` with its `counting`.
`checking` does all that for a reader's own notebook, `judging.check` within the notebook itself.
"""

from lib.exercises.judging import Malformed, NotRight, Unanswered, Wrong, check

__all__ = ["Malformed", "NotRight", "Unanswered", "Wrong", "check"]
