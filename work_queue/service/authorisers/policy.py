"""A file of callers and their rights.

It is TOML, or JSON with the same names:

    [[callers]]
    name = "mailer"
    token_sha256 = ["9f86d081…"]    # what `printf %s "$TOKEN" | sha256sum` prints
    subjects = ["mailer.shop.example"]
    claimants = ["mail-1"]

    [[callers.rights]]
    actions = ["CLAIM", "CHANGE", "DELETE"]
    queues = ["mail"]
    queue_prefixes = ["mail/"]

    [[callers.rights]]
    actions = ["READ"]
    namespace_prefixes = [""]

Tokens themselves are not in it: whoever reads it can't call.
"""

from __future__ import annotations

import asyncio
import hmac
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Literal

import msgspec

from queue_core.errors import ConfigurationError
from queue_core.runtime.log import get_logger
from work_queue.rights import OWN, Kind, Need, Right, UnauthenticatedError, denial
from work_queue.service.caller import Caller

log = get_logger(__name__)

Action = Literal["CLAIM", "DELETE", "CHANGE", "DEPEND", "INSERT", "READ"]


class Rights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Actions that are allowed with these names, and with those that begin so."""

    actions: frozenset[Action]
    queues: tuple[str, ...] = ()
    queue_prefixes: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    namespace_prefixes: tuple[str, ...] = ()

    def give(self, need: Need) -> bool:
        """Whether they are enough for this need."""
        if need.right.value not in self.actions:
            return False
        if need.kind is Kind.QUEUE:
            return covers(need, self.queues, self.queue_prefixes)
        return covers(need, self.namespaces, self.namespace_prefixes)


class Known(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A caller that is known by a token, or by the common name of its certificate.

    It acts as the claimant of its own name, or of one that begins with it and "#", or with one of
    the others.
    """

    name: str
    token_sha256: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    rights: tuple[Rights, ...] = ()
    claimants: tuple[str, ...] = ()
    claimant_prefixes: tuple[str, ...] = ()

    def may(self, need: Need) -> bool:
        """Whether it has this right."""
        if need.right is Right.ACT:
            exact = (self.name, *self.claimants)
            return covers(need, exact, (self.name + OWN, *self.claimant_prefixes))
        return any(rights.give(need) for rights in self.rights)


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All callers."""

    callers: tuple[Known, ...]

    def find(self, caller: Caller) -> Known | None:
        """Who calls; a token goes before a certificate."""
        if caller.token is None:
            return next((one for one in self.callers if caller.subject in one.subjects), None)
        digest, found = sha256(caller.token.encode(errors="replace")).hexdigest(), None
        for one in self.callers:
            for known in one.token_sha256:
                # All of them are compared, each in the same time.
                if hmac.compare_digest(digest, known.lower()):
                    found = one
        return found


def covers(need: Need, names: Sequence[str], prefixes: Sequence[str]) -> bool:
    """Whether these names and beginnings of names hold all that a need is about."""
    if need.name.startswith(tuple(prefixes)):
        return True
    return not need.prefix and need.name in names


@dataclass(frozen=True)
class _Stamp:
    """What tells whether a file has changed."""

    modified_ns: int
    size: int
    inode: int


class PolicyFile:
    """Asks a file, which is read again when it has changed.

    A file that can't be read any more is reported, and the rights stay those of the last one that
    could.

    Args:
        path: The file; `.json` is JSON, all else TOML.

    Raises:
        ConfigurationError: The file can't be read, or its content makes no sense.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._stamp = self._look()
        self._policy = self._read()
        # Its own thread: calls that wait for the database don't delay a look at the file.
        self._thread = ThreadPoolExecutor(1, "work_queue-policy")

    async def allow(self, caller: Caller, needs: Sequence[Need]) -> str:
        """See `Authoriser`."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._refresh)
        known = self._policy.find(caller)
        if known is None:
            raise UnauthenticatedError(
                "the service does not know the caller. Nothing was read or written. Send a bearer "
                "token, or a client certificate, that its policy knows."
            )
        if missing := [need for need in needs if not known.may(need)]:
            raise denial(f"caller {known.name!r}", missing, acts_as=known.name)
        return known.name

    async def close(self) -> None:
        """See `Authoriser`."""
        self._thread.shutdown(wait=False)

    def _refresh(self) -> None:
        try:
            stamp = self._look()
            if stamp == self._stamp:
                return
            self._policy, self._stamp = self._read(), stamp
        except ConfigurationError as error:
            log.warning("policy_not_read", path=str(self._path), error=str(error))
        else:
            log.info("policy_read", path=str(self._path), callers=len(self._policy.callers))

    def _look(self) -> _Stamp:
        try:
            found = self._path.stat()
        except OSError as error:
            raise self._unreadable(error.strerror) from error
        return _Stamp(found.st_mtime_ns, found.st_size, found.st_ino)

    def _read(self) -> Policy:
        decode = msgspec.json.decode if self._path.suffix == ".json" else msgspec.toml.decode
        try:
            policy = decode(self._path.read_bytes(), type=Policy)
        except OSError as error:
            raise self._unreadable(error.strerror) from error
        except (msgspec.MsgspecError, ValueError) as error:
            raise self._unreadable(str(error)) from error
        for one in policy.callers:
            for digest in one.token_sha256:
                if len(digest) != sha256().digest_size * 2 or not digest.isascii():
                    raise self._unreadable(
                        f"caller {one.name!r} has a token_sha256 that is no SHA-256"
                    )
        return policy

    def _unreadable(self, why: str | None) -> ConfigurationError:
        return ConfigurationError(
            f"the policy {str(self._path)!r} can't be used: {why}.",
            key="policy",
            value=str(self._path),
        )
