"""The settings of a PostgreSQL server that a queue depends on."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection, bindparam, text

from sql.doctor.base import Scope
from sql.doctor.finding import Finding, Severity
from sql.doctor.settings import Rule, broken

RELOAD = "; SELECT pg_reload_conf()"
_RULES = (
    Rule(
        "fsync",
        lambda value: value == "off",
        Severity.DANGER,
        "a crash of the machine may corrupt the whole cluster",
        f"ALTER SYSTEM SET fsync = on{RELOAD}",
    ),
    Rule(
        "full_page_writes",
        lambda value: value == "off",
        Severity.DANGER,
        "a crash of the machine may leave half-written pages, which nobody can repair",
        f"ALTER SYSTEM SET full_page_writes = on{RELOAD}",
    ),
    Rule(
        "synchronous_commit",
        lambda value: value == "off",
        Severity.DANGER,
        "a crash of the server loses the posts and outcomes just before it, although COMMIT "
        "returned",
        f"ALTER SYSTEM SET synchronous_commit = on{RELOAD} -- or where it was set: ALTER DATABASE "
        "or ALTER ROLE … RESET synchronous_commit",
    ),
    Rule(
        "transaction_read_only",
        lambda value: value == "on",
        Severity.DANGER,
        "nothing can be posted or claimed; the server is a standby, or its default was changed",
        "Give the URL of the primary, or: ALTER DATABASE … RESET default_transaction_read_only",
    ),
    Rule(
        "autovacuum",
        lambda value: value == "off",
        Severity.SLOW,
        "rows of ended entries are never removed, and claims read them all",
        f"ALTER SYSTEM SET autovacuum = on{RELOAD}",
    ),
    Rule(
        "track_counts",
        lambda value: value == "off",
        Severity.SLOW,
        "autovacuum doesn't see that a table needs it",
        f"ALTER SYSTEM SET track_counts = on{RELOAD}",
    ),
)


def settings(connection: Connection, scope: Scope) -> Iterator[Finding]:
    """Settings as they hold in one of our sessions."""
    del scope
    names = [rule.setting for rule in _RULES]
    rows = connection.execute(
        text(
            "SELECT name, current_setting(name) AS value FROM pg_settings WHERE name IN :names"
        ).bindparams(bindparam("names", names, expanding=True))
    )
    yield from broken("settings", _RULES, {row.name: row.value for row in rows})
