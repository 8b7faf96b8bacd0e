"""Names of nodes, buses, queues and tables, and the rules for them."""

import re
from typing import Annotated

from pydantic import AfterValidator

from queue_core.model.lanes import is_reserved
from queue_core.runtime.exact import exact_text
from queue_core.runtime.shown import a_kind
from sql.families import is_taken_name, shared_names, suffixes

MAX_NAME_LENGTH = 64


def name_fault(name: object, limit: int = MAX_NAME_LENGTH) -> str | None:
    """The reason why `name` can't be a name of at most `limit` characters, None if it can.

    Quotes, percent signs, emoji and spaces are fine; the limit counts characters (code points), not
    bytes.
    """
    text = exact_text(name)
    return f"texts, not {a_kind(type(name))}" if text is None else text_fault(text, limit)


def text_fault(text: str, limit: int) -> str | None:
    """As `name_fault`, of a text."""
    if not 1 <= len(text) <= limit:
        return f"1 to {limit} characters, not {len(text)}"
    return storable_fault(text)


def storable_fault(text: str) -> str | None:
    """The reason why databases can't store a text of any length, None if they can."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return "no lone surrogate, which databases can't store"
    return "no NUL character, which databases can't store" if "\0" in text else None


def _storable(name: str) -> str:
    fault = name_fault(name)
    if fault:
        raise ValueError(fault)
    return name


def _no_lane(name: str) -> str:
    if is_reserved(name):
        raise ValueError("no leading '!', which marks lanes such as !parked and !suspect")
    return name


def table_fault(table: object) -> str | None:
    """The reason why `table` can't be the name of a main table, None if it can."""
    if not isinstance(table, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,47}", table):
        return "1 to 48 letters, digits and underscores, no digit first"
    if is_taken_name(table):
        return (
            f"no name that ends in {' or '.join(suffixes())}, and none of "
            f"{', '.join(shared_names())}, with or without such an end"
        )
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


class _Rule(AfterValidator):
    """A rule that `help` shows by the name of its function, without an address."""

    def __repr__(self) -> str:
        return getattr(self.func, "__name__", "rule").removeprefix("_")


Name = Annotated[str, _Rule(_storable)]
NodeName = Annotated[str, _Rule(_storable), _Rule(_no_lane)]
TableName = Annotated[str, _Rule(_free)]
ApplicationName = Annotated[str, _Rule(_printable)]
