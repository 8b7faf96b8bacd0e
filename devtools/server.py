"""A database server in a folder."""

from __future__ import annotations

import enum
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from devtools.folders import UNPRIVILEGED_USER, is_root
from devtools.programs import ServerError

USER: Final = "stickybus"
_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 30.0


class StopMode(enum.Enum):
    """The ways for a server to go down: as an operator stops it, or without a chance to tidy up."""

    GRACEFUL = enum.auto()
    CRASH = enum.auto()


class DatabaseServer(ABC):
    """One server with its data; the port, and so the URL, survives restarts.

    `durable` keeps every committed transaction through a power cut, as benchmarks must;
    without it commits survive a crash of the server, not of the machine.
    """

    name: ClassVar[str]
    _stop_signals: ClassVar[Mapping[StopMode, signal.Signals]]

    def __init__(self, folder: Path, *, durable: bool) -> None:
        self.folder = folder / self.name
        self.durable = durable
        self.port = _free_port()
        self.log_file = self.folder / "server.log"
        self._password = secrets.token_hex(8)
        self._server: subprocess.Popen[bytes] | None = None
        self.folder.mkdir()
        if is_root():
            shutil.chown(self.folder, UNPRIVILEGED_USER)
        self._create_data()

    @property
    @abstractmethod
    def url(self) -> str:
        """SQLAlchemy's URL of an administrator's session, the password included."""

    @abstractmethod
    def settings(self) -> dict[str, str]:
        """Return the settings that decide about durability, as the running server states them."""

    def start(self) -> None:
        """Start if it is down, and return once a client can log in.

        Raises ServerError with the log's end if nobody can in time.
        """
        if self._server is not None:
            return
        with self.log_file.open("ab") as log:
            self._server = popen(self._command(), cwd=self.folder, log=log.fileno())
        deadline = time.monotonic() + _START_SECONDS
        while not self._accepts_logins():
            if self._server.poll() is not None or time.monotonic() > deadline:
                self.stop(StopMode.CRASH)
                raise ServerError(
                    f"{self.name} did not start:\n{self.log_file.read_text()[-2000:]}"
                )
            time.sleep(0.02)

    def stop(self, mode: StopMode = StopMode.GRACEFUL) -> None:
        """Stop, and return once the server has ended; does nothing if it is down."""
        if self._server is None:
            return
        self._server.send_signal(self._stop_signals[mode])
        try:
            self._server.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()
            raise ServerError(
                f"{self.name} did not stop in {_STOP_SECONDS} seconds; it was killed"
            ) from None
        finally:
            self._server = None

    def restart(self, mode: StopMode = StopMode.GRACEFUL) -> None:
        """Stop as `mode` says, then start on the same data and port."""
        self.stop(mode)
        self.start()

    @abstractmethod
    def _create_data(self) -> None: ...

    @abstractmethod
    def _command(self) -> list[str]: ...

    @abstractmethod
    def _accepts_logins(self) -> bool: ...


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def popen(
    command: Sequence[str], *, cwd: Path, log: int, stdin: int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """Start a program without root's rights, in a session that no terminal interrupts."""
    # The servers refuse root. In the terminal's session Ctrl-C would stop the server before the
    # tests that use it.
    account = pwd.getpwnam(UNPRIVILEGED_USER) if is_root() else None
    return subprocess.Popen(
        command,
        cwd=cwd,
        stdin=stdin,
        stdout=log,
        stderr=log,
        start_new_session=True,
        env={"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": str(cwd)},
        user=account and account.pw_uid,
        group=account and account.pw_gid,
        extra_groups=[] if account else None,
    )


def run_to_its_end(command: Sequence[str], *, cwd: Path, script: Path = Path(os.devnull)) -> None:
    """Run a program with `script` as its input; raise ServerError with its output if it fails."""
    log_file = cwd / "create.log"
    with log_file.open("wb") as log, script.open("rb") as stdin:
        code = popen(command, cwd=cwd, log=log.fileno(), stdin=stdin.fileno()).wait(_START_SECONDS)
    if code != 0:
        raise ServerError(
            f"{command[0]} failed with exit code {code}:\n{log_file.read_text()[-2000:]}"
        )
