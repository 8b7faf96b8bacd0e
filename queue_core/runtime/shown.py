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
