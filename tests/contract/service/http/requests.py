"""Requests that several tests send."""

from __future__ import annotations

from tests.contract.service.http.running import Json, Running

HOUR_MS = 3_600_000
YEAR_MS = 365 * 86_400_000


def inserted(service: Running, queue: str = "a", **data: object) -> Json:
    task: Json = service.modify(inserts=[{"queue": queue, **data}])["inserted"][0]
    return task


def now_ms(service: Running) -> int:
    return int(service.answer("/time")["timeMs"])
