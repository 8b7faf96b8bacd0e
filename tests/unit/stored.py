"""Payloads as they are stored."""

from types import SimpleNamespace
from typing import cast

from queue_core.model.known_codecs import Encoded, StoredPayload


def entry(encoded: Encoded, class_name: str) -> StoredPayload:
    stored = SimpleNamespace(
        record_id=41,
        queue_name="bus",
        class_name=class_name,
        event_json=encoded.event_json,
        event_bytes=encoded.event_bytes,
        codec=encoded.codec,
    )
    return cast("StoredPayload", stored)
