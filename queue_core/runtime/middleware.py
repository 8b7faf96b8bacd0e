"""Middleware: functions around a call, each of which lets the call go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias, TypeVar

C = TypeVar("C")
R = TypeVar("R")

Around: TypeAlias = Callable[[Callable[[C], R], C], R]
"""Gets the rest of the chain and the value of the call; returns the answer of `rest(call)`."""


def chained(innermost: Callable[[C], R], around: Sequence[Around[C, R]]) -> Callable[[C], R]:
    """`innermost` with `around` it, of which the first is the outermost.

    It is built once: without middleware a call costs no more than `innermost`.
    """
    chain = innermost
    for middleware in reversed(around):
        chain = partial(middleware, chain)
    return chain
