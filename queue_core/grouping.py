"""Groups of one bus or notification queue, as its users open, seal and watch them."""

from __future__ import annotations

from typing import TypedDict, Unpack

import msgspec

from queue_core.engine import QueueEngine
from queue_core.errors import InvalidPostError
from queue_core.links.following import Following
from queue_core.links.groups import Callbacks
from queue_core.model.group import GroupStatus
from queue_core.model.lanes import ANY_NODE
from queue_core.model.posting import Posting
from queue_core.runtime.awaitable import awaited
from queue_core.runtime.callers import AsyncCallersConnection, CallersConnection
from queue_core.runtime.shown import shown
from queue_core.storage.arguments import storable_integer, storable_name
from queue_core.storage.groups import StoredGroups
from sql.tables import GROUP_NAME_LENGTH

_NO_LINKS = {"key": None, "order_key": None, "after": None, "group": None}
"""The options that a callback may not have."""


class GroupOptions(TypedDict, total=False):
    """The options of a group, besides its connection."""

    name: str | None
    on_finished: object
    on_succeeded: object
    on_failed: object


class Grouping:
    """Groups whose callbacks are posted to one queue."""

    def __init__(self, engine: QueueEngine, queue_name: str, dicts: str | None = None) -> None:
        """`dicts`: the event name of plain dicts."""
        self._grouping_engine = engine
        self._grouping_queue = queue_name
        self._dicts = dicts
        self._stored_groups = StoredGroups(engine.store, queue_name)

    def open_group(
        self,
        *,
        name: str | None = None,
        on_finished: object = None,
        on_succeeded: object = None,
        on_failed: object = None,
        connection: CallersConnection | None = None,
    ) -> int:
        """Open a group: entries that are counted together.

        Post its members with `group=`, and seal it. Once it is sealed and all members have ended,
        it is complete. Its callbacks are posted here in the transaction in which the last one ends,
        exactly once. The header `group_id` tells their handlers which group it was.

        Args:
            name: A name for those who look, of at most 255 characters. Default: none.
            on_finished: An event to post when the group is complete, or a `Posting`. Default: none.
            on_succeeded: As `on_finished`, if all members have succeeded. Default: none.
            on_failed: As `on_finished`, if a member has failed or was removed. Default: none.
            connection: As for `PersistentBus.post`: the group is part of its transaction.

        Returns:
            The group's id. Buses and queues that share its table may post into it.

        Raises:
            InvalidPostError: An argument can't be accepted. Nothing was written.
            PayloadError: A callback can't be stored.
            InvalidConnectionError: The connection can't be used here.
            DatabaseUnreachableError: Nothing was written; CommitUnknownError if that is not known.

        Example:
            ```python
            group = bus.open_group(on_finished=ReportReady(7))
            bus.post_many(Posting(event=RenderPage(7, n), group=group) for n in range(100))
            bus.seal(group)
            ```
        """
        if name is not None:
            name = storable_name(
                name, "name", limit=GROUP_NAME_LENGTH, queue_name=self._grouping_queue
            )
        self._grouping_engine.store.keep_time(connection)
        callbacks = Callbacks(
            on_succeeded=self._following(on_succeeded, "on_succeeded"),
            on_failed=self._following(on_failed, "on_failed"),
            on_finished=self._following(on_finished, "on_finished"),
        )
        creator = self._grouping_engine.poster.creator
        return self._stored_groups.open(name, callbacks, creator, connection)

    def _following(self, given: object, key: str) -> Following | None:
        """The entry of a callback."""
        if given is None:
            return None
        posting = given if isinstance(given, Posting) else Posting(event=given)
        if posting.event_name is None and isinstance(posting.event, dict):
            posting = msgspec.structs.replace(posting, event_name=self._dicts)
        for option, default in _NO_LINKS.items():
            if getattr(posting, option) != default:
                raise InvalidPostError(
                    f"{self._grouping_queue}: {key} with "
                    f"{option}={shown(getattr(posting, option))} is not allowed. Allowed: a "
                    f"Posting without {option}. Nothing was written.",
                    queue_name=self._grouping_queue,
                    key=key,
                )
        engine = self._grouping_engine
        [row] = engine.store.rows.rows(
            self._grouping_queue,
            [posting],
            creator=engine.poster.creator,
            lane=ANY_NODE,
            claimed=False,
        )
        return Following.of_row(row)

    def seal(self, group: int, *, connection: CallersConnection | None = None) -> bool:
        """Seal a group: it takes no further members, and is complete once all have ended.

        An empty one is complete at once. A seal waits for open transactions that add members. In a
        caller's transaction, a node sees whether the group is complete, once that has committed.

        Args:
            group: Its id.
            connection: As for `PersistentBus.post`: the seal is part of its transaction.

        Returns:
            False if it was sealed before.

        Raises:
            GroupNotFoundError: The table has no such group.
            GroupLockedError: Another transaction has posted into it, and was open for 5 s.
            InvalidPostError: `group` can't be an id.
            InvalidConnectionError: The connection can't be used here.
            DatabaseUnreachableError: Nothing was written; CommitUnknownError if that is not known.
        """
        newly = self._stored_groups.seal(storable_integer(group, "group", least=1), connection)
        poster = self._grouping_engine.poster
        if newly and connection is None:
            poster.rescheduled(self._grouping_engine.store.clock.now())
        elif newly and connection is not None:
            poster.links_changed(connection)
        return newly

    def group_status(
        self, group: int, *, connection: CallersConnection | None = None
    ) -> GroupStatus:
        """Tell how many members a group has, and how many have ended. It reads two rows.

        Args:
            group: Its id.
            connection: As for `PersistentBus.post`: it is read as its transaction sees it.

        Returns:
            The state of the group.

        Raises:
            GroupNotFoundError: The table has no such group, or it was complete for 30 days.
            InvalidPostError: `group` can't be an id.
            InvalidConnectionError: The connection can't be used here.
            DatabaseUnreachableError: The database does not answer.

        Example:
            >>> status = bus.group_status(group)
            >>> print(status.total - status.live, "of", status.total)
        """
        return self._stored_groups.status(storable_integer(group, "group", least=1), connection)

    async def open_group_async(
        self, *, connection: AsyncCallersConnection | None = None, **options: Unpack[GroupOptions]
    ) -> int:
        """Awaitable twin of `open_group`."""
        return await awaited(lambda inner: self.open_group(connection=inner, **options), connection)

    async def seal_async(
        self, group: int, *, connection: AsyncCallersConnection | None = None
    ) -> bool:
        """Awaitable twin of `seal`."""
        return await awaited(lambda inner: self.seal(group, connection=inner), connection)

    async def group_status_async(
        self, group: int, *, connection: AsyncCallersConnection | None = None
    ) -> GroupStatus:
        """Awaitable twin of `group_status`."""
        return await awaited(lambda inner: self.group_status(group, connection=inner), connection)
