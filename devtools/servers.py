"""PostgreSQL, MariaDB, MySQL and Redis servers, and PgBouncer, that live in a temporary folder and die with their owner.

Invariants: a server listens on a free port of 127.0.0.1 only, runs without root's rights, keeps
every file under one temporary folder, and ends with that folder when its owner ends, however that
happens. The session time zone is not UTC, so that a forgotten conversion shows. Redis is there for
a benchmark only.

As a program it lends the servers to a command: `python -m devtools.servers -- pytest -k postgresql`.
"""

from __future__ import annotations

import argparse
import contextlib
import enum
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, ClassVar, Final

import psycopg
import pymysql
from sqlalchemy import URL, make_url

if TYPE_CHECKING:
    import redis

URL_VARIABLES: Final = {
    "postgresql": "STICKYBUS_TEST_POSTGRESQL_URL",
    "mariadb": "STICKYBUS_TEST_MARIADB_URL",
    "mysql": "STICKYBUS_TEST_MYSQL_URL",
}
OPTIONAL: Final = "mysql"
"""The tests run without this server where there is none: Debian's stable suite lacks it.

In CI all must be there.
"""
WITHOUT: Final = "MySQL not found: its tests do not run; `scripts/setup.sh mysql` unpacks one"
# Where setup.sh puts programs that the system itself doesn't have.
_OWN_FOLDERS: Final = ("/var/cache/stickybus/mysql", "/var/cache/stickybus/pgbouncer")
_USER: Final = "stickybus"
_UNPRIVILEGED_USER: Final = "nobody"
_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 30.0
_MAX_CONNECTIONS: Final = 300
# Both servers' logs, and the largest test's rows, several times over.
_MEMORY_BYTES: Final = 3 * 1024**3

# Reads until the owner's end of the pipe closes, which the kernel does for any death; then nothing
# may remain. PostgreSQL's children outlive a killed postmaster for a moment and may still write:
# hence the loop.
_GUARD: Final = """
trap '' INT TERM HUP
cat > /dev/null
pid=$(head -n 1 "$1/postgresql/data/postmaster.pid" 2> /dev/null) && kill -QUIT "$pid" 2> /dev/null
for server in mariadb mysql redis pgbouncer; do
    pid=$(cat "$1/$server/server.pid" 2> /dev/null) && kill -KILL "$pid" 2> /dev/null
done
tries=0
until rm -rf "$1" 2> /dev/null || [ $((tries += 1)) -gt 100 ]; do sleep 0.1; done
"""


class ServerError(Exception):
    """A server's program is missing, or the server did not start or stop in time."""


class StopMode(enum.Enum):
    """How a server goes down: GRACEFUL as by an operator, CRASH without a chance to tidy up."""

    GRACEFUL = enum.auto()
    CRASH = enum.auto()


class DatabaseServer(ABC):
    """One server with its data; the port, and so the URL, survives restarts.

    `durable` keeps every committed transaction through a power cut, as benchmarks must;
    without it commits survive a crash of the server, not of the machine.
    """

    name: ClassVar[str]
    _stop_signals: ClassVar[Mapping[StopMode, signal.Signals]]

    def __init__(self, folder: Path, *, durable: bool) -> None:
        self.folder = folder / self.name
        self.durable = durable
        self.port = _free_port()
        self.log_file = self.folder / "server.log"
        self._password = secrets.token_hex(8)
        self._server: subprocess.Popen[bytes] | None = None
        self.folder.mkdir()
        if _is_root():
            shutil.chown(self.folder, _UNPRIVILEGED_USER)
        self._create_data()

    @property
    @abstractmethod
    def url(self) -> str:
        """SQLAlchemy's URL of an administrator's session, the password included."""

    @abstractmethod
    def settings(self) -> dict[str, str]:
        """What decides about durability, as the running server tells it."""

    def start(self) -> None:
        """Start if it is down, and return once a client can log in.

        Raises ServerError with the log's end if nobody can in time.
        """
        if self._server is not None:
            return
        with self.log_file.open("ab") as log:
            self._server = _popen(self._command(), cwd=self.folder, log=log.fileno())
        deadline = time.monotonic() + _START_SECONDS
        while not self._accepts_logins():
            if self._server.poll() is not None or time.monotonic() > deadline:
                self.stop(StopMode.CRASH)
                raise ServerError(
                    f"{self.name} did not start:\n{self.log_file.read_text()[-2000:]}"
                )
            time.sleep(0.02)

    def stop(self, mode: StopMode = StopMode.GRACEFUL) -> None:
        """Stop, and return once the server has ended; does nothing if it is down."""
        if self._server is None:
            return
        self._server.send_signal(self._stop_signals[mode])
        try:
            self._server.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()
            raise ServerError(
                f"{self.name} did not stop in {_STOP_SECONDS} seconds; it was killed"
            ) from None
        finally:
            self._server = None

    def restart(self, mode: StopMode = StopMode.GRACEFUL) -> None:
        """Stop as `mode` says, then start on the same data and port."""
        self.stop(mode)
        self.start()

    @abstractmethod
    def _create_data(self) -> None: ...

    @abstractmethod
    def _command(self) -> list[str]: ...

    @abstractmethod
    def _accepts_logins(self) -> bool: ...


