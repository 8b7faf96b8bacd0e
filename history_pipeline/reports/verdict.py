"""The verdict on an audit, in a few sentences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from history_pipeline.audits.figures import Audit, Fault, TableAudit
from sql.registry import BACKENDS

SENTENCES = {
    Fault.NO_END: ("chain has no end", "chains have no end"),
    Fault.ENDED_TWICE: ("entry ended twice", "entries ended twice"),
    Fault.ENDED_AND_LIVE: (
        "entry has ended and is live as well",
        "entries have ended and are live as well",
    ),
    Fault.DIFFERS: (
        "entry differs between history and archive",
        "entries differ between history and archive",
    ),
}


class Standing(StrEnum):
    """The answer to the question whether everything is there."""

    EMPTY = "empty"
    COMPLETE = "complete"
    FAULTY = "faulty"
    UNKNOWN = "unknown"
    """No fault was found, but not everything could be decided.

    Entries were deleted, or some faults can't be decided without the database.
    """


@dataclass(frozen=True)
class Verdict:
    """`headline` is one sentence; `details` explain it, one a table or matter."""

    standing: Standing
    headline: str
    details: tuple[str, ...]


def verdict(audit: Audit) -> Verdict:
    """The verdict on an audit."""
    details = tuple(_details(audit))
    found = [
        f"{count:,} {SENTENCES[Fault(fault)][count > 1]}"
        for fault, count in audit.faults.items()
        if count
    ]
    if found:
        return Verdict(Standing.FAULTY, f"Not complete: {'; '.join(found)}.", details)
    if all(table.lowest_id is None for table in audit.audited):
        return Verdict(Standing.EMPTY, "Nothing has been posted yet.", details)
    if Fault.NO_END not in audit.faults:
        return Verdict(
            Standing.UNKNOWN,
            "No entry ended twice. Whether all have ended, an archive alone can't tell.",
            details,
        )
    deleted = (
        sum(table.missing_ids for table in audit.audited) if _is_gapless(audit.database) else 0
    )
    if deleted:
        others = "1 other was" if deleted == 1 else f"{deleted:,} others were"
        return Verdict(
            Standing.UNKNOWN,
            f"Every entry found has ended once, or is live; {others} deleted.",
            details,
        )
    return Verdict(
        Standing.COMPLETE, "Complete: every entry found has ended once, or is live.", details
    )


def _details(audit: Audit) -> Iterator[str]:
    for table in audit.audited:
        if table.lowest_id is not None:
            yield _of_ids(table, audit.database)
    if Fault.NO_END not in audit.faults:
        yield (
            "The database was not read: its live entries are not known, and chains may end in its "
            "history."
        )
    if audit.faults.get(Fault.NO_END):
        yield (
            "A chain without an end was redispatched, and its copy is nowhere. `history truncate "
            "--state` leaves such chains if it deletes ends but not the REAPED rows before them."
        )


def _of_ids(table: TableAudit, database: str | None) -> str:
    ids = f"{table.table_name}: ids {table.lowest_id} to {table.highest_id}"
    if not table.missing_ids:
        return f"{ids}, none is missing."
    missing = (
        f"{ids}, {table.missing_ids:,} of them in {table.gaps:,} "
        f"{'gap' if table.gaps == 1 else 'gaps'} are nowhere."
    )
    if table.live is None:
        return f"{missing} They may be live, or in history."
    if _is_gapless(database):
        return (
            f"{missing} This database leaves no gaps: rows were truncated, have expired, or were "
            "deleted by hand."
        )
    return (
        f"{missing} That alone is no loss: transactions that roll back, and ids taken in blocks, "
        "leave gaps, as truncation does."
    )


def _is_gapless(database: str | None) -> bool:
    """Whether transactions that roll back leave no gap of ids in a database of this kind."""
    return database is not None and BACKENDS[database].dialect.capabilities.gapless_ids
