"""The arguments that the jobs have in common."""

from __future__ import annotations

import pytest

from history_pipeline.jobs import report
from history_pipeline.jobs.arguments import JobParser

SECRET = "postgresql://user:secret@host/shop"


def url_of(*arguments: str) -> str:
    parser = JobParser(None)
    parser.add_url()
    url: str = parser.parse_args(arguments).url
    return url


def test_the_database_of_a_job_may_stand_in_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """There no list of processes shows its password, nor does the help."""
    monkeypatch.setenv("STICKYBUS_URL", SECRET)
    assert url_of() == SECRET
    assert url_of("--url", "sqlite:///shop.db") == "sqlite:///shop.db"
    with pytest.raises(SystemExit):
        url_of("--help")
    assert "secret" not in capsys.readouterr().out


@pytest.mark.parametrize("variable", [None, ""])
def test_a_job_without_a_database_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], variable: str | None
) -> None:
    monkeypatch.delenv("STICKYBUS_URL", raising=False)
    if variable is not None:
        monkeypatch.setenv("STICKYBUS_URL", variable)
    for job in (url_of, lambda: report.main(["--to", "report.html"])):
        with pytest.raises(SystemExit):
            job()
        assert "--url" in capsys.readouterr().err
