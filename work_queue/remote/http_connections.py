"""Connections of HTTP, each of which one thread uses at a time."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from queue import Empty
from typing import Any, cast
from urllib.parse import unquote
from urllib.request import getproxies, proxy_bypass

from urllib3 import (
    HTTPConnectionPool,
    HTTPSConnectionPool,
    PoolManager,
    ProxyManager,
    make_headers,
)
from urllib3.connection import HTTPConnection
from urllib3.exceptions import ClosedPoolError, HTTPError
from urllib3.util import Timeout, parse_url

from queue_core.errors import ConfigurationError
from work_queue.remote.address import Address
from work_queue.remote.http_connection import Encrypted, Opened, Plain
from work_queue.remote.http_transport import body_of, context_of, headers_of
from work_queue.remote.transport import LostError, UnsentError
from work_queue.wire.calls import PATH


class Idle:
    """Connections that no call uses. It takes no lock: a signal's handler may call, too."""

    def __init__(self, _size: int) -> None:
        self._connections = list[Plain]()

    def put(self, connection: Plain | None, **_waits: Any) -> None:
        """Keep one, and close those that have idled too long. None stands for one to be made."""
        if connection is not None:
            self._connections.append(connection)
        with suppress(IndexError):
            while self._connections[0].is_old:
                self._connections.pop(0).close()

    def get(self, **_waits: Any) -> Plain:
        """Take the one that was used last. Raises Empty."""
        try:
            return self._connections.pop()
        except IndexError:
            raise Empty from None


class _PlainPool(HTTPConnectionPool):
    QueueCls = cast("Any", Idle)


class _EncryptedPool(HTTPSConnectionPool):
    QueueCls = cast("Any", Idle)


class HttpConnections:
    """See `BlockingTransport`."""

    def __init__(self, address: Address) -> None:
        proxy = _proxy_to(address)
        self._opened = Opened()
        self._pool = pool = _pool_to(address, proxy)
        kind = Encrypted if pool.scheme == "https" else Plain
        pool.ConnectionCls = cast("type[Plain]", partial(kind, opened=self._opened))
        self._headers = headers_of(address)
        # A proxy has to be told whose path it is.
        before = address.path if proxy is None or address.encrypts else address
        self._target = f"{before}{PATH}"

    def call(self, name: str, request: bytes, timeout_seconds: float) -> bytes:
        """See `BlockingTransport.call`. An interruption closes its connection."""
        try:
            answer = self._pool.urlopen(
                "POST",
                f"{self._target}/{name}",
                body=request,
                headers=self._headers,
                retries=False,
                redirect=False,
                assert_same_host=False,  # the pool of a proxy is not that of the service
                timeout=Timeout(total=timeout_seconds),
            )
        except ClosedPoolError as error:
            raise UnsentError("the work queue was closed") from error
        except HTTPError as error:
            raise LostError(str(error) or type(error).__name__) from error
        return body_of(answer.status, answer.headers.get("Content-Type", ""), answer.data)

    def close(self) -> None:
        """See `BlockingTransport.close`."""
        self._pool.close()
        self._opened.cut()


def _pool_to(address: Address, proxy: str | None) -> HTTPConnectionPool:
    options: dict[str, Any] = {
        # Behind a proxy, too, what is sent waits for nothing.
        "socket_options": HTTPConnection.default_socket_options,
    }
    if address.encrypts:
        options["ssl_context"] = context_of(address)
    try:
        pools = PoolManager(**options) if proxy is None else _pools_behind(proxy, options)
        pools.pool_classes_by_scheme = {"http": _PlainPool, "https": _EncryptedPool}
        return pools.connection_from_url(str(address))
    except HTTPError as error:
        raise ConfigurationError(
            f"database: the service's address can't be used: {error}.", key="database"
        ) from error


def _pools_behind(proxy: str, options: dict[str, Any]) -> ProxyManager:
    try:
        user = parse_url(proxy).auth
        # Its very bytes, of any encoding: urllib3 sends Latin-1.
        headers = make_headers(proxy_basic_auth=unquote(user, "latin-1")) if user else None
        return ProxyManager(proxy, proxy_headers=headers, **options)
    except HTTPError as error:
        raise ConfigurationError(
            "the proxy that the environment names for the service can't be used: it has to be an "
            "address of http:// or https://.",
            key="database",
        ) from error


def _proxy_to(address: Address) -> str | None:
    """The proxy of HTTP_PROXY, HTTPS_PROXY or ALL_PROXY, unless NO_PROXY has the service."""
    named = getproxies()
    url = named.get(address.scheme) or named.get("all")
    if not url or any(map(proxy_bypass, (address.host, address.authority))):
        return None
    return url if "://" in url else f"http://{url}"
