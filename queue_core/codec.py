"""Events and their stored form: names of event types, and codecs that write and read payloads.

A stored name selects a type only among those that this process has registered or defined as their subclasses; no
name from a row is ever imported. A handler gets a decoded copy, never the poster's object. Payloads don't appear in
error messages.
"""

import json
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, is_dataclass
from typing import Any, Protocol

import msgspec

from queue_core.errors import (
    ConfigurationError,
    InvalidPostError,
    PayloadNotDecodableError,
    PayloadNotSerialisableError,
    PayloadTooLargeError,
)


class EventTypes:
    """The event types that this process knows, by name. Safe to use from several threads.

    A type is a dataclass, an attrs class, a msgspec Struct or a pydantic model; a name without a type stands for
    plain dicts.
    """

    def __init__(self) -> None:
        self._types: dict[str, type | None] = {}
        self._names: dict[type, str] = {}
        self._lock = threading.Lock()

    def register(self, event_type: type, name: str | None = None) -> str:
        """Make `event_type` known under `name` (default: its `__name__`), and return that name.

        A name that stood for plain dicts gets the type. The same class defined anew (a notebook cell run twice)
        takes the place of the old one. Raises ConfigurationError if another type has the name, or if the type is
        none that can be stored.
        """
        name = name or event_type.__name__
        if not is_event_type(event_type):
            raise ConfigurationError(
                f"{event_type.__qualname__} can't be an event type. "
                "Allowed: a dataclass, an attrs class, a msgspec Struct, a pydantic model; for plain dicts a name.",
                key="event_type",
                value=event_type.__qualname__,
            )
        with self._lock:
            known = self._types.get(name)
            if known is not None and _path(known) != _path(event_type):
                raise ConfigurationError(
                    f"The event name {name!r} belongs to {_path(known)}, so {_path(event_type)} can't have it. "
                    "Register one of them under a name of its own: register(event_type, name).",
                    key="event_type",
                    value=name,
                    class_name=name,
                )
            self._types[name] = event_type
            self._names.setdefault(event_type, name)
        return name

    def register_name(self, name: str) -> None:
        """Make `name` known for plain dicts; a type that has the name keeps it."""
        with self._lock:
            self._types.setdefault(name, None)

    def knows(self, name: str) -> bool:
        """Whether `name` is registered, or is a subclass of a registered type."""
        return name in self._types or self._find_subclass(name) is not None

    def type_of(self, name: str) -> type | None:
        """The type to decode `name` to; None for a plain dict and for an unknown name."""
        return self._types.get(name) or self._find_subclass(name)

    def name_of(self, event: object, event_name: str | None = None) -> str:
        """The name to store `event` under; registers its type if it is new.

        The name of a plain dict becomes known by subscribing to it, not by posting: whoever only posts can't handle it.

        Raises InvalidPostError for a plain dict without an `event_name`, PayloadNotSerialisableError for an object
        of no event type, ConfigurationError if the name belongs to another type.
        """
        event_type = type(event)
        if event_name is None:
            name = self._names.get(event_type)
            if name is not None:
                return name
            if isinstance(event, dict):
                raise InvalidPostError(
                    "A plain dict has no event type: give its event_name. Nothing was written.",
                    key="event_name",
                )
            _require_event_type(event_type)
            return self.register(event_type)
        if isinstance(event, dict):
            known = self._types.get(event_name)
            if known is not None:
                raise ConfigurationError(
                    f"The event name {event_name!r} belongs to {_path(known)}: post an instance of it, or give the dict "
                    "a name of its own. Nothing was written.",
                    key="event_name",
                    value=event_name,
                    class_name=event_name,
                )
            return event_name
        _require_event_type(event_type)
        if event_name in self._types and self._types[event_name] is None:
            # Its handlers subscribed by name and expect a dict.
            return event_name
        return self.register(event_type, event_name)

    def names(self) -> frozenset[str]:
        """All names that `knows` answers True for."""
        with self._lock:
            registered = list(self._types.items())
        subclasses = (found for _, known in registered if known for found in _subclasses(known))
        return frozenset(name for name, _ in registered) | frozenset(found.__name__ for found in subclasses)

    def _find_subclass(self, name: str) -> type | None:
        with self._lock:
            registered = [known for known in self._types.values() if known is not None]
        # The last one: `dataclass(slots=True)` leaves the class that it replaced among the subclasses.
        found: dict[str, type] = {
            _path(subclass): subclass
            for known in registered
            for subclass in _subclasses(known)
            if subclass.__name__ == name
        }
        if not found:
            return None
        if len(found) > 1:
            raise ConfigurationError(
                f"The event name {name!r} fits {' and '.join(sorted(found))}. "
                "Register each under a name of its own: register(event_type, name).",
                key="event_type",
                value=name,
                class_name=name,
            )
        (subclass,) = found.values()
        self.register(subclass, name)
        return subclass


