"""Codecs that compress and encrypt, by themselves."""

from __future__ import annotations

import secrets
import sys
import zlib
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_core.errors import (
    ConfigurationError,
    PayloadNotDecodableError,
    PayloadNotSerialisableError,
    PayloadTooLargeError,
)
from queue_core.model.codec import BoundCodec, Codec
from queue_core.model.compression import CompressedCodec
from queue_core.model.encryption import EncryptedCodec
from queue_core.model.event_types import EventTypes
from queue_core.model.json_codec import JsonCodec
from queue_core.model.known_codecs import Codecs, Encoded
from tests.unit.stored import entry

CAP = 1_048_576
OLD, NEW = secrets.token_bytes(32), secrets.token_bytes(32)


@dataclass(frozen=True)
class CardCharged:
    cents: int
    card: str = ""


@dataclass(frozen=True)
class CardRefunded(CardCharged):
    pass


@dataclass(frozen=True)
class CardBlocked:
    cents: int


@dataclass
class Doubling:
    number: int

    def __post_init__(self) -> None:
        self.number *= 2


class Bytes:
    """A codec that stores bytes."""

    name = "bytes"

    def encode(self, event: object) -> bytes:
        return JsonCodec().encode(event).encode()

    def decode(self, data: str | bytes, event_type: type | None) -> object:
        assert isinstance(data, bytes)
        return JsonCodec().decode(data, event_type)


def encrypted(current: str = "new", inner: Codec | None = None, **keys: bytes) -> EncryptedCodec:
    return EncryptedCodec(inner or JsonCodec(), keys=keys or {"new": NEW}, current=current)


def known(*kinds: type) -> EventTypes:
    types = EventTypes()
    for kind in kinds:
        types.register(kind)
    return types


WRAPPED = [
    CompressedCodec(JsonCodec()),
    CompressedCodec(Bytes()),
    encrypted(),
    encrypted(inner=Bytes()),
    encrypted(inner=CompressedCodec(JsonCodec())),
]


@pytest.mark.parametrize("codec", WRAPPED, ids=lambda codec: codec.name)
def test_a_wrapped_payload_is_bytes_and_comes_back(codec: Codec) -> None:
    codecs = Codecs(known(CardCharged), codec)
    event = CardCharged(7, "4111 1111 1111 1111")
    encoded = codecs.encode(event, "CardCharged", CAP)
    assert encoded.event_json is None
    assert encoded.event_bytes is not None
    assert b"4111" not in encoded.event_bytes
    assert encoded.codec == codec.name
    assert codecs.decode(entry(encoded, "CardCharged")) == event


@given(st.dictionaries(st.text(), st.text() | st.integers(-(2**53), 2**53) | st.none()))
def test_any_dict_comes_back(event: dict[str, object]) -> None:
    codecs = Codecs(EventTypes(), encrypted(inner=CompressedCodec(JsonCodec())))
    try:
        encoded = codecs.encode(event, "Any", CAP)
    except PayloadNotSerialisableError:
        return  # a lone surrogate
    assert codecs.decode(entry(encoded, "Any")) == event


@pytest.mark.parametrize("codec", WRAPPED, ids=lambda codec: codec.name)
def test_an_event_that_would_arrive_as_something_else_is_still_refused(codec: Codec) -> None:
    codecs = Codecs(known(Doubling), codec)
    with pytest.raises(PayloadNotSerialisableError, match="would not arrive as it was posted"):
        codecs.encode(Doubling(1), "Doubling", CAP)


# -- compression ---------------------------------------------------------------------------------


def test_the_cap_is_for_what_is_stored() -> None:
    codecs = Codecs(EventTypes(), CompressedCodec(JsonCodec()))
    encoded = codecs.encode({"text": "a" * 100_000}, "Long", 1000)
    assert len(encoded.event_bytes or b"") < 1000
    with pytest.raises(PayloadTooLargeError):
        codecs.encode({"text": secrets.token_hex(2000)}, "Long", 1000)


