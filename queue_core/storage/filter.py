"""The conditions on entries of a read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial

import msgspec
from sqlalchemy import ColumnElement, FromClause, func

from queue_core.errors import InvalidPostError
from queue_core.model.posting import SearchKey
from queue_core.model.states import State, States, several
from queue_core.runtime.clock import in_utc
from queue_core.runtime.exact import exact_text
from queue_core.runtime.shown import shown
from queue_core.storage.arguments import storable_integer, storable_name
from queue_core.storage.search_keys import UNSET, Keyless, Unset, sought_key
from sql.statements.base import batches

Where = Callable[[FromClause], Sequence[ColumnElement[bool]]]
"""Conditions on a main or a history table."""
LONGEST_ERROR_TEXT = 1_000
"""Longest text, in characters, that is sought in errors."""


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """The entries that a read asks for. A field that is not given matches every entry.

    A search key that is KEYLESS matches only entries without that key.

    Dates are aware; `…_before` excludes its date, `…_since` includes it.
    """

    record_ids: Iterable[int] | None = None
    search_key1: SearchKey | Keyless | Unset = UNSET
    search_key2: SearchKey | Keyless | Unset = UNSET
    states: States | None = None
    class_name: str | None = None
    effective_before: datetime | None = None
    finished_before: datetime | None = None
    finished_since: datetime | None = None
    after_id: int | None = None
    """Only higher ids: the next page."""
    error_type: str | None = None
    error_text: str | None = None

    @property
    def matches_all(self) -> bool:
        """Whether no field is given."""
        return all(getattr(self, key) is getattr(EVERY, key) for key in self.__struct_fields__)

    def conditions(self, queue_name: str | None) -> list[Where]:
        """For `Store.find`: these entries, of one queue or of all (None).

        Raises InvalidPostError for bad values.

        More than one, for parts of the ids in their order, if there are more ids than a statement
        names.
        """
        # Every state rather than no condition: a row in none of them was written by hand, and is no
        # entry.
        wanted = state_values(list(State) if self.states is None else self.states)
        parts: Sequence[list[int] | None] = (
            [None] if self.record_ids is None else batches(checked_ids(self.record_ids)) or [[]]
        )

        def where(ids: list[int] | None, table: FromClause) -> Sequence[ColumnElement[bool]]:
            found: list[ColumnElement[bool]] = [table.c.processing_state.in_(wanted)]
            if queue_name is not None:
                found.append(table.c.queue_name == queue_name)
            if ids is not None:
                found.append(table.c.record_id.in_(ids))
            for key in ("search_key1", "search_key2"):
                value = getattr(self, key)
                if not isinstance(value, Unset):
                    sought = sought_key(value, key, queue_name or "search")
                    found += (
                        [table.c[key].is_(None)] if sought is None else sought.matches(key, table)
                    )
            if self.class_name is not None:
                found.append(table.c.class_name == self.class_name)
            if self.effective_before is not None:
                found.append(
                    table.c.effective_date < in_utc(self.effective_before, key="effective_before")
                )
            if self.finished_before is not None:
                found.append(
                    table.c.finished_date < in_utc(self.finished_before, key="finished_before")
                )
            if self.finished_since is not None:
                found.append(
                    table.c.finished_date >= in_utc(self.finished_since, key="finished_since")
                )
            if self.after_id is not None:
                found.append(table.c.record_id > storable_integer(self.after_id, "after_id"))
            found += self._of_error(table)
            return found

        return [partial(where, part) for part in parts]

    def _of_error(self, table: FromClause) -> list[ColumnElement[bool]]:
        found = list[ColumnElement[bool]]()
        if self.error_type is not None:
            head = f"{storable_name(self.error_type, 'error_type')}:"
            # LIKE takes capitals for small letters on some databases.
            found.append(func.substr(table.c.last_error, 1, len(head)) == head)
        if self.error_text is not None:
            text = storable_name(self.error_text, "error_text", limit=LONGEST_ERROR_TEXT)
            found.append(table.c.last_error.icontains(text, autoescape=True))
        return found


EVERY = Filter()


def checked_ids(record_ids: Iterable[int]) -> list[int]:
    """The ids, once each is known to be one. Raises InvalidPostError."""
    if not isinstance(record_ids, Iterable):
        raise InvalidPostError(
            f"record_ids={shown(record_ids)} is not allowed. Allowed: a collection of record ids.",
            key="record_ids",
        )
    return [storable_integer(record_id, "record_ids") for record_id in record_ids]


def state_values(states: States) -> list[str]:
    """The states as columns hold them. Raises InvalidPostError for other values."""
    try:
        return [State(exact_text(state) or "").value for state in several(states)]
    except (TypeError, ValueError) as error:
        raise InvalidPostError(
            f"states={shown(states)} is not allowed. Allowed: one or several of "
            f"{', '.join(State)}.",
            key="states",
            value=shown(states),
        ) from error
