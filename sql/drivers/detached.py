"""A driver's connection by itself, for long uses."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine


def detached(engine: Engine) -> Any:
    """A driver's connection that no pool has any more: it takes none of a pool's places."""
    pooled = engine.raw_connection()
    driver: Any = pooled.driver_connection  # a detached one no longer tells
    pooled.detach()
    return driver
