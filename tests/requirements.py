"""The databases that a test runs on, by the facts that it needs.

    from tests import requirements as needs

    @needs.one_writer
    def test_a_post_waits_for_a_write_lock_that_another_process_holds(...): ...

A test without such a mark runs on every database. The name of a database is the mark of a test
whose subject is that database: its errors, its settings, its driver.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from devtools.programs import URL_VARIABLES
from sql.capabilities import Capabilities
from sql.registry import BACKENDS

DATABASES: Final = ("sqlite", *URL_VARIABLES)


def capabilities_of(name: str) -> Capabilities:
    """Return the facts about the database of this name that the engine knows."""
    return BACKENDS[name].dialect().capabilities


def on(*names: str) -> pytest.MarkDecorator:
    """Return the mark of a test that runs on these databases only."""
    return pytest.mark.parametrize(
        "database_name", [pytest.param(name, marks=getattr(pytest.mark, name)) for name in names]
    )


def _where(fact: Callable[[Capabilities], bool]) -> pytest.MarkDecorator:
    return on(*(name for name in DATABASES if fact(capabilities_of(name))))


sqlite, postgresql, mariadb, mysql = map(on, ("sqlite", "postgresql", "mariadb", "mysql"))

any_database = on("sqlite")
"""Nothing in the test depends on the database, so the quickest will do."""

# -- facts that the engine knows ------------------------------------------------------------------

one_writer = _where(lambda known: known.one_writer)
"""Transactions that write take turns, and claims go along with outcomes."""
many_writers = _where(lambda known: not known.one_writer)
"""Transactions that write run side by side and wait for single rows."""
notifies = _where(lambda known: known.notifies)
"""A commit is announced to other processes."""
wakes_idle = _where(lambda known: known.wakes_idle)
"""A commit wakes other processes that have nothing to do."""
heard_commits = _where(lambda known: known.hears_commits)
"""A process learns of another's commit without a poll."""
silent_commits = _where(lambda known: not known.hears_commits)
"""No process learns of another's commit but by polling."""
keeps_plans = _where(lambda known: known.keeps_plans)
"""Connections that only insert keep the plans of their statements."""
ids_ahead = _where(lambda known: known.inserts_at_once)
"""Ids can be had ahead of the INSERT."""
gapless_ids = _where(lambda known: known.gapless_ids)
"""A transaction that rolls back leaves no gap of ids."""
ddl_commits = _where(lambda known: known.ddl_commits)
"""Each change of a table commits by itself."""
makes_tables = _where(lambda known: known.makes_tables)
"""Missing tables are created at the first start."""
administered = _where(lambda known: not known.makes_tables)
"""Tables are made by a command that somebody runs."""

# -- facts that only tests ask for ----------------------------------------------------------------

server = on(*URL_VARIABLES)
"""Clients reach it by a network, it has a clock of its own, and an administrator ends sessions."""
two_phase = server
"""Transactions of two phases."""
machine_clock = on("sqlite")
"""Its clock is this process's, which tests can set."""
untyped_columns = on("sqlite")
"""A column takes any bytes, whatever its type."""
schemas = on("postgresql")
"""A database has several schemas, and sessions have a search path."""
used_databases = on("mariadb", "mysql")
"""A session may say USE, and names without a database mean another one from then on."""
deferred_constraints = on("sqlite", "postgresql")
"""A constraint can be checked as late as the COMMIT."""
quick_table_locks = on("postgresql", "mariadb")
"""A request for a lock on a table that waits keeps nobody else waiting. MySQL's does."""
gap_locks = on("mariadb", "mysql")
"""Locks cover the gaps between rows."""
undone_by_deadlock = on("mariadb", "mysql")
"""A deadlock rolls the whole transaction back, and the next statement begins another one."""