class PostgreSQLServer(DatabaseServer):
    """PostgreSQL, of the newest version installed."""

    name = "postgresql"
    # SIGTERM would wait for every client to leave.
    _stop_signals: ClassVar = {StopMode.GRACEFUL: signal.SIGINT, StopMode.CRASH: signal.SIGQUIT}

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://{_USER}:{self._password}@127.0.0.1:{self.port}/postgres"

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
        _run(
            [
                *(find_program("initdb"), "--pgdata=data", f"--username={_USER}", "--auth=md5"),
                *(f"--pwfile={password_file}", "--encoding=UTF8", "--locale=C", "--no-sync"),
            ],
            cwd=self.folder,
        )

    def _command(self) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            # A socket's path would have to be shorter than some temporary folders are.
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
            user=_USER,
            password=self._password,
            dbname="postgres",
            autocommit=True,
        )

    def _accepts_logins(self) -> bool:
        with contextlib.suppress(psycopg.OperationalError), self._connect():
            return True
        return False


class _InnoDBServer(DatabaseServer):
    """What MariaDB and MySQL have in common."""

    _stop_signals: ClassVar = {StopMode.GRACEFUL: signal.SIGTERM, StopMode.CRASH: signal.SIGKILL}
    _program: ClassVar[str]
    durability: ClassVar[Sequence[str]] = (
        "innodb_flush_log_at_trx_commit",
        "innodb_doublewrite",
        "innodb_flush_method",
    )

    @property
    def url(self) -> str:
        return f"mysql+pymysql://{_USER}:{self._password}@127.0.0.1:{self.port}/mysql"

    def settings(self) -> dict[str, str]:
        with self._connect() as connection, connection.cursor() as cursor:
            cursor.execute(
                "SHOW VARIABLES WHERE variable_name IN %s", [(*self.durability, "version")]
            )
            return {str(name): str(value) for name, value in cursor.fetchall()}

    def _create_user(self) -> None:
        """Leave a script for the server's start; root enters by the socket only, or not at all."""
        (self.folder / "init.sql").write_text(
            f"CREATE USER IF NOT EXISTS '{_USER}'@'%' IDENTIFIED BY '{self._password}';\n"
            f"GRANT ALL ON *.* TO '{_USER}'@'%' WITH GRANT OPTION;\n"
        )

    def _command(self) -> list[str]:
        settings = {
            "datadir": str(self.folder / "data"),
            # A server that starts removes what it takes for left-overs, also those of its
            # neighbours.
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
            "innodb-doublewrite": "ON" if self.durable else "OFF",
        }
        options = [f"--{name}={value}" for name, value in settings.items()]
        # --skip-name-resolve: where no resolver answers, each login would wait for the name of 127.0.0.1.
        return [find_program(self._program), "--no-defaults", *options, "--skip-name-resolve"]

    def _connect(self) -> pymysql.Connection[pymysql.cursors.Cursor]:
        return pymysql.connect(
            host="127.0.0.1", port=self.port, user=_USER, password=self._password
        )

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
        # As mariadb-install-db does, which wants programs of the client package; root enters by the
        # socket only.
        tables, rows = (_system_tables(part).read_text() for part in ("", "_data"))
        lines = [line for line in rows.splitlines() if "@current_hostname" not in line]
        script = self.folder / "bootstrap.sql"
        script.write_text(
            "CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket = 'root';\nSET @skip_auth_anonymous = 1;\n"
            + "\n".join([tables, *lines])
        )
        data = self.folder / "data"
        data.mkdir()
        if _is_root():
            shutil.chown(data, _UNPRIVILEGED_USER)
        bootstrap = [find_program("mariadbd"), "--no-defaults", "--bootstrap", f"--datadir={data}"]
        bootstrap += [f"--tmpdir={self.folder}"]
        _run(
            [*bootstrap, "--enforce-storage-engine=", "--debug-no-sync"],
            cwd=self.folder,
            script=script,
        )

    def _command(self) -> list[str]:
        return [*super()._command(), *([] if self.durable else ["--debug-no-sync"])]


