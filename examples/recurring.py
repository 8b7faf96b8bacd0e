"""A recurring notification, which every node declares and the cluster fires once per due time.

Run it: `python recurring.py sqlite:///jobs.db`
"""

import queue
import sys
from dataclasses import dataclass
from datetime import timedelta

from stickybus import EntryContext, MissedPolicy, NotificationService, create_schema


@dataclass(frozen=True)
class ReportDue:
    """A report is to be written."""

    name: str


def main(url: str) -> None:
    """Wait for three firings of a rule of 200 ms, and show when a cron rule is due next."""
    create_schema(url)
    service, fired = NotificationService(url), queue.SimpleQueue[tuple[ReportDue, EntryContext]]()

    def write_report(due: ReportDue, context: EntryContext) -> None:
        fired.put((due, context))

    reports = service.create_queue("office", "reports", write_report)
    with service:
        reports.recur("pulse", ReportDue("pulse"), every=timedelta(milliseconds=200))
        weekly = reports.recur(
            "weekly",
            ReportDue("weekly"),
            cron="0 9 * * MON",
            timezone="Europe/Berlin",
            missed=MissedPolicy.FIRE_ONCE,
        )
        firings = [fired.get(timeout=10) for _ in range(3)]
        reports.stop_recurring("pulse")
        reports.stop_recurring("weekly")
    dates = {context.effective_date for _, context in firings}
    print(f"{firings[0][0].name} fired for {len(dates)} due times")
    print(f"{weekly.name} is due next at {weekly.next_due:%A %H:%M} UTC")


if __name__ == "__main__":
    main(sys.argv[1])
