"""The stored form of events: codecs that write and read payloads.

A handler gets a decoded copy, never the poster's object. Payloads don't appear in error messages.
"""

import json
from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

import msgspec

from queue_core.errors import (
    PayloadNotDecodableError,
    PayloadNotSerialisableError,
    PayloadTooLargeError,
)
from queue_core.model.arrival import difference, is_simple
from queue_core.model.event_types import EventTypes
from queue_core.runtime.arguments import not_allowed, of_kind


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
            What is stored.
        """
        ...

    def decode(self, data: str | bytes, event_type: type | None) -> object:
        """Read an event.

        Args:
            data: What `encode` returned.
            event_type: The type of the answer; None: a dict.

        Returns:
            The event.
        """
        ...


LONGEST_CODEC_NAME = 32
_SINGLE = frozenset({type(None), bool, int, float, str})


class JsonCodec:
    """JSON by msgspec: dates as ISO 8601, bytes as Base64.

    Decimals and UUIDs are written as text, sets as arrays.

    A decoded value has the type that its field declares; a plain dict has JSON's types. Numbers
    that aren't finite are refused, as JSON has none. So is an event that would not arrive as it was
    posted: what is written is read again at once, and compared. pydantic models are stored by the
    names of their fields, without computed fields, and read by their aliases too.
    """

    name = "json"

    def __init__(self) -> None:
        self._encoder = msgspec.json.Encoder(enc_hook=_plain)
        self._decoders: dict[type | None, msgspec.json.Decoder[Any]] = {
            None: msgspec.json.Decoder(dict[str, Any])
        }
        self._arrives = dict[type, bool]()
        """Types of which one event was found to arrive; True: so do all others."""

    def encode(self, event: object) -> str:
        """As `Codec.encode`; the answer is JSON.

        Raises:
            ValueError: The event holds NaN or an infinity, or would arrive as something else.
            msgspec.MsgspecError: msgspec can't write it; TypeError for a type unknown to it.
        """
        data = self._encoder.encode(event)
        if b"null" in data:
            # msgspec writes NaN and infinities as null. The standard encoder refuses them, and is
            # fast at it.
            json.dumps(msgspec.to_builtins(event, enc_hook=_plain), allow_nan=False)
        event_type = type(event)
        if not self._arrives.get(event_type) and not (event_type is dict and _is_flat(event)):
            self._check(event, event_type, data)
        return data.decode()

    def _check(self, event: object, event_type: type, data: bytes) -> None:
        """Raises ValueError unless `data` is read as the event that it was written of."""
        wanted = None if isinstance(event, dict) else event_type
        try:
            arrived = self.decode(data, wanted)
        except (ValueError, msgspec.MsgspecError) as error:
            raise ValueError(f"it could not be read again: {error}") from error
        place = difference(event, arrived)
        if place is not None:
            where = f"its field {place.removeprefix('.')}" if place else "it"
            raise ValueError(f"{where} would not arrive as it was posted")
        if event_type not in self._arrives:
            self._arrives[event_type] = wanted is not None and is_simple(wanted)

    def decode(self, data: str | bytes, event_type: type | None) -> object:
        """As `Codec.decode`.

        Raises:
            msgspec.DecodeError: It is no JSON; msgspec.ValidationError if it does not fit the type.
        """
        decoder = self._decoders.get(event_type) or self._decoder(event_type)
        return decoder.decode(data)

    def _decoder(self, event_type: type | None) -> msgspec.json.Decoder[Any]:
        decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(event_type, dec_hook=_from_plain)
        self._decoders[event_type] = decoder
        return decoder


def _is_flat(event: Any) -> bool:
    """Whether a dict holds JSON's single values by name only, all of which arrive."""
    # For each entry: a generator costs twice as much.
    for name, value in event.items():
        if type(value) not in _SINGLE or type(name) is not str:
            return False
    return True


def _plain(value: Any) -> object:
    # pydantic models are known by their methods, so that pydantic need not be there.
    if hasattr(type(value), "model_dump"):
        # By name: aliases may differ for reading and writing. Without computed fields, which a
        # model may not read.
        return value.model_dump(mode="json", by_alias=False, round_trip=True, warnings=False)
    raise TypeError(f"a {type(value).__qualname__} can't be stored as JSON")


