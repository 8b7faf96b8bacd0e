"""The work queue."""

from __future__ import annotations

import asyncio
import secrets
from types import TracebackType
from typing import Self

from prometheus_client import CollectorRegistry
from sqlalchemy import URL, Engine

from queue_core.errors import ConfigurationError
from queue_core.runtime.clock import Clock
from work_queue import checks
from work_queue.backend import Backend
from work_queue.face.claiming import Claiming
from work_queue.face.history import History
from work_queue.face.limiting import Limiting
from work_queue.face.reading import Reading
from work_queue.face.recurring import Recurring
from work_queue.face.replaying import Replaying
from work_queue.metrics import Metrics
from work_queue.remote.address import address_of, is_service
from work_queue.remote.opening import open_remote
from work_queue.remote.tls import Tls
from work_queue.storage.database_backend import DatabaseBackend

LEASE_SECONDS = 45.0
"""The lease of a claim that names none."""
MAX_VALUE_BYTES = 10_000_000
"""Bytes of a value or content at most, as it is stored."""


class WorkQueue(Claiming, Reading, History, Replaying, Limiting, Recurring):
    """Tasks that consumers claim under a lease, and docs that they share.

    A task is finished by its delete. A consumer that names the newest version of a task may change
    it: work may run twice, its result is written once.

    Args:
        database: A URL, as a text or SQLAlchemy's, or an Engine, whose URL and way to connect are
            taken. Or the address of a service, which `stickybus serve` runs: "http://host:9100",
            "https://host", "grpc://host:37706" or "grpcs://host:37706". All calls are the same
            there, but for those with `connection=`.
        claimant: Who claims and modifies, unless a call says otherwise: one name for each consumer,
            at most 64 bytes. Default: a random one.
        lease_seconds: The lease of a claim that gives none. Default: 45.
        poll_seconds: How often a waiting claim looks at least. Commits, arrivals and ends of leases
            wake it before. On MySQL and MariaDB commits of another database user don't. Default: 5
            seconds, and 0.25 on MySQL and MariaDB.
        max_value_bytes: The longest value of a task or content of a doc, as it is stored. Default:
            10,000,000.
        clock: The time that decides. Default: the database's.
        token: The caller's credential for a service. Default: that of the environment's
            STICKYBUS_TOKEN, if there is one.
        tls: The files of an encrypted connection to a service. Default: none.
        metrics_registry: Where metrics go. Default: prometheus-client's own registry.

    Raises:
        ConfigurationError: An argument is not allowed, or the packages that speak to a service are
            missing.
        DatabaseUnreachableError: The database, or the service, does not answer.
        SchemaError: The tables are missing, or don't fit this version.

    Example:
        >>> work = WorkQueue("sqlite:///shop.db")
        >>> work.insert("mail", {"to": "ann@example.com"})
        >>> task = work.claim("mail")
        >>> work.modify(task.delete())
    """

    def __init__(
        self,
        database: str | URL | Engine,
        *,
        claimant: str | None = None,
        lease_seconds: float = LEASE_SECONDS,
        poll_seconds: float | None = None,
        max_value_bytes: int = MAX_VALUE_BYTES,
        clock: Clock | None = None,
        token: str | None = None,
        tls: Tls | None = None,
        metrics_registry: CollectorRegistry | None = None,
    ) -> None:
        name = checks.claimant(claimant, secrets.token_hex(8))
        lease = checks.lease(lease_seconds, LEASE_SECONDS)
        backend: Backend
        if isinstance(database, str) and is_service(database):
            ours: dict[str, object] = {
                "poll_seconds": poll_seconds,
                "clock": clock,
                "metrics_registry": metrics_registry,
            }
            _only(ours, "a database")
            address = address_of(database, token=token, tls=tls)
            backend = open_remote(address, max_value_bytes=max_value_bytes)
        else:
            _only({"token": token, "tls": tls}, "a service")
            backend = DatabaseBackend(
                database,
                poll_seconds=poll_seconds,
                max_value_bytes=max_value_bytes,
                clock=clock,
                metrics=Metrics(metrics_registry),
            )
        super().__init__(backend, name, lease)

    @property
    def claimant(self) -> str:
        """Who claims and modifies, unless a call says otherwise."""
        return self._claimant

    @property
    def takes_connections(self) -> bool:
        """Whether calls take `connection=`: those of a database do, those of a service don't."""
        return self._opened.takes_connections

    def close(self) -> None:
        """End claims that wait, and close the library's connections.

        Every call after it raises LifecycleError, on a database and at a service alike, and so do
        claims that wait. A second `close` does nothing. Stop workers before it: what a handler
        returns after it is not written, and its task comes back when its lease ends.
        """
        self._closed = True
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- awaitable twins --------------------------------------------------------------------------

    async def close_async(self) -> None:
        """Awaitable twin of `close`."""
        await asyncio.to_thread(self.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close_async()


def _only(given: dict[str, object], whose: str) -> None:
    for key, value in given.items():
        if value is not None:
            raise ConfigurationError(f"{key} is an option of {whose}.", key=key)
