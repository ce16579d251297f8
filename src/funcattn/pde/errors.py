"""What a solver says when it has no answer."""


class NotConvergedError(RuntimeError):
    """A sample that a solver could not finish; whoever makes a data set draws another, and counts.

    The message has what was expected, what was reached, and what to try.
    """
