"""What the schema needs no server for."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sql import schema
from sql.database import Database


def test_the_schemas_of_several_databases_are_made_at_once_in_one_process(tmp_path: Path) -> None:
    together = threading.Barrier(4)

    def make(number: int) -> schema.Fit:
        url = f"sqlite:///{tmp_path / f'{number}.db'}"
        together.wait()
        schema.create(url)
        database = Database(url)
        try:
            with database.read() as connection:
                return schema.check(connection).fit
        finally:
            database.close()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(make, range(4))) == [schema.Fit.CURRENT] * 4
