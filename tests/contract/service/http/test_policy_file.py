"""The file of callers and their rights: its forms, its changes, and its faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from queue_core.errors import ConfigurationError
from tests.contract.service.http.conftest import Serve
from tests.contract.service.http.rights import EVERYTHING, bearer, digest, written
from tests.contract.service.http.running import Running
from work_queue.service.authorisers.policy import PolicyFile


def test_a_policy_in_toml(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(
        f"""
        [[callers]]
        name = "ann"
        token_sha256 = ["{digest("ann")}"]

        [[callers.rights]]
        actions = ["INSERT", "READ"]
        queues = ["a"]
        """
    )
    service = serve(authoriser=PolicyFile(path))
    body = {"claimantId": "ann", "inserts": [{"queue": "a"}]}
    service.answer("/modify", body, headers=bearer("ann"))


def test_a_policy_that_can_t_be_read_any_more_keeps_the_last_rights(
    guarded: Running, policy: Path
) -> None:
    written(policy, EVERYTHING)
    guarded.answer("/queues", headers=bearer("ann"))
    policy.write_text("{")
    guarded.answer("/queues", headers=bearer("ann"))
    policy.unlink()
    guarded.answer("/queues", headers=bearer("ann"))
    written(policy)
    guarded.refusal(403, "/queues", headers=bearer("ann"))


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "{}",
        '{"callers": [{}]}',
        '{"callers": [{"name": "ann", "token": "secret"}]}',
        '{"callers": [{"name": "ann", "token_sha256": ["secret"]}]}',
        '{"callers": [{"name": "ann", "rights": [{"actions": ["ALL"]}]}]}',
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "policy.json"
    path.write_text(content)
    with pytest.raises(ConfigurationError, match=r"policy\.json"):
        PolicyFile(path)


def test_a_policy_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        PolicyFile(tmp_path / "policy.toml")
