"""One cache of compiled statements for all engines of a process.

Else each engine of each test would compile all of its statements anew, a quarter of a test's work.
SQLAlchemy keeps what it has compiled for each dialect object. Here dialects share it if they are
alike in all that SQL depends on.
"""

from __future__ import annotations

from typing import Any, Final
from weakref import WeakKeyDictionary

from sqlalchemy import Engine
from sqlalchemy.engine import Compiled
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.util import LRUCache

_NOT_IN_SQL: Final = frozenset(
    {
        *("default_isolation_level", "default_schema_name", "_on_connect_isolation_level"),
        *("is_disconnect", "skip_autocommit_rollback"),
        # They are made of the rest.
        *("identifier_preparer", "type_compiler", "type_compiler_instance", "_isolation_lookup"),
        *("_gen_allowed_isolation_levels", "_psycopg_adapters_map", "_type_memos", "colspecs"),
    }
)
"""The attributes in which dialects may differ; any other that differs keeps them apart."""
_STATEMENTS: Final = 5_000


class _Shared(LRUCache[Any, Compiled]):
    """Takes dialects that are alike for the same one."""

    def __init__(self) -> None:
        super().__init__(_STATEMENTS)
        self._kinds = dict[Any, object]()
        self._kind_of = WeakKeyDictionary[Any, object]()

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(self._alike(*key), default)

    def __setitem__(self, key: Any, value: Compiled) -> None:
        super().__setitem__(self._alike(*key), value)

    def _alike(self, dialect: DefaultDialect, *statement: Any) -> Any:
        kind = self._kind_of.get(dialect)
        if kind is None:
            known = frozenset(one for one in vars(dialect).items() if one[0] not in _NOT_IN_SQL)
            kind = self._kinds.setdefault((type(dialect), known), object())
            # Once it knows the server; later it only keeps what it has found by all that.
            if dialect.server_version_info is not None:
                self._kind_of[dialect] = kind
        return kind, *statement


class _CacheOfAll:
    """The attribute of engines for their cache, which is one for all that have any."""

    def __init__(self) -> None:
        self._shared = _Shared()

    def __get__(self, engine: Engine, _kind: type[Engine]) -> _Shared | None:
        found: _Shared | None = vars(engine)["_compiled_cache"]
        return found

    def __set__(self, engine: Engine, own: object) -> None:
        vars(engine)["_compiled_cache"] = None if own is None else self._shared


def share() -> None:
    """Let each engine that is made from now on use the cache, unless it is to have none."""
    # `create_engine` reads the parameters of `Engine.__init__`, which can't be wrapped for that.
    Engine._compiled_cache = _CacheOfAll()  # type: ignore[assignment]
