"""The list of table families: the schema, names of main tables and the doctor stand on it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import Column, Connection, Integer, MetaData, Table, inspect, select

from queue_core.model.names import table_fault
from sql import families, schema
from sql.database import Database
from sql.doctor.base import Scope
from sql.families import ENTRIES, FAMILIES, NODES, Family, metadata_for, table_names
from sql.names import DEFAULT_TABLES, DIALECTS
from sql.registry import BACKENDS


class Marks:
    """Statements on a made-up family."""

    def count(self, connection: Connection) -> int:
        return len(connection.execute(select(marks)).all())


class SQLiteMarks(Marks):
    """The same, as SQLite takes them."""


marks = Table("queue_marks", MetaData(), Column("mark_id", Integer, primary_key=True))


def define_limits(main_name: str, metadata: MetaData) -> Table:
    return Table(f"{main_name}_limits", metadata, Column("limit_id", Integer, primary_key=True))


MARKS = Family(Marks, (marks,), define=define_limits, suffixes=("_limits",))


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Database:
    """A database with the tables of this version, before a family was declared."""
    url = f"sqlite:///{tmp_path / 'marks.db'}"
    schema.create(url)
    monkeypatch.setattr(families, "FAMILIES", (*FAMILIES, MARKS))
    return Database(url)


def test_a_declared_family_is_missed_created_and_examined(database: Database) -> None:
    report = database.fetch(schema.check)
    assert report.fit is schema.Fit.MISSING
    made = {"queue_marks", *(f"{main}_limits" for main in DEFAULT_TABLES)}
    assert set(report.missing_tables) == made

    schema.ensure(database, DEFAULT_TABLES)

    assert database.fetch(schema.check).fit is schema.Fit.CURRENT
    assert made <= set(database.fetch(lambda connection: inspect(connection).get_table_names()))
    assert database.fetch(schema.main_tables) == DEFAULT_TABLES
    scope = Scope(database.dialect, DEFAULT_TABLES, datetime.now(UTC), 60.0)
    assert made <= set(scope.names)
    database.close()


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize("name", ["queue_marks", "QUEUE_MARKS", "orders_limits"])
def test_no_main_table_has_a_name_of_a_declared_family(name: str) -> None:
    assert table_fault(name) is not None
    assert table_fault("marks") is None


@pytest.mark.parametrize("name", ["work_task", "WORK_TASK"])
def test_no_history_has_the_name_of_another_table(name: str) -> None:
    assert "with or without such an end" in str(table_fault(name))


def test_a_database_takes_its_own_statements_where_it_has_some(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialect = database.dialect
    assert dialect.statements_for(MARKS) is Marks
    monkeypatch.setattr(
        type(dialect), "own_statements", (*type(dialect).own_statements, SQLiteMarks)
    )
    assert dialect.statements_for(MARKS) is SQLiteMarks
    assert dialect.statements_for(NODES) is NODES.statements
    assert issubclass(dialect.statements_for(ENTRIES), ENTRIES.statements)
    database.close()


@pytest.mark.parametrize("name", BACKENDS)
def test_statements_of_a_database_replace_those_of_a_family(name: str) -> None:
    kinds = [family.statements for family in FAMILIES]
    replacing = BACKENDS[name].dialect.own_statements
    assert replacing
    for own in replacing:
        assert sum(issubclass(own, kind) for kind in kinds) == 1


def test_each_table_belongs_to_one_family() -> None:
    shared = [table.name for family in FAMILIES for table in family.shared]
    assert len(shared) == len(set(shared))
    assert {*shared, "orders", "orders_history"} == set(metadata_for("orders").tables)


@pytest.mark.usefixtures("database")
def test_the_names_of_tables_are_those_of_the_defined_tables() -> None:
    assert sorted(table_names("orders", "mails")) == sorted(metadata_for("orders", "mails").tables)


def test_the_dialects_that_are_named_are_those_that_are_served() -> None:
    assert tuple(BACKENDS) == DIALECTS


def test_the_revisions_that_are_known_are_those_of_the_migrations() -> None:
    scripts = ScriptDirectory.from_config(schema.alembic_config(()))
    known = schema._revisions()
    assert [script.revision for script in scripts.walk_revisions()] == list(known)
    assert known[0] == scripts.get_current_head()
