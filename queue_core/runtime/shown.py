"""Arguments as a message shows them: briefly, and of any type."""

LONGEST = 80
VOWELS = tuple("aeioAEIO")  # a name with U is "a URL" or "a User" more often


def a_kind(kind: type) -> str:
    """The name of a type with its article: a dict, an int, a URL."""
    return f"{'an' if kind.__name__.startswith(VOWELS) else 'a'} {kind.__name__}"


def shown(value: object) -> str:
    """`repr(value)`, or its start and "…".

    The type alone if that raises, as an integer of many digits does.
    """
    try:
        told = repr(value)
    except Exception:  # noqa: BLE001 -- the user's class: the message is about something else
        return f"<{type(value).__name__}>"
    return told if len(told) <= LONGEST else told[:LONGEST] + "…"


def text_of(error: BaseException) -> str:
    """The text of an error, or that its class can't tell it."""
    try:
        return str(error)
    except BaseException as unspeakable:  # noqa: BLE001 -- the user's class: the outcome of its run must be told
        return f"its text can't be told ({type(unspeakable).__name__})"
