"""The scenarios.

Each takes a database and sizes, and yields measurements once its tables have been verified.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from benchmarks.backlog import backlog
from benchmarks.databases import Target
from benchmarks.floor import floor
from benchmarks.groups import groups
from benchmarks.growth import growth
from benchmarks.latency import latency, latency_elsewhere, punctuality, truncate
from benchmarks.latency_peers import latency_peers
from benchmarks.limit_keys import limit_keys
from benchmarks.measurement import Measurement
from benchmarks.nodes import idle, memory, nodes
from benchmarks.outbox import outbox
from benchmarks.peers import peers
from benchmarks.pipeline import analysing, archiving, reading
from benchmarks.quiet import quiet
from benchmarks.rates import (
    claim_batch,
    drain,
    keys,
    limits,
    post,
    post_many,
    priorities,
    queues,
    through,
)
from benchmarks.service import service
from benchmarks.snapshot import snapshot
from benchmarks.spark_peers import spark_peers
from benchmarks.tasks import task_claims, tasks
from benchmarks.web import web
from benchmarks.workload import Sizes
from benchmarks.written import written

Scenario = Callable[[Target, Sizes], Iterator[Measurement]]
SCENARIOS: dict[str, Scenario] = {
    "floor": floor,
    "post": post,
    "post-many": post_many,
    "keys": keys,
    "outbox": outbox,
    "web": web,
    "written": written,
    "drain": drain,
    "through": through,
    "claim-batch": claim_batch,
    "queues": queues,
    "priorities": priorities,
    "limits": limits,
    "limit-keys": limit_keys,
    "tasks": tasks,
    "task-claims": task_claims,
    "service": service,
    "latency": latency,
    "latency-elsewhere": latency_elsewhere,
    "latency-peers": latency_peers,
    "quiet": quiet,
    "punctuality": punctuality,
    "truncate": truncate,
    "nodes": nodes,
    "groups": groups,
    "idle": idle,
    "memory": memory,
    "growth": growth,
    "backlog": backlog,
    "snapshot": snapshot,
    "peers": peers,
    "spark-read": reading,
    "spark-archive": archiving,
    "spark-statistics": analysing,
    "spark-peers": spark_peers,
}
