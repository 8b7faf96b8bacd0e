"""Bytes among the values of wires that know JSON only: an object with their base64.

An object of exactly this shape means bytes in requests, too, so that values survive when they are
sent back.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from queue_core.errors import InvalidRequestError
from work_queue.values import UNREAD

BYTES = "$bytes"


def marked(value: Any) -> Any:
    """A value as JSON; one that was not read is None."""
    if isinstance(value, bytes):
        return {BYTES: base64.b64encode(value).decode()}
    return None if value is UNREAD else value


def unmarked(value: Any) -> Any:
    """The value that `marked` has made JSON. Raises InvalidRequestError."""
    if not isinstance(value, dict) or list(value) != [BYTES]:
        return value
    try:
        return base64.b64decode(value[BYTES], validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise InvalidRequestError(
            f'{{"{BYTES}": …}} means bytes, but holds no base64. Nothing was written.', key=BYTES
        ) from None
