"""Context variables that go with an entry: captured at its post, set again around its handlers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import msgspec

from queue_core.errors import ConfigurationError, InvalidPostError
from queue_core.runtime.exact import exact_text
from queue_core.runtime.shown import a_kind, shown
from sql.search_keys import RESERVED, texts, with_marks

MARK = RESERVED + "context"


class CapturedContext:
    """The variables of one bus or service. Raises ConfigurationError for an object that is none."""

    def __init__(self, variables: Iterable[ContextVar[str]]) -> None:
        given: object = variables
        found = list(variables) if isinstance(given, Iterable) else [given]
        if not all(isinstance(variable, ContextVar) for variable in found):
            raise ConfigurationError(
                f"context={shown(variables)}: give the ContextVars that go with an entry.",
                key="context",
            )
        self._variables = {
            variable.name: variable for variable in found if isinstance(variable, ContextVar)
        }
        if len(self._variables) < len(found):
            raise ConfigurationError(
                "context: two of the variables have one name, by which an entry would tell them "
                "apart.",
                key="context",
            )

    def __bool__(self) -> bool:
        return bool(self._variables)

    def capture(self, headers: str | None, queue_name: str) -> str | None:
        """The headers of a post with the values that are set. Raises InvalidPostError."""
        values = {
            name: value
            for name, variable in self._variables.items()
            if (value := variable.get(None)) is not None
        }
        for name, value in values.items():
            if exact_text(value) is None:
                raise InvalidPostError(
                    f"{queue_name}: the context variable {name} is {a_kind(type(value))}, not a "
                    "text. Nothing was written.",
                    queue_name=queue_name,
                    key="context",
                )
        if not values:
            return headers
        text = msgspec.json.encode(values, enc_hook=exact_text).decode()
        return with_marks(headers, {MARK: text})

    @contextmanager
    def restored(self, headers: str | None) -> Iterator[None]:
        """Set the variables as they were at the post, for a block.

        Those that were not set then are left alone, and so are those that nobody knows here.
        """
        text = texts(headers).get(MARK[1:])
        values: dict[str, Any] = msgspec.json.decode(text, type=dict[str, str]) if text else {}
        tokens = [
            (variable, variable.set(values[name]))
            for name, variable in self._variables.items()
            if name in values
        ]
        try:
            yield
        finally:
            for variable, token in reversed(tokens):
                variable.reset(token)


NO_CONTEXT = CapturedContext(())
