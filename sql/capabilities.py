"""What tells databases apart for callers: facts to choose by, so that no caller asks which database it is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Capabilities:
    """The facts about one kind of database. The defaults promise the least: a new database works with them."""

    hears_commits: bool = False
    """Whether a process learns of what others have committed (`Dialect.commits_of_others`). Else it polls more often."""
    notifies: bool = False
    """Whether who commits has to tell others of it (`Dialect.notifier`), since they hear of nothing else."""
    one_writer: bool = False
    """Whether transactions that write take turns: one of two works costs less than two, so a claim goes along with outcomes."""
    keeps_plans: bool = False
    """Whether connections that only insert keep the plans of their statements, where others had better not."""
    moves_at_once: bool = False
    """Whether a claim is one statement, and a finish too, so that each can commit by itself."""
    inserts_at_once: bool = False
    """Whether any number of rows is one INSERT, and ids can be had ahead of it."""
    answers_in_utc: bool = False
    """Whether the driver's dates, on our own connections, need no conversion (a twentieth of a drain)."""
    ddl_commits: bool = False
    """Whether each change of a table commits by itself."""
    copies_have_names: bool = False
    """Whether each copy of a database, as replication makes them, is on a server of another name."""
    gapless_ids: bool = False
    """Whether a transaction that rolls back leaves no gap of ids."""
    makes_tables: bool = False
    """Whether tables that are missing are created at the first start: nobody else administers the database."""