class MySQLServer(_InnoDBServer):
    """MySQL: of the version on the path, or of Debian's unstable suite in a folder of its own; see `find_program`."""

    name = "mysql"
    _program = "mysqld"
    # Unlike MariaDB it writes a binary log by default.
    durability: ClassVar[Sequence[str]] = (*_InnoDBServer.durability, "log_bin", "sync_binlog")

    def _create_data(self) -> None:
        self._create_user()
        data = self.folder / "data"
        _run(
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
            # Else the server wants a folder that its package would have made.
            "secure-file-priv": "NULL",
            # A login by TLS takes PyMySQL 30 ms, and tests log in thousands of times.
            "tls-version": "",
            "sync-binlog": "1" if self.durable else "0",
        }
        return [*super()._command(), *(f"--{name}={value}" for name, value in options.items())]


class RedisServer(DatabaseServer):
    """Redis, of the version on the path: the broker of a library that benchmarks compare with."""

    name = "redis"
    _stop_signals: ClassVar = {StopMode.GRACEFUL: signal.SIGTERM, StopMode.CRASH: signal.SIGKILL}

    @property
    def url(self) -> str:
        return f"redis://:{self._password}@127.0.0.1:{self.port}/0"

    def settings(self) -> dict[str, str]:
        with self._connect() as client:
            found = client.config_get("appendonly", "appendfsync")
            return {**found, "redis_version": client.info("server")["redis_version"]}

    def _create_data(self) -> None:
        settings = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "requirepass": self._password,
            "dir": f'"{self.folder}"',
            "pidfile": f'"{self.folder / "server.pid"}"',
            # No snapshots beside the log.
            "save": '""',
            "appendonly": "yes",
            "appendfsync": "always" if self.durable else "no",
        }
        file = self.folder / "redis.conf"
        file.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))

    def _command(self) -> list[str]:
        return [find_program("redis-server"), str(self.folder / "redis.conf")]

    def _connect(self) -> redis.Redis:
        # Only an extra has the client.
        import redis

        return redis.Redis.from_url(self.url, decode_responses=True)

    def _accepts_logins(self) -> bool:
        import redis

        with contextlib.suppress(redis.ConnectionError), self._connect() as client:
            return bool(client.ping())
        return False


class PgBouncer(DatabaseServer):
    """PgBouncer before a PostgreSQL server that runs elsewhere; whoever logs in is that server's administrator."""

    name = "pgbouncer"
    _stop_signals: ClassVar = {StopMode.GRACEFUL: signal.SIGINT, StopMode.CRASH: signal.SIGKILL}

    def __init__(self, folder: Path, server: URL, mode: str) -> None:
        self._behind = server
        self._mode = mode
        super().__init__(folder, durable=False)

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://{self._behind.username}@127.0.0.1:{self.port}/{self._behind.database}"

    def settings(self) -> dict[str, str]:
        return {"pool_mode": self._mode}

    def _create_data(self) -> None:
        behind = self._behind
        reached = f"host={behind.host} port={behind.port} user={behind.username} password={behind.password}"
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


_SERVERS: Final[Mapping[str, type[DatabaseServer]]] = {
    server.name: server for server in (PostgreSQLServer, MariaDBServer, MySQLServer, RedisServer)
}
_PROGRAMS: Final = {
    "postgresql": (("initdb", "postgres"), "PostgreSQL 14 or later (Debian: postgresql)"),
    "mariadb": (("mariadbd",), "MariaDB 10.6 or later (Debian: mariadb-server-core)"),
    "mysql": (
        ("mysqld",),
        "MySQL 9 or later (on Debian `scripts/setup.sh mysql` does, in a folder of its own)",
    ),
    "redis": (("redis-server",), "Redis 6 or later (Debian: redis-server)"),
    "pgbouncer": (
        ("pgbouncer",),
        "PgBouncer 1.18 or later (Debian: pgbouncer; `scripts/setup.sh servers` does)",
    ),
}


