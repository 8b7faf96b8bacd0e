"""The indices that the tables should have, compared with those that they have."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection, Index, Table
from sqlalchemy.schema import CreateIndex

from sql.doctor.base import Doctor, Scope
from sql.doctor.finding import Finding, Severity
from sql.families import metadata_for


def missing_index(connection: Connection, scope: Scope, *, doctor: Doctor) -> Iterator[Finding]:
    """Indices and primary keys of the table definitions that the database lacks."""
    keys = doctor.keys(connection, scope.names)
    for table in metadata_for(*scope.tables).sorted_tables:
        key = [column.name for column in table.primary_key]
        if keys[table.name].primary != key:
            yield Finding(
                "missing-index",
                Severity.DANGER,
                table.name,
                f"{table.name} has no primary key ({', '.join(key)}): each outcome reads the whole "
                "table, and nothing keeps an entry from being recorded twice.",
                f"ALTER TABLE {table.name} ADD PRIMARY KEY ({', '.join(key)})",
            )
        there = keys[table.name].indices
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            if there.get(str(index.name)) != [column.name for column in index.columns]:
                yield _missing(connection, table, index, taken=str(index.name) in there)


def _missing(connection: Connection, table: Table, index: Index, *, taken: bool) -> Finding:
    claims = str(index.name) == f"{table.name}_claim"
    # Without a lock on the writers, where the database can.
    index.dialect_options["postgresql"]["concurrently"] = True
    create = str(CreateIndex(index).compile(dialect=connection.dialect))
    columns = ", ".join(column.name for column in index.columns)
    return Finding(
        "missing-index",
        Severity.DANGER if claims else Severity.SLOW,
        table.name,
        f"{table.name} {'has another index of the name' if taken else 'lacks the index'} "
        f"{index.name} ({columns}): "
        + (
            "claims fail, or read the whole table."
            if claims
            else "searches by these columns read the whole table."
        ),
        f"-- drop the index {index.name} first\n{create}" if taken else create,
    )
