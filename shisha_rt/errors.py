"""The two ways in which a command can end other than well.

`BadInput` is the user's to mend: one line that says what, where and what was expected (exit status 2).
`Failure` is ours or the machine's: the input was fine and the work still did not succeed (exit status 1). Pure.
"""


class BadInput(ValueError):
    """Something the user gave cannot be used; nothing has been changed."""


class Failure(RuntimeError):
    """The input was fine, but the work did not succeed; the message carries the root cause."""
