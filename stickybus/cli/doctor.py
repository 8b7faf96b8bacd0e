"""`stickybus doctor`: faults that slow or endanger this database, and their cures."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from queue_core.errors import DatabaseUnreachableError
from sql.doctor.finding import Finding, Severity
from stickybus.cli.moments import parsed_duration
from stickybus.cli.output import plural, say, write_json, write_table
from stickybus.cli.target import Json, Url, inspected, url_of

STATEMENT_SECONDS = 5.0
"""No question to the database takes longer; one that would is told as not made."""
COLUMNS = {"severity": "SEVERITY", "check": "CHECK", "what": "WHAT"}


def doctor(
    *,
    transaction_age: Annotated[
        str,
        typer.Option(
            help="Report transactions of others that are open for longer, such as 10s or 5m."
        ),
    ] = "1m",
    integrity: Annotated[
        bool,
        typer.Option(
            "--integrity", help="SQLite: read the whole file, too, and see that it is whole."
        ),
    ] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Tell the faults that slow or endanger this database, worst first, each with its cure.

    Changes no data. An SQLite file is switched to WAL, as by each process of Stickybus.

    DANGER: data or delivery is at risk; exit code 1. SLOW: it costs speed. NOTE: nothing is wrong
    yet. UNCHECKED: the database did not answer, or this user may not look. Each check has a section
    in docs/how-to/doctor.md.

    Examples:
      stickybus doctor

      stickybus doctor --url postgresql://user@host/name --transaction-age 5m

      stickybus doctor --json | jq -r '.findings[].cure'
    """
    from queue_core.doctor.examination import worst_first

    seconds = parsed_duration(transaction_age).total_seconds()
    target = url_of(url)
    # Findings without a connection first: they may be why none opens.
    found = _outside(target.get_backend_name(), url, integrity=integrity)
    try:
        with inspected(url, statement_timeout_seconds=STATEMENT_SECONDS) as inspector:
            found = worst_first(found + inspector.doctor(transaction_seconds=seconds))
    except DatabaseUnreachableError:
        if found:
            _tell(target.render_as_string(), worst_first(found), as_json=as_json)
        raise
    _tell(target.render_as_string(), found, as_json=as_json)
    if any(finding.severity is Severity.DANGER for finding in found):
        raise typer.Exit(1)


def _outside(backend: str, url: str | None, *, integrity: bool) -> list[Finding]:
    from sql.registry import doctor_of

    try:
        doctor = doctor_of(backend)
    except KeyError:
        return []  # connecting tells which databases there are
    return list(doctor.outside(url_of(url), integrity=integrity))


def _tell(database: str, found: list[Finding], *, as_json: bool) -> None:
    if as_json:
        findings = [{**asdict(finding), "page": finding.page} for finding in found]
        write_json({"database": database, "findings": findings})
        return
    rows = [{**asdict(finding), "severity": finding.severity.value.upper()} for finding in found]
    write_table(
        f"{database}: {plural(len(found), 'finding')}",
        COLUMNS,
        rows,
        empty=f"{database}: all is well.",
    )
    cures = [finding for finding in found if finding.cure]
    if cures:
        say("\nCures, worst first")
    for finding in cures:
        # In one piece, to be copied.
        line = f"  {finding.check} ({finding.subject}): {finding.cure}"
        say(line)
    if found:
        say(f"\nMore on each: {found[0].page.partition('#')[0]}")
