"""Groups that would never be complete: their counts are wrong, or nobody seals them."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection

from queue_core.model.group import GroupStatus
from queue_core.storage.groups import status_of
from sql.doctor.base import Check, Scope
from sql.doctor.finding import Finding, Severity, lasting
from sql.statements.groups import Groups

LOOKED_AT = 1_000
"""Groups of a table that are read at most, the newest."""
SEALED_SECONDS = 60.0
"""A node has looked at a group by then that a caller's transaction has sealed."""
UNSEALED_SECONDS = 86_400.0
"""The age from which an open group without live members counts as forgotten."""


def incomplete_groups(connection: Connection, scope: Scope) -> Iterator[Finding]:
    """Groups that should be complete, and groups that somebody has forgotten to seal."""
    for statements in scope.statements():
        main = statements.main
        groups = Groups(main.schema)
        for row in groups.newest(connection, main.name, incomplete=True, limit=LOOKED_AT):
            yield from _group(status_of(row), scope)


def _group(group: GroupStatus, scope: Scope) -> Iterator[Finding]:
    age = (scope.now - (group.sealed_date or group.created_date)).total_seconds()
    which = f"Group {group.group_id} of {group.queue_name!r} in {group.table}"
    cure = f"stickybus groups seal {group.group_id} --table {group.table}"
    if group.live < 0:
        yield Finding(
            "miscounted-groups",
            Severity.DANGER,
            group.queue_name,
            f"{which} counts {group.total - group.live:,} members that have ended, but "
            f"{group.total:,} in all: somebody has changed rows by hand.",
            cure,
        )
    elif group.live == 0 and group.sealed_date is not None and age > SEALED_SECONDS:
        yield Finding(
            "unfinished-groups",
            Severity.DANGER,
            group.queue_name,
            f"{which} was sealed {lasting(age)} ago and all its members have ended, but its "
            "callbacks were not posted. Either no node has looked at it, or somebody has changed "
            "rows by hand.",
            f"{cure} # looks at it once more",
        )
    elif group.live == 0 and group.sealed_date is None and age > UNSEALED_SECONDS:
        yield Finding(
            "unsealed-groups",
            Severity.NOTE,
            group.queue_name,
            f"{which} was opened {lasting(age)} ago, and all its {group.total:,} members have "
            "ended, but nobody has sealed it. Its callbacks wait for the seal.",
            cure,
        )


GROUP_CHECKS: tuple[Check, ...] = (incomplete_groups,)
