"""What a simulated application does with its bus and queue: it posts, removes, pauses, limits."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from stickybus import Mode, Posting
from tests.simulation.settings import Order
from tests.simulation.steps import Change, Ending, Link, Post
from tests.simulation.threads import Task

if TYPE_CHECKING:
    from tests.simulation.process import Process


def post(process: Process, step: Post, task: Callable[[], Task]) -> None:
    """Post as the step says. What is to be committed now is in the task's `keys`."""
    lifecycle = process.lifecycles[step.face]

    links = process.simulation.links
    settle = list[Callable[[bool], None]]()
    """What is to be called once it is known whether the transaction has committed."""

    def insert(keys: tuple[int, ...], connection: Any) -> None:
        at = None if not step.delay else process.clock.now() + timedelta(seconds=step.delay)
        process.simulation.record.posting(
            process,
            keys,
            sticky=lifecycle.running
            and lifecycle.config.mode is not Mode.POLLING
            and not process.simulation.was_limited
            and not step.link,
            known=step.link is not Link.KEY,
        )
        if step.link is not Link.KEY:
            task().keys += keys
        face: Any = process.queue if step.face == "service" else process.bus
        options = links.options(process, face, step, keys, connection)
        postings = [Posting(event=Order(key), search_key1=key, at=at, **options) for key in keys]
        post_many = face.schedule_many if step.face == "service" else face.post_many
        ids = post_many(postings, connection=connection)
        if step.link is Link.GROUP:
            face.seal(options["group"], connection=connection)
        settle.append(partial(links.settle, step, keys, ids))

    if step.ending is Ending.OWN:
        insert(step.keys, None)
        settle[0](True)
        return
    with process.application.connect() as connection:
        transaction = connection.begin()
        half = len(step.keys) // 2 if step.ending is Ending.SAVEPOINT else len(step.keys)
        if half:
            insert(step.keys[:half], connection)
        if step.ending is Ending.SAVEPOINT:
            savepoint = connection.begin_nested()
            insert(step.keys[half:], connection)
            savepoint.rollback()
            del task().keys[len(task().keys) - len(step.keys[half:]) :]
            settle.pop()(False)
        if step.ending is Ending.ROLLBACK:
            transaction.rollback()
        else:
            transaction.commit()
        for one in settle:
            one(step.ending is not Ending.ROLLBACK)


def change(process: Process, step: Change) -> None:
    """Remove or retry an entry, truncate history, pause for some time, resume, or limit."""
    face: Any = process.bus if step.face == "bus" else process.service
    if step.what == "truncate":
        face.truncate_history()
    elif step.what == "remove" and process.queue is not None:
        process.queue.remove(search_key1=step.key)
    elif step.what.startswith("pause"):
        queue: Any = process.bus if step.face == "bus" else process.queue
        handler = "subscriber-0" if step.what == "pause one handler" else None
        queue.pause(handler=handler, until=timedelta(seconds=1.5 * step.key))
    elif step.what == "limit":
        queue = process.bus if step.face == "bus" else process.queue
        if step.key:
            queue.limit(concurrency=step.key)
            process.simulation.limited()
        else:
            queue.unlimit()
    elif step.what == "resume":
        queue = process.bus if step.face == "bus" else process.queue
        queue.resume()
    elif step.what == "retry":
        reads: Any = process.bus if step.face == "bus" else process.queue
        for entry in reads.history(search_key1=step.key, states=["FAILED", "REMOVED"]):
            face.retry(entry.record_id)
