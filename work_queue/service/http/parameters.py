"""The parameters of a request's query. One that is not known is refused, as is one given twice."""

from __future__ import annotations

from collections.abc import Collection

from starlette.datastructures import QueryParams

from queue_core.errors import InvalidRequestError
from work_queue.service.http.messages import whole


class Parameters:
    """The parameters of one request.

    Args:
        query: What was given.
        once: Names that may be given once.
        repeated: Names that may be given more often.

    Raises:
        InvalidRequestError: A name is not known, or was given too often.
    """

    def __init__(
        self, query: QueryParams, once: Collection[str], repeated: Collection[str] = ()
    ) -> None:
        self._query = query
        for name in query:
            if name not in once and name not in repeated:
                known = ", ".join([*once, *repeated]) or "none"
                raise _refused(name, f"the parameter {name!r:.80} is not known. Known: {known}")
            if name in once and len(query.getlist(name)) > 1:
                raise _refused(name, f"the parameter {name} was given twice")

    def text(self, name: str) -> str:
        """A text, empty if it was not given."""
        return self._query.get(name, "")

    def texts(self, name: str) -> tuple[str, ...]:
        """All texts of a name."""
        return tuple(self._query.getlist(name))

    def number(self, name: str) -> int:
        """A whole number, 0 if it was not given."""
        return whole(self.text(name) or None, name)

    def flag(self, name: str) -> bool:
        """Whether it is true."""
        given = self.text(name).lower()
        if given not in {"", "true", "false", "1", "0"}:
            raise _refused(name, f"{name}={given!r:.80} is neither true nor false")
        return given in {"true", "1"}


def _refused(name: str, why: str) -> InvalidRequestError:
    return InvalidRequestError(f"{why}. Nothing was written.", key=name)
