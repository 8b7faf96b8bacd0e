"""The codec that writes events as JSON."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from queue_core.model.arrival import difference, fit
from queue_core.runtime.shown import a_kind

_SINGLE = frozenset({type(None), bool, int, float, str})


class JsonCodec:
    """JSON by msgspec: dates as ISO 8601, bytes as Base64.

    Decimals and UUIDs are written as text, sets as arrays.

    A decoded value has the type that its field declares; a plain dict has JSON's types. Numbers
    that aren't finite are refused, as JSON has none. So is an event that would not arrive as it was
    posted: the text is read again at once, and compared, unless the types of its values show that
    it arrives. pydantic models are stored by the names of their fields, without computed fields,
    and read by their aliases too.
    """

    name = "json"

    def __init__(self) -> None:
        self._encoder = msgspec.json.Encoder(enc_hook=_plain)
        self._readers: dict[type | None, Callable[[str | bytes], Any]] = {
            None: msgspec.json.Decoder(dict[str, Any]).decode
        }
        self._fits = dict[type, Callable[[object], bool] | None]()
        """By type, the test of further events; see `fit`. One event of the type has arrived."""

    def encode(self, event: object) -> str:
        """As `Codec.encode`; the answer is JSON.

        Raises:
            ValueError: The event holds NaN or an infinity, or would arrive as something else.
            msgspec.MsgspecError: msgspec can't write it; TypeError for a type unknown to it.
        """
        data = self._encoder.encode(event)
        event_type = type(event)
        fits = self._fits.get(event_type)
        if fits is not None:
            arrives = fits(event)
        else:
            # msgspec writes NaN and infinities as null.
            arrives = event_type is dict and b"null" not in data and _is_flat(event)
        if not arrives:
            self._check(event, event_type, data)
        return data.decode()

    def _check(self, event: object, event_type: type, data: bytes) -> None:
        """Raises ValueError unless `data` is read as the event that it was written of."""
        wanted = None if isinstance(event, dict) else event_type
        fault = self._fault(event, wanted, data)
        if fault is not None:
            reason = ": JSON has no NaN and no infinity" if _holds_nan(event) else ""
            raise ValueError(f"{fault}{reason}")
        if event_type not in self._fits:
            self._fits[event_type] = None if wanted is None else fit(wanted)

    def _fault(self, event: object, wanted: type | None, data: bytes) -> str | None:
        try:
            arrived = self.decode(data, wanted)
        except (ValueError, msgspec.MsgspecError) as error:
            return f"it could not be read again: {error}"
        place = difference(event, arrived)
        if place is None:
            return None
        where = f"its field {place.removeprefix('.')}" if place else "it"
        return f"{where} would not arrive as it was posted"

    def decode(self, data: str | bytes, event_type: type | None) -> object:
        """As `Codec.decode`.

        Raises:
            msgspec.DecodeError: It is no JSON; msgspec.ValidationError if it does not fit the type.
        """
        read = self._readers.get(event_type) or self._reader(event_type)
        return read(data)

    def _reader(self, event_type: type | None) -> Callable[[str | bytes], Any]:
        read = (
            partial(_read_model, event_type)
            if hasattr(event_type, "model_validate_json")
            else msgspec.json.Decoder(event_type, dec_hook=_from_plain).decode
        )
        self._readers[event_type] = read
        return read


def _is_flat(event: Any) -> bool:
    """Whether a dict holds JSON's single values by name only, all of which arrive."""
    # For each entry: a generator costs twice as much.
    for name, value in event.items():
        if type(value) not in _SINGLE or type(name) is not str:
            return False
    return True


def _holds_nan(event: object) -> bool:
    """Whether it holds NaN or an infinity, which msgspec writes as null."""
    try:
        json.dumps(msgspec.to_builtins(event, str_keys=True, enc_hook=_plain), allow_nan=False)
    except ValueError:
        return True
    return False


def _plain(value: Any) -> object:
    # pydantic models are known by their methods, so that pydantic need not be there.
    if hasattr(type(value), "model_dump"):
        # By name: aliases may differ for reading and writing. Without computed fields, which a
        # model may not read.
        return value.model_dump(mode="json", by_alias=False, round_trip=True, warnings=False)
    raise TypeError(f"{a_kind(type(value))} can't be stored as JSON")


def _from_plain(wanted: Any, value: object) -> object:
    if hasattr(wanted, "model_validate_json"):
        return _read_model(wanted, msgspec.json.encode(value))
    raise NotImplementedError(f"{a_kind(wanted)} can't be read from JSON")


def _read_model(model: Any, data: str | bytes) -> object:
    # Of JSON, strict models too take dates and numbers written as texts, and arrays as tuples.
    try:
        return model.model_validate_json(data, by_name=True, by_alias=True)
    except ValueError as error:
        raise msgspec.ValidationError(_without_input(error)) from None


def _without_input(error: ValueError) -> str:
    """The error as pydantic tells it, without the values: payloads appear in no message."""
    if not hasattr(error, "errors"):
        return str(error)
    faults = error.errors(include_input=False, include_url=False, include_context=False)
    told = (
        f"{'.'.join(map(str, fault['loc'])) or 'the model'}: {fault['msg']}" for fault in faults
    )
    return "; ".join(told)
