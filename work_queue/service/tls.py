"""Certificates of a service."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from queue_core.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Tls:
    """Files in PEM.

    Attributes:
        certificate: The service's certificate, with its chain.
        key: Its private key.
        client_ca: Who signs the certificates of callers, which then all need one. Default: callers
            need none.

    Raises:
        ConfigurationError: A file can't be read.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def __post_init__(self) -> None:
        for path in (self.certificate, self.key, self.client_ca):
            if path is not None:
                read(path)


def read(path: Path) -> bytes:
    """A file of certificates or keys. Raises ConfigurationError."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"{str(path)!r} can't be read: {error.strerror}.", key="tls", value=str(path)
        ) from error