class Servers(Mapping[str, str]):
    """URLs of running servers by database name, and the servers themselves."""

    def __init__(self, servers: Sequence[DatabaseServer]) -> None:
        self._servers = {server.name: server for server in servers}

    def __getitem__(self, name: str) -> str:
        return self._servers[name].url

    def __iter__(self) -> Iterator[str]:
        return iter(self._servers)

    def __len__(self) -> int:
        return len(self._servers)

    def server(self, name: str) -> DatabaseServer:
        """The handle by which a test stops, starts and restarts the server."""
        return self._servers[name]


@contextlib.contextmanager
def database_servers(
    *,
    durable: bool = False,
    which: Collection[str] = ("postgresql", "mariadb"),
    folder: Path | None = None,
) -> Iterator[Servers]:
    """Servers of one's own while the block runs; their data goes below `folder`.

    By default durable data lies in the system's temporary folder, other data in memory where there
    is plenty.

    Raises ServerError in one line if a program is not installed, before anything has started.
    """
    _require(which)
    servers: list[DatabaseServer] = []
    with _own_folder(folder or data_folder(durable=durable)) as data:
        try:
            for name in which:
                servers.append(_SERVERS[name](data, durable=durable))
                servers[-1].start()
            yield Servers(servers)
        finally:
            # The data is thrown away, so nobody waits for a tidy end.
            for server in servers:
                server.stop(StopMode.CRASH)


@contextlib.contextmanager
def pgbouncer(server: URL, mode: str) -> Iterator[URL]:
    """PgBouncer before a PostgreSQL server while the block runs, in a `pool_mode`; its URL for the same database."""
    _require(["pgbouncer"])
    with _own_folder(data_folder(durable=False)) as data:
        pooler = PgBouncer(data, server, mode)
        pooler.start()
        try:
            yield make_url(pooler.url)
        finally:
            pooler.stop(StopMode.CRASH)


def _require(which: Collection[str]) -> None:
    for name in which:
        missing = missing_programs(name)
        if missing:
            raise ServerError(_advice(name, missing))


@contextlib.contextmanager
def _own_folder(parent: Path | None) -> Iterator[Path]:
    """A folder that vanishes with its owner, and with it the servers that are in it."""
    data = Path(tempfile.mkdtemp(prefix="stickybus-", dir=parent))
    if _is_root():
        data.chmod(0o711)
    guard = subprocess.Popen(
        ["sh", "-c", _GUARD, "guard", data],
        stdin=subprocess.PIPE,
        # A terminal's Ctrl-C goes to the whole session: the guard outlives it.
        start_new_session=True,
    )
    try:
        yield data
    finally:
        guard.communicate()


def find_program(name: str) -> str:
    """Path of a server's program: on PATH, in Debian's folders off PATH, the newest version first, and in our own.

    Raises ServerError if it is not installed.
    """
    debian = Path("/usr/lib/postgresql").glob("*/bin")
    newest_first = sorted(debian, key=lambda path: float(path.parent.name), reverse=True)
    folders = [
        *map(str, newest_first),
        *os.environ["PATH"].split(os.pathsep),
        "/usr/sbin",
        *_OWN_FOLDERS,
    ]
    for folder in folders:
        found = shutil.which(name, path=folder)
        # MariaDB bears MySQL's names, too.
        if found and (name == "mariadbd" or Path(found).resolve().name != "mariadbd"):
            return found
    raise ServerError(f"{name} is not installed")


def missing_programs(name: str) -> list[str]:
    """Programs of the server `name` that are not installed."""
    missing = []
    for program in _PROGRAMS[name][0]:
        try:
            find_program(program)
        except ServerError:
            missing.append(program)
    return missing


def is_done_without(name: str) -> bool:
    """Whether this server is missing and nobody insists on it; its URL is not looked at."""
    return name == OPTIONAL and os.environ.get("CI") != "true" and bool(missing_programs(name))


