"""Redis as a broker that benchmarks compare with."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING, ClassVar

from devtools.programs import find_program
from devtools.server import DatabaseServer, StopMode

if TYPE_CHECKING:
    import redis


class RedisServer(DatabaseServer):
    """Redis, of the version on the path."""

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
