"""The mode of a queue: the nodes that may run its entries, and their ways to hear of them."""

from enum import StrEnum
from typing import Literal, TypeAlias


class Mode(StrEnum):
    """The nodes that may run an entry, and their way to hear of it."""

    POLLING = "POLLING"
    """Any node that serves it; nodes poll."""
    STICKY_POLLING = "STICKY_POLLING"
    """The node that posted it; it polls, and is woken by its own commits."""
    STICKY_EVENTS = "STICKY_EVENTS"
    """The node that posted it; handed over from memory after the commit, without a claim.

    An entry with a date, and a retry, is claimed from the node's lane.
    """


ModeName: TypeAlias = Literal[
    "POLLING", "STICKY_POLLING", "STICKY_EVENTS", "polling", "sticky_polling", "sticky_events"
]
"""A mode by its name."""
