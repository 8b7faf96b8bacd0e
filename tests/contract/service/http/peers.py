"""EntroQ's own client, as it comes: what it calls must not see whose service it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import TypeAlias

from entroq import DependencyError, Modification, ModifyResult
from entroq.json import EntroQJSON

from tests.contract.harness import eventually_async
from tests.contract.service.http.running import Running

M = Modification
Scenario: TypeAlias = Callable[[EntroQJSON, EntroQJSON], Awaitable[None]]
SeenScenario: TypeAlias = Callable[[EntroQJSON, EntroQJSON, Running], Awaitable[None]]
"""A scenario that looks at the service besides."""


def by_peers(scenario: Scenario) -> Callable[[Running], None]:
    """Make a test of a scenario that two clients play, "me" and "other"."""

    @wraps(scenario)
    async def unseen(me: EntroQJSON, other: EntroQJSON, _service: Running) -> None:
        await scenario(me, other)

    return by_seen_peers(unseen)


def by_seen_peers(scenario: SeenScenario) -> Callable[[Running], None]:
    """Make a test as `by_peers` does, of a scenario that sees the service too."""

    def test(service: Running) -> None:
        async def play() -> None:
            async with EntroQJSON(service.url, "me") as me:
                await scenario(me, me.as_claimant("other"), service)

        asyncio.run(play())

    test.__name__ = scenario.__name__
    return test


async def claims_wait(service: Running, count: int = 1) -> None:
    """Wait until the service has this number of waiting claims."""
    await eventually_async(lambda: service.waiting == count)


async def refused(
    client: EntroQJSON, *operations: object, unsafe_claimant_id: str | None = None
) -> DependencyError:
    """The error of a modification that has to be refused."""
    try:
        await client.modify(M(*operations), unsafe_claimant_id=unsafe_claimant_id)
    except DependencyError as error:
        return error
    raise AssertionError("it was done")


async def done(client: EntroQJSON, *operations: object) -> ModifyResult:
    """What a modification has written."""
    return await client.modify(M(*operations))
