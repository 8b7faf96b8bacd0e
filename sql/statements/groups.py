"""The statements on `queue_groups` and `queue_group_ends`: groups of entries.

Rows are found without locks, and changed by their primary key. A change that finds nothing would
lock, on InnoDB, the gap into which others insert.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import (
    Connection,
    Row,
    Select,
    bindparam,
    delete,
    func,
    insert,
    literal,
    select,
    update,
)

from sql.statements.base import batches
from sql.tables import in_schema, queue_group_ends, queue_groups


class Ended(NamedTuple):
    """The numbers of members of a group that have ended, by their ends."""

    group_id: int
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0


class Groups:
    """With a `schema`, they find the tables whatever the session's search path is."""

    def __init__(self, schema: str | None = None) -> None:
        self.groups = groups = in_schema(queue_groups, schema)
        self.ends = ends = in_schema(queue_group_ends, schema)
        counts = (ends.c.succeeded, ends.c.failed, ends.c.cancelled)
        self._all = select(
            groups,
            *(count.label(f"ended_{count.name}") for count in counts),
            ends.c.completed_date,
        ).join_from(groups, ends, groups.c.group_id == ends.c.group_id)
        self._both = self._all.where(groups.c.group_id.in_(bindparam("ids", expanding=True)))
        ended = sum((groups.c[count.name] + count for count in counts), start=literal(0))
        self._completable = self._both.where(
            groups.c.sealed_date.is_not(None),
            ends.c.completed_date.is_(None),
            groups.c.total <= ended,
        )
        self._end = (
            update(ends)
            .where(ends.c.group_id == bindparam("of_group"), ends.c.completed_date.is_(None))
            .values({count.name: count + bindparam(f"more_{count.name}") for count in counts})
        )

    # -- one group --------------------------------------------------------------------------------

    def open(self, connection: Connection, values: Mapping[str, Any]) -> int:
        """Add a group without members, and return its id."""
        nothing = {"succeeded": 0, "failed": 0, "cancelled": 0}
        added = connection.execute(insert(self.groups).values(**values, **nothing, total=0))
        [group_id] = tuple(added.inserted_primary_key or ())
        ends = {"group_id": group_id, "table_name": values["table_name"], **nothing}
        connection.execute(insert(self.ends).values(ends))
        return int(group_id)

    def add(self, connection: Connection, group_id: int, members: int) -> bool:
        """Count new members; False if the group is sealed. It must be there."""
        groups = self.groups
        mine = groups.c.group_id == group_id, groups.c.sealed_date.is_(None)
        added = update(groups).where(*mine).values(total=groups.c.total + members)
        return connection.execute(added).rowcount == 1

    def adjust(
        self, connection: Connection, group_id: int, more: Mapping[str, int], look: datetime | None
    ) -> None:
        """Add to the row of posts, which must be there, and set its look date if given."""
        groups = self.groups
        values: dict[str, Any] = {name: groups.c[name] + count for name, count in more.items()}
        if look is not None:
            values["look_date"] = look
        connection.execute(update(groups).where(groups.c.group_id == group_id).values(values))

    def seal(
        self, connection: Connection, group_id: int, now: datetime, look: datetime | None
    ) -> bool:
        """Seal a group, and set its look date if given; False if it is sealed. It must be there."""
        groups = self.groups
        mine = groups.c.group_id == group_id, groups.c.sealed_date.is_(None)
        values = {"sealed_date": now, "look_date": look}
        return connection.execute(update(groups).where(*mine).values(values)).rowcount == 1

    # -- ends -------------------------------------------------------------------------------------

    def end(self, connection: Connection, ended: Sequence[Ended]) -> None:
        """Count ended members of groups that are not complete, which are locked in this order."""
        rows = [
            {
                "of_group": one.group_id,
                "more_succeeded": one.succeeded,
                "more_failed": one.failed,
                "more_cancelled": one.cancelled,
            }
            for one in ended
        ]
        connection.execute(self._end, rows)

    def lock_ends(self, connection: Connection, ids: Sequence[int]) -> None:
        """Wait until no other transaction counts ended members of groups, and keep it so."""
        ends = self.ends
        for batch in batches(ids):
            locked = select(ends.c.group_id).where(ends.c.group_id.in_(batch))
            connection.execute(locked.order_by(ends.c.group_id).with_for_update()).all()

    def completable(self, connection: Connection, ids: Sequence[int]) -> list[Row[Any]]:
        """As `read`, those that are sealed, and of which no member lives, but not complete."""
        return self._read(connection, self._completable, ids)

    def complete(self, connection: Connection, ended: Ended, now: datetime) -> None:
        """Complete a group, whose ends are locked, with its counts."""
        ends = self.ends
        completed = update(ends).where(ends.c.group_id == ended.group_id)
        connection.execute(completed.values(**ended._asdict(), completed_date=now))

    # -- reads ------------------------------------------------------------------------------------

    def read(self, connection: Connection, ids: Sequence[int]) -> list[Row[Any]]:
        """Groups, each with the columns of both its rows, by ascending id."""
        return self._read(connection, self._both, ids)

    def _read(
        self, connection: Connection, statement: Select[Any], ids: Sequence[int]
    ) -> list[Row[Any]]:
        found = list[Row[Any]]()
        for batch in batches(ids):
            found += connection.execute(statement, {"ids": batch})
        return sorted(found, key=lambda row: row.group_id)

    def newest(
        self,
        connection: Connection,
        table_name: str,
        *,
        queue_name: str | None = None,
        incomplete: bool = False,
        limit: int | None = None,
    ) -> list[Row[Any]]:
        """As `read`, the newest groups of a main table; of a queue if given, or not complete."""
        groups, ends = self.groups, self.ends
        found = self._all.where(groups.c.table_name == table_name)
        if queue_name is not None:
            found = found.where(groups.c.queue_name == queue_name)
        if incomplete:
            # Of the other table: its index finds them among all that are complete.
            found = found.where(ends.c.table_name == table_name, ends.c.completed_date.is_(None))
        return list(connection.execute(found.order_by(groups.c.group_id.desc()).limit(limit)))

    def uncounted(self, connection: Connection, table_name: str, *, limit: int) -> list[Row[Any]]:
        """(group_id, queue_name) of those of the newest groups that have no row of ends."""
        groups, ends = self.groups, self.ends
        newest = select(groups.c.group_id, groups.c.queue_name).where(
            groups.c.table_name == table_name
        )
        some = newest.order_by(groups.c.group_id.desc()).limit(limit).subquery("newest")
        joined = some.outerjoin(ends, ends.c.group_id == some.c.group_id)
        found = select(some.c.group_id, some.c.queue_name).select_from(joined)
        return list(connection.execute(found.where(ends.c.group_id.is_(None))))

    def incomplete(self, connection: Connection, table_name: str, *, limit: int) -> int:
        """The number of groups that are not complete, counted up to a limit."""
        ends = self.ends
        some = select(ends.c.group_id).where(
            ends.c.table_name == table_name, ends.c.completed_date.is_(None)
        )
        counted = select(func.count()).select_from(some.limit(limit).subquery())
        return int(connection.execute(counted).scalar_one())

    # -- callbacks --------------------------------------------------------------------------------

    def with_callbacks(
        self,
        connection: Connection,
        table_name: str,
        *,
        queue_name: str | None,
        parts: Sequence[str],
    ) -> list[Row[Any]]:
        """(group_id, callbacks) of groups whose callbacks hold all `parts`.

        Complete ones have theirs, too. It reads all groups of the main table.
        """
        groups = self.groups
        found = select(groups.c.group_id, groups.c.callbacks).where(
            groups.c.table_name == table_name,
            *(groups.c.callbacks.contains(part, autoescape=True) for part in parts),
        )
        if queue_name is not None:
            found = found.where(groups.c.queue_name == queue_name)
        return list(connection.execute(found.order_by(groups.c.group_id)))

    def lock_callbacks(self, connection: Connection, ids: Sequence[int]) -> list[Row[Any]]:
        """Lock groups, and return (group_id, callbacks) of them."""
        groups, found = self.groups, list[Row[Any]]()
        for batch in batches(ids):
            locked = select(groups.c.group_id, groups.c.callbacks).where(
                groups.c.group_id.in_(batch)
            )
            found += connection.execute(locked.order_by(groups.c.group_id).with_for_update())
        return found

    def set_callbacks(self, connection: Connection, group_id: int, callbacks: str | None) -> None:
        """Write the callbacks of a group that this transaction has locked."""
        groups = self.groups
        mine = update(groups).where(groups.c.group_id == group_id)
        connection.execute(mine.values(callbacks=callbacks))

    # -- looks ------------------------------------------------------------------------------------

    def _due(self, table_name: str, now: datetime, limit: int) -> Select[Any]:
        groups = self.groups
        due = select(groups.c.group_id).where(
            groups.c.table_name == table_name, groups.c.look_date <= now
        )
        return due.order_by(groups.c.look_date).limit(limit)

    def are_due(self, connection: Connection, table_name: str, *, now: datetime) -> bool:
        """Whether there is anything to look at."""
        return connection.execute(self._due(table_name, now, 1)).first() is not None

    def lock_due(
        self, connection: Connection, table_name: str, *, now: datetime, limit: int
    ) -> list[int]:
        """Lock groups whose look date has come, but for those that others hold.

        Returns their ids, ascending.
        """
        due = self._due(table_name, now, limit).with_for_update(skip_locked=True)
        return sorted(connection.execute(due).scalars())

    def looked(self, connection: Connection, ids: Sequence[int]) -> None:
        """Ask for no further look at groups."""
        groups = self.groups
        for batch in batches(ids):
            mine = groups.c.group_id.in_(batch)
            connection.execute(update(groups).where(mine).values(look_date=None))

    def completed_before(
        self, connection: Connection, table_name: str, *, before: datetime, limit: int
    ) -> list[int]:
        """The ids of groups that were complete before a date."""
        ends = self.ends
        old = select(ends.c.group_id).where(
            ends.c.table_name == table_name, ends.c.completed_date < before
        )
        ordered = old.order_by(ends.c.completed_date).limit(limit)
        return sorted(connection.execute(ordered).scalars())

    def remove(self, connection: Connection, ids: Sequence[int]) -> None:
        """Delete groups."""
        for batch in batches(ids):
            for table in (self.groups, self.ends):
                connection.execute(delete(table).where(table.c.group_id.in_(batch)))
