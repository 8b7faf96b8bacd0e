"""The codec that compresses the payloads of another codec."""

import zlib

from queue_core.model.codec import Codec
from queue_core.model.wrapping import checked_inner, packed, unpacked
from queue_core.runtime.arguments import is_number, not_allowed


class CompressedCodec:
    """Compresses the payloads of another codec, by zlib.

    Its name is that of the other codec with `+zlib`. The limit of the configuration,
    `max_payload_bytes`, then applies to the compressed payload.

    Args:
        inner: The codec that writes the payloads to compress.
        level: From 1 (fast) to 9 (small). Default: 6.
        max_bytes: The largest payload before compression, in bytes. A larger one is neither written
            nor read, so that a small row can't fill the memory. Default: 67,108,864 (64 MiB).

    Raises:
        ConfigurationError: An argument is not allowed, or `inner` encrypts: encrypt last.

    Example:
        >>> CompressedCodec(JsonCodec()).name
        'json+zlib'
    """

    def __init__(self, inner: Codec, *, level: int = 6, max_bytes: int = 67_108_864) -> None:
        self._inner = checked_inner(inner)
        if not is_number(level) or level not in range(1, 10):
            raise not_allowed("level", level, "1 to 9")
        if not is_number(max_bytes) or not 1 <= max_bytes < 2**62:
            raise not_allowed("max_bytes", max_bytes, "1 or more")
        self._level = int(level)
        self._max_bytes = int(max_bytes)
        self.name = f"{inner.name}+zlib"

    def __repr__(self) -> str:
        return f"CompressedCodec({self._inner!r}, level={self._level})"

    def encode(self, event: object) -> bytes:
        """As `Codec.encode`.

        Raises:
            ValueError: The payload has more than `max_bytes`. Otherwise as the inner codec.
        """
        data = packed(self._inner.encode(event))
        if len(data) > self._max_bytes:
            raise ValueError(f"{len(data):,} bytes before compression, over {self._max_bytes:,}")
        return zlib.compress(data, self._level)

    def decode(self, data: str | bytes, event_type: type | None) -> object:
        """As `Codec.decode`.

        Raises:
            ValueError: It was not compressed, is cut off, or has more than `max_bytes`. Otherwise
                as the inner codec.
        """
        if isinstance(data, str):
            raise ValueError("it is a text, not compressed")  # noqa: TRY004 -- a fault of the row
        unzip = zlib.decompressobj()
        try:
            plain = unzip.decompress(data, self._max_bytes + 1)
        except zlib.error as error:
            raise ValueError(f"it can't be decompressed: {error}") from error
        if len(plain) > self._max_bytes:
            raise ValueError(f"over {self._max_bytes:,} bytes after decompression")
        if not unzip.eof:
            raise ValueError("it is cut off")
        return self._inner.decode(unpacked(plain), event_type)
