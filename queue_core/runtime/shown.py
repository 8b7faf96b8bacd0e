"""Arguments as a message shows them: briefly, and of any type."""

LONGEST = 80


def shown(value: object) -> str:
    """`repr(value)`, or its start and "…".

    The type alone if that raises, as an integer of many digits does.
    """
    try:
        told = repr(value)
    except Exception:  # noqa: BLE001 -- the user's class: the message is about something else
        return f"<{type(value).__name__}>"
    return told if len(told) <= LONGEST else told[:LONGEST] + "…"
