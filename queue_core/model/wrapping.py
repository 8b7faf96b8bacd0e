"""The base of codecs that wrap another one."""

from queue_core.model.codec import BoundCodec, Codec
from queue_core.runtime.arguments import not_allowed, of_kind

_TEXT, _BYTES = b"\x01", b"\x00"


def checked_inner(inner: Codec) -> Codec:
    """The codec to wrap. Raises ConfigurationError for one that can't be."""
    of_kind(inner, Codec, key="inner")
    if isinstance(inner, BoundCodec):
        # Its output looks random, so compression gains nothing.
        raise not_allowed("inner", inner, "a codec that does not encrypt; encrypt last")
    return inner


def packed(data: str | bytes) -> bytes:
    """The output of a codec as bytes, which tell whether it was a text."""
    return _TEXT + data.encode() if isinstance(data, str) else _BYTES + data


def unpacked(data: bytes) -> str | bytes:
    """The output of a codec from its bytes. Raises ValueError."""
    if data.startswith(_TEXT):
        return data[1:].decode()
    if data.startswith(_BYTES):
        return data[1:]
    raise ValueError("its first byte is unknown here")
