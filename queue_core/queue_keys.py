"""The idempotency keys of one bus or notification queue, as its users see them."""

from __future__ import annotations

from queue_core.engine import QueueEngine
from queue_core.model.keyed import KeyStatus
from queue_core.reading.keys import Keys
from queue_core.runtime.awaitable import awaited
from queue_core.runtime.callers import AsyncCallersConnection, CallersConnection


class QueueKeys:
    """The keys of one queue, in the caller's transaction or in another."""

    def __init__(self, engine: QueueEngine, queue_name: str) -> None:
        self._engine, self._keys, self._keys_of = engine, Keys(engine.store), queue_name

    def key_status(self, key: str, *, connection: CallersConnection | None = None) -> KeyStatus:
        """Tell where a key stands.

        Args:
            key: The key.
            connection: As for `PersistentBus.post`: it is read as its transaction sees it.

        Returns:
            Its entry and its time; the state is UNKNOWN if nobody has the key.

        Raises:
            InvalidPostError: `key` can't be a key.
            InvalidConnectionError: The connection can't be used here.
            DatabaseUnreachableError: The database does not answer.

        Example:
            >>> bus.key_status("invoice-41").state
        """
        return self._keys.status(self._keys_of, key, connection=connection)

    def release_key(self, key: str, *, connection: CallersConnection | None = None) -> bool:
        """Free a key by hand. An entry that lives goes on without it.

        One that was to run after it (`on_conflict="requeue"`) is posted at once, without the key.

        Args:
            key: The key.
            connection: As for `PersistentBus.post`: the release is part of its transaction.

        Returns:
            False if nobody had the key.

        Raises:
            InvalidPostError: `key` can't be a key.
            InvalidConnectionError: The connection can't be used here.
            DatabaseUnreachableError: Nothing was written; CommitUnknownError if that is not known.
        """
        released = self._keys.release(self._keys_of, key, connection=connection)
        if released:  # what was to follow its entry may start
            self._engine.poster.rescheduled(self._engine.store.now(connection), connection)
        return released

    async def key_status_async(
        self, key: str, *, connection: AsyncCallersConnection | None = None
    ) -> KeyStatus:
        """Awaitable twin of `key_status`."""
        return await awaited(lambda inner: self.key_status(key, connection=inner), connection)

    async def release_key_async(
        self, key: str, *, connection: AsyncCallersConnection | None = None
    ) -> bool:
        """Awaitable twin of `release_key`."""
        return await awaited(lambda inner: self.release_key(key, connection=inner), connection)
