"""The lanes: the column of an entry that names the nodes that may claim it.

A lane is the name of a node, or one of those that are named here. Their names begin with an
exclamation mark, which no node's name may do.

A claim moves the entry into its owner's lane. So a node's lane holds all entries that the node has
claimed and, in the sticky modes, those that wait for it. A reaper reads them there.
"""

from __future__ import annotations

from hashlib import blake2s
from typing import NewType

Lane = NewType("Lane", str)
"""The value of the column `lane`."""

ANY_NODE = Lane("")
"""Lane of the entries that any live node may claim which serves them."""
SUSPECT = Lane("!suspect")
"""Lane of the entries that a handler's thread may have had when their process died.

Any live node may claim them, each bus or service one at a time.
"""
PARKED = Lane("!parked")
"""Lane of the entries whose type or queue no node has known so far: nobody claims from it."""

WAITING_LANE = Lane("!waiting")
"""Lane of the entries that wait for others: nobody claims from it."""
LIMITED = "!limited:"
"""The prefix of the lanes of limited queues: a lane for each."""
AFTER_LIMITED = "!limited;"
"""The lanes of limited queues lie before it."""
KEYED = "!keyed:"
"""The prefix of the lanes of entries that wait for a place of their limit key, one for each key."""
AFTER_KEYED = "!keyed;"
"""The lanes of limit keys lie before it. There may be many: a walk through the lanes skips them."""
PAUSED = "!paused:"
"""The prefix of the lanes of paused entries: a lane for each queue and handler that is paused."""
AFTER_PAUSED = "!paused;"
"""The lanes of paused entries lie before it."""

RETURNING = Lane(PAUSED + "returning")
"""Lane of the entries that were chosen as probes, or replaced in the lane of a pause or circuit.

They stand in it until a node brings them to where they run.

To the node that has posted it, if that lives: that takes more than to move it within a transaction.
"""

_RESERVED = "!"


def paused_lane(queue_name: str, handler: str | None = None, order_key: str | None = None) -> Lane:
    """Lane of the entries that wait for the end of a pause.

    It is that of a queue, of one of its handlers, or of one of its order keys.

    Nobody claims from it. A digest stands for the names, which may be longer than a lane's may be.
    """
    if order_key is not None:
        names = f"{queue_name}\0\0{order_key}"
    else:
        names = queue_name if handler is None else f"{queue_name}\0{handler}"
    return Lane(PAUSED + blake2s(names.encode(), digest_size=16).hexdigest())


def limited_lane(queue_name: str) -> Lane:
    """Lane of the entries of a limited queue that found no place.

    Any live node claims from it that serves the queue, as far as the limit has places.
    """
    return Lane(LIMITED + blake2s(queue_name.encode(), digest_size=16).hexdigest())


def keyed_lane(queue_name: str, limit_key: str) -> Lane:
    """Lane of the entries of a limit key that found no place.

    Nobody claims from it: a run that frees a place of the key lets the first one out.
    """
    names = f"{queue_name}\0{limit_key}"
    return Lane(KEYED + blake2s(names.encode(), digest_size=16).hexdigest())


def is_keyed(lane: str) -> bool:
    """Whether the entries of a lane wait for a place of their limit key."""
    return lane.startswith(KEYED)


def is_limited(lane: str) -> bool:
    """Whether the entries of a lane wait for a place of their queue."""
    return lane.startswith(LIMITED)


def circuit_lane(queue_name: str, handler: str) -> Lane:
    """Lane of the entries that have failed, and wait until the circuit of a handler is closed.

    It is one of those of paused entries, and treated as these are.
    """
    return paused_lane(queue_name, f"{handler}\0failed")


def is_paused(lane: str) -> bool:
    """Whether the entries of a lane wait for the end of a pause, or for a circuit to be closed."""
    return lane.startswith(PAUSED)


def is_reserved(name: str) -> bool:
    """Whether a name is kept for lanes that belong to no node, so that no node can have it."""
    return name.startswith(_RESERVED)


def is_node_lane(lane: str) -> bool:
    """Whether a lane belongs to one node, whose name it is."""
    return lane != ANY_NODE and not is_reserved(lane)
