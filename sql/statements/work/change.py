"""An UPDATE of rows by their keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlalchemy import Table, Update, bindparam, update


def change_by(table: Table, keys: Mapping[str, str], names: Iterable[str]) -> Update:
    """Write the columns `names`, each from `new_` and its name.

    `keys`: parameters that name a row, each with its column.
    """
    return (
        update(table)
        .where(*(table.c[column] == bindparam(key) for key, column in keys.items()))
        .values({name: bindparam(f"new_{name}", type_=table.c[name].type) for name in names})
    )
