"""MariaDB and MySQL as servers of tests and benchmarks."""

from __future__ import annotations

import contextlib
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final

import pymysql

from devtools.folders import UNPRIVILEGED_USER, is_root
from devtools.programs import ServerError, find_program
from devtools.server import USER, DatabaseServer, StopMode, run_to_its_end

_MAX_CONNECTIONS: Final = 300


class _InnoDBServer(DatabaseServer):
    """The parts that MariaDB and MySQL share."""

    _stop_signals: ClassVar = {StopMode.GRACEFUL: signal.SIGTERM, StopMode.CRASH: signal.SIGKILL}
    _program: ClassVar[str]
    durability: ClassVar[Sequence[str]] = (
        "innodb_flush_log_at_trx_commit",
        "innodb_doublewrite",
        "innodb_flush_method",
    )

    @property
    def url(self) -> str:
        return f"mysql+pymysql://{USER}:{self._password}@127.0.0.1:{self.port}/mysql"

    def settings(self) -> dict[str, str]:
        with self._connect() as connection, connection.cursor() as cursor:
            cursor.execute(
                "SHOW VARIABLES WHERE variable_name IN %s", [(*self.durability, "version")]
            )
            return {str(name): str(value) for name, value in cursor.fetchall()}

    def _create_user(self) -> None:
        """Leave a script for the server's start; root enters by the socket only, or not at all."""
        (self.folder / "init.sql").write_text(
            f"CREATE USER IF NOT EXISTS '{USER}'@'%' IDENTIFIED BY '{self._password}';\n"
            f"GRANT ALL ON *.* TO '{USER}'@'%' WITH GRANT OPTION;\n"
        )

    def _command(self) -> list[str]:
        settings = {
            "datadir": str(self.folder / "data"),
            # A server that starts removes all that looks left over, a neighbour's files too.
            "tmpdir": str(self.folder),
            "bind-address": "127.0.0.1",
            "port": str(self.port),
            # Relative to the working folder: a path may have 107 characters at most.
            "socket": "server.sock",
            "pid-file": str(self.folder / "server.pid"),
            "init-file": str(self.folder / "init.sql"),
            "max-connections": str(_MAX_CONNECTIONS),
            "default-time-zone": "+05:30",
            "innodb-flush-log-at-trx-commit": "1" if self.durable else "2",
            # Without it, SIGKILL within the write of a page leaves a server that can't start again.
            "innodb-doublewrite": "ON",
        }
        options = [f"--{name}={value}" for name, value in settings.items()]
        # Without a resolver that answers, a login would wait for the name of 127.0.0.1.
        return [find_program(self._program), "--no-defaults", *options, "--skip-name-resolve"]

    def _connect(self) -> pymysql.Connection[pymysql.cursors.Cursor]:
        return pymysql.connect(host="127.0.0.1", port=self.port, user=USER, password=self._password)

    def _accepts_logins(self) -> bool:
        with contextlib.suppress(pymysql.OperationalError), self._connect():
            return True
        return False


class MariaDBServer(_InnoDBServer):
    """MariaDB, of the version on the path."""

    name = "mariadb"
    _program = "mariadbd"

    def _create_data(self) -> None:
        self._create_user()
        # The steps of mariadb-install-db, which needs programs of the client package. Root enters
        # by the socket only.
        tables, rows = (_system_tables(part).read_text() for part in ("", "_data"))
        lines = [line for line in rows.splitlines() if "@current_hostname" not in line]
        script = self.folder / "bootstrap.sql"
        script.write_text(
            "CREATE DATABASE mysql;\nUSE mysql;\n"
            "SET @auth_root_socket = 'root';\nSET @skip_auth_anonymous = 1;\n"
            + "\n".join([tables, *lines])
        )
        data = self.folder / "data"
        data.mkdir()
        if is_root():
            shutil.chown(data, UNPRIVILEGED_USER)
        bootstrap = [find_program("mariadbd"), "--no-defaults", "--bootstrap", f"--datadir={data}"]
        bootstrap += [f"--tmpdir={self.folder}"]
        run_to_its_end(
            [*bootstrap, "--enforce-storage-engine=", "--debug-no-sync"],
            cwd=self.folder,
            script=script,
        )

    def _command(self) -> list[str]:
        return [*super()._command(), *([] if self.durable else ["--debug-no-sync"])]


class MySQLServer(_InnoDBServer):
    """MySQL, of the version on the path or of the one that `setup.sh mysql` has unpacked."""

    name = "mysql"
    _program = "mysqld"
    # Unlike MariaDB it writes a binary log by default.
    durability: ClassVar[Sequence[str]] = (*_InnoDBServer.durability, "log_bin", "sync_binlog")

    def _create_data(self) -> None:
        self._create_user()
        data = self.folder / "data"
        run_to_its_end(
            [
                find_program(self._program),
                "--no-defaults",
                "--initialize-insecure",
                f"--datadir={data}",
            ],
            cwd=self.folder,
        )

    def _command(self) -> list[str]:
        options = {
            "mysqlx": "OFF",
            # By default it needs a folder that its package would have made.
            "secure-file-priv": "NULL",
            # A login by TLS takes PyMySQL 30 ms, and tests log in thousands of times.
            "tls-version": "",
            "sync-binlog": "1" if self.durable else "0",
        }
        return [*super()._command(), *(f"--{name}={value}" for name, value in options.items())]


def _system_tables(part: str) -> Path:
    """Return a script of the server, whose name changed in MariaDB 11."""
    share = Path(find_program("mariadbd")).resolve().parent.parent / "share"
    names = [f"{product}_system_tables{part}.sql" for product in ("mariadb", "mysql")]
    for folder in ("mysql", "mariadb"):
        for name in names:
            if (share / folder / name).is_file():
                return share / folder / name
    raise ServerError(
        f"{' or '.join(names)} not found below {share}: the installed MariaDB server is incomplete"
    )
