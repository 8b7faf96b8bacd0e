"""No caller asks which database it is.

Only `sql/registry.py` knows them all, and each is known by its own room.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packages import RELEASED

ROOT = Path(__file__).parents[2]
ROOMS = frozenset({"sqlite", "postgresql", "mysql", "mariadb"})
DRIVERS = frozenset({"sqlite3", "psycopg", "pymysql"})

ALLOWED = {
    "sql/registry.py": "names all of them, so that nobody else has to",
    "sql/names.py": "names all of them for a command's help, where the registry would load them",
    "sql/tables/conventions.py": "options of SQLAlchemy's Table, kept by the name of a dialect",
    "sql/tables/entries.py": "a statement after CREATE TABLE, for one dialect of SQLAlchemy",
    "sql/types/date_functions.py": (
        "forms of SQLAlchemy's types, which it looks up by the name of a dialect"
    ),
    "sql/types/dates.py": (
        "forms of SQLAlchemy's types, which it looks up by the name of a dialect"
    ),
    "sql/types/readable.py": (
        "forms of SQLAlchemy's types, which it looks up by the name of a dialect"
    ),
    "sql/types/texts.py": (
        "forms of SQLAlchemy's types, which it looks up by the name of a dialect"
    ),
    "sql/types/wide.py": "forms of SQLAlchemy's types, which it looks up by the name of a dialect",
    "sql/doctor/indices.py": "an option of SQLAlchemy's Index, for the text of a cure",
    "queue_core/opening.py": "says that a file is missing before a connection would make it",
    "stickybus/demo/__init__.py": "runs on SQLite, and says so in its result",
    "stickybus/demo/shop.py": "runs on SQLite: the URL of its file",
    "stickybus/cli/versions.py": "shows the versions of drivers, and asks no database",
}
"""Modules that name a database, each with the reason."""


def modules() -> list[str]:
    """All that is no database's room.

    A migration is written for the databases of its day, and never changes.
    """
    found = (
        path.relative_to(ROOT) for package in RELEASED for path in (ROOT / package).rglob("*.py")
    )
    return sorted(str(path) for path in found if not (ROOMS | {"migrations"}) & set(path.parts))


def asked(tree: ast.AST) -> Iterator[str]:
    """Each place in a module that tells databases apart."""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module)) if _room(module):
                yield f"line {node.lineno}: from {module}"
            case ast.ImportFrom(module="sql", names=names) if {name.name for name in names} & ROOMS:
                yield f"line {node.lineno}: from sql import a room"
            case ast.Import(names=names) if any(_room(name.name) for name in names):
                yield f"line {node.lineno}: import of a room or driver"
            case ast.Constant(value=str(value)) if value in ROOMS | DRIVERS:
                yield f"line {node.lineno}: {value!r}"
            case ast.Compare() if any(map(_is_name_of_dialect, (node.left, *node.comparators))):
                yield f"line {node.lineno}: a dialect's name is compared"
            case ast.Match() if _is_name_of_dialect(node.subject):
                yield f"line {node.lineno}: a dialect's name is matched"


def _room(module: str) -> bool:
    first, _, rest = module.partition(".")
    return first in DRIVERS or (first == "sql" and rest.partition(".")[0] in ROOMS)


def _is_name_of_dialect(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(
            attr="name", value=ast.Name(id="dialect") | ast.Attribute(attr="dialect")
        ):
            return True
    return False


@pytest.mark.parametrize("module", [module for module in modules() if module not in ALLOWED])
def test_no_module_asks_which_database_it_is(module: str) -> None:
    assert list(asked(ast.parse((ROOT / module).read_text("utf-8")))) == []


@pytest.mark.parametrize("module", ALLOWED)
def test_no_exception_outlives_its_reason(module: str) -> None:
    assert list(asked(ast.parse((ROOT / module).read_text("utf-8"))))


@pytest.mark.parametrize(
    "line",
    [
        "from sql.sqlite.dialect import SQLite",
        "from sql import postgresql",
        "import sql.mysql.doctor",
        "import sqlite3",
        "from psycopg.rows import tuple_row",
        "if database.dialect.name == other: pass",
        "if dialect.name in some: pass",
        "ways = {'mariadb': 1}",
        "match connection.dialect.name:\n    case _: pass",
    ],
)
def test_each_way_of_asking_is_found(line: str) -> None:
    assert list(asked(ast.parse(line)))
