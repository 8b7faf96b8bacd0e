"""The facts by which callers choose, so that no caller asks which database it is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Capabilities:
    """The facts about one kind of database.

    The defaults promise the least. A new database works with them, only slower.
    """

    hears_commits: bool = False
    """A process learns of others' commits by `Dialect.commits_of_others`.

    Else it polls more often.
    """
    notifies: bool = False
    """A commit is heard of only if who commits tells the others, by `Dialect.notifier`."""
    wakes_idle: bool = False
    """A process that looks rarely learns by `Dialect.commits_of_others` that others have committed.

    They tell it by `Dialect.notifier`, after their commit.
    """
    one_writer: bool = False
    """Transactions that write take turns. One of two works costs less than two, so that a claim
    goes along with outcomes, and two threads finish."""
    keeps_plans: bool = False
    """Connections that only insert keep the plans of their statements. Others had better not."""
    moves_at_once: bool = False
    """A claim is one statement, and a finish too: each can commit by itself."""
    inserts_at_once: bool = False
    """Any number of rows is one INSERT, and ids can be had ahead of it."""
    seats_at_once: bool = False
    """Entries of a limited queue are claimed with their places in three round trips."""
    answers_in_utc: bool = False
    """The driver's dates need no conversion on our own connections (a twentieth of a drain)."""
    waiters_deadlock: bool = False
    """Of several who wait for a row that another inserts, all but one are rolled back if he is."""
    ddl_commits: bool = False
    """Each change of a table commits by itself."""
    copies_have_names: bool = False
    """Each copy that replication makes of a database is on a server of another name."""
    gapless_ids: bool = False
    """A transaction that rolls back leaves no gap of ids."""
    makes_tables: bool = False
    """Missing tables are created at the first start: nobody else administers the database."""
