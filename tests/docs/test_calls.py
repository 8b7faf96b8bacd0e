"""docs/reference/calls.md lists every public call as it is; a twin takes what its call takes."""

from __future__ import annotations

import inspect
import re
import typing
from pathlib import Path
from typing import is_typeddict

import pytest

from queue_core.model.states import StateName
from queue_core.runtime.callers import CallersConnection
from stickybus import (
    NotificationQueue,
    NotificationService,
    PersistentBus,
    State,
    Worker,
    WorkQueue,
)

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "calls.md"
KINDS: tuple[type, ...] = (PersistentBus, NotificationQueue, NotificationService)
LISTED = (*KINDS, WorkQueue, Worker)
DEPRECATED = {"register"}


def _calls(kind: type) -> dict[str, object]:
    """Its public methods, without the deprecated ones."""
    found = inspect.getmembers(kind, inspect.isfunction)
    return {
        name: call for name, call in found if not name.startswith("_") and name not in DEPRECATED
    }


def _rows() -> set[tuple[str, str, str, str]]:
    rows = re.findall(
        r"^\| `(\w+)` \| `(\w+)` \| `?([^|`]+?)`? \| (yes|no) \|$",
        PAGE.read_text("utf-8"),
        re.MULTILINE,
    )
    return {
        (kind, call, "none" if twin.startswith("none:") else twin, takes)
        for call, kind, twin, takes in rows
    }


def test_the_table_lists_every_call_its_twin_and_whether_it_takes_a_connection() -> None:
    actual = set()
    for kind in LISTED:
        calls = _calls(kind)
        for name, call in calls.items():
            if not name.endswith("_async"):
                twin = f"{name}_async" if f"{name}_async" in calls else "none"
                takes = "connection" in inspect.signature(call).parameters  # type: ignore[arg-type]
                actual.add((kind.__name__, name, twin, "yes" if takes else "no"))
    assert _rows() == actual


TWINS = [(kind, name) for kind in LISTED for name in _calls(kind) if name.endswith("_async")]


@pytest.mark.parametrize(("kind", "name"), TWINS)
def test_a_twin_takes_the_same_arguments_of_the_same_types(kind: type, name: str) -> None:
    call, twin = getattr(kind, name.removesuffix("_async")), getattr(kind, name)
    expected, found = _types(call), _types(twin)
    if "connection" in expected:
        assert expected.pop("connection") == CallersConnection | None
        found.pop("connection")
    assert found == expected


def _types(call: object) -> dict[str, object]:
    """Its arguments and its answer by name, options spread."""
    spread = dict[str, object]()
    names = {"AsyncConnection": object, "AsyncSession": object}
    for name, hint in typing.get_type_hints(call, localns=names).items():
        (options,) = (
            typing.get_args(hint) or (None,)
            if typing.get_origin(hint) is typing.Unpack
            else (None,)
        )
        if options is not None and is_typeddict(options):
            spread |= typing.get_type_hints(options)
        else:
            spread[name] = hint
    return spread


def test_states_have_their_names() -> None:
    assert set(typing.get_args(StateName)) == {state.value for state in State}
