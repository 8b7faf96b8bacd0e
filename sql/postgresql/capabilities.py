"""The capabilities of PostgreSQL."""

from sql.capabilities import Capabilities

POSTGRESQL = Capabilities(
    hears_commits=True,
    notifies=True,
    keeps_plans=True,
    moves_at_once=True,
    inserts_at_once=True,
    seats_at_once=True,
    answers_in_utc=True,
)
