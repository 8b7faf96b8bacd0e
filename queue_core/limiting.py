"""Limits on the work of all nodes together for a bus or notification queue."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TypedDict, Unpack

from queue_core.engine import QueueEngine
from queue_core.errors import InvalidPostError
from queue_core.model.limit import Limit
from queue_core.model.names import name_fault
from queue_core.model.rate import ONE_SECOND, PERS, as_per
from queue_core.model.refusal import refused
from queue_core.runtime.exact import exact_integer, exact_text
from queue_core.runtime.shown import shown
from queue_core.runtime.user import LONGEST_BY, somebody
from queue_core.storage.limits import StoredLimits
from sql.statements.base import LARGEST_COUNT


class LimitOptions(TypedDict, total=False):
    """The options of a limit."""

    concurrency: int | None
    per_node: int | None
    rate: int | None
    per: timedelta | float
    burst: int
    per_key: int | None
    rate_per_key: int | None
    burst_per_key: int
    by: str | None


class Limiting:
    """Limits one queue."""

    def __init__(self, engine: QueueEngine, queue_name: str) -> None:
        self._limiting_engine = engine
        self._limited_queue = queue_name
        self._stored_limits = StoredLimits(engine.store)

    def limit(
        self,
        *,
        concurrency: int | None = None,
        per_node: int | None = None,
        rate: int | None = None,
        per: timedelta | float = ONE_SECOND,
        burst: int = 1,
        per_key: int | None = None,
        rate_per_key: int | None = None,
        burst_per_key: int = 1,
        by: str | None = None,
    ) -> Limit:
        """Let all nodes together run no more of it than this, until `unlimit`.

        At least one of `concurrency`, `per_node`, `rate`, `per_key` and `rate_per_key` is given.
        The limit is stored, so that it holds over restarts, and replaces the one before. Posting
        goes on; entries that find no place wait, and other queues run. A node learns of a first
        limit within a second, and entries that run then count; a changed one holds from the next
        start on. It is written in a transaction of its own.

        Args:
            concurrency: The most entries that run at once, on all nodes. Default: any number.
            per_node: The most entries that run at once on each node. Default: any number.
            rate: The most entries that start in each `per`, on all nodes. Default: any number.
            per: The time that the rates are about, as seconds or a timedelta, from a millisecond to
                366 days. Default: a second.
            burst: The part of `rate` that may start at once, if none has started lately. They come
                evenly spaced otherwise: at a high rate, each burst is one claim. Default: 1.
            per_key: The most entries of each `limit_key` that run at once, on all nodes.
                Default: any number. Entries that were posted without a key are not concerned.
            rate_per_key: The most entries of each `limit_key` that start in each `per`. Default:
                any number.
            burst_per_key: As `burst`, for `rate_per_key`. Default: 1.
            by: Its author, in at most 255 characters. Default: the user of this process and its
                machine.

        Returns:
            The limit as it is stored.

        Raises:
            InvalidPostError: An argument can't be stored, none is given, or one that is about a
                rate without it. Nothing was written.
            DatabaseUnreachableError: Nothing was written; CommitUnknownError if that is not known.

        Example:
            >>> bus.limit(concurrency=10)
            >>> bus.limit(rate=100, per=timedelta(minutes=1), burst=10)
            >>> bus.limit(per_key=3)
            >>> bus.post(order, limit_key="customer 7")
        """
        store = self._limiting_engine.store
        limit = Limit(
            table=store.config.table,
            queue_name=self._limited_queue,
            concurrency=None if concurrency is None else self._count(concurrency, "concurrency"),
            per_node=None if per_node is None else self._count(per_node, "per_node"),
            rate=None if rate is None else self._count(rate, "rate"),
            per_key=None if per_key is None else self._count(per_key, "per_key"),
            rate_per_key=(
                None if rate_per_key is None else self._count(rate_per_key, "rate_per_key")
            ),
            burst_per_key=self._count(burst_per_key, "burst_per_key"),
            per=self._time(per),
            burst=self._count(burst, "burst"),
            limited_by=self._name(by) or somebody(),
            since=store.now(),
        )
        if not (limit.limits_queue or limit.limits_keys):
            raise InvalidPostError(
                f"{self._limited_queue}: a limit needs concurrency, per_node, rate, per_key or "
                "rate_per_key. Nothing was written. To end a limit, call unlimit().",
                queue_name=self._limited_queue,
            )
        self._check_rates(limit)
        self._stored_limits.put(limit)
        self._limits_changed()
        return limit

    def unlimit(self) -> bool:
        """End the limit: the entries that have waited run. All nodes learn of it within a second.

        Returns:
            False if it was not limited.

        Raises:
            DatabaseUnreachableError: Nothing was written; CommitUnknownError if that is not known.
        """
        removed = self._stored_limits.remove(self._limited_queue)
        self._limits_changed()
        return removed

    def limits(self) -> list[Limit]:
        """Read the limit.

        Returns:
            The limit, or nothing.

        Raises:
            DatabaseUnreachableError: The database does not answer.
        """
        return self._stored_limits.in_force(self._limited_queue)

    async def limit_async(self, **options: Unpack[LimitOptions]) -> Limit:
        """Awaitable twin of `limit`."""
        return await asyncio.to_thread(self.limit, **options)

    async def unlimit_async(self) -> bool:
        """Awaitable twin of `unlimit`."""
        return await asyncio.to_thread(self.unlimit)

    async def limits_async(self) -> list[Limit]:
        """Awaitable twin of `limits`."""
        return await asyncio.to_thread(self.limits)

    def _limits_changed(self) -> None:
        lifecycle = self._limiting_engine.lifecycle
        if lifecycle.node is not None:
            lifecycle.limited.look()

    def _check_rates(self, limit: Limit) -> None:
        """Refuse what says nothing without a rate."""
        rates = {"rate": limit.rate, "rate_per_key": limit.rate_per_key}
        for option, default, needed in (
            ("burst", 1, ["rate"]),
            ("burst_per_key", 1, ["rate_per_key"]),
            ("per", ONE_SECOND, ["rate", "rate_per_key"]),
        ):
            value = getattr(limit, option)
            if value != default and all(rates[name] is None for name in needed):
                raise InvalidPostError(
                    f"{self._limited_queue}: {option}={shown(value)} needs "
                    f"{'= or '.join(needed)}=. Nothing was written.",
                    queue_name=self._limited_queue,
                    key=option,
                    value=shown(value),
                )

    def _count(self, count: object, key: str) -> int:
        number = exact_integer(count)
        if number is not None and 1 <= number <= LARGEST_COUNT:
            return number
        raise refused(
            self._limited_queue, key, count, f"a whole number from 1 to {LARGEST_COUNT:,}"
        )

    def _time(self, per: object) -> timedelta:
        if (found := as_per(per)) is None:
            raise refused(self._limited_queue, "per", per, PERS)
        return found

    def _name(self, by: str | None) -> str | None:
        fault = None if by is None else name_fault(by, LONGEST_BY)
        if fault:
            raise refused(self._limited_queue, "by", by, fault)
        return exact_text(by)
