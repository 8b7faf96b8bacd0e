"""The size of a payload in the statement that inserts it."""

from __future__ import annotations

import pytest

from queue_core.errors import PayloadTooLargeError
from queue_core.model.known_codecs import Encoded
from queue_core.storage.packet import check_packet

PACKET = 1_000_000


@pytest.mark.parametrize(
    ("payload", "fits"),
    [
        (Encoded("a" * 900_000, None, ""), True),
        (Encoded('"' * 900_000, None, ""), False),
        (Encoded(None, b"a" * 490_000, "bytes"), True),
        (Encoded(None, b"a" * 500_000, "bytes"), False),
    ],
)
def test_text_counts_with_its_escapes_and_bytes_count_twice(
    payload: Encoded, *, fits: bool
) -> None:
    if fits:
        check_packet("Order", payload, PACKET)
    else:
        with pytest.raises(PayloadTooLargeError, match="max_allowed_packet"):
            check_packet("Order", payload, PACKET)
