"""An examination of a database: all that slows or endangers it, the worst first."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import partial

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from queue_core.doctor.companions import COMPANION_CHECKS
from queue_core.doctor.entries import ENTRY_CHECKS
from queue_core.doctor.groups import GROUP_CHECKS
from queue_core.doctor.nodes import NODE_CHECKS, connections
from queue_core.doctor.waits import WAIT_CHECKS
from queue_core.doctor.work import WORK_CHECKS
from queue_core.runtime.clock import Clock, SystemClock
from sql import schema
from sql.database import Database
from sql.doctor.base import Check, Scope
from sql.doctor.finding import Finding, Severity, unchecked
from sql.doctor.indices import missing_index
from sql.doctor.plans import bad_plan
from sql.names import DEFAULT_TABLES
from sql.registry import doctor_of
from sql.schema import Fit

ALL_CHECKS = (
    *ENTRY_CHECKS,
    *WAIT_CHECKS,
    *COMPANION_CHECKS,
    *GROUP_CHECKS,
    *NODE_CHECKS,
    *WORK_CHECKS,
)
SKEW_SECONDS = 1.0
"""The difference of this machine's clock to the database's that is tolerated."""


def examine(
    database: Database, *, clock: Clock | None = None, transaction_seconds: float = 60.0
) -> list[Finding]:
    """Look at a database, and return the findings, the worst first.

    Each check only reads, in a transaction for itself; one that fails or may not look becomes a
    finding. `clock` is this host's. Transactions of others count when they are open for longer than
    `transaction_seconds`.
    """
    doctor = doctor_of(database.dialect.name)
    database.fetch(doctor.settle)
    tables = database.fetch(schema.main_tables)
    report = database.fetch(lambda connection: schema.check(connection, tables or DEFAULT_TABLES))
    now, found = _clock_skew(database, clock or SystemClock())
    found += _schema(report)
    scope = Scope(database.dialect, tables, now, transaction_seconds)
    named: list[tuple[str, Check]] = [(check.__name__, check) for check in doctor.checks]
    if report.fit.works:
        named += [
            ("missing_index", partial(missing_index, doctor=doctor)),
            ("bad_plan", partial(bad_plan, doctor=doctor)),
            ("connections", partial(connections, doctor=doctor)),
            *((check.__name__, check) for check in ALL_CHECKS),
        ]
    for name, check in named:
        found += _made(database, name.replace("_", "-"), check, scope)
    return worst_first(found)


def worst_first(found: list[Finding]) -> list[Finding]:
    """Findings by severity, else as they came."""
    return sorted(found, key=lambda finding: finding.severity.rank)


def _made(database: Database, name: str, check: Check, scope: Scope) -> list[Finding]:
    def work(connection: Connection) -> list[Finding]:
        return list(check(connection, scope))

    try:
        return database.fetch(work)
    except DBAPIError as error:
        return [
            unchecked(name, "the database", f"it answered: {' '.join(str(error.orig).split())}")
        ]


def _clock_skew(database: Database, clock: Clock) -> tuple[datetime, list[Finding]]:
    """The time by the database's clock, and a finding if this host's shows another one."""
    before = clock.now()
    shown = database.fetch(database.dialect.database_now)
    after = clock.now()
    skew = (shown - before - (after - before) / 2).total_seconds()
    if abs(skew) <= SKEW_SECONDS + (after - before).total_seconds() / 2:
        return shown, []
    way = "behind" if skew > 0 else "ahead of"
    finding = Finding(
        "clock-skew",
        Severity.NOTE,
        "this host",
        f"its clock is {abs(skew):.1f} s {way} the database's. Stickybus follows the database's; "
        "dates that your own programs write don't.",
        "Let both machines follow NTP: timedatectl set-ntp true",
    )
    return shown, [finding]


def _schema(report: schema.SchemaReport) -> list[Finding]:
    return list(_misfit(report))


def _misfit(report: schema.SchemaReport) -> Iterator[Finding]:
    cures = {
        Fit.MISSING: f"stickybus schema create # makes {', '.join(report.missing_tables)}",
        Fit.TOO_OLD: "stickybus schema upgrade",
        Fit.TOO_NEW: "Install the newer stickybus that upgraded it",
    }
    if report.fit in cures:
        yield Finding(
            "schema",
            Severity.DANGER,
            "schema",
            f"the schema is {report.fit.value} (found {report.found or 'none'}, this version has "
            f"{report.expected}): nothing can be posted. Its tables were not looked at.",
            cures[report.fit],
        )
