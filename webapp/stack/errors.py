"""The one error the stack shows a person."""


class StackError(Exception):
    """Something outside the program prevents the start; the text is one line: what, where, what to do."""
