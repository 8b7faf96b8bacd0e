"""The identity of a client, and the services that it trusts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """The files of an encrypted connection to a service, in PEM.

    Attributes:
        ca_file: The certificates that sign the service's. Default: those that the system trusts.
        certificate_file: The client's own certificate, if the service asks for one.
        key_file: The certificate's private key.
    """

    ca_file: str | Path | None = None
    certificate_file: str | Path | None = None
    key_file: str | Path | None = None
