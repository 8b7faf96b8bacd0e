"""The life of a bus or service."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self, Unpack

from queue_core.face.deletions import FaceDeletions
from queue_core.face.entries import FaceEntries
from queue_core.face.health import FaceHealth
from queue_core.face.listeners import FaceListeners
from queue_core.face.statistics import FaceStatistics
from queue_core.model.config_keys import ChangeableSettings
from queue_core.old_names import OldFaceNames
from queue_core.runtime.arguments import wait_seconds


class Face(FaceListeners, FaceHealth, FaceStatistics, FaceDeletions, FaceEntries, OldFaceNames):
    """Stands on one engine; a context manager that starts it and closes it."""

    def start(self) -> Self:
        """Register this process as a node, and deliver.

        Returns:
            Itself.

        Raises:
            NodeNameTakenError: A live node has the configured `node_name`.
            LifecycleError: It is started already, or another of this process serves the table.
            ConfigurationError: Its `node` settings differ from those of the process's node.
            ForkedError: It was made in the parent of this process.
            DatabaseUnreachableError: The database does not answer.
        """
        self._engine.lifecycle.start()
        return self

    def stop(self, timeout_seconds: float | None = None) -> bool:
        """Stop delivering. Running handlers finish; entries that have not started are given back.

        It may be started again. Its own statements wait for the locks of others, and for a database
        that is away, as long as all do (`statement_timeout_seconds`). On SQLite a write transaction
        that stays open is such a lock.

        Args:
            timeout_seconds: Seconds to wait for running handlers, 0 or more. Default: the
                configuration's `shutdown_timeout_seconds`.

        Returns:
            False if handlers still ran then, or if outcomes could not be written.

        Raises:
            ConfigurationError: The time is not allowed.
        """
        if timeout_seconds is not None:
            timeout_seconds = wait_seconds(timeout_seconds, key="timeout_seconds")
        return self._engine.lifecycle.stop(timeout_seconds)

    def reconfigure(self, **settings: Unpack[ChangeableSettings]) -> None:
        """Change settings while it is stopped. The next start takes them.

        Subscriptions, queues and functions stay. For other keys, such as `mode` or `table`, close
        it and build a new one.

        Args:
            settings: Keys of the configuration with their new values.

        Raises:
            ConfigurationError: A value is not allowed, or the key can't be changed. Nothing was
                changed.
            LifecycleError: It is started. Nothing was changed.

        Example:
            >>> bus.stop()
            >>> bus.reconfigure(handler_threads=8, poll_interval_seconds=1.0)
            >>> bus.start()
        """
        self._engine.lifecycle.reconfigure(settings)

    def close(self) -> None:
        """Stop, and close the library's connections.

        A call after it, such as a post, opens connections again; so does a start.
        """
        self.stop()
        self._engine.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def start_async(self) -> Self:
        """Awaitable twin of `start`, in a thread."""
        return await asyncio.to_thread(self.start)

    async def stop_async(self, timeout_seconds: float | None = None) -> bool:
        """Awaitable twin of `stop`, in a thread."""
        return await asyncio.to_thread(self.stop, timeout_seconds)

    async def close_async(self) -> None:
        """Awaitable twin of `close`, in a thread."""
        await asyncio.to_thread(self.close)
