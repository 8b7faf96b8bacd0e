"""Middleware around a call: in order, and none where there is none."""

from __future__ import annotations

from collections.abc import Callable

from queue_core.runtime.middleware import chained


def test_the_first_is_the_outermost_and_each_lets_the_call_go_on() -> None:
    told = list[str]()

    def called(name: str) -> Callable[[Callable[[int], int], int], int]:
        def around(proceed: Callable[[int], int], number: int) -> int:
            told.append(f"{name} begins")
            try:
                return proceed(number + 1)
            finally:
                told.append(f"{name} ends")

        return around

    call = chained(lambda number: 10 * number, [called("first"), called("second")])

    assert call(1) == 30
    assert told == ["first begins", "second begins", "second ends", "first ends"]


def test_without_middleware_the_call_itself_is_called() -> None:
    assert chained(len, []) is len
