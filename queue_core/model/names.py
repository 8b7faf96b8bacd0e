"""Names of nodes, buses, queues and tables: what they may be."""

import re
from typing import Annotated

from pydantic import AfterValidator

from sql.tables import SHARED_TABLES

MAX_NAME_LENGTH = 64
_OWN_TABLES = frozenset({"stickybus_schema", *(table.name for table in SHARED_TABLES)})


def name_fault(name: object, limit: int = MAX_NAME_LENGTH) -> str | None:
    """Why `name` can't be a name of at most `limit` characters, None if it can.

    Quotes, percent signs, emoji and spaces are fine; the limit counts characters (code points), not
    bytes.
    """
    if not isinstance(name, str):
        return f"texts, not a {type(name).__name__}"
    if not 1 <= len(name) <= limit:
        return f"1 to {limit} characters, not {len(name)}"
    try:
        name.encode()
    except UnicodeEncodeError:
        return "no lone surrogate, which databases can't store"
    return "no NUL character, which databases can't store" if "\0" in name else None


def _storable(name: str) -> str:
    fault = name_fault(name)
    if fault:
        raise ValueError(fault)
    return name


def _no_lane(name: str) -> str:
    if name.startswith("!"):
        raise ValueError("no leading '!', which marks the lanes !parked and !suspect")
    return name


def table_fault(table: object) -> str | None:
    """Why `table` can't be the name of a main table, None if it can."""
    if not isinstance(table, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,47}", table):
        return "1 to 48 letters, digits and underscores, no digit first"
    if table.lower() in _OWN_TABLES or table.lower().endswith("_history"):
        return f"neither {', '.join(sorted(_OWN_TABLES))} nor a name that ends in _history"
    return None


def _free(table: str) -> str:
    fault = table_fault(table)
    if fault:
        raise ValueError(fault)
    return table


def _printable(name: str) -> str:
    if not re.fullmatch(r"[ -~]{1,63}", name):
        raise ValueError("1 to 63 printable ASCII characters")
    return name


Name = Annotated[str, AfterValidator(_storable)]
NodeName = Annotated[str, AfterValidator(_storable), AfterValidator(_no_lane)]
TableName = Annotated[str, AfterValidator(_free)]
ApplicationName = Annotated[str, AfterValidator(_printable)]
