"""Partitions of history on PostgreSQL: tables of their own, which the history puts together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import (
    Connection,
    MetaData,
    Select,
    Table,
    delete,
    insert,
    literal,
    select,
    text,
)
from sqlalchemy.schema import CreateIndex

from sql.partitions import FIRST, LAST, Partition, Partitions, Span
from sql.statements.base import full_name, quoted
from sql.tables import STORAGE

LONGEST_NAME = 63
"""The server cuts longer names."""
_LIKE = "INCLUDING DEFAULTS INCLUDING STORAGE"
_FOUND = text("""
SELECT c.relname, pg_get_expr(c.relpartbound, c.oid) AS bound,
       greatest(c.reltuples, 0)::bigint AS guessed
  FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_class p ON p.oid = i.inhparent
 WHERE p.oid = to_regclass(:name) AND p.relkind = 'p'
""")
_RIGHTS = text("""
SELECT privilege_type, is_grantable,
       CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END AS whose
  FROM pg_class, aclexplode(relacl) WHERE oid = to_regclass(:name) AND grantee <> relowner
""")
_OBSTACLES = text("""
SELECT relrowsecurity OR EXISTS (SELECT FROM pg_policy WHERE polrelid = c.oid) AS policies,
       EXISTS (SELECT FROM pg_attribute WHERE attrelid = c.oid AND attacl IS NOT NULL) AS columns
  FROM pg_class c WHERE oid = to_regclass(:name)
""")
_CONSTRAINT = text("""
SELECT conname FROM pg_constraint WHERE conrelid = to_regclass(:name) AND conname = :bound
""")
_OWNER = text("SELECT relowner::regrole::text FROM pg_class WHERE oid = to_regclass(:name)")
_INDICES = text("""
SELECT n.relname, i.indexrelid::regclass::text AS full_name
  FROM pg_index i JOIN pg_class n ON n.oid = i.indexrelid WHERE i.indrelid = to_regclass(:name)
