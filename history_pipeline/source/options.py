"""The options of the format `stickybus`, read from the texts that Spark hands over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from history_pipeline.errors import SourceOptionError
from history_pipeline.rows.kind import TASKS, kind_of
from history_pipeline.scale import Scale
from queue_core.model.names import name_fault
from queue_core.model.states import State
from queue_core.storage.arguments import as_integer


@dataclass(frozen=True)
class ReadOptions:
    """The options of a read: which rows, and how many ids in one task."""

    url: str = field(repr=False)
    table: str = "bus_events_history"
    first_id: int | None = None
    last_id: int | None = None
    since: datetime | None = None
    """Rows that ended earlier are left out."""
    until: datetime | None = None
    """Rows that ended then or later are left out."""
    states: tuple[State, ...] | None = None
    """Rows in other states are left out."""
    ids_per_partition: int = Scale.ids_per_partition
    """Width of the range of ids that one task reads, on one connection; gaps do not count."""
    max_partitions: int = Scale.max_partitions
    """Most tasks, however many ids there are: ranges are wider instead."""

    @classmethod
    def read(cls, options: Mapping[str, str]) -> ReadOptions:
        """Raises SourceOptionError for an option that is missing or can't work."""
        table = options.get("table", cls.table)
        dates = {key: _date(options, key) for key in ("since", "until")}
        if not table.endswith("_history") and any(dates.values()):
            raise SourceOptionError(
                f"the option table={table!r} is no history table, and only those have the date "
                "that since and until are compared with. Nothing was read.",
                key="table",
            )
        states = _states(options)
        if states is not None and kind_of(table) is TASKS:
            raise SourceOptionError(
                f"the option states can't choose rows of table={table!r}: finished tasks have no "
                "state. Nothing was read.",
                key="states",
            )
        return cls(
            url=required(options, "url"),
            table=table,
            states=states,
            **dates,
            first_id=whole(options, "first_id"),
            last_id=whole(options, "last_id"),
            ids_per_partition=whole(options, "ids_per_partition", smallest=1)
            or cls.ids_per_partition,
            max_partitions=whole(options, "max_partitions", smallest=1) or cls.max_partitions,
        )


@dataclass(frozen=True)
class StreamOptions:
    """The options of a stream: its start, its distance from the present, and rows of a batch."""

    url: str = field(repr=False)
    table: str = "bus_events_history"
    after: datetime | None = None
    """Rows that ended by then are left out; all by default."""
    lag_seconds: float = 60.0
    """How far to stay behind the present.

    It is longer than twice what any statement may take, and than clocks may differ.
    """
    settle_seconds: float = 15.0
    """How long a batch waits for open transactions, before it is left to the next trigger."""
    max_rows_per_batch: int = 1_000_000
    rows_per_partition: int = 50_000
    """Rows that one task reads."""
    fail_on_data_loss: bool = True
    """Whether the stream fails if rows that it has not handed over were archived and deleted."""

    @classmethod
    def read(cls, options: Mapping[str, str]) -> StreamOptions:
        """Raises SourceOptionError if `url` is missing, or for a number or date that is none."""
        most, width = "max_rows_per_batch", "rows_per_partition"
        table = options.get("table", cls.table)
        if not table.endswith("_history"):
            raise SourceOptionError(
                f"the option table={table!r} is no history table, and only those can be streamed. "
                "Nothing was read.",
                key="table",
            )
        if kind_of(table) is TASKS:
            raise SourceOptionError(
                f"the option table={table!r} names the history of tasks, which can't be streamed: "
                "the history of entries alone can. Nothing was read. Read it as a batch.",
                key="table",
            )
        return cls(
            url=required(options, "url"),
            table=table,
            after=_date(options, "after"),
            lag_seconds=_seconds(options, "lag_seconds", cls.lag_seconds),
            settle_seconds=_seconds(options, "settle_seconds", cls.settle_seconds),
            max_rows_per_batch=whole(options, most, smallest=1) or cls.max_rows_per_batch,
            rows_per_partition=whole(options, width, smallest=1) or cls.rows_per_partition,
            fail_on_data_loss=_switch(options, "fail_on_data_loss", default=cls.fail_on_data_loss),
        )


