"""What users call takes no `Any` and returns none, but for values that any JSON may be."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import history_pipeline
import stickybus
from history_pipeline import Audit, Replayed, TaskAudit

JSON_VALUES = {"Task", "FinishedTask", "Insert", "Change", "Doc", "InsertDoc", "ChangeDoc"}
"""They are built with a value or content, which comes back as it was read from JSON."""
FIGURES = {Audit: "rows", TaskAudit: "rows", Replayed: "__init__"}
"""Rows of reports: their columns differ by table."""


def annotated(public: type) -> Iterator[tuple[str, str]]:
    """The functions of a class that users call, each with an annotation that says `Any`."""
    for name in dir(public):
        if name.startswith("_") and name != "__init__":
            continue
        static = inspect.getattr_static(public, name)
        function = static.fget if isinstance(static, property) else inspect.unwrap(static)
        function = getattr(function, "__func__", function)
        if inspect.isfunction(function) and not function.__module__.startswith("pydantic"):
            yield from ((name, one) for one in said(function))


def said(function: object) -> list[str]:
    annotations = getattr(function, "__annotations__", {}).values()
    return [str(one) for one in annotations if re.search(r"\bAny\b", str(one))]


@pytest.mark.parametrize("module", [stickybus, history_pipeline], ids=lambda one: one.__name__)
def test_no_public_signature_says_any(module: ModuleType) -> None:
    found = dict[str, list[tuple[str, str]]]()
    for name in set(module.__all__) - JSON_VALUES:
        public = getattr(module, name)
        if isinstance(public, type):
            faults = [one for one in annotated(public) if one[0] != FIGURES.get(public)]
        else:
            faults = [("", one) for one in said(public)]
        if faults:
            found[name] = faults
    assert found == {}


def test_any_in_a_signature_is_found() -> None:
    class Careless:
        def post(self, event: Any) -> int:
            return len(event)

        @property
        def seen(self) -> list[Any]:
            return []

        def _inner(self, given: Any) -> None: ...

    assert list(annotated(Careless)) == [("post", "Any"), ("seen", "list[Any]")]
