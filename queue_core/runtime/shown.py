"""Arguments as a message shows them: briefly, and of any type."""

LONGEST = 80


def shown(value: object) -> str:
    """The start of `repr(value)`.

    The type alone if that raises, as an integer of many digits does.
    """
    try:
        return repr(value)[:LONGEST]
    except Exception:  # noqa: BLE001 -- the user's class: the message is about something else
        return f"<{type(value).__name__}>"


def text_of(error: BaseException) -> str:
    """The text of an error, or that its class can't tell it."""
    try:
        return str(error)
    except BaseException as unspeakable:  # noqa: BLE001 -- the user's class: the outcome of its run must be told
        return f"its text can't be told ({type(unspeakable).__name__})"
