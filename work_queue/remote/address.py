"""The address of a service, and how to speak to it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit

from queue_core.errors import ConfigurationError
from work_queue.remote.tls import Tls

TOKEN_VARIABLE = "STICKYBUS_TOKEN"  # noqa: S105 -- the name of a variable
DEFAULT_PORTS = {"http": 9100, "https": 443, "grpc": 37706, "grpcs": 37706}
SAFE = frozenset({"https", "grpcs"})


@dataclass(frozen=True, slots=True)
class Address:
    """Where a service is.

    Attributes:
        scheme: http, https, grpc or grpcs.
        host: Its name, or its address.
        port: Its port.
        path: What comes before the paths of calls, of HTTP.
        token: What the service knows the caller by.
        tls: The files of an encrypted connection.
    """

    scheme: str
    host: str
    port: int
    path: str = ""
    token: str | None = field(default=None, repr=False)
    tls: Tls = field(default_factory=Tls)

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"

    @property
    def authority(self) -> str:
        """Host and port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def encrypts(self) -> bool:
        """Whether the connection is encrypted."""
        return self.scheme in SAFE


def is_service(database: object) -> bool:
    """Whether this is a service's address, not a database's."""
    return isinstance(database, str) and database.partition("://")[0].lower() in DEFAULT_PORTS


def address_of(url: str, *, token: str | None, tls: Tls | None) -> Address:
    """The address in a URL, with the token of the environment if none is given.

    Raises ConfigurationError, which shows nothing of a URL that may hold a password.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _refused("it is no URL") from None  # its error shows parts of it
    _check(parts)
    if parts.scheme not in SAFE and tls is not None:
        raise ConfigurationError(
            f"tls= is for https:// and grpcs://, not for {parts.scheme}://.", key="tls"
        )
    given = os.environ.get(TOKEN_VARIABLE) if token is None else token
    if given and not (given.isascii() and given.isprintable()):
        raise ConfigurationError(
            "the token holds characters that HTTP headers don't allow.", key="token"
        )
    return Address(
        parts.scheme,
        parts.hostname or "",
        DEFAULT_PORTS[parts.scheme] if port is None else port,
        parts.path.rstrip("/"),
        given or None,
        tls or Tls(),
    )


def _check(parts: SplitResult) -> None:
    if parts.username is not None or parts.password is not None:
        raise _refused(
            f"it holds a user or password. Pass token=…, or set {TOKEN_VARIABLE}: a URL is shown "
            "in logs"
        )
    if not parts.hostname:
        raise _refused("it names no host")
    if parts.query or parts.fragment:
        raise _refused("a service's address has no part after ? or #")
    if parts.path.strip("/") and parts.scheme.startswith("grpc"):
        raise _refused("an address of gRPC has no path")


def _refused(why: str) -> ConfigurationError:
    return ConfigurationError(f"database: {why}.", key="database")