@dataclass(frozen=True)
class WriteOptions:
    """The options of a write: where to post, and under which name."""

    url: str = field(repr=False)
    run: str
    """Name of the job's run. Rows that were posted under a name are not posted again under it."""
    table: str = "bus_events"
    queue: str = "bus"
    """Queue of rows that have no column `queue_name`."""
    event: str | None = None
    """Event type of rows that have no column `class_name`."""
    max_payload_bytes: int = 1_048_576

    @classmethod
    def read(cls, options: Mapping[str, str]) -> WriteOptions:
        """Raises SourceOptionError for an option that is missing or can't work."""
        table = options.get("table", cls.table)
        if table.endswith("_history"):
            raise SourceOptionError(
                f"the option table={table!r} is a history table, and nothing is posted there. "
                "Nothing was written.",
                key="table",
            )
        run = required(options, "run")
        fault = name_fault(run)
        if fault is not None:
            raise SourceOptionError(
                f"the option run={run[:80]!r} can't work: {fault}. Nothing was written.", key="run"
            )
        return cls(
            url=required(options, "url"),
            run=run,
            table=table,
            queue=options.get("queue", cls.queue),
            event=options.get("event"),
            max_payload_bytes=whole(options, "max_payload_bytes", smallest=1)
            or cls.max_payload_bytes,
        )


def required(options: Mapping[str, str], key: str) -> str:
    """The text of an option. Raises SourceOptionError if it is missing or empty."""
    text = options.get(key)
    if not text:
        raise SourceOptionError(
            f"the option {key} of the format stickybus is missing. Nothing was read or written.",
            key=key,
        )
    return text


def whole(options: Mapping[str, str], key: str, *, smallest: int | None = None) -> int | None:
    """The whole number of an option, None if it is not given.

    Raises SourceOptionError for anything else.
    """
    text = options.get(key)
    if text is None:
        return None
    try:
        value = int(text)
    except ValueError:
        value = None
    if value is None or as_integer(value) is None or (smallest is not None and value < smallest):
        least = "" if smallest is None else f" of {smallest} or more"
        raise SourceOptionError(
            f"the option {key}={text!r} of the format stickybus is no 64-bit integer{least}. "
            "Nothing was read or written.",
            key=key,
        )
    return value


def _switch(options: Mapping[str, str], key: str, *, default: bool) -> bool:
    text = options.get(key, str(default)).lower()
    if text not in {"true", "false"}:
        raise SourceOptionError(
            f"the option {key}={options.get(key)!r} is neither true nor false. Nothing was read.",
            key=key,
        )
    return text == "true"


def _states(options: Mapping[str, str]) -> tuple[State, ...] | None:
    text = options.get("states")
    if text is None:
        return None
    try:
        return tuple(State(name.strip()) for name in text.split(","))
    except ValueError as error:
        raise SourceOptionError(
            f"the option states={text!r} of the format stickybus names an unknown state. Allowed: "
            f"{', '.join(State)}, separated by commas. Nothing was read.",
            key="states",
        ) from error


def _seconds(options: Mapping[str, str], key: str, default: float) -> float:
    text = options.get(key)
    try:
        seconds = default if text is None else float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise SourceOptionError(
            f"the option {key}={text!r} of the format stickybus is no number of seconds. Nothing "
            "was read or written.",
            key=key,
        )
    return seconds


def _date(options: Mapping[str, str], key: str) -> datetime | None:
    text = options.get(key)
    if text is None:
        return None
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        date = None
    if date is None or date.tzinfo is None:
        raise SourceOptionError(
            f"the option {key}={text!r} of the format stickybus is no date with a time zone, such "
            "as 2026-03-01T00:00:00+00:00. Nothing was read or written.",
            key=key,
        )
    return date.astimezone(UTC)
