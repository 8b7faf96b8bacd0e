"""Calls over HTTP."""

from __future__ import annotations

import ssl
from http import HTTPStatus

import httpx

from queue_core.errors import ConfigurationError
from work_queue.remote.address import Address
from work_queue.remote.transport import LostError, StrangeError, UnsentError
from work_queue.wire.calls import CONTENT_TYPE, PATH

CONNECT_SECONDS = 10.0
"""How long a connection may take to open."""
IDLE_SECONDS = 3.0
"""Until an idle connection is closed: before servers and proxies do it."""
KEPT = 20
"""Idle connections that are kept."""


class HttpTransport:
    """See `Transport`."""

    def __init__(self, address: Address) -> None:
        self._client = httpx.AsyncClient(
            base_url=f"{address}{PATH}/",
            headers=headers_of(address),
            verify=context_of(address) if address.encrypts else False,
            # As many as there are claims that wait: each holds one.
            limits=httpx.Limits(
                max_connections=None,
                max_keepalive_connections=KEPT,
                keepalive_expiry=IDLE_SECONDS,
            ),
        )

    async def call(self, name: str, request: bytes, timeout_seconds: float) -> bytes:
        """See `Transport.call`."""
        timeout = httpx.Timeout(timeout_seconds, connect=CONNECT_SECONDS)
        try:
            answer = await self._client.post(name, content=request, timeout=timeout)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise UnsentError(_said(error)) from error
        except httpx.HTTPError as error:
            raise LostError(_said(error)) from error
        return body_of(answer.status_code, answer.headers.get("Content-Type", ""), answer.content)

    async def close(self) -> None:
        """See `Transport.close`."""
        await self._client.aclose()


def headers_of(address: Address) -> dict[str, str]:
    """What is sent with each call."""
    headers = {"Content-Type": CONTENT_TYPE}
    if address.token is not None:
        headers["Authorization"] = f"Bearer {address.token}"
    return headers


def body_of(status: int, content_type: str, body: bytes) -> bytes:
    """The body of an answer. Raises LostError and StrangeError for those of others."""
    if content_type.startswith(CONTENT_TYPE):
        return body
    failed = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    raise (LostError if failed else StrangeError)(f"status {status}")


def context_of(address: Address) -> ssl.SSLContext:
    """Of encrypted connections. Raises ConfigurationError for a file that can't be used."""
    tls = address.tls
    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
        if tls.certificate_file is not None:
            context.load_cert_chain(tls.certificate_file, tls.key_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"tls: a file can't be used: {error}", key="tls") from error
    return context


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
