"""What a node serves, as its row tells it."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import Row

from sql.statements import nodes


class Member(msgspec.Struct):
    """A bus or service of a node; another version may leave parts out.

    Attributes:
        table: Its main table.
        queues: Its queues.
        subscribers: The names of each event type's subscribers, or a digest if they are long.
        outliving: Ids of entries that still run, though the node serves the table no more. None if
            it does.
        history: Which entries that end stay there.
    """

    table: str
    queues: list[str] = []
    subscribers: dict[str, list[str] | str] = {}
    outliving: list[int] | None = None
    history: str = "all"


def members(row: Row[Any]) -> list[Member] | None:
    """The members of the node of `row`; None if somebody else wrote it otherwise."""
    try:
        return msgspec.json.decode(row.serves, type=list[Member])
    except (msgspec.MsgspecError, RecursionError):
        return None


def served(row: Row[Any]) -> set[str]:
    """The tables on which the node of `row` has members."""
    return {member.table for member in members(row) or [] if member.outliving is None}


def outliving(row: Row[Any], table: str) -> list[int] | None:
    """Ids of `table` that a live node still runs, though it serves it no more.

    None if it serves it, or is not live.
    """
    found_members = members(row)
    if row.state != nodes.LIVE or found_members is None:
        return None
    found = list[int]()
    for member in found_members:
        if member.table == table:
            if member.outliving is None:
                return None
            found += member.outliving
    return found


def keeps_all(row: Row[Any], table: str) -> bool:
    """Whether an entry of `table` that the node of `row` has handled is in history then."""
    return all(member.history == "all" for member in members(row) or [] if member.table == table)
