"""A codec, which writes events as payloads and reads them back.

A handler gets a decoded copy, never the poster's object.
"""

from typing import Protocol, runtime_checkable


@runtime_checkable
class Codec(Protocol):
    """Writes events as text or bytes and reads them back.

    Called from several threads; may raise anything.
    """

    @property
    def name(self) -> str:
        """Stored with each entry, 1 to 32 characters; never give it to another format."""
        ...

    def encode(self, event: object) -> str | bytes:
        """Write an event.

        Args:
            event: An instance of an event type, or a dict.

        Returns:
            The text to store.
        """
        ...

    def decode(self, data: str | bytes, event_type: type | None) -> object:
        """Read an event.

        Args:
            data: The text that `encode` returned.
            event_type: The type of the answer; None: a dict.

        Returns:
            The event.
        """
        ...


class BoundCodec:
    """Base of codecs that bind a payload to the name of its event type.

    A subclass is a `Codec` whose calls take the name as well: a payload of one name can't
    be read for another.
    """

    older: tuple[Codec, ...] = ()
    """The codecs of former keys, which only read."""

    @property
    def name(self) -> str:
        """As `Codec.name`."""
        raise NotImplementedError

    def encode(self, event: object, event_name: str = "") -> str | bytes:
        """As `Codec.encode`, for an event that is stored under `event_name`."""
        raise NotImplementedError

    def decode(self, data: str | bytes, event_type: type | None, event_name: str = "") -> object:
        """As `Codec.decode`, for an event that was stored under `event_name`."""
        raise NotImplementedError


LONGEST_CODEC_NAME = 32
