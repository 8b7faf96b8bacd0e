"""What an idle node asks of its server, sleeper included: a budget that holds on a busy machine."""

from __future__ import annotations

import time
from contextlib import closing

import pymysql
import pytest
from sqlalchemy import URL

from benchmarks.databases import targets
from benchmarks.nodes import SETTLE_SECONDS
from stickybus import PersistentBus

SECONDS = 10.0
A_SECOND = 6.0
"""Statements; 4 were counted. The benchmark `idle` does not count those of the sleeper."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "database",
    [pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("mariadb", "mysql")],
)
def test_an_idle_node_asks_its_server_no_more_than_its_budget(database: str) -> None:
    with (
        targets([database], durable=False) as found,
        found[database].fresh() as url,
        PersistentBus(url),
    ):
        time.sleep(SETTLE_SECONDS)
        before = questions(url)
        time.sleep(SECONDS)
        asked = questions(url) - before
    assert 0 < asked <= A_SECOND * SECONDS


def questions(url: URL) -> int:
    """Statements that clients have sent to the server."""
    connection = pymysql.connect(
        host=url.host or "", port=url.port or 0, user=url.username, password=url.password or ""
    )
    with closing(connection), connection.cursor() as cursor:
        cursor.execute("SHOW GLOBAL STATUS LIKE 'Questions'")
        [[_, total]] = cursor.fetchall()
        return int(total)
