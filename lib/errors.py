"""What the course raises when a reader can mend the matter: one clear sentence, never a riddle."""


class CourseError(ValueError):
    """A mistake that the caller can mend.

    The message is one sentence that names the argument, what was expected and what came.
    """


class ModelError(CourseError):
    """A model file that is missing, damaged or of a kind that the engine does not run."""
