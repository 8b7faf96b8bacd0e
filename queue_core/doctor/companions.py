"""Rows that belong to entries, and that a hand has deleted: something waits for ever then."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlalchemy import Connection

from queue_core.links.links import carries
from queue_core.links.ordering import KEY_MARK
from queue_core.model.lanes import AFTER_KEYED, KEYED, WAITING_LANE
from queue_core.runtime.shown import shown
from sql.doctor.base import Check, Scope
from sql.doctor.finding import Finding, Severity, counted
from sql.statements.groups import Groups

LOOKED_AT = 1_000
"""Rows that a check reads of a table at most."""
NAMED = 10
"""Entries that a finding names at most."""


def lost_order(connection: Connection, scope: Scope) -> Iterator[Finding]:
    """Entries that wait for the turn of their order key, and have no place in it."""
    for statements in scope.statements():
        table = statements.main.name
        lost = [
            row.record_id
            for row in statements.unordered(connection, lane=WAITING_LANE, limit=LOOKED_AT)
            if carries(row.headers, KEY_MARK)
        ]
        if lost:
            yield Finding(
                "lost-order",
                Severity.DANGER,
                table,
                f"{counted(len(lost))} of {table}: waiting for the turn of an order key, but "
                "without a row in queue_ordered. Somebody has deleted it by hand. Nothing will "
                "start them.",
                _anew(table, lost),
            )


def headless_keys(connection: Connection, scope: Scope) -> Iterator[Finding]:
    """Order keys with entries that wait, none of which will start."""
    for statements in scope.statements():
        table = statements.main.name
        for row in statements.headless(connection, lane=WAITING_LANE, limit=LOOKED_AT)[:NAMED]:
            why = "the key has no row in queue_order_heads"
            cure = f"UPDATE queue_ordered SET unstarted = true WHERE {_is(table, row.waiter_id)}"  # noqa: S608 -- shown, not run
            if row.head_id is not None:
                why = f"entry {row.head_id}, whose turn it is, does not exist"
                cure = f"DELETE FROM queue_order_heads WHERE {_is(table, row.head_id)}; {cure}"  # noqa: S608 -- as above
            yield Finding(
                "headless-keys",
                Severity.DANGER,
                row.queue_name,
                f"entries of {row.queue_name!r} in {table} with the order key "
                f"{shown(row.order_key)} wait, but {why}: somebody has deleted a row by hand. "
                "Nothing will start them.",
                cure,
            )


def lost_limit_keys(connection: Connection, scope: Scope) -> Iterator[Finding]:
    """Entries that wait for a place of their limit key, which has no row."""
    for statements in scope.statements():
        table = statements.main.name
        rows = statements.keyless(connection, lane=KEYED, end=AFTER_KEYED, limit=LOOKED_AT)
        if rows:
            yield Finding(
                "lost-limit-keys",
                Severity.DANGER,
                table,
                f"entries of {table} wait for a place of their limit keys, and {len(rows):,} of "
                "these keys have no row in queue_limit_keys: somebody has deleted it by hand. The "
                "entries wait until another entry of their key is claimed.",
                _anew(table, [row.record_id for row in rows]),
            )


def uncounted_groups(connection: Connection, scope: Scope) -> Iterator[Finding]:
    """Groups that have no row in which the ends of their members are counted."""
    for statements in scope.statements():
        main = statements.main
        groups = Groups(main.schema).uncounted(connection, main.name, limit=LOOKED_AT)
        for row in groups[:NAMED]:
            yield Finding(
                "uncounted-groups",
                Severity.DANGER,
                row.queue_name,
                f"Group {row.group_id} of {row.queue_name!r} in {main.name} has no row in "
                "queue_group_ends: somebody has deleted it by hand. The group will never be "
                "complete, and no call finds it.",
                f"DELETE FROM queue_groups WHERE group_id = {row.group_id} "  # noqa: S608 -- as above
                "# then post its callbacks yourself",
            )


def _is(table: str, record_id: int) -> str:
    return f"table_name = '{table}' AND record_id = {record_id}"


def _anew(table: str, ids: Sequence[int]) -> str:
    """Post entries anew."""
    named = f"{' '.join(map(str, ids[:NAMED]))} --table {table}"
    return f"stickybus entries remove {named} # then stickybus entries retry {named}"


COMPANION_CHECKS: tuple[Check, ...] = (
    lost_order,
    headless_keys,
    lost_limit_keys,
    uncounted_groups,
)