def _advice(name: str, missing: Sequence[str]) -> str:
    advice = f"{', '.join(missing)} not found: install {_PROGRAMS[name][1]}"
    if name in URL_VARIABLES:
        advice += f", or set {URL_VARIABLES[name]} to the URL of a server that tests may fill"
    return f"{advice}."


def _is_root() -> bool:
    return os.geteuid() == 0


def data_folder(*, durable: bool) -> Path | None:
    """Where data goes that nobody keeps: in memory if it need not be durable and there is plenty; None: the default."""
    memory = Path("/dev/shm")  # noqa: S108 -- mkdtemp makes a private folder in it
    # A database is some 300 files: on tmpfs its creation takes 15 ms, on a journaled disk 200 ms.
    roomy = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > _MEMORY_BYTES
    if roomy and not durable:
        return memory
    # Other users cannot enter root's own temporary folders.
    return Path("/tmp") if _is_root() else None  # noqa: S108 -- as above


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _popen(
    command: Sequence[str], *, cwd: Path, log: int, stdin: int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    # Both servers refuse root. A session of its own, because a terminal's Ctrl-C would stop the
    # server before the tests that use it.
    account = pwd.getpwnam(_UNPRIVILEGED_USER) if _is_root() else None
    return subprocess.Popen(
        command,
        cwd=cwd,
        stdin=stdin,
        stdout=log,
        stderr=log,
        start_new_session=True,
        env={"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": str(cwd)},
        user=account and account.pw_uid,
        group=account and account.pw_gid,
        extra_groups=[] if account else None,
    )


def _run(command: Sequence[str], *, cwd: Path, script: Path = Path(os.devnull)) -> None:
    log_file = cwd / "create.log"
    with log_file.open("wb") as log, script.open("rb") as stdin:
        code = _popen(command, cwd=cwd, log=log.fileno(), stdin=stdin.fileno()).wait(_START_SECONDS)
    if code != 0:
        raise ServerError(
            f"{command[0]} failed with exit code {code}:\n{log_file.read_text()[-2000:]}"
        )


def _system_tables(part: str) -> Path:
    """A script of the server's own; MariaDB has renamed them in 11."""
    share = Path(find_program("mariadbd")).resolve().parent.parent / "share"
    names = [f"{product}_system_tables{part}.sql" for product in ("mariadb", "mysql")]
    for folder in ("mysql", "mariadb"):
        for name in names:
            if (share / folder / name).is_file():
                return share / folder / name
    raise ServerError(
        f"{' or '.join(names)} not found below {share}: the installed MariaDB server is incomplete"
    )


class _Terminated(BaseException):
    """SIGTERM or SIGHUP arrived."""


def _terminate(_number: int, _frame: FrameType | None) -> None:
    raise _Terminated


def _run_with(command: Sequence[str], urls: Mapping[str, str]) -> int:
    environment = os.environ | {URL_VARIABLES[name]: url for name, url in urls.items()}
    with subprocess.Popen(command, env=environment) as child:
        while True:
            try:
                code = child.wait()
            except KeyboardInterrupt:
                # The terminal sent it to the child as well, which now tells what it had found.
                continue
            except _Terminated:
                child.terminate()
            else:
                return code if code >= 0 else 128 - code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command with the servers' URLs in its environment and return its exit code.

    A URL that the environment already holds replaces the server of that name.
    """
    parser = argparse.ArgumentParser(prog="python -m devtools.servers", description=main.__doc__)
    parser.add_argument("--durable", action="store_true", help="keep commits through a power cut")
    parser.add_argument("--only", choices=sorted(URL_VARIABLES), help="start no other server")
    parser.add_argument("command", nargs="*")
    options = parser.parse_args(arguments)
    if not options.command:
        parser.error("a command is required after --")
    which = [
        name
        for name in ([options.only] if options.only else URL_VARIABLES)
        if not os.environ.get(URL_VARIABLES[name])
    ]
    if not options.only and OPTIONAL in which and is_done_without(OPTIONAL):
        sys.stderr.write(f"{WITHOUT}\n")
        which.remove(OPTIONAL)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _terminate)
    try:
        with database_servers(durable=options.durable, which=which) as servers:
            return _run_with(options.command, servers)
    except ServerError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except _Terminated:
        return 128 + signal.SIGTERM
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main())
