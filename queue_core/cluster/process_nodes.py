"""The nodes of this process, shared by its buses and services.

One per database and name, counted: the first bus or service to start registers it, the last to stop
ends its lease.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress

from queue_core.cluster.host import default_name
from queue_core.cluster.member import Member
from queue_core.cluster.node import Node
from queue_core.cluster.reaper import Reaper
from queue_core.errors import ConfigurationError, LifecycleError
from queue_core.model.config import QueueConfig
from queue_core.model.lanes import is_reserved
from queue_core.model.node_config import NodeConfig
from queue_core.runtime.clock import Clock
from sql.database import Database

MakeNode = Callable[[str, Database, NodeConfig, Clock, list[Member]], Node]
"""Makes a node of a name, a database, settings, a clock, and its former members."""

here: dict[tuple[str, str], Node] = {}
# The threads of these beat in the parent of a fork alone.
os.register_at_fork(after_in_child=here.clear)
_former: defaultdict[tuple[str, str], list[Member]] = defaultdict(list)
"""Members that left while their handlers still ran, by the key of their node."""
os.register_at_fork(after_in_child=_former.clear)
_locks: defaultdict[tuple[str, str], threading.RLock] = defaultdict(threading.RLock)
"""One a name: it is held for up to a lease while the name is fought for."""
os.register_at_fork(after_in_child=_locks.clear)


_default_names: dict[int, str] = {}


def name_of(config: QueueConfig) -> str:
    """The configured node name, or this process's own."""
    # Without the lock, which is held for up to a lease while a name is fought for: posting must not
    # wait for that.
    own = os.getpid()
    return (
        config.node_name
        or _default_names.get(own)
        or _default_names.setdefault(own, default_name())
    )


def join(member: Member, config: QueueConfig, make: MakeNode = Node) -> Node:
    """Register the process's node for `member`'s database, or share the one that is there.

    Raises NodeNameTakenError, LifecycleError if the node has a member on the same table already,
    and ConfigurationError if it has other settings.
    """
    name, database = name_of(config), member.store.database
    if is_reserved(name):
        raise ConfigurationError(
            f"node_name={name!r} must not begin with an exclamation mark.", key="node_name"
        )
    key = database.key, name
    with _locks[key]:
        node = here.get(key)
        if node is not None:
            table = member.store.config.table
            if table in [other.store.config.table for other in node.members]:
                raise LifecycleError(
                    f"node {name!r} already runs a bus or service on the table {table!r} in this "
                    "process. Nothing was started. Give this one another table or node_name.",
                    node_name=name,
                    table=table,
                )
            _check_agreement(node, member)
            node.members.append(member)
            try:
                node.announce()
            except BaseException:
                node.members.remove(member)
                raise
            return node
        node = make(name, database, config.node, member.store.clock, _former[key])
        node.reap_by(Reaper(node))
        node.members.append(member)
        node.start()
        here[key] = node
        return node


def _check_agreement(node: Node, member: Member) -> None:
    theirs, own = node.config, member.store.config.node
    for key in NodeConfig.model_fields:
        has, wants = getattr(theirs, key), getattr(own, key)
        if has != wants:
            tables = ", ".join(other.store.config.table for other in node.members)
            raise ConfigurationError(
                f"node {node.name!r}: {key}={wants!r} of the member on {member.store.config.table} "
                f"differs from {key}={has!r} of the members on {tables}. Nothing was started. "
                "Give all members of a process that are on one database the same NodeConfig.",
                key=key,
                value=wants,
                node_name=node.name,
            )


def leave(node: Node, member: Member) -> None:
    """End `member`'s share of the node; the last one ends its lease."""
    key = node.database.key, node.name
    with _locks[key]:
        node.members.remove(member)
        if member.outliving():
            _former[key].append(member)
        if node.members:
            # The leaver closes its connections: those that the node opened there later would stay
            # open for good.
            node.database = node.members[0].store.database
            node.announce()
            return
        del here[key]
    node.stop()


def forget(member: Member) -> None:
    """Nothing outlives `member` any more, or it is a member again."""
    for members in list(_former.values()):
        with suppress(ValueError):
            members.remove(member)