def _from_plain(wanted: Any, value: object) -> object:
    if hasattr(wanted, "model_validate"):
        try:
            return wanted.model_validate(value, by_name=True, by_alias=True)
        except ValueError as error:
            raise ValueError(_without_input(error)) from None
    raise NotImplementedError(f"a {wanted.__qualname__} can't be read from JSON")


def _without_input(error: ValueError) -> str:
    """What pydantic says, without the values: payloads appear in no message."""
    if not hasattr(error, "errors"):
        return str(error)
    faults = error.errors(include_input=False, include_url=False, include_context=False)
    told = (
        f"{'.'.join(map(str, fault['loc'])) or 'the model'}: {fault['msg']}" for fault in faults
    )
    return "ValidationError: " + "; ".join(told)


class Encoded(msgspec.Struct, frozen=True):
    """A payload as its row stores it: exactly one of `event_json` and `event_bytes` is not None."""

    event_json: str | None
    event_bytes: bytes | None
    codec: str


class StoredPayload(Protocol):
    """What an entry tells about its payload."""

    @property
    def record_id(self) -> int: ...  # noqa: D102 - see Entry
    @property
    def queue_name(self) -> str: ...  # noqa: D102
    @property
    def class_name(self) -> str: ...  # noqa: D102
    @property
    def event_json(self) -> str | None: ...  # noqa: D102
    @property
    def event_bytes(self) -> bytes | None: ...  # noqa: D102
    @property
    def codec(self) -> str: ...  # noqa: D102


class Codecs:
    """The codec that writes, and all that can read: JSON always, and `others` that wrote before."""

    def __init__(
        self, types: EventTypes, default: Codec | None = None, others: Iterable[Codec] = ()
    ) -> None:
        json_codec = JsonCodec()
        if default is not None:
            of_kind(default, Codec, key="codec")
            name: Any = default.name
            if not isinstance(name, str) or not 1 <= len(name) <= LONGEST_CODEC_NAME:
                raise not_allowed(
                    "codec", default, f"one with a name of 1 to {LONGEST_CODEC_NAME} characters"
                )
        self._types = types
        self._default: Codec = json_codec if default is None else default
        self._by_name: dict[str, Codec] = {
            codec.name: codec for codec in (json_codec, *others, self._default)
        }

    def encode(self, event: object, class_name: str, cap: int) -> Encoded:
        """The payload of `event`, of at most `cap` bytes.

        Raises PayloadNotSerialisableError or PayloadTooLargeError; nothing has been written then.
        """
        codec = self._default
        try:
            data = codec.encode(event)
            size = _size_bytes(data)
        except Exception as error:
            raise PayloadNotSerialisableError(
                f"{class_name} not posted: the codec {codec.name} can't write it ({error}). Nothing was written.",
                class_name=class_name,
                codec=codec.name,
            ) from error
        if size > cap:
            raise PayloadTooLargeError(
                f"{class_name} not posted: payload is {size:,} bytes, the cap is {cap:,}. Nothing was written. "
                "Post a reference to the body, or raise max_payload_bytes.",
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
            return codec.decode(data, self._types.type_of(entry.class_name))
        except Exception as error:
            raise _not_decodable(entry, f"{type(error).__name__}: {error}") from error


def _size_bytes(data: str | bytes) -> int:
    # A string of ASCII only knows that it is, so most payloads aren't encoded again to be measured.
    return len(data) if isinstance(data, bytes) or data.isascii() else len(data.encode())


def _not_decodable(entry: StoredPayload, reason: str) -> PayloadNotDecodableError:
    return PayloadNotDecodableError(
        f"Entry {entry.record_id} ({entry.class_name}) of {entry.queue_name} can't be decoded: {reason}. "
        "Its bytes are kept.",
        record_id=entry.record_id,
        queue_name=entry.queue_name,
        class_name=entry.class_name,
        codec=entry.codec,
    )
