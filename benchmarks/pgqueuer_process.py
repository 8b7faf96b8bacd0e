"""A worker of PgQueuer in its own process, which answers when each job's function was called.

    python -m benchmarks.pgqueuer_process URL

It answers each line of its input with a line of JSON, and ends with its input.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time

import msgspec
import uvloop
from pgqueuer import QueueManager
from pgqueuer.models import Job
from sqlalchemy import make_url

from benchmarks.peers import PGQUEUER_BATCH, PgQueuer
from benchmarks.workload import Ticked


async def work(url: str) -> None:
    """Run jobs until the input ends."""
    called_at = dict[int, float]()
    loop = asyncio.get_running_loop()
    async with PgQueuer.on(make_url(url)) as queuer:
        manager = QueueManager(queuer.queries)

        @manager.entrypoint("tick")
        async def tick(job: Job) -> None:
            number = msgspec.json.decode(job.payload or b"", type=Ticked).number
            called_at[number] = time.perf_counter()

        def answer() -> None:
            for _ in sys.stdin:
                print(json.dumps(called_at.copy()), flush=True)
            loop.call_soon_threadsafe(manager.shutdown.set)

        threading.Thread(target=answer, daemon=True).start()
        await manager.run(batch_size=PGQUEUER_BATCH)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work(sys.argv[1]))
