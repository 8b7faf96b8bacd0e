"""Logs of the command line: one line of logfmt for each record, to standard error."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

Level = Annotated[str, typer.Option(help="debug, info, warning or error.")]


class LogfmtFormatter(logging.Formatter):
    """`ts=… level=… logger=… event=… key=value …`; a traceback is one escaped value."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`.

        Facts of the library's own records (`record.facts`) become keys.
        """
        # Most commands log nothing.
        from structlog.processors import LogfmtRenderer

        facts: dict[str, Any] | None = getattr(record, "facts", None)
        message = record.getMessage()
        line: dict[str, Any] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            # The library's messages are the event's name and its facts.
            "event": message if facts is None else message.partition(" ")[0],
            **{
                key: value
                for key, value in (facts or {}).items()
                if key not in {"ts", "level", "logger", "event"}
            },
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return LogfmtRenderer(bool_as_flag=False)(None, "", line)


def configure(level: str) -> None:
    """Send logs from `level` (such as info) on to standard error, unless logging is set up."""
    handler = logging.StreamHandler()
    handler.setFormatter(LogfmtFormatter())
    logging.basicConfig(handlers=[handler])
    logging.getLogger().setLevel(level.upper())
    # It tells at every migration which database it looks at.
    logging.getLogger("alembic").setLevel(logging.WARNING)
