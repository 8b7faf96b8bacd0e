"""The look whether there is anything to look at of pauses, circuits and limits: mostly not."""

from __future__ import annotations

from queue_core.model.lanes import AFTER_LIMITED, AFTER_PAUSED, LIMITED, PAUSED
from queue_core.storage.store import Store

LOOK_SECONDS = 0.9
"""Seconds between two looks: a pause, a limit, and their ends, are obeyed within a second."""
_SET_ASIDE = (PAUSED, AFTER_PAUSED), (LIMITED, AFTER_LIMITED)


class AsideLook:
    """One statement for two that look in one turn of the claim loop, instead of some for each."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._nothing: bool | None = None

    def begin(self) -> None:
        """The first of the two has its turn."""
        self._nothing = None

    def finds_nothing(self) -> bool:
        """Whether there is no pause, no limit, no open circuit, and no entry set aside."""
        known, self._nothing = self._nothing, None
        if known is not None:
            return known
        fetch, statements = self._store.database.fetch, self._store.statements
        self._nothing = not fetch(lambda inner: statements.any_aside(inner, lanes=_SET_ASIDE))
        return self._nothing
