"""A TCP proxy before a database server that delays, holds back or cuts connections.

It runs in a thread of its own:

    with Proxy.before(server_url) as proxy:
        bus = PersistentBus(proxy.through(database_url))
        proxy.swallow()    # a black hole: nothing arrives, nothing answers, nothing is closed
        proxy.pass_on()    # the bytes that were held back arrive late, as TCP's repetitions do

A hole made by a proxy is the hard kind: the kernel still acknowledges the bytes of a client, so
that neither keep-alive nor `tcp_user_timeout` tells the client anything.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Any, Self, TypeVar

from sqlalchemy import URL, make_url

T = TypeVar("T")

_CHUNK_BYTES = 65_536
_ENCRYPTING = ("mysql+pymysql", "mariadb+pymysql")
_CHUNKS_UNDER_WAY = 64
"""Per direction of a connection; past it the proxy reads no more, as a full network does."""


_COMMIT = re.compile(rb"\bCOMMIT\b")
"""The whole word: psycopg begins with "BEGIN ISOLATION LEVEL READ COMMITTED"."""


class Moment(Enum):
    """When a connection is cut at a COMMIT of the client."""

    BEFORE = "before"
    """The server never gets it."""
    AFTER = "after"
    """The server gets it, the client never gets the answer."""


@dataclass(eq=False)
class _Trap:
    moment: Moment
    times: int


@dataclass(eq=False)
class _Line:
    """One client's connection, and the proxy's to the server on its behalf."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter | None = None
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    deaf: bool = False
    """Whether its bytes are thrown away: the client's half of a half-open connection."""
    sprung: bool = False
    """Whether the server has got a trap's COMMIT: its answer cuts the connection."""

    def writers(self) -> list[asyncio.StreamWriter]:
        return [writer for writer in (self.client, self.server) if writer is not None]


class Proxy:
    """A proxy whose methods may be called from any thread.

    They return when they have taken effect.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._lines = set[_Line]()
        self._traps = list[_Trap]()
        self._delay_seconds = 0.0
        self._passing = asyncio.Event()
        self._passing.set()
        self._closing = False
        self.port = 0
        self.cuts = 0
        """Connections that were cut, for any reason."""

    @classmethod
    def before(cls, url: str | URL) -> Proxy:
        """A proxy for the server of a database's URL."""
        target = make_url(url)
        assert target.host is not None
        assert target.port is not None
        return cls(target.host, target.port)

    def through(self, url: str | URL) -> URL:
        """The URL, led through the proxy."""
        led = make_url(url).set(host="127.0.0.1", port=self.port)
        # MariaDB 11.4 and later encrypt by default: no trap would see a COMMIT.
        return (
            led.update_query_dict({"ssl_disabled": "true"})
            if led.drivername in _ENCRYPTING
            else led
        )

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = self._wait(self._open())
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._wait(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # -- the network ------------------------------------------------------------------------------

    @property
    def connections(self) -> int:
        """Connections of clients that are open."""
        return self._run(lambda: len(self._lines))

    def pass_on(self) -> None:
        """Let bytes through, those first that were held back, and no longer delayed."""

        def change() -> None:
            self._delay_seconds = 0.0
            self._passing.set()

        self._run(change)

    def swallow(self) -> None:
        """Hold back every byte of both directions, and of connections to come, until `pass_on`."""
        self._run(self._passing.clear)

    def delay(self, seconds: float) -> None:
        """Let every byte arrive `seconds` later, in each direction; the throughput stays."""
        self._run(lambda: setattr(self, "_delay_seconds", seconds))

    def cut(self) -> int:
        """Reset all connections, and return how many; new ones pass."""

        def change() -> int:
            lines = list(self._lines)
            for line in lines:
                self._cut(line)
            return len(lines)

        return self._run(change)

    def half_open(self) -> int:
        """Close all connections on the server's side alone, and return how many.

        Their clients wait for an answer for ever.
        """

        def change() -> int:
            hearing = [line for line in self._lines if not line.deaf]
            for line in hearing:
                line.deaf = True
                if line.server is not None:
                    _reset(line.server)
            return len(hearing)

        return self._run(change)

    def cut_at_commit(self, moment: Moment, times: int = 1) -> None:
        """Reset each of the next `times` connections whose client sends COMMIT, in one piece."""
        self._run(lambda: self._traps.append(_Trap(moment, times)))

    # -- inside -----------------------------------------------------------------------------------

    def _run(self, work: Callable[[], T]) -> T:
        async def inside() -> T:
            return work()

        return self._wait(inside())

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _open(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=512)

    async def _close(self) -> None:
        self._closing = True
        # A connection that was just accepted has no line yet, and its server must still be open.
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for line in list(self._lines):
                self._cut(line)
            await asyncio.gather(*others, return_exceptions=True)
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, requests: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        line = _Line(client)
        self._lines.add(line)
        serving = asyncio.current_task()
        assert serving is not None
        line.tasks.append(serving)
        try:
            if self._closing:
                return
            await self._passing.wait()
            answers, line.server = await asyncio.open_connection(*self._target)
            pumps = [
                self._loop.create_task(self._pump(line, requests, line.server, self._requested)),
                self._loop.create_task(self._pump(line, answers, client, self._answered)),
            ]
            line.tasks += pumps
            await asyncio.gather(*pumps)
        except (OSError, asyncio.CancelledError):
            pass  # the server does not listen, or the line was cut
        finally:
            self._lines.discard(line)
            for writer in line.writers():
                writer.close()

    async def _pump(
        self,
        line: _Line,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        passes: Callable[[_Line, bytes], bool],
    ) -> None:
        """Bring the bytes of one direction to the other end, each when it is due, then the end."""
        under_way = asyncio.Queue[tuple[float, bytes]](_CHUNKS_UNDER_WAY)
        line.tasks.append(self._loop.create_task(self._read(reader, under_way)))
        data = b"first"
        while data:
            due, data = await under_way.get()
            await asyncio.sleep(due - self._loop.time())
            await self._passing.wait()
            if not line.deaf and passes(line, data):
                with suppress(OSError):
                    writer.write(data) if data else writer.write_eof()
                    await writer.drain()

    async def _read(
        self, reader: asyncio.StreamReader, under_way: asyncio.Queue[tuple[float, bytes]]
    ) -> None:
        data = b"first"
        while data:
            try:
                data = await reader.read(_CHUNK_BYTES)
            except OSError:
                data = b""
            await under_way.put((self._loop.time() + self._delay_seconds, data))

    def _requested(self, line: _Line, data: bytes) -> bool:
        trap = next((trap for trap in self._traps if trap.times > 0), None)
        if trap is None or not _COMMIT.search(data):
            return True
        trap.times -= 1
        if trap.moment is Moment.BEFORE:
            self._cut(line)
            return False
        line.sprung = True
        return True

    def _answered(self, line: _Line, _data: bytes) -> bool:
        if line.sprung:
            self._cut(line)
        return not line.sprung

    def _cut(self, line: _Line) -> None:
        self.cuts += 1
        self._lines.discard(line)
        line.deaf = True
        for writer in line.writers():
            _reset(writer)
        for task in line.tasks:
            if task is not asyncio.current_task():
                task.cancel()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close at once: bytes not yet sent are lost, and the other end gets a reset."""
    with suppress(OSError):
        writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
    writer.transport.abort()
