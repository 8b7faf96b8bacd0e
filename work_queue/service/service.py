"""A service: its listeners, started and stopped together."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

from queue_core.runtime.log import get_logger
from queue_core.runtime.own_threads import let_have
from work_queue.service.calls import Calls
from work_queue.service.listener import Listener

log = get_logger(__name__)

CALLS = 50
"""Calls that are in the database at once, each in a thread; others wait for one.

Elsewhere a loop's calls have 6 threads on a host with two processors. As many modifications, which
wait for an application's locks, would stop all other calls. It is less than the connections of a
pool: probes find one.
"""
THREADS = "work_queue-service"
"""How the names of these threads begin."""


class Service:
    """A work queue that listens for calls.

    Args:
        calls: What the listeners call.
        listeners: One for each wire.
    """

    def __init__(self, calls: Calls, listeners: Sequence[Listener]) -> None:
        self._calls = calls
        self._listeners = listeners
        self._started = list[Listener]()

    async def start(self) -> list[str]:
        """Listen. From now on, calls of the running loop have the service's threads.

        Returns:
            Where, in the order of the listeners.

        Raises:
            ConfigurationError: A port is taken, or a certificate can't be read. Nothing listens.
        """
        addresses = list[str]()
        let_have(CALLS, THREADS)
        async with AsyncExitStack() as unless_started:
            unless_started.push_async_callback(self.stop)
            for listener in self._listeners:
                addresses.append(await listener.start())
                self._started.append(listener)
            unless_started.pop_all()
        log.info("service_started", addresses=", ".join(addresses))
        return addresses

    async def stop(self) -> None:
        """Take no more calls, end waiting claims, and wait for the calls that run."""
        self._calls.stop()
        started, self._started = self._started, []
        await asyncio.gather(*(listener.stop() for listener in started))
        if started:
            log.info("service_stopped")

    async def run(self, when_started: Callable[[list[str]], None] | None = None) -> None:
        """Serve until SIGTERM or SIGINT.

        Args:
            when_started: Is told where the service listens.

        Raises:
            ConfigurationError: As `start`.
        """
        loop, stopping = asyncio.get_running_loop(), asyncio.Event()
        numbers = (signal.SIGTERM, signal.SIGINT)
        for number in numbers:
            loop.add_signal_handler(number, stopping.set)
        try:
            addresses = await self.start()
            if when_started is not None:
                when_started(addresses)
            await stopping.wait()
        finally:
            for number in numbers:
                # A second signal ends the process at once.
                loop.remove_signal_handler(number)
            await self.stop()
