"""The codecs that one bus or service knows, each by the name that is stored with its payloads.

Payloads don't appear in error messages.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec

from queue_core.errors import (
    PayloadNotDecodableError,
    PayloadNotSerialisableError,
    PayloadTooLargeError,
)
from queue_core.model.codec import LONGEST_CODEC_NAME, BoundCodec, Codec
from queue_core.model.event_types import EventTypes
from queue_core.model.json_codec import JsonCodec
from queue_core.runtime.arguments import not_allowed, of_kind


class Encoded(msgspec.Struct, frozen=True):
    """A payload as its row stores it: exactly one of `event_json` and `event_bytes` is not None."""

    event_json: str | None
    event_bytes: bytes | None
    codec: str


class StoredPayload(Protocol):
    """The facts that an entry tells about its payload."""

    @property
    def record_id(self) -> int: ...  # noqa: D102 -- see Entry
    @property
    def queue_name(self) -> str: ...  # noqa: D102 -- as above
    @property
    def class_name(self) -> str: ...  # noqa: D102 -- as above
    @property
    def event_json(self) -> str | None: ...  # noqa: D102 -- as above
    @property
    def event_bytes(self) -> bytes | None: ...  # noqa: D102 -- as above
    @property
    def codec(self) -> str: ...  # noqa: D102 -- as above


class Codecs:
    """The codecs that write, and all that can read.

    An event is written by the codec of its type, else of its queue, else by the `default`. JSON is
    always read, and so are the older payloads of `others`. A key of `by_type` is a type, which
    stands for its subtypes, too, or a stored name. Raises ConfigurationError.
    """

    def __init__(
        self,
        types: EventTypes,
        default: Codec | None = None,
        others: Iterable[Codec] = (),
        by_type: Mapping[type | str, Codec] | None = None,
    ) -> None:
        self._types = types
        self._by_name: dict[str, Codec] = {}
        self._by_queue: dict[str, Codec] = {}
        self._by_type: dict[type | str, Codec] = {}
        self._default: Codec = JsonCodec() if default is None else default
        self._add(self._default, key="codec")
        if isinstance(others, str | Codec) or not isinstance(others, Iterable):
            raise not_allowed("read_codecs", others, "a collection of codecs")
        for codec in others:
            self._add(codec, key="read_codecs")
        by_type = {} if by_type is None else by_type
        of_kind(by_type, Mapping, key="type_codecs")
        for kind, codec in by_type.items():
            of_kind(kind, type, str, key="type_codecs")
            self._add(codec, key="type_codecs")
            self._by_type[kind] = codec
            if isinstance(kind, type):
                # For a plain dict that is posted under the name of a type unknown here.
                self._by_type.setdefault(kind.__name__, codec)
        if JsonCodec.name not in self._by_name:
            self._add(JsonCodec(), key="codec")
        self._chosen = bool(self._by_type)
        """Whether anything is written by another codec than the default."""

    def of_queue(self, queue_name: str, codec: Codec | None) -> None:
        """Let `codec` write the payloads of a queue; None: as for other queues.

        Raises ConfigurationError.
        """
        if codec is None:
            self._by_queue.pop(queue_name, None)
        else:
            self._add(codec, key="codec")
            self._by_queue[queue_name] = codec
        self._chosen = bool(self._by_type or self._by_queue)

    def _add(self, codec: Codec, *, key: str) -> None:
        """Make `codec` readable. Raises ConfigurationError for one that can't be, or clashes."""
        of_kind(codec, Codec, key=key)
        for one in (codec, *codec.older) if isinstance(codec, BoundCodec) else (codec,):
            name: Any = one.name
            if not isinstance(name, str) or not 1 <= len(name) <= LONGEST_CODEC_NAME:
                raise not_allowed(
                    key, one, f"one with a name of 1 to {LONGEST_CODEC_NAME} characters"
                )
            known = self._by_name.setdefault(name, one)
            if not _same_format(known, one):
                raise not_allowed(
                    key, one, f"one with a name of its own: {known!r} is named {name!r}, too"
                )

    def _writer(self, event: object, class_name: str, queue_name: str) -> Codec:
        if class_name in self._by_type:
            return self._by_type[class_name]
        for kind in type(event).__mro__:
            if kind in self._by_type:
                return self._by_type[kind]
        return self._by_queue.get(queue_name, self._default)

    def encode(self, event: object, class_name: str, cap: int, queue_name: str = "") -> Encoded:
        """The payload of `event`, of at most `cap` bytes.

        Raises PayloadNotSerialisableError or PayloadTooLargeError; nothing has been written then.
        """
        codec = self._writer(event, class_name, queue_name) if self._chosen else self._default
        try:
            data = (
                codec.encode(event, class_name)
                if isinstance(codec, BoundCodec)
                else codec.encode(event)
            )
            size = _size_bytes(data)
        except Exception as error:
            raise PayloadNotSerialisableError(
                f"{class_name} not posted: the codec {codec.name} can't write it ({error}). "
                "Nothing was written.",
                class_name=class_name,
                codec=codec.name,
            ) from error
        if size > cap:
            raise PayloadTooLargeError(
                f"{class_name} not posted: payload is {size:,} bytes, the cap is {cap:,}. Nothing "
                "was written. Post a reference to the body, or raise max_payload_bytes.",
                class_name=class_name,
                codec=codec.name,
                size_bytes=size,
                cap_bytes=cap,
            )
        if isinstance(data, str):
            # A subclass is nothing that every driver knows.
            return Encoded(str.__str__(data), None, codec.name)
        return Encoded(None, data, codec.name)

    def decode(self, entry: StoredPayload) -> object:
        """The event of `entry`, of the type that its name is registered for, else a dict.

        Raises PayloadNotDecodableError: unknown codec, no payload, broken text, or a field that
        doesn't fit.
        """
        codec = self._by_name.get(entry.codec)
        data = entry.event_json if entry.event_json is not None else entry.event_bytes
        if codec is None:
            raise _not_decodable(
                entry, f"no codec {entry.codec!r} here, only {', '.join(self._by_name)}"
            )
        if data is None:
            raise _not_decodable(entry, "it has no payload")
        try:
            event_type = self._types.type_of(entry.class_name)
            if isinstance(codec, BoundCodec):
                return codec.decode(data, event_type, entry.class_name)
            return codec.decode(data, event_type)
        except Exception as error:
            raise _not_decodable(entry, f"{type(error).__name__}: {error}") from error


def _same_format(known: Codec, other: Codec) -> bool:
    """Whether two codecs of one name can read each other's payloads, as far as they say."""
    if type(known) is not type(other):
        return False
    # Codecs that can't be compared are taken for ones without settings.
    return known == other or type(known).__eq__ is object.__eq__


def _size_bytes(data: str | bytes) -> int:
    # A string of ASCII only knows that it is, so most payloads aren't encoded again to be measured.
    return len(data) if isinstance(data, bytes) or data.isascii() else len(data.encode())


def _not_decodable(entry: StoredPayload, reason: str) -> PayloadNotDecodableError:
    return PayloadNotDecodableError(
        f"Entry {entry.record_id} ({entry.class_name}) of {entry.queue_name} can't be decoded: "
        f"{reason}. Its bytes are kept.",
        record_id=entry.record_id,
        queue_name=entry.queue_name,
        class_name=entry.class_name,
        codec=entry.codec,
    )