def test_a_payload_that_is_too_large_before_compression_is_neither_written_nor_read() -> None:
    small = CompressedCodec(JsonCodec(), max_bytes=1000)
    event = {"text": "a" * 1000}
    with pytest.raises(PayloadNotSerialisableError, match="1,012 bytes before compression"):
        Codecs(EventTypes(), small).encode(event, "Long", CAP)
    written = Codecs(EventTypes(), CompressedCodec(JsonCodec())).encode(event, "Long", CAP)
    with pytest.raises(PayloadNotDecodableError, match="over 1,000 bytes after decompression"):
        Codecs(EventTypes(), small).decode(entry(written, "Long"))


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", zlib.compress(b"\x01{}")[:-3], zlib.compress(b"\x07{}"), zlib.compress(b"")],
)
def test_broken_compressed_bytes_are_not_decodable(data: bytes) -> None:
    codecs = Codecs(EventTypes(), CompressedCodec(JsonCodec()))
    with pytest.raises(PayloadNotDecodableError, match="ValueError"):
        codecs.decode(entry(Encoded(None, data, "json+zlib"), "Any"))


# -- encryption ----------------------------------------------------------------------------------


def test_the_same_event_is_never_written_alike() -> None:
    codec = encrypted()
    assert codec.encode({"a": 1}, "Any") != codec.encode({"a": 1}, "Any")


def test_what_a_former_key_wrote_is_read_and_the_current_key_writes() -> None:
    event = CardCharged(7)
    written = Codecs(known(CardCharged), encrypted("old", old=OLD)).encode(
        event, "CardCharged", CAP
    )
    both = Codecs(known(CardCharged), encrypted("new", old=OLD, new=NEW))
    assert both.decode(entry(written, "CardCharged")) == event
    assert written.codec == "json+aes:old"
    assert both.encode(event, "CardCharged", CAP).codec == "json+aes:new"


def test_a_key_that_is_not_here_is_named() -> None:
    written = Codecs(EventTypes(), encrypted("old", old=OLD)).encode({}, "Any", CAP)
    with pytest.raises(PayloadNotDecodableError, match="no codec 'json\\+aes:old' here") as caught:
        Codecs(EventTypes(), encrypted()).decode(entry(written, "Any"))
    assert caught.value.codec == "json+aes:old"


def test_a_payload_can_not_be_moved_to_another_type_or_another_codec_name() -> None:
    codecs = Codecs(known(CardCharged, CardBlocked), encrypted("new", old=NEW, new=NEW))
    written = codecs.encode(CardCharged(7), "CardCharged", CAP)
    with pytest.raises(PayloadNotDecodableError, match="event of another name"):
        codecs.decode(entry(written, "CardBlocked"))
    with pytest.raises(PayloadNotDecodableError, match="json\\+aes:old can't decrypt"):
        codecs.decode(entry(Encoded(None, written.event_bytes, "json+aes:old"), "CardCharged"))


def test_another_key_of_the_same_id_and_changed_bytes_are_not_decodable() -> None:
    written = Codecs(EventTypes(), encrypted(new=OLD)).encode({"a": 1}, "Any", CAP)
    codecs = Codecs(EventTypes(), encrypted(new=NEW))
    with pytest.raises(PayloadNotDecodableError, match="another key of this id"):
        codecs.decode(entry(written, "Any"))
    right = bytearray(codecs.encode({"a": 1}, "Any", CAP).event_bytes or b"")
    for place in range(len(right)):
        broken = bytes(right[:place] + bytes([right[place] ^ 1]) + right[place + 1 :])
        with pytest.raises(PayloadNotDecodableError):
            codecs.decode(entry(Encoded(None, broken, "json+aes:new"), "Any"))
    for data in (b"", bytes(right[:12]), bytes(right[:-1])):
        with pytest.raises(PayloadNotDecodableError):
            codecs.decode(entry(Encoded(None, data, "json+aes:new"), "Any"))
    with pytest.raises(PayloadNotDecodableError, match="a text, not encrypted"):
        codecs.decode(entry(Encoded("{}", None, "json+aes:new"), "Any"))


