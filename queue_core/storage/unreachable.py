"""The errors of a database that does not answer."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import URL

from queue_core.errors import CommitUnknownError, DatabaseUnreachableError
from sql.database import AT_COMMIT


def unreachable(
    url: URL, error: BaseException, written: Sequence[int] = (), *, only_reads: bool = False
) -> DatabaseUnreachableError:
    """The error to raise when the database doesn't answer.

    `written` holds the ids of a COMMIT that may have taken effect. `only_reads`: it answers that it
    takes no writes.
    """
    reason = str(getattr(error, "orig", error)).strip()
    where = url.render_as_string(hide_password=True)
    if AT_COMMIT in getattr(error, "__notes__", ()):
        return CommitUnknownError(
            f"the database {where} can't be reached: {reason}. Its COMMIT gave no answer: if it "
            "took effect, its writes are there. Look before you write again. Check the URL and "
            "that the server runs.",
            url=where,
            record_ids=tuple(written),
        )
    if only_reads:
        return DatabaseUnreachableError(
            f"the database {where} takes no writes: {reason}. Nothing was written; name the server "
            "that takes them, or let this one take them again.",
            url=where,
        )
    return DatabaseUnreachableError(
        f"the database {where} can't be reached: {reason}. Nothing was written; check the URL and "
        "that the server runs.",
        url=where,
    )
