"""An authoriser decides whether a caller has the rights that a call needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from work_queue.rights import Need
from work_queue.service.caller import Caller


class Authoriser(Protocol):
    """Where there is none, everybody may do everything."""

    async def allow(self, caller: Caller, needs: Sequence[Need]) -> str | None:
        """Return if the caller is known, and has all of these rights.

        Args:
            caller: Who calls.
            needs: The rights; none for calls that anybody may do who is known.

        Returns:
            The caller's name, if it has one.

        Raises:
            UnauthenticatedError: It is not known.
            PermissionDeniedError: It lacks rights, which the error names.
            DatabaseUnreachableError: Nobody who knows gives a decision now.
        """
        ...

    async def close(self) -> None:
        """Release all resources."""
        ...
