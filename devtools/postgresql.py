"""PostgreSQL as a server of tests and benchmarks."""

from __future__ import annotations

import contextlib
import signal
from typing import ClassVar, Final

import psycopg

from devtools.programs import find_program
from devtools.server import USER, DatabaseServer, StopMode, run_to_its_end

_MAX_CONNECTIONS: Final = 300


class PostgreSQLServer(DatabaseServer):
    """PostgreSQL, of the newest version installed."""

    name = "postgresql"
    # SIGTERM would wait for every client to leave.
    _stop_signals: ClassVar = {StopMode.GRACEFUL: signal.SIGINT, StopMode.CRASH: signal.SIGQUIT}

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://{USER}:{self._password}@127.0.0.1:{self.port}/postgres"

    def settings(self) -> dict[str, str]:
        names = [
            "fsync",
            "synchronous_commit",
            "full_page_writes",
            "wal_sync_method",
            "server_version",
        ]
        with self._connect() as connection:
            rows = connection.execute(
                "SELECT name, setting FROM pg_settings WHERE name = ANY(%s) ORDER BY name", [names]
            ).fetchall()
        return {str(name): str(setting) for name, setting in rows}

    def _create_data(self) -> None:
        password_file = self.folder / "password"
        password_file.write_text(self._password)
        # md5 costs microseconds a login where scram costs milliseconds, and tests log in thousands
        # of times.
        run_to_its_end(
            [
                *(find_program("initdb"), "--pgdata=data", f"--username={USER}", "--auth=md5"),
                *(f"--pwfile={password_file}", "--encoding=UTF8", "--locale=C", "--no-sync"),
            ],
            cwd=self.folder,
        )

    def _command(self) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            # Some temporary folders have longer names than a socket's path may have.
            "unix_socket_directories": "",
            "max_connections": str(_MAX_CONNECTIONS),
            # Two-phase commits; the server's own default forbids them.
            "max_prepared_transactions": "10",
            # In files below the data folder, instead of in the machine's shared memory.
            "dynamic_shared_memory_type": "mmap",
            "timezone": "Asia/Kolkata",
            "fsync": "on" if self.durable else "off",
            "full_page_writes": "on" if self.durable else "off",
            "synchronous_commit": "on",
        }
        options = [f"--{name}={value}" for name, value in settings.items()]
        return [find_program("postgres"), "-D", "data", *options]

    def _connect(self) -> psycopg.Connection:
        return psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user=USER,
            password=self._password,
            dbname="postgres",
            autocommit=True,
        )

    def _accepts_logins(self) -> bool:
        with contextlib.suppress(psycopg.OperationalError), self._connect():
            return True
        return False
