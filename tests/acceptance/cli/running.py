"""Commands that run in the tests' process."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import URL

from stickybus.cli import main

DIALECTS = ("sqlite", "postgresql", "mysql", "mariadb")


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Cli:
    """Runs commands on one database, as a shell would."""

    def __init__(
        self, url: URL, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.url = url.render_as_string(hide_password=False)
        self._capsys = capsys
        self._monkeypatch = monkeypatch
        monkeypatch.setenv("STICKYBUS_URL", self.url)
        # Processes of xdist have it: tables would leave columns out.
        monkeypatch.delenv("COLUMNS", raising=False)

    def __call__(self, *arguments: str, stdin: bytes | io.BytesIO = b"", expect: int = 0) -> Done:
        given = io.BytesIO(stdin) if isinstance(stdin, bytes) else stdin
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(given))
        code = main(arguments)
        out, err = self._capsys.readouterr()
        assert code == expect, out + err
        return Done(code, out, err)


MakeCli = Callable[[URL], Cli]


def lines(*objects: Any) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in objects)
