"""The size limit of one statement on the server.

MariaDB and MySQL close the connection on a longer one, without a word before.
"""

from __future__ import annotations

from queue_core.errors import PayloadTooLargeError
from queue_core.model.known_codecs import Encoded

_ESCAPED = b"\0\n\r\x1a\"'\\"
"""Bytes that the driver writes as two."""


def check_packet(class_name: str, encoded: Encoded, packet_bytes: int) -> None:
    """Refuses a payload that makes its INSERT longer than the server's limit, in bytes.

    Raises PayloadTooLargeError.
    """
    text = encoded.event_json
    data: str | bytes = (encoded.event_bytes or b"") if text is None else text
    room = packet_bytes - max(1_000, packet_bytes // 64)
    if 4 * len(data) <= room:  # as many bytes as a character has at most
        return
    if isinstance(data, str):
        written = data.encode()
        size = len(written) + sum(written.count(byte) for byte in _ESCAPED)
    else:
        size = 2 * len(data)  # the driver writes two hexadecimal digits
    if size > room:
        raise PayloadTooLargeError(
            f"{class_name} not posted: payload is {size:,} bytes as the server gets it, "
            f"max_allowed_packet of the server is {packet_bytes:,} for a whole statement. Nothing "
            "was written. Post a reference to the body, or raise max_allowed_packet.",
            class_name=class_name,
            codec=encoded.codec,
            size_bytes=size,
            cap_bytes=room,
        )