def test_no_message_and_no_repr_shows_a_key() -> None:
    text = "k" * 40
    assert "NEW" not in repr(encrypted())
    assert NEW.hex() not in repr(vars(encrypted())["older"])
    wrong: list[dict[object, object]] = [
        {NEW: "new"},
        {text: NEW},
        {"new": text},
        {"new": NEW[:16]},
        {"": NEW},
        {"a b": NEW},
        {"é": NEW},
    ]
    for keys in wrong:
        with pytest.raises(ConfigurationError) as caught:
            EncryptedCodec(JsonCodec(), keys=keys, current="new")  # type: ignore[arg-type]
        assert repr(NEW) not in str(caught.value)
        assert text not in str(caught.value)
        assert caught.value.value is None
    with pytest.raises(ConfigurationError, match="an id of keys: new"):
        EncryptedCodec(JsonCodec(), keys={"new": NEW}, current="old")


def test_encryption_comes_last() -> None:
    with pytest.raises(ConfigurationError, match="encrypt last"):
        CompressedCodec(encrypted())
    with pytest.raises(ConfigurationError, match="encrypt last"):
        EncryptedCodec(encrypted(), keys={"new": NEW}, current="new")


def test_without_the_library_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'stickybus\[encryption\]'"):
        encrypted()


# -- choice --------------------------------------------------------------------------------------


def test_a_type_and_its_subtypes_and_a_name_have_their_codec() -> None:
    secret, small = encrypted(), CompressedCodec(JsonCodec())
    codecs = Codecs(EventTypes(), None, (), {CardCharged: secret, "Long": small})
    codecs.of_queue("shop:cards", small)

    def name(event: object, class_name: str, queue_name: str = "bus") -> str:
        return codecs.encode(event, class_name, CAP, queue_name).codec

    assert name(CardCharged(1), "CardCharged") == secret.name
    assert name(CardRefunded(1), "CardRefunded") == secret.name
    assert name(CardRefunded(1), "shop.refunded") == secret.name
    assert name({"cents": 1}, "CardCharged") == secret.name
    assert name(CardBlocked(1), "Long") == small.name
    assert name(CardBlocked(1), "CardBlocked") == "json"
    assert name(CardBlocked(1), "CardBlocked", "shop:cards") == small.name
    assert name(CardCharged(1), "CardCharged", "shop:cards") == secret.name
    codecs.of_queue("shop:cards", None)
    assert name(CardBlocked(1), "CardBlocked", "shop:cards") == "json"


def test_older_codecs_are_read_and_json_always() -> None:
    old, event = CompressedCodec(JsonCodec()), CardBlocked(1)
    written = [
        Codecs(EventTypes(), codec).encode(event, "CardBlocked", CAP) for codec in (None, old)
    ]
    codecs = Codecs(known(CardBlocked), encrypted(), [old])
    assert [codecs.decode(entry(one, "CardBlocked")) for one in written] == [event, event]
    with pytest.raises(PayloadNotDecodableError, match="only json\\+aes:new, json"):
        Codecs(known(CardBlocked), encrypted()).decode(entry(written[1], "CardBlocked"))


def test_two_formats_of_one_name_are_refused() -> None:
    class Other(JsonCodec):
        pass

    with pytest.raises(ConfigurationError, match="'json'"):
        Codecs(EventTypes(), JsonCodec(), [Other()])
    with pytest.raises(ConfigurationError, match="'json\\+aes:new'"):
        Codecs(EventTypes(), encrypted(new=NEW), [encrypted("other", new=OLD, other=OLD)])
    Codecs(EventTypes(), JsonCodec(), [JsonCodec(), encrypted(), encrypted()])


@pytest.mark.parametrize("others", [JsonCodec(), "json", 5, ["json"]])
def test_what_is_no_codec_is_refused(others: object) -> None:
    with pytest.raises(ConfigurationError, match="read_codecs"):
        Codecs(EventTypes(), None, others)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="type_codecs"):
        Codecs(EventTypes(), None, (), {"Any": "json"})  # type: ignore[dict-item]
    with pytest.raises(ConfigurationError, match="type_codecs"):
        Codecs(EventTypes(), None, (), {5: JsonCodec()})  # type: ignore[dict-item]


def test_a_codec_that_binds_without_doing_anything_says_so() -> None:
    with pytest.raises(NotImplementedError):
        BoundCodec().encode({})
    with pytest.raises(NotImplementedError):
        BoundCodec().decode("{}", None)
