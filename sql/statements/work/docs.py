"""The statements on `work_doc_sets` and `work_docs`.

A set is locked before its docs are read or written, in the order of namespace and key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any

from sqlalchemy import (
    Connection,
    Row,
    Select,
    Table,
    bindparam,
    delete,
    null,
    select,
)

from sql.statements.insert_new import inserted
from sql.statements.work.change import change_by
from sql.tables import in_schema, work_doc_sets, work_docs

NAMED = 200
"""The most sets or docs that a statement names."""

CONTENTS = ("content_json", "content_bytes")

Pair = tuple[str, str]
"""A namespace, and a key or an id in it."""


class WorkDocs:
    """With a `schema`, they find the tables whatever the session's search path is."""

    def __init__(self, schema: str | None = None) -> None:
        self.sets = in_schema(work_doc_sets, schema)
        self.docs = in_schema(work_docs, schema)
        self.facts = [column for column in self.docs.c if column.name not in CONTENTS]

    def _looked_up(self, table: Table, statement: Select[Any]) -> Select[Any]:
        """The same read of rows named by keys, made to look them up in the primary key."""
        del table
        return statement

    # -- sets -------------------------------------------------------------------------------------

    def sets_present(self, connection: Connection, keys: Sequence[Pair]) -> list[Row[Any]]:
        """The sets of these keys, as a snapshot that locks nothing."""
        return self._pairs(connection, self.sets, select(self.sets), keys)

    def lock_sets(
        self, connection: Connection, keys: Sequence[Pair], *, shared: bool = False
    ) -> list[Row[Any]]:
        """The sets of these keys as they are now; they stay so.

        Other transactions may lock them as well if it is `shared`.
        """
        sets = self.sets
        ordered = select(sets).order_by(sets.c.namespace, sets.c.doc_key)
        locked = ordered.with_for_update(read=shared)
        return self._pairs(connection, sets, locked, sorted(keys))

    def add_sets(self, connection: Connection, keys: Sequence[Pair], now: datetime) -> list[Pair]:
        """Add sets without docs, at version 0; returns those that were not there."""
        new = {"version": 0, "arrival_date": now, "claimant": ""}
        return [
            (namespace, key)
            for namespace, key in sorted(keys)
            if inserted(connection, self.sets, {**new, "namespace": namespace, "doc_key": key})
        ]

    def change_sets(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write version, arrival and claimant of locked sets."""
        keys = {"of_namespace": "namespace", "of_key": "doc_key"}
        changed = change_by(self.sets, keys, ("version", "arrival_date", "claimant"))
        connection.execute(changed, list(rows))

    # -- docs -------------------------------------------------------------------------------------

    def present(self, connection: Connection, ids: Sequence[Pair]) -> list[Row[Any]]:
        """The docs of these ids, without contents, as a snapshot that locks nothing."""
        return self._pairs(connection, self.docs, select(*self.facts), ids)

    def lock(self, connection: Connection, ids: Sequence[Pair]) -> list[Row[Any]]:
        """The docs of these ids, without contents, as they are now. They must be there."""
        docs = self.docs
        locked = select(*self.facts).order_by(docs.c.namespace, docs.c.doc_id).with_for_update()
        return self._pairs(connection, docs, locked, sorted(ids))

    def at_places(
        self, connection: Connection, namespace: str, key: str, secondary_keys: Sequence[str]
    ) -> list[Row[Any]]:
        """The docs at these places in a set."""
        docs, found = self.docs, list[Row[Any]]()
        in_set = select(*self.facts).where(docs.c.namespace == namespace, docs.c.doc_key == key)
        for start in range(0, len(secondary_keys), NAMED):
            part = docs.c.secondary_key.in_(secondary_keys[start : start + NAMED])
            found += connection.execute(in_set.where(part))
        return found

    def insert_new(self, connection: Connection, row: Mapping[str, Any]) -> bool:
        """Insert a doc; False if its id or its place is taken."""
        return inserted(connection, self.docs, row)

    def change(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write contents of docs in locked sets."""
        keys = {"of_namespace": "namespace", "of_id": "doc_id"}
        changed = change_by(self.docs, keys, ("modified_date", *CONTENTS))
        connection.execute(changed, list(rows))

    def delete(self, connection: Connection, ids: Sequence[Pair]) -> None:
        """Delete docs in locked sets."""
        docs = self.docs
        gone = delete(docs).where(
            docs.c.namespace == bindparam("of_namespace"), docs.c.doc_id == bindparam("of_id")
        )
        rows = [{"of_namespace": namespace, "of_id": doc_id} for namespace, doc_id in sorted(ids)]
        connection.execute(gone, rows)

    # -- reads ------------------------------------------------------------------------------------

    def _read(self, *, contents: bool) -> Select[Any]:
        docs, sets = self.docs, self.sets
        columns = (
            list(docs.c) if contents else [*self.facts, *(null().label(one) for one in CONTENTS)]
        )
        return select(*columns, sets.c.version, sets.c.arrival_date, sets.c.claimant).join_from(
            docs,
            sets,
            (docs.c.namespace == sets.c.namespace) & (docs.c.doc_key == sets.c.doc_key),
        )

    def by_ids(
        self, connection: Connection, namespace: str, ids: Sequence[str], *, contents: bool
    ) -> list[Row[Any]]:
        """Docs with the columns of their sets, in any order."""
        found, docs = list[Row[Any]](), self.docs
        wanted = self._read(contents=contents).where(docs.c.namespace == namespace)
        for start in range(0, len(ids), NAMED):
            part = docs.c.doc_id.in_(ids[start : start + NAMED])
            found += connection.execute(wanted.where(part))
        return found

    def by_keys(
        self,
        connection: Connection,
        namespace: str,
        *,
        key: str | None = None,
        first: str = "",
        end: str = "",
        limit: int | None = None,
        contents: bool = True,
    ) -> list[Row[Any]]:
        """Docs with the columns of their sets, of a key or of a range, by their places."""
        docs = self.docs
        wanted = self._read(contents=contents).where(docs.c.namespace == namespace)
        if key is not None:
            wanted = wanted.where(docs.c.doc_key == key)
        else:
            wanted = wanted.where(docs.c.doc_key >= first)
            if end:
                wanted = wanted.where(docs.c.doc_key < end)
        ordered = wanted.order_by(docs.c.namespace, docs.c.doc_key, docs.c.secondary_key)
        return list(connection.execute(ordered.limit(limit)))

    def without_sets(self, connection: Connection, *, among: int) -> list[Row[Any]]:
        """Namespace and key of those of the first docs whose set is missing."""
        docs, sets = self.docs, self.sets
        first = (
            select(docs.c.namespace, docs.c.doc_key)
            .order_by(docs.c.namespace, docs.c.doc_id)
            .limit(among)
            .subquery("first_docs")
        )
        of_doc = (sets.c.namespace == first.c.namespace) & (sets.c.doc_key == first.c.doc_key)
        missing = select(first).distinct().where(~select(sets.c.version).where(of_doc).exists())
        return list(connection.execute(missing))

    def _pairs(
        self, connection: Connection, table: Table, statement: Select[Any], pairs: Sequence[Pair]
    ) -> list[Row[Any]]:
        """The rows with these primary keys, a namespace after the other.

        An index answers that everywhere, unlike a list of pairs.
        """
        outer, inner = table.primary_key.columns
        found, looked_up = list[Row[Any]](), self._looked_up(table, statement)
        for namespace, group in groupby(pairs, key=itemgetter(0)):
            names = [name for _, name in group]
            for start in range(0, len(names), NAMED):
                part = looked_up.where(outer == namespace, inner.in_(names[start : start + NAMED]))
                found += connection.execute(part)
        return found
