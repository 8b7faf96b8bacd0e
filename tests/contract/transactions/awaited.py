"""Work on asynchronous connections and sessions of callers, of each driver."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, create_async_engine

_DRIVERS = {
    "sqlite": "sqlite+aiosqlite",
    "postgresql": "postgresql+psycopg_async",
    "mysql": "mysql+aiomysql",
}


@asynccontextmanager
async def connected(url: URL) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(url.set(drivername=_DRIVERS[url.get_backend_name()]))
    try:
        yield engine
    finally:
        await engine.dispose()


Given = AsyncConnection | AsyncSession


def open_connection(engine: AsyncEngine) -> AsyncConnection:
    return engine.connect()


def open_session(engine: AsyncEngine) -> AsyncSession:
    return AsyncSession(engine)


each_kind = pytest.mark.parametrize("open_one", [open_connection, open_session])


def run_on(
    url: URL, open_one: Callable[[AsyncEngine], Given], work: Callable[[Given], Awaitable[None]]
) -> None:
    """Open an asynchronous connection or session, and run `work` on it."""

    async def main() -> None:
        async with connected(url) as engine, open_one(engine) as given:
            await work(given)

    asyncio.run(main())
