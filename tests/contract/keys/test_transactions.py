"""Keys in transactions of callers, two at a time: nothing is lost, and nothing is aborted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, text
from sqlalchemy.orm import Session

from stickybus import Answer, DuplicateKeyError, KeyLockedError, Posted, Posting
from tests import requirements as needs
from tests.contract.cluster import Cluster, Peer
from tests.contract.conftest import Orders
from tests.contract.harness import BOUND_SECONDS, Order
from tests.contract.keys.test_posts import handled, numbers
from tests.contract.transactions.test_raw_connections import Connect, connect

__all__ = ["connect"]

several_writers = needs.lacks("one_writer") if hasattr(needs, "lacks") else None
