"""The capabilities of SQLite."""

from sql.capabilities import Capabilities

SQLITE = Capabilities(
    hears_commits=True, one_writer=True, moves_at_once=True, gapless_ids=True, makes_tables=True
)
