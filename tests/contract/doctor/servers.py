"""Servers with settings as durable as in production."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from sqlalchemy import (
    make_url,
)

from devtools.folders import data_folder
from devtools.innodb import MariaDBServer
from devtools.servers import database_servers
from tests.cloners import CLONERS


class LoggingServer(MariaDBServer):
    """A server with a binary log, as if it had replicas.

    InnoDB tells some dates in the zone of its process, which is neither UTC nor the session's.
    """

    def _command(self) -> list[str]:
        log = ["--log-bin=binlog", "--binlog-format=MIXED", "--sync-binlog=1"]
        return ["env", "TZ=JST-9", *super()._command(), *log]


class TearingServer(MariaDBServer):
    """A server that can't mend a page of which a crash has let half be written."""

    def _command(self) -> list[str]:
        return [*super()._command(), "--innodb-doublewrite=OFF"]


class DurableServers:
    """Durable servers, each started when first asked for."""

    def __init__(self) -> None:
        self._running = ExitStack()
        self._cloners: dict[str, Any] = {}

    def cloner(self, name: str) -> Any:
        """Return what makes and drops databases on the server of this name."""
        if name not in self._cloners:
            # To be durable costs nothing in memory.
            folder = data_folder(durable=False)
            started = self._running.enter_context(
                database_servers(durable=True, which=[name], folder=folder)
            )
            self._cloners[name] = CLONERS[name](make_url(started[name]))
            self._running.callback(self._cloners[name].close)
        return self._cloners[name]

    def close(self) -> None:
        self._running.close()
