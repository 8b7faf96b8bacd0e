"""EntroQ's own client, as it comes: what it calls must not see whose service it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from entroq import DependencyError, Modification, ModifyResult
from entroq.json import EntroQJSON

from tests.contract.service.http.running import Running

M = Modification
Scenario: TypeAlias = Callable[[EntroQJSON, EntroQJSON], Awaitable[None]]


def by_peers(scenario: Scenario) -> Callable[[Running], None]:
    """Make a test of a scenario that two clients play, "me" and "other"."""

    def test(service: Running) -> None:
        async def play() -> None:
            async with EntroQJSON(service.url, "me") as me:
                await scenario(me, me.as_claimant("other"))

        asyncio.run(play())

    test.__name__ = scenario.__name__
    return test


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
