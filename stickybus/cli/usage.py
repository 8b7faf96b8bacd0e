"""A user's mistakes at the command line."""


class UsageError(Exception):
    """Options or arguments that can't work; its text is one line that names the allowed ones."""
