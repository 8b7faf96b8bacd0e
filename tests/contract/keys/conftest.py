"""The poster of tests of keys."""

from __future__ import annotations

import pytest

from tests.contract.cluster import Cluster, Peer


@pytest.fixture
def poster(cluster: Cluster) -> Peer:
    """A bus that is no node: what it posts waits."""
    return cluster.peer("poster")
