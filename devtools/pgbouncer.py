"""PgBouncer before a PostgreSQL server."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import psycopg
from sqlalchemy import URL, make_url

from devtools.folders import data_folder, own_folder
from devtools.programs import find_program, require
from devtools.server import DatabaseServer, StopMode


class PgBouncer(DatabaseServer):
    """PgBouncer before a PostgreSQL server that runs elsewhere.

    Any user who logs in is that server's administrator.
    """

    name = "pgbouncer"
    _stop_signals: ClassVar = {StopMode.GRACEFUL: signal.SIGINT, StopMode.CRASH: signal.SIGKILL}

    def __init__(self, folder: Path, server: URL, mode: str) -> None:
        self._behind = server
        self._mode = mode
        super().__init__(folder, durable=False)

    @property
    def url(self) -> str:
        behind = self._behind
        return f"postgresql+psycopg://{behind.username}@127.0.0.1:{self.port}/{behind.database}"

    def settings(self) -> dict[str, str]:
        return {"pool_mode": self._mode}

    def _create_data(self) -> None:
        behind = self._behind
        reached = (
            f"host={behind.host} port={behind.port} "
            f"user={behind.username} password={behind.password}"
        )
        settings = {
            "listen_addr": "127.0.0.1",
            "listen_port": str(self.port),
            "unix_socket_dir": "",
            "auth_type": "any",
            "pool_mode": self._mode,
            "pidfile": str(self.folder / "server.pid"),
        }
        file = self.folder / "pgbouncer.ini"
        lines = [f"{name} = {value}" for name, value in settings.items()]
        file.write_text("\n".join(["[databases]", f"* = {reached}", "[pgbouncer]", *lines, ""]))

    def _command(self) -> list[str]:
        return [find_program("pgbouncer"), str(self.folder / "pgbouncer.ini")]

    def _accepts_logins(self) -> bool:
        console = f"host=127.0.0.1 port={self.port} user={self._behind.username} dbname=pgbouncer"
        with (
            contextlib.suppress(psycopg.OperationalError),
            psycopg.connect(console, autocommit=True),
        ):
            return True
        return False


@contextlib.contextmanager
def pgbouncer(server: URL, mode: str) -> Iterator[URL]:
    """Run PgBouncer before a PostgreSQL server, in a `pool_mode`, while the block runs.

    The value is its URL for the same database.
    """
    require(["pgbouncer"])
    with own_folder(data_folder(durable=False)) as data:
        pooler = PgBouncer(data, server, mode)
        pooler.start()
        try:
            yield make_url(pooler.url)
        finally:
            pooler.stop(StopMode.CRASH)
