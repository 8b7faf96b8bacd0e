"""Insertions that leave existing rows alone, on MySQL and MariaDB."""

from __future__ import annotations

from typing import Any

from sqlalchemy.ext.compiler import compiles

from sql.statements.insert_new import InsertNew


@compiles(InsertNew, "mysql", "mariadb")
def ignore(element: InsertNew, compiler: Any, **options: Any) -> str:
    """The INSERT as text. IGNORE would let other faults pass as well: values are checked before.

    It takes a shared lock on a key that is there, so that two that find it at once may end in a
    deadlock. Idempotency keys are therefore entered in transactions of their own, which
    run again.
    """
    return str(compiler.visit_insert(element.prefix_with("IGNORE"), **options))
