"""The event type that a handler's annotation names."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from types import UnionType
from typing import Any, Union

from queue_core.errors import ConfigurationError


def event_annotation(handler: Callable[..., Any]) -> object:
    """The annotation of a handler's first parameter.

    None if it has none, or one that can't be resolved.
    """
    function = handler if hasattr(handler, "__annotations__") else type(handler).__call__
    try:
        first = next(iter(inspect.signature(handler).parameters), "")
        return typing.get_type_hints(function).get(first)
    except Exception:  # noqa: BLE001 -- an annotation may be any expression
        return None


def check_annotation(handler: Callable[..., Any], event_type: type, *, name: str) -> None:
    """Check a handler's annotation.

    Raises ConfigurationError if it surely excludes events of `event_type`.
    """
    annotation = event_annotation(handler)
    if _may_fit(annotation, event_type):
        return
    wanted = (
        f"{annotation.__module__}.{annotation.__qualname__}"
        if isinstance(annotation, type)
        else annotation
    )
    raise ConfigurationError(
        f"{name} takes {wanted} by its annotation, which events of "
        f"{event_type.__module__}.{event_type.__qualname__} are not. Nothing was registered. "
        "Annotate it with the type of its events, or subscribe it to another type.",
        key="handler",
        class_name=event_type.__name__,
    )


def _may_fit(annotation: object, event_type: type) -> bool:
    origin = typing.get_origin(annotation)
    if origin in {Union, UnionType}:
        return any(_may_fit(one, event_type) for one in typing.get_args(annotation))
    wanted = annotation if origin is None else origin
    # `Any` is a class in Python 3.11 and later.
    if wanted is Any or not isinstance(wanted, type) or getattr(wanted, "_is_protocol", False):
        return True
    try:
        # A handler of a subtype is unwise rather than surely wrong.
        return issubclass(event_type, wanted) or issubclass(wanted, event_type)
    except TypeError:
        return True
