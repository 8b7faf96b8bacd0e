"""The codec that encrypts the payloads of another codec.

It needs the library `cryptography` (the extra `encryption`), which is imported when a codec is
made.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from queue_core.errors import ConfigurationError
from queue_core.model.codec import LONGEST_CODEC_NAME, BoundCodec, Codec
from queue_core.model.wrapping import checked_inner, packed, unpacked
from queue_core.runtime.arguments import not_allowed, of_kind
from queue_core.runtime.shown import a_kind

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_KEY_BYTES = 32
_NONCE_BYTES = 12
_KEY_ID = re.compile(r"[!-~]+")


class EncryptedCodec(BoundCodec):
    """Encrypts the payloads of another codec, by AES-256 in GCM, and reads those of former keys.

    Its name, which the column `codec` stores with each entry, is that of the other codec with
    `+aes:` and the id of the key. A payload is bound to this name and to the name of its event
    type: if it is changed, or moved to an entry of another type, it can't be read.

    Keys, tokens, headers and the error texts of handlers are not encrypted.

    Args:
        inner: The codec of the plain payloads. Compress, if at all, in here: encrypted bytes don't
            shrink.
        keys: Keys of 32 random bytes, by id. An id is 1 or more printable ASCII characters without
            spaces. The name of the codec may have 32 characters in all.
        current: The id of the key that writes. The others only read.

    Raises:
        ConfigurationError: An argument is not allowed, or `cryptography` is not installed.

    Example:
        >>> EncryptedCodec(JsonCodec(), keys={"2026-11": key}, current="2026-11").name
        'json+aes:2026-11'
    """

    def __init__(self, inner: Codec, *, keys: Mapping[str, bytes], current: str) -> None:
        self._inner = checked_inner(inner)
        of_kind(keys, Mapping, key="keys")
        for key_id, key in keys.items():
            _check_key(inner.name, key_id, key)
        of_kind(current, str, key="current")
        if current not in keys:
            raise not_allowed("current", current, f"an id of keys: {', '.join(keys) or 'none'}")
        self._name = f"{inner.name}+aes:{current}"
        self._key = keys[current]
        self._cipher = _cipher(self._key)
        self.older = tuple(
            EncryptedCodec(inner, keys={key_id: key}, current=key_id)
            for key_id, key in keys.items()
            if key_id != current
        )

    @property
    def name(self) -> str:
        """The name of the inner codec, `+aes:` and the id of the key that writes."""
        return self._name

    def __repr__(self) -> str:
        return f"EncryptedCodec({self._name!r})"  # never a key

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EncryptedCodec):
            return NotImplemented
        return (self._name, self._key) == (other._name, other._key)

    def __hash__(self) -> int:
        return hash(self._name)

    def encode(self, event: object, event_name: str = "") -> bytes:
        """As `Codec.encode`, for an event that is stored under `event_name`."""
        # Random: no counter would be shared by processes and by the copies of a fork.
        nonce = os.urandom(_NONCE_BYTES)
        plain = packed(self._inner.encode(event))
        return nonce + self._cipher.encrypt(nonce, plain, self._bound_to(event_name))

    def decode(self, data: str | bytes, event_type: type | None, event_name: str = "") -> object:
        """As `Codec.decode`, for an event that was stored under `event_name`.

        Raises:
            ValueError: It was changed, was written with another key of this id, or belongs to
                another event name. Otherwise as the inner codec.
        """
        from cryptography.exceptions import InvalidTag

        if isinstance(data, str):
            raise ValueError("it is a text, not encrypted")  # noqa: TRY004 -- a fault of the row
        nonce, secret = data[:_NONCE_BYTES], data[_NONCE_BYTES:]
        try:
            plain = self._cipher.decrypt(nonce, secret, self._bound_to(event_name))
        except (InvalidTag, ValueError):
            raise ValueError(
                f"the key of {self._name} can't decrypt it. It was changed, was written with "
                "another key of this id, or belongs to an event of another name"
            ) from None
        return self._inner.decode(unpacked(plain), event_type)

    def _bound_to(self, event_name: str) -> bytes:
        return f"{self._name}\0{event_name}".encode()


def _check_key(inner_name: str, key_id: object, key: object) -> None:
    # No message shows a value that may be a key: messages are logged.
    room = LONGEST_CODEC_NAME - len(f"{inner_name}+aes:")
    if not isinstance(key_id, str) or not _KEY_ID.fullmatch(key_id) or len(key_id) > room:
        raise ConfigurationError(
            f"An id in keys is not allowed. Allowed: texts of 1 to {room} printable ASCII "
            "characters without spaces.",
            key="keys",
        )
    if not isinstance(key, bytes) or len(key) != _KEY_BYTES:
        size = f"{len(key)} bytes" if isinstance(key, bytes) else a_kind(type(key))
        raise ConfigurationError(
            f"The key {key_id!r} is {size}. Allowed: {_KEY_BYTES} random bytes, as of "
            f"secrets.token_bytes({_KEY_BYTES}).",
            key="keys",
        )


def _cipher(key: bytes) -> AESGCM:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise ConfigurationError(
            "EncryptedCodec needs the library cryptography, which is not installed: "
            "pip install 'stickybus[encryption]'.",
            key="codec",
        ) from error
    return AESGCM(key)
