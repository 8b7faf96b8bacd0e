"""One connection of HTTP of a work queue's client."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from http import HTTPStatus
from http.client import HTTPException
from typing import Any

from urllib3 import BaseHTTPResponse
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError
from urllib3.util.ssltransport import SSLTransport

from work_queue.remote.http_transport import CONNECT_SECONDS, IDLE_SECONDS
from work_queue.remote.transport import UnsentError


class Opened:
    """The connections that are open, until all are cut."""

    def __init__(self) -> None:
        self._connections = set[HTTPConnection]()
        self._cut = False

    def add(self, connection: HTTPConnection) -> None:
        """One has opened. Raises UnsentError after the cut."""
        self._connections.add(connection)
        if self._cut:
            connection.close()
            raise UnsentError("the work queue was closed")

    def discard(self, connection: HTTPConnection) -> None:
        """One has closed."""
        self._connections.discard(connection)

    def cut(self) -> None:
        """End them: threads that wait for their answers wake up, and close them."""
        self._cut = True
        for connection in tuple(self._connections):
            near = connection.sock
            if isinstance(near, SSLTransport):  # encrypted, through a proxy that is so, too
                near = near.socket
            if near is not None:
                with suppress(OSError):
                    # Not by TLS, whose state belongs to the thread that waits.
                    socket.socket.shutdown(near, socket.SHUT_RDWR)


class Plain(HTTPConnection):
    """One that is known while it is open, and idles for a short time only."""

    def __init__(self, *arguments: Any, opened: Opened, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._opened = opened
        self._answered = 0.0

    def connect(self) -> None:
        """Connect. Raises UnsentError for whatever prevents it."""
        seconds = self.timeout
        self.timeout = min(seconds or CONNECT_SECONDS, CONNECT_SECONDS)
        try:
            super().connect()
        except (OSError, HTTPError, HTTPException) as error:
            said = error.__cause__ or error
            raise UnsentError(str(said) or type(said).__name__) from error
        self.timeout = seconds
        self.sock.settimeout(seconds)
        self._opened.add(self)

    def getresponse(self) -> Any:
        """Wait for an answer, and read it."""
        answer: BaseHTTPResponse = super().getresponse()
        if answer.status < HTTPStatus.OK:
            # The answer comes after it: the next call on this connection would read it as its own.
            raise HTTPException(f"status {answer.status}, which ends no call")
        self._answered = time.monotonic()
        return answer

    @property
    def is_old(self) -> bool:
        """Whether it has idled so long that a server or proxy may be about to close it."""
        return time.monotonic() - self._answered >= IDLE_SECONDS

    @property
    def is_connected(self) -> bool:
        """Whether it can be used again."""
        return not self.is_old and super().is_connected

    def close(self) -> None:
        """Close it."""
        super().close()
        self._opened.discard(self)


class Encrypted(Plain, HTTPSConnection):
    """The same, encrypted."""
