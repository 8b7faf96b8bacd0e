"""The plans of our statements, as the database would run them on its tables of now."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import Connection, Table, event, literal, select

from sql.doctor.base import Doctor, Fault, Scope, Step
from sql.doctor.finding import Finding, Severity
from sql.statements.claims import Claim
from sql.statements.entries import Statements
from sql.statements.outcomes import FinishRow

SMALL_TABLE_ROWS = 1_000
"""A table with fewer rows is read as a whole by every planner, and rightly."""


class _Caught(Exception):
    def __init__(self, statement: str, parameters: Any) -> None:
        super().__init__()
        self.statement, self.parameters = statement, parameters


@dataclass(frozen=True)
class Asked:
    """A statement to be explained, with its purpose and its table.

    `right` are steps that its plan may have.
    """

    purpose: str
    table: Table
    work: Callable[[Connection], object]
    right: frozenset[Step] = frozenset()


def bad_plan(connection: Connection, scope: Scope, *, doctor: Doctor) -> Iterator[Finding]:
    """Statements on tables of some size whose plans read more rows than they need."""
    for statements in scope.statements():
        large = {
            table for table in (statements.main, statements.past) if _is_large(connection, table)
        }
        for asked in _asked(statements, scope):
            if asked.table in large:
                faults = explained(connection, doctor, asked.work, asked.table.name)
                wrong = [fault for fault in faults if fault.step not in asked.right]
                if wrong:
                    yield _finding(asked, wrong)


def explained(
    connection: Connection, doctor: Doctor, work: Callable[[Connection], object], table: str
) -> list[Fault]:
    """The faults of the first statement that `work` would send.

    The statement is explained in its place, and nothing is sent.
    """

    def catch(
        _connection: object, _cursor: object, statement: str, parameters: Any, *_rest: object
    ) -> None:
        raise _Caught(statement, parameters)

    event.listen(connection, "before_cursor_execute", catch)
    try:
        work(connection)
    except _Caught as caught:
        statement, parameters = caught.statement, caught.parameters
    else:
        raise AssertionError("no statement was sent")
    finally:
        event.remove(connection, "before_cursor_execute", catch)
    plan = connection.exec_driver_sql(doctor.explain + statement, parameters).mappings().all()
    return list(doctor.faults([dict(row) for row in plan], table))


def _is_large(connection: Connection, table: Table) -> bool:
    beyond = select(literal(1)).select_from(table).order_by(table.c.record_id)
    return connection.execute(beyond.offset(SMALL_TABLE_ROWS).limit(1)).scalar() is not None


def _asked(statements: Statements, scope: Scope) -> Iterator[Asked]:
    main, past, now = statements.main, statements.past, scope.now
    batch = statements.batch([FinishRow(1, 1, now, "PROCESSED", now)])
    claim = Claim(lane="", owner="doctor", limit=100, since=now, due_by=now, until=now)
    yield Asked("the claim", main, lambda connection: statements.claim(connection, claim))
    yield Asked(
        "the outcomes",
        main,
        lambda connection: statements.finish(connection, owner="doctor", batch=batch),
    )
    page: dict[str, Any] = {"before": now, "states": None}
    yield Asked(
        "a page of history to delete",
        past,
        lambda connection: statements.history_page(connection, after=0, **page, limit=100),
        # In the order of the ids, up to the page's end.
        right=frozenset({Step.WALK}),
    )
    yield Asked(
        "the deletion of history",
        past,
        lambda connection: statements.delete_history(connection, ids=[1, 2], **page),
    )
    for table in (main, past):
        keys = partial(_by_keys, statements, past=table is past)
        # All that has the keys is put in the order of the ids.
        yield Asked("a search by keys", table, keys, right=frozenset({Step.SORT}))


def _by_keys(statements: Statements, connection: Connection, *, past: bool) -> object:
    return statements.search(
        connection,
        past=past,
        where=lambda table: [table.c.search_key2 == 1, table.c.search_key1 == 1],
        limit=100,
    )


def _finding(asked: Asked, faults: list[Fault]) -> Finding:
    steps = ", ".join(f"{fault.step.value} ({fault.detail})" for fault in faults)
    return Finding(
        "bad-plan",
        Severity.SLOW,
        asked.table.name,
        f"{asked.purpose} on {asked.table.name} {steps}: it costs more with every row.",
        f"Build the index that is missing, invalid or ignored; then ANALYZE {asked.table.name}",
    )
