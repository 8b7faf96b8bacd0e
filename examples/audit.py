"""History from beginning to end: posted, handled, archived, reported on, posted again.

Run it: `python audit.py FOLDER`. It needs Java and the extra `spark`, and makes the folder anew: an
SQLite file, an archive and a report. The commands that it runs are those that you would type.
"""

import logging
import shlex
import shutil
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from history_pipeline import open_session
from stickybus import BusConfig, EntryContext, ImmediateRetries, PersistentBus, create_schema
from stickybus.cli import main as stickybus

ORDERS = 500


@dataclass(frozen=True)
class OrderPlaced:
    """An order."""

    number: int


class CardExpiredError(Exception):
    """One in fifty."""


def command(line: str) -> None:
    """Run a command of `stickybus` in this process, whose Spark has been started already."""
    print(f"\n$ stickybus {line}", flush=True)
    code = stickybus(shlex.split(line))
    if code:
        sys.exit(code)


def handle(url: str, *, cards_expire: bool, post: int = 0) -> None:
    """Handle the waiting orders of the database, and `post` orders more."""
    bus, ended = PersistentBus(url, BusConfig(retry=ImmediateRetries(2))), threading.Semaphore(0)

    @bus.subscribe(OrderPlaced)
    def charge(order: OrderPlaced, context: EntryContext) -> None:
        if cards_expire and order.number % 50 == 0:
            raise CardExpiredError
        if order.number % 7 == 0 and context.error_count == 0:
            raise ConnectionError  # the bank's line is busy: the retry gets through
        ended.release()

    bus.on_failed(lambda _entry, _error: ended.release())
    waiting = len(bus.find()) + post
    with bus:
        bus.post_many(OrderPlaced(number) for number in range(post))
        for _ in range(waiting):
            ended.acquire(timeout=60)


def main(folder: Path) -> None:
    """The whole way, once."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    url, archive = f"sqlite:///{folder}/shop.db", shlex.quote(f"{folder}/archive")
    create_schema(url)
    # Handlers fail on purpose here.
    logging.getLogger("queue_core").setLevel(logging.CRITICAL)
    with open_session("audit"):
        # The commands below find this session.
        handle(url, cards_expire=True, post=ORDERS)
        command(f"history archive --to {archive} --before 0s --url {url}")
        command(f"report --to {folder}/report.html --from-archive {archive} --url {url}")
        failed = (
            f"history replay --from {archive} --where \"processing_state = 'FAILED'\" --url {url}"
        )
        command(failed)
        command(f"{failed} --yes")
        handle(url, cards_expire=False)
        command(f"history archive --to {archive} --before 0s --url {url}")
        command(f"history verify --in {archive}")
    print(f"\nThe report is in {folder}/report.html")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
