"""Logging: a fixed event name and facts as key=value, through the standard `logging`.

Payloads never appear.
"""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any

import structlog

_render = structlog.processors.LogfmtRenderer(bool_as_flag=False)


def _to_logging(
    _logger: Any, _method: str, facts: MutableMapping[str, Any]
) -> tuple[tuple[str], dict[str, Any]]:
    event = facts.pop("event")
    about_exception = {"exc_info": facts.pop("exc_info")} if "exc_info" in facts else {}
    line = _render(None, "", {key: _plain(value) for key, value in facts.items()})
    return (f"{event} {line}".rstrip(),), {"extra": {"facts": dict(facts)}, **about_exception}


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """A logger whose calls read `log.warning("handler_failed", record_id=7)`.

    The facts are in the record's `facts`, too.
    """
    logger: structlog.stdlib.BoundLogger = structlog.wrap_logger(
        logging.getLogger(name),
        processors=[structlog.stdlib.filter_by_level, _to_logging],
        wrapper_class=structlog.stdlib.BoundLogger,
        context_class=dict,
    )
    return logger
