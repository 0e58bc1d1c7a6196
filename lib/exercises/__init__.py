"""What the exercises ask, and how an answer is judged."""

from lib.exercises.judging import Malformed, NotRight, Unanswered, Wrong, check

__all__ = ["Malformed", "NotRight", "Unanswered", "Wrong", "check"]
