"""How MySQL and MariaDB leave alone what is there already."""

from __future__ import annotations

from typing import Any

from sqlalchemy.ext.compiler import compiles

from sql.statements.insertion import InsertNew


@compiles(InsertNew, "mysql", "mariadb")
def ignore(element: InsertNew, compiler: Any, **options: Any) -> str:
    """The INSERT as text. IGNORE would let other faults pass as well: values are checked before."""
    return str(compiler.visit_insert(element.prefix_with("IGNORE"), **options))