def is_event_type(event_type: type) -> bool:
    """Whether instances of `event_type` can be posted by themselves: dataclass, attrs, msgspec or pydantic."""
    return (
        is_dataclass(event_type)
        or hasattr(event_type, "__attrs_attrs__")
        or issubclass(event_type, msgspec.Struct)
        or hasattr(event_type, "model_validate")
    )


def _require_event_type(event_type: type) -> None:
    if not is_event_type(event_type):
        raise PayloadNotSerialisableError(
            f"{event_type.__qualname__} not posted: it is no event type. Nothing was written. "
            "Post a dataclass, an attrs class, a msgspec Struct, a pydantic model, or a plain dict with event_name.",
            class_name=event_type.__name__,
        )


def _path(event_type: type) -> str:
    return f"{event_type.__module__}.{event_type.__qualname__}"


def _subclasses(event_type: type) -> Iterator[type]:
    subclasses: list[type] = event_type.__subclasses__()
    for subclass in subclasses:
        yield subclass
        yield from _subclasses(subclass)


class Codec(Protocol):
    """Writes events as text or bytes and reads them back. Called from several threads; may raise anything."""

    @property
    def name(self) -> str:
        """Stored with each entry, 1 to 32 characters; never give it to another format."""
        ...

    def encode(self, event: object) -> str | bytes:
        """The stored form of `event`."""
        ...

    def decode(self, data: str | bytes, event_type: type | None) -> object:
        """An `event_type` from what `encode` returned, a dict if that is None."""
        ...


class JsonCodec:
    """JSON by msgspec: dates as ISO 8601, bytes as Base64, decimals and UUIDs as text, sets as arrays.

    A decoded value has the type that its field declares; a plain dict has JSON's types. Numbers that aren't finite
    are refused, as JSON has none.
    """

    name = "json"

    def __init__(self) -> None:
        self._encoder = msgspec.json.Encoder(enc_hook=_plain)
        self._decoders: dict[type | None, msgspec.json.Decoder[Any]] = {
            None: msgspec.json.Decoder(dict[str, Any])
        }

    def encode(self, event: object) -> str:
        """JSON text. Raises what msgspec raises, and ValueError for NaN or an infinity."""
        event_type = type(event)
        if event_type not in self._decoders and not isinstance(event, dict):
            # An event that could never be read again must not be posted: its annotations are checked here, once.
            self._decoder(event_type)
        data = self._encoder.encode(event)
        if b"null" in data:
            # msgspec writes NaN and infinities as null. The standard encoder refuses them, and is fast at it.
            json.dumps(msgspec.to_builtins(event, enc_hook=_plain), allow_nan=False)
        return data.decode()

    def decode(self, data: str | bytes, event_type: type | None) -> object:
        """An `event_type`, or a dict. Raises msgspec.DecodeError or ValidationError."""
        decoder = self._decoders.get(event_type) or self._decoder(event_type)
        return decoder.decode(data)

    def _decoder(self, event_type: type | None) -> msgspec.json.Decoder[Any]:
        decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(event_type, dec_hook=_from_plain)
        self._decoders[event_type] = decoder
        return decoder


def _plain(value: Any) -> object:
    # pydantic models are known by their methods, so that pydantic need not be there.
    if hasattr(type(value), "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(f"a {type(value).__qualname__} can't be stored as JSON")


def _from_plain(wanted: Any, value: object) -> object:
    if hasattr(wanted, "model_validate"):
        return wanted.model_validate(value)
    raise NotImplementedError(f"a {wanted.__qualname__} can't be read from JSON")


@dataclass(frozen=True, slots=True)
class Encoded:
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

    def __init__(self, types: EventTypes, default: Codec | None = None, others: Iterable[Codec] = ()) -> None:
        json_codec = JsonCodec()
        self._types = types
        self._default: Codec = default or json_codec
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
            return Encoded(data, None, codec.name)
        return Encoded(None, data, codec.name)

    def decode(self, entry: StoredPayload) -> object:
        """The event of `entry`, of the type that its name is registered for, else a dict.

        Raises PayloadNotDecodableError: unknown codec, no payload, broken text, or a field that doesn't fit.
        """
        codec = self._by_name.get(entry.codec)
        data = entry.event_json if entry.event_json is not None else entry.event_bytes
        if codec is None:
            raise _not_decodable(entry, f"no codec {entry.codec!r} here, only {', '.join(self._by_name)}")
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
