"""Checks of the arguments of calls that build, register, start or stop.

An argument of a wrong kind is a ConfigurationError that names it.
"""

from __future__ import annotations

import inspect
import math
import threading
from contextlib import suppress
from typing import SupportsFloat, TypeGuard

from queue_core.errors import ConfigurationError
from queue_core.runtime.shown import a_kind, shown


def of_kind(value: object, *kinds: type, key: str) -> None:
    """Raise ConfigurationError unless `value` is of one of these kinds.

    A value is of a protocol's kind if it has its methods.
    """
    if not isinstance(value, kinds):
        raise not_allowed(key, value, " or ".join(map(a_kind, kinds)))


def function(value: object, *, key: str, arguments: int | None = None) -> None:
    """Raise ConfigurationError unless `value` can be called; with `arguments` values, if given."""
    if not callable(value):
        raise not_allowed(key, value, "a function")
    if arguments is None:
        return
    with suppress(ValueError):  # a function in C that tells no signature
        signature = inspect.signature(value)
        try:
            signature.bind(*[None] * arguments)
        except TypeError:
            number = f"{arguments or 'no'} argument{'s' * (arguments != 1)}"
            allowed = f"a function that takes {number}"
            raise not_allowed(key, value, allowed) from None


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether `value` is an int or a float that is a number.

    NaN, truth values, and integers that a float can't hold are not, nor what can't be compared.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return not math.isnan(value) and bool(value >= 0 or value < 0)
    except Exception:  # noqa: BLE001 -- OverflowError, or what the methods of a subclass raise
        return False


def to_float(value: object) -> float:
    """The float of any kind of number. Raises TypeError, ValueError or OverflowError.

    A text is no number, and neither is a truth value.
    """
    if isinstance(value, bool) or not isinstance(value, SupportsFloat):
        raise TypeError
    return float(value)


def wait_seconds(value: object, *, key: str) -> float:
    """A time to wait, cut to the longest wait of a lock.

    Raises ConfigurationError, also for a negative one.
    """
    if not is_number(value) or value < 0:
        raise not_allowed(key, value, "seconds, 0 or more")
    return min(float(value), threading.TIMEOUT_MAX)


def not_allowed(key: str, value: object, allowed: str) -> ConfigurationError:
    """The error of a value that can't be accepted."""
    return ConfigurationError(
        f"{key}={shown(value)} is not allowed. Allowed: {allowed}.", key=key, value=value
    )
