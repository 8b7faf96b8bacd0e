"""Errors that OpenSSL keeps for a thread after a connection broke.

Python does not clear them before it reads from another connection, and then takes an old one for
that connection's: "Broken pipe", though it is whole (python/cpython issue 148594, open for 3.13 to
3.15). OpenSSL keeps errors of the system since version 3.4. A connection that is opened clears
them; one that was open before does not.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import Final

_KEEPS_ERRORS: Final = ssl.OPENSSL_VERSION_INFO >= (3, 4)
_CONTEXT: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def forget() -> None:
    """Clear this thread's errors, in 9 microseconds.

    Python has no call for it. It clears them when it refuses a list of ciphers.
    """
    if _KEEPS_ERRORS:
        with suppress(ssl.SSLError):
            _CONTEXT.set_ciphers("none")
