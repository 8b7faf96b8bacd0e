"""The limit of a queue."""

from __future__ import annotations

from queue_core.errors import InvalidRequestError
from queue_core.model.names import name_fault
from queue_core.model.rate import ONE_SECOND, PERS, as_per
from queue_core.runtime.user import LONGEST_BY, somebody
from work_queue.checks.arguments import count, not_allowed, queue
from work_queue.requests import LimitSetting


def limit_setting(
    of_queue: object, concurrency: object, rate: object, *, per: object, burst: object, by: object
) -> LimitSetting:
    """A limit that says something."""
    limited = queue(of_queue)
    if concurrency is None and rate is None:
        raise InvalidRequestError(
            f"the limit of {limited!r} needs concurrency=… or rate=…. Nothing was written. To end "
            "a limit, call unlimit().",
            key="concurrency",
        )
    if (time := as_per(per)) is None:
        raise not_allowed("per", per, PERS)
    places = count(burst, key="burst", least=1)
    if rate is None and (places != 1 or time != ONE_SECOND):
        raise InvalidRequestError(
            f"the limit of {limited!r}: burst= and per= need rate=…. Nothing was written.",
            key="rate",
        )
    return LimitSetting(
        limited,
        None if concurrency is None else count(concurrency, key="concurrency", least=1),
        None if rate is None else count(rate, key="rate", least=1),
        time,
        places,
        somebody() if by is None else _name(by),
    )


def _name(value: object) -> str:
    if fault := name_fault(value, LONGEST_BY):
        raise not_allowed("by", value, fault)
    return str(value)
