"""Databases to measure on: durable servers, with a fresh database for each measurement."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from sqlalchemy import URL, text

from devtools.servers import database_servers
from sql.database import Database
from tests.cloners import CLONERS, Cloner, SQLiteFiles, server_url

NAMES = ("sqlite", "postgresql", "mariadb")
CHOICES = (*NAMES, "mysql")
"""All names that can be asked for; results are published of `NAMES`."""


@dataclass
class Target:
    """A database server, or a folder for SQLite's files. `settings` decide about durability."""

    name: str
    settings: dict[str, str]
    _made: Cloner | SQLiteFiles
    _numbers: count[int] = field(default_factory=count)

    @contextmanager
    def fresh(self) -> Iterator[URL]:
        """A new database with the schema, dropped afterwards."""
        if isinstance(self._made, SQLiteFiles):
            path = self._made.folder / f"bench_{next(self._numbers)}.db"
            yield self._made.migrated(path)
            for file in path.parent.glob(f"{path.name}*"):
                file.unlink()
            return
        url = self._made.migrated()
        yield url
        self._made.drop(str(url.database))


@contextmanager
def targets(names: Sequence[str], *, durable: bool = True) -> Iterator[dict[str, Target]]:
    """Start the databases of `names`, by name; everything ends with the block.

    Servers that are not `durable` write as much, and wait for no disk.

    Raises ServerError if a server's program is not installed.
    """
    with ExitStack() as running:
        wanted = [name for name in names if name != "sqlite"]
        servers = (
            running.enter_context(database_servers(durable=durable, which=wanted))
            if wanted
            else None
        )
        found: dict[str, Target] = {}
        for name in names:
            if servers is not None and name in servers:
                cloner = CLONERS[name](server_url(name, servers[name]))
                running.callback(cloner.close)
                found[name] = Target(name, servers.server(name).settings(), cloner)
            else:
                folder = Path(
                    running.enter_context(tempfile.TemporaryDirectory(prefix="stickybus-bench-"))
                )
                found[name] = Target(name, _sqlite_settings(folder), SQLiteFiles(folder))
        yield found


def _sqlite_settings(folder: Path) -> dict[str, str]:
    database = Database(URL.create("sqlite", database=str(folder / "settings.db")))
    with database.read() as connection:
        found = {
            name: str(connection.execute(text(f"PRAGMA {name}")).scalar_one())
            for name in ("journal_mode", "synchronous")
        }
    database.close()
    return {**found, "version": sqlite3.sqlite_version}
