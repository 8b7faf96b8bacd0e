"""The database whose history an archive has."""

from __future__ import annotations

from contextlib import closing

from sqlalchemy import URL
from sqlalchemy import Engine as SqlalchemyEngine

from history_pipeline.rows.kind import kind_of
from queue_core.opening import open_checked
from sql.database import Database


def opened_for(
    database: str | URL | SqlalchemyEngine, table: str, application_name: str
) -> closing[Database]:
    """For a block that works with the opened database. Raises a StickybusError if it can't be."""
    main_tables = kind_of(table).main_tables(table)
    return closing(
        open_checked(database, main_tables, auto_migrate=False, application_name=application_name)
    )
