"""Errors that users can meet, each of them with a message that says what to do."""


class FuncattnError(Exception):
    """Something that cannot be done as asked; the command prints the message as one line."""


class Interrupted(Exception):  # noqa: N818
    """The run was asked to stop, and has saved its state."""
