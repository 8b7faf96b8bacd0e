"""All kinds of links of one bus or service."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from sqlalchemy import Connection

from queue_core.links.link import Ending, Link, RetryByHand
from queue_core.model.entry import Entry
from sql.search_keys import AWAITED


class Links:
    """Tells each kind of link of the entries that carry its mark."""

    def __init__(self, kinds: Sequence[Link] = ()) -> None:
        self._kinds = [(kind, _quoted(kind.mark)) for kind in kinds]
        marks = "|".join(re.escape(_quoted(kind.mark)) for kind in kinds)
        self._marked = re.compile(marks if kinds else r"(?!)").search
        """Finds a mark in headers, at once: each entry of a batch is asked about."""

    def concern(self, headers: str | None) -> bool:
        """Whether an entry with these headers has links."""
        # An entry by hand may have bytes there, on SQLite.
        return isinstance(headers, str) and self._marked(headers) is not None

    def ended(
        self, connection: Connection, endings: Iterable[Ending], *, lent: bool = False
    ) -> None:
        """See `Link.ended`. Entries without links are left out here."""
        linked = [one for one in endings if self.concern(one.entry.headers)]
        linked.sort(key=lambda one: one.entry.record_id)
        for kind, mark in self._kinds if linked else ():
            mine = [one for one in linked if mark in (one.entry.headers or "")]
            if mine:
                kind.ended(connection, mine, lent=lent)

    def retried(self, connection: Connection, retry: RetryByHand, *, lent: bool) -> None:
        """See `Link.retried`. Who waits is told in any case."""
        for kind, _ in self._kinds:
            # One that had ended when others named it carries no mark of that.
            if kind.mark == AWAITED or carries(retry.old.headers, kind.mark):
                kind.retried(connection, retry, lent=lent)

    def discarded(self, connection: Connection, old: Entry, *, lent: bool) -> None:
        """See `Link.discarded`."""
        for kind, _ in self._kinds:
            if carries(old.headers, kind.mark):
                kind.discarded(connection, old, lent=lent)

    def renewed(self, connection: Connection, old: Entry, new_id: int) -> None:
        """See `Link.renewed`."""
        for kind, _ in self._kinds:
            if carries(old.headers, kind.mark):
                kind.renewed(connection, old, new_id)


def carries(headers: str | None, mark: str) -> bool:
    """Whether headers have a mark.

    As it stands in a JSON object: within another header's text its quotes would be escaped.
    """
    return isinstance(headers, str) and _quoted(mark) in headers


def is_awaited(headers: str | None) -> bool:
    """Whether others wait for an entry with these headers."""
    return carries(headers, AWAITED)


def _quoted(mark: str) -> str:
    return f'"{mark}"'
