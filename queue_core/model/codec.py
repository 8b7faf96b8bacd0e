"""The stored form of events: codecs that write and read payloads.

A handler gets a decoded copy, never the poster's object. Payloads don't appear in error messages.
"""

import json
from collections.abc import Iterable, Mapping
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


class BoundCodec:
    """Base of codecs that bind a payload to the name of its event type.

    A subclass is a `Codec` whose calls take the name as well: what was written for one name can't
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
    """The codecs that write, and all that can read.

    An event is written by the codec of its type, else of its queue, else by the `default`. JSON is
    always read, and so is what `others` wrote before. A key of `by_type` is a type, which stands
    for its subtypes, too, or a stored name. Raises ConfigurationError.
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
        """Let `codec` write what is posted to a queue; None: as for other queues.

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
                    key, one, f"one whose name {name!r} no other codec has, such as {known!r}"
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
        f"Entry {entry.record_id} ({entry.class_name}) of {entry.queue_name} can't be decoded: {reason}. "
        "Its bytes are kept.",
        record_id=entry.record_id,
        queue_name=entry.queue_name,
        class_name=entry.class_name,
        codec=entry.codec,
    )
