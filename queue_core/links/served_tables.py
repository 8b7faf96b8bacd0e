"""The tables that a node serves, as its row tells them."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import Row

from sql.statements import nodes


class _Member(msgspec.Struct):
    table: str
    outliving: list[int] | None = None
    history: str = "all"


def _members(row: Row[Any]) -> list[_Member] | None:
    try:
        return msgspec.json.decode(row.serves, type=list[_Member])
    except (msgspec.MsgspecError, RecursionError):
        return None  # not ours


def served(row: Row[Any]) -> set[str]:
    """The tables on which the node of `row` has members."""
    return {member.table for member in _members(row) or [] if member.outliving is None}


def outliving(row: Row[Any], table: str) -> list[int] | None:
    """Ids of `table` that a live node still runs, though it serves it no more.

    None if it serves it, or is not live.
    """
    members = _members(row)
    if row.state != nodes.LIVE or members is None:
        return None
    found = list[int]()
    for member in members:
        if member.table == table:
            if member.outliving is None:
                return None
            found += member.outliving
    return found


def keeps_all(row: Row[Any], table: str) -> bool:
    """Whether an entry of `table` that the node of `row` has handled is in history then."""
    return all(member.history == "all" for member in _members(row) or [] if member.table == table)
