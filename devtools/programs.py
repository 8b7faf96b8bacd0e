"""Finds the servers' programs on this machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

URL_VARIABLES: Final = {
    "postgresql": "STICKYBUS_TEST_POSTGRESQL_URL",
    "mariadb": "STICKYBUS_TEST_MARIADB_URL",
    "mysql": "STICKYBUS_TEST_MYSQL_URL",
}
OPTIONAL: Final = "mysql"
"""The server that tests may run without: Debian's stable suite lacks it.

In CI it must be there like all others.
"""
WITHOUT: Final = "MySQL not found: its tests do not run; `scripts/setup.sh mysql` unpacks one"
# setup.sh puts programs there that the system lacks.
_OWN_FOLDERS: Final = ("/var/cache/stickybus/mysql", "/var/cache/stickybus/pgbouncer")

PROGRAMS: Final = {
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


class ServerError(Exception):
    """A server's program is missing, or the server did not start or stop in time."""


def require(which: Collection[str]) -> None:
    """Raise ServerError, which names the packages, if a program of these servers is missing."""
    for name in which:
        missing = missing_programs(name)
        if missing:
            raise ServerError(_advice(name, missing))


def find_program(name: str) -> str:
    """Return the path of a server's program.

    It looks into Debian's folders off PATH (the newest version first), then on PATH, then into the
    folders that `setup.sh` fills. Raises ServerError if the program is not installed.
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
    """Return the programs of the server `name` that are not installed."""
    missing = []
    for program in PROGRAMS[name][0]:
        try:
            find_program(program)
        except ServerError:
            missing.append(program)
    return missing


def is_done_without(name: str) -> bool:
    """Return whether this server is missing and nobody insists on it.

    Its URL is not looked at.
    """
    return name == OPTIONAL and os.environ.get("CI") != "true" and bool(missing_programs(name))


def _advice(name: str, missing: Sequence[str]) -> str:
    advice = f"{', '.join(missing)} not found: install {PROGRAMS[name][1]}"
    if name in URL_VARIABLES:
        advice += f", or set {URL_VARIABLES[name]} to the URL of a server that tests may fill"
    return f"{advice}."
