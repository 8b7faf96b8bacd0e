"""A worker of a work queue: `python examples/mailer.py NAME`, with the URL in STICKYBUS_URL.

It sends the mails of the queue `mail`, each in two seconds, and refuses an address without an @.
"""

import os
import sys

from stickybus import GiveUp, Insert, Job, Worker, WorkQueue


def send(job: Job) -> Insert:
    """Send a mail, and say in the queue `sent` who did it."""
    address = job.task.value["to"]
    if "@" not in address:
        raise GiveUp(f"{address} is no address")
    job.wait(2)
    return Insert(queue="sent", value={"to": address, "by": sys.argv[1]})


with WorkQueue(os.environ["STICKYBUS_URL"], claimant=sys.argv[1], lease_seconds=5) as work:
    Worker(work, send, "mail", concurrency=2).run()
