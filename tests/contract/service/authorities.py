"""What clients of HTTP need, beside database servers."""

from __future__ import annotations

import pytest

from devtools.servers import NO_CERTIFICATES


@pytest.fixture(autouse=True)
def authorities(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the authorities that httpx brings: the environment of database servers names none."""
    for variable in NO_CERTIFICATES:
        monkeypatch.delenv(variable, raising=False)
