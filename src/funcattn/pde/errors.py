"""The error of a solver that has no answer."""


class NotConvergedError(RuntimeError):
    """A solver could not finish a sample; makers of data sets draw another and count the failure.

    The message states what was expected, what was reached, and what to try.
    """
