"""A caller of the service."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caller:
    """What a transport knows of a caller.

    Attributes:
        token: The bearer token that it sent, if any.
        subject: The common name of its TLS certificate, which was verified, if any.
    """

    token: str | None = None
    subject: str | None = None
