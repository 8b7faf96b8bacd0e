"""The database that an inspector looks at."""

from __future__ import annotations

from queue_core.reading.tables import Tables
from sql.database import Database


class Inspected:
    """Has the database, which its parts read."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._tables = Tables(database)