""")


class PostgreSQLPartitions(Partitions):
    """Divides a history without copying it: the table that was there becomes a partition."""

    supported = True

    def found(self, connection: Connection, past: Table) -> list[Partition]:
        """See `Partitions`."""
        rows = connection.execute(_FOUND, {"name": full_name(connection, past)})
        known = [Partition(row.relname, _until(row.bound), row.guessed) for row in rows]
        return sorted(known, key=lambda one: (one.until is None, one.until))

    def divide(self, connection: Connection, past: Table, wanted: Sequence[Span]) -> None:
        """See `Partitions`.

        That all rows are before the first span is seen beside the traffic, by a constraint; the
        exchange of the tables then reads none of them.
        """
        name, bound = full_name(connection, past), quoted(connection, _bound(past))
        end = wanted[0].since.isoformat()
        self.drop_leftover(connection, past)
        with connection.begin():
            checked = f"CHECK (finished_date < '{end}') NOT VALID"
            _run(connection, f"ALTER TABLE {name} ADD CONSTRAINT {bound} {checked}")
        with connection.begin():
            _run(connection, f"ALTER TABLE {name} VALIDATE CONSTRAINT {bound}")
        with connection.begin():
            _run(connection, f"LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE")
            rights = connection.execute(_RIGHTS, {"name": name}).all()
            before = self._put_aside(connection, past)
            parted = f"(LIKE {before} {_LIKE}) PARTITION BY RANGE (finished_date)"
            _run(connection, f"CREATE TABLE {name} {parted}")
            key = ", ".join(column.name for column in past.primary_key)
            _run(connection, f"ALTER TABLE {name} ADD PRIMARY KEY ({key})")
            for index in sorted(past.indexes, key=lambda one: str(one.name)):
                connection.execute(CreateIndex(index))
            owner = connection.execute(_OWNER, {"name": before}).scalar_one()
            _run(connection, f"ALTER TABLE {name} OWNER TO {owner}")
            for right in rights:
                grant = f"GRANT {right.privilege_type} ON TABLE {name} TO {right.whose}"
                _run(connection, grant + (" WITH GRANT OPTION" if right.is_grantable else ""))
            values = f"FOR VALUES FROM (MINVALUE) TO ('{end}')"
            _run(connection, f"ALTER TABLE {name} ATTACH PARTITION {before} {values}")
            _run(connection, f"ALTER TABLE {before} DROP CONSTRAINT {bound}")
            for span in wanted:
                self._make(connection, past, span.stem, _values(span))
            self._make(connection, past, LAST, "DEFAULT")

    def obstacle(self, connection: Connection, past: Table) -> str | None:
        """See `Partitions`. The table that takes the name of the old one has neither."""
        found = connection.execute(_OBSTACLES, {"name": full_name(connection, past)}).one()
        if found.policies:
            return "row policies"
        return "rights on single columns" if found.columns else None

    def leftover(self, connection: Connection, past: Table) -> str | None:
        """See `Partitions`."""
        named = {"name": full_name(connection, past), "bound": _bound(past)}
        found: str | None = connection.execute(_CONSTRAINT, named).scalar()
        return found

    def drop_leftover(self, connection: Connection, past: Table) -> None:
        """See `Partitions`."""
        name, bound = full_name(connection, past), quoted(connection, _bound(past))
        with connection.begin():
            _run(connection, f"ALTER TABLE {name} DROP CONSTRAINT IF EXISTS {bound}")

    def _put_aside(self, connection: Connection, past: Table) -> str:
        """Rename the history and its indices; return the new name."""
        name, before = full_name(connection, past), _part(past, FIRST)
        for index in connection.execute(_INDICES, {"name": name}).all():
            new = quoted(connection, f"{index.relname[: LONGEST_NAME - len(FIRST) - 1]}_{FIRST}")
            _run(connection, f"ALTER INDEX {index.full_name} RENAME TO {new}")
        _run(connection, f"ALTER TABLE {name} RENAME TO {quoted(connection, before.name)}")
        return full_name(connection, before)

    def _make(self, connection: Connection, past: Table, stem: str, bound: str) -> None:
        name, made = full_name(connection, past), full_name(connection, _part(past, stem))
        _run(connection, f"CREATE TABLE {made} PARTITION OF {name} {bound}")
        self._set_up(connection, past, made)

    def _set_up(self, connection: Connection, past: Table, made: str) -> None:
        """Give a partition the settings of the history, which as a whole can have none."""
        _run(connection, f"ALTER TABLE {made} SET ({past.info[STORAGE]})")
        owner = connection.execute(_OWNER, {"name": full_name(connection, past)}).scalar_one()
        _run(connection, f"ALTER TABLE {made} OWNER TO {owner}")

    def add(self, connection: Connection, past: Table, span: Span) -> None:
        """See `Partitions`. Only who writes into the last partition waits."""
        last, made = _part(past, LAST), _part(past, span.stem)
        name, new = full_name(connection, past), full_name(connection, made)
        ended = last.c.finished_date
        taken = delete(last).where(ended >= span.since, ended < span.until).returning(*last.c)
        moved = taken.cte("moved")
        with connection.begin():
            _run(connection, f"LOCK TABLE {full_name(connection, last)} IN ACCESS EXCLUSIVE MODE")
            _run(connection, f"CREATE TABLE {new} (LIKE {name} {_LIKE})")
            self._set_up(connection, past, new)
            connection.execute(insert(made).from_select([*last.c.keys()], select(moved)))
            _run(connection, f"ALTER TABLE {name} ATTACH PARTITION {new} {_values(span)}")

    def rows(self, past: Table, partition: Partition) -> Select[Any]:
        """See `Partitions`."""
        return select(literal(1)).select_from(_named(past, partition.name))

    def drop(self, connection: Connection, past: Table, partition: Partition) -> None:
        """See `Partitions`."""
        with connection.begin():
            _run(connection, f"DROP TABLE {full_name(connection, _named(past, partition.name))}")


def _run(connection: Connection, statement: str) -> None:
    connection.exec_driver_sql(statement)


def _values(span: Span) -> str:
    return f"FOR VALUES FROM ('{span.since.isoformat()}') TO ('{span.until.isoformat()}')"


def _until(bound: str) -> datetime | None:
    """The end of a partition, as the catalogue writes it in a session in UTC."""
    found = re.search(r"TO \('(.+)'\)", bound)
    return None if found is None else datetime.fromisoformat(found[1])


def _bound(past: Table) -> str:
    return f"{past.name[:50]}_divided"


def _part(past: Table, stem: str) -> Table:
    return _named(past, f"{past.name[: LONGEST_NAME - len('_d20261231')]}_{stem}")


def _named(past: Table, name: str) -> Table:
    return past.to_metadata(MetaData(), name=name)
