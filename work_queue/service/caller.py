"""A caller of the service."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caller:
    """What a transport knows of a caller.

    Attributes:
        token: The bearer token that it sent, if any.
        subject: The common name of its TLS certificate, which was verified, if it has just one.
            With several it would be several callers.
    """

    token: str | None = None
    subject: str | None = None


def token_of(authorization: str | None) -> str | None:
    """The bearer token that such a header holds; an empty one is none."""
    scheme, _, token = (authorization or "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None
