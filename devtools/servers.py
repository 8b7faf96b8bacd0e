"""Database servers that live in a temporary folder and die with their owner.

Invariants: a server listens on a free port of 127.0.0.1 only, runs without root's rights, keeps
every file under one temporary folder, and ends with that folder when its owner ends, however that
happens. The session time zone is not UTC, so that a forgotten conversion shows.

As a program it lends the servers to a command:

    python -m devtools.servers -- pytest -k postgresql
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from devtools.folders import data_folder, own_folder
from devtools.innodb import MariaDBServer, MySQLServer
from devtools.postgresql import PostgreSQLServer
from devtools.programs import (
    OPTIONAL,
    URL_VARIABLES,
    WITHOUT,
    ServerError,
    is_done_without,
    require,
)
from devtools.redis_server import RedisServer
from devtools.server import DatabaseServer, StopMode

SERVERS: Final[Mapping[str, type[DatabaseServer]]] = {
    server.name: server for server in (PostgreSQLServer, MariaDBServer, MySQLServer, RedisServer)
}

# For each login PyMySQL reads all certificates that the system trusts, which takes 20 ms of a core.
# Tests log in thousands of times, and these servers have no certificate.
NO_CERTIFICATES: Final = {"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": os.devnull}


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
        """Return the handle by which a test stops, starts and restarts the server."""
        return self._servers[name]


@contextlib.contextmanager
def database_servers(
    *,
    durable: bool = False,
    which: Collection[str] = ("postgresql", "mariadb"),
    folder: Path | None = None,
) -> Iterator[Servers]:
    """Run servers while the block runs; their data goes below `folder`.

    By default durable data lies in the system's temporary folder, other data in memory where there
    is plenty.

    Raises ServerError in one line if a program is not installed, before anything has started.
    """
    require(which)
    servers: list[DatabaseServer] = []
    with own_folder(folder or data_folder(durable=durable)) as data:
        try:
            for name in which:
                servers.append(SERVERS[name](data, durable=durable))
                servers[-1].start()
            yield Servers(servers)
        finally:
            # The data is thrown away, so nobody waits for a tidy end.
            for server in servers:
                server.stop(StopMode.CRASH)


class _Terminated(BaseException):
    """SIGTERM or SIGHUP arrived."""


def _terminate(_number: int, _frame: FrameType | None) -> None:
    raise _Terminated


def _run_with(command: Sequence[str], urls: Mapping[str, str]) -> int:
    environment = os.environ | {URL_VARIABLES[name]: url for name, url in urls.items()}
    if not any(os.environ.get(variable) for variable in URL_VARIABLES.values()):
        environment |= NO_CERTIFICATES
    with subprocess.Popen(command, env=environment) as child:
        while True:
            try:
                code = child.wait()
            except KeyboardInterrupt:
                # The terminal sent it to the child as well, which now reports.
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
