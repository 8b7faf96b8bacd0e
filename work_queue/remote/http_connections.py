"""Connections of HTTP, each of which one thread uses at a time."""

from __future__ import annotations

from functools import partial
from typing import Any, cast
from urllib.parse import unquote
from urllib.request import getproxies, proxy_bypass

from urllib3 import HTTPConnectionPool, PoolManager, ProxyManager, make_headers
from urllib3.connection import HTTPConnection
from urllib3.exceptions import ClosedPoolError, HTTPError
from urllib3.util import Timeout, parse_url

from queue_core.errors import ConfigurationError
from work_queue.remote.address import Address
from work_queue.remote.http_connection import Encrypted, Opened, Plain
from work_queue.remote.http_transport import body_of, context_of, headers_of
from work_queue.remote.transport import LostError, UnsentError
from work_queue.wire.calls import PATH

MOST_IDLE = 1_000
"""Idle connections that are kept: as many as threads call at once, for of more urllib3 warns."""


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
        "maxsize": MOST_IDLE,
        # Behind a proxy, too, what is sent waits for nothing.
        "socket_options": HTTPConnection.default_socket_options,
    }
    if address.encrypts:
        options["ssl_context"] = context_of(address)
    try:
        if proxy is None:
            return PoolManager(**options).connection_from_url(str(address))
        user = parse_url(proxy).auth
        headers = make_headers(proxy_basic_auth=unquote(user)) if user else None
        pools = ProxyManager(proxy, proxy_headers=headers, **options)
        return pools.connection_from_url(str(address))
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
