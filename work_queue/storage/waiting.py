"""Claims that wait: who is woken, and when.

One that waits looks again when somebody tells that a task was committed in its queue, or when the
next task of its queue arrives or loses its lease. Of several that wait for a queue one looks, and
the next one after it has found something: a task wakes one of them, and no task is missed.

A waiting claim enters before it looks, so that hints in between are not lost. One that
leaves wakes the next one, for it may have been told of something that it no longer takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import blake2b

from queue_core.claiming.hint_listener import HintListener
from queue_core.model.lanes import ANY_NODE
from queue_core.runtime.clock import Clock
from queue_core.runtime.lock import Lock
from queue_core.storage.transactions import Transactions

NEVER = datetime.max.replace(tzinfo=UTC)


def payload_of(queue: str) -> str:
    """How hints name a queue: in short, and without what could end a statement."""
    return blake2b(queue.encode(), digest_size=8).hexdigest()


@dataclass(eq=False)
class Waiter:
    """One claim that waits for tasks of `queues`. `wake` ends its wait, from any thread."""

    queues: tuple[str, ...]
    wake: Callable[[], None]
    look: bool = field(default=True)
    """Whether there may be something to claim."""


class WaitingRoom:
    """All claims of one work queue that wait."""

    def __init__(self, transactions: Transactions, table: str, poll_seconds: float) -> None:
        self._clock: Clock = transactions.clock
        self._poll = timedelta(seconds=poll_seconds)
        self._listener = HintListener(transactions, table, self)
        self._listens = False
        self._lock = Lock()
        self.waiters = dict[str, dict[Waiter, None]]()
        """By queue, in the order in which they came."""
        self._looks = dict[str, datetime]()
        """When somebody has to look at a queue, unless somebody is about to."""
        self._by_payload = dict[str, str]()
        self.closed = False

    # -- who waits --------------------------------------------------------------------------------

    def enter(self, waiter: Waiter) -> None:
        """Be woken from now on."""
        with self._lock:
            self._enter(waiter)
            self._listen()

    def _listen(self) -> None:
        """Start to listen with the first one that waits, unless a close came before."""
        if not (self._listens or self.closed):
            self._listens = True
            self._listener.start()

    def _enter(self, waiter: Waiter) -> None:
        for queue in waiter.queues:
            self.waiters.setdefault(queue, {})[waiter] = None
            self._by_payload[payload_of(queue)] = queue

    def leave(self, waiter: Waiter) -> None:
        """Be woken no more. The next one of each queue looks."""
        with self._lock:
            self._leave(waiter)
        self.tell(waiter.queues)

    def _leave(self, waiter: Waiter) -> None:
        for queue in waiter.queues:
            waiters = self.waiters[queue]
            waiters.pop(waiter, None)
            if not waiters:
                del self.waiters[queue]
                self._by_payload.pop(payload_of(queue), None)
                self._looks.pop(queue, None)

    def begin_look(self, waiter: Waiter) -> bool:
        """Whether this one has to look now: it was told to, or a queue's time has come."""
        with self._lock:
            now, look = self._clock.now(), waiter.look
            waiter.look = False
            return self._take_due(waiter, now) or look

    def _take_due(self, waiter: Waiter, now: datetime) -> bool:
        due = [queue for queue in waiter.queues if self._is_due(queue, now)]
        for queue in due:
            self._looks.pop(queue)
        return bool(due)

    def _is_due(self, queue: str, now: datetime) -> bool:
        date = self._looks.get(queue)
        # A date further ahead is from before the clock was set back.
        return date is not None and not now < date <= now + self._poll

    def seconds_to_look(self, waiter: Waiter) -> float:
        """The longest that this one has to wait, if nobody wakes it."""
        with self._lock:
            now = self._clock.now()
            if any(self._is_due(queue, now) for queue in waiter.queues):
                return 0.0
            dates = [self._looks.get(queue, now + self._poll) for queue in waiter.queues]
            return (min(dates) - now).total_seconds()

    def expect(self, arrivals: dict[str, datetime], queues: Iterable[str]) -> None:
        """After a look that found nothing: the queues' next arrivals, where there are any."""
        with self._lock:
            latest = self._clock.now() + self._poll
            self._expect({queue: min(arrivals.get(queue, latest), latest) for queue in queues})

    def _expect(self, dates: dict[str, datetime]) -> list[str]:
        """Note when to look; returns the queues of which somebody has to be told.

        No date is more than a poll ahead.
        """
        sooner = [
            queue
            for queue, date in dates.items()
            if queue in self.waiters and date < self._looks.get(queue, NEVER)
        ]
        for queue in sooner:
            self._looks[queue] = dates[queue]
        return sooner

    # -- what wakes -------------------------------------------------------------------------------

    def arrive(self, arrivals: Iterable[tuple[str, datetime]]) -> None:
        """Tasks were committed here: wake one for each that is ready, and note when others are."""
        now, later = self._clock.now(), dict[str, datetime]()
        latest = now + self._poll
        for queue, date in arrivals:
            if date <= now:
                self.tell([queue])
            else:
                later[queue] = min(date, later.get(queue, latest))
        if later:
            with self._lock:
                waiters = self._first_of(self._expect(later))
            for waiter in waiters:
                waiter.wake()

    def tell(self, queues: Iterable[str]) -> None:
        """Let one that waits for each of the queues look, unless all of them are about to."""
        with self._lock:
            waiters = self._next_of(queues)
        for waiter in waiters:
            waiter.wake()

    def _first_of(self, queues: Iterable[str]) -> list[Waiter]:
        return [next(iter(self.waiters[queue])) for queue in queues]

    def _next_of(self, queues: Iterable[str]) -> list[Waiter]:
        found = list[Waiter]()
        for queue in queues:
            for waiter in self.waiters.get(queue, ()):
                if not waiter.look:
                    waiter.look = True
                    found.append(waiter)
                    break
        return found

    def hear(self, payload: str) -> None:
        """See `Hearer`: a task was committed elsewhere in a queue."""
        if payload == ANY_NODE:
            self.wake(self._clock.monotonic())
        elif (queue := self._by_payload.get(payload)) is not None:
            self.tell([queue])

    def wake(self, since: float) -> None:
        """See `Hearer`: something was committed elsewhere."""
        del since
        with self._lock:
            queues = list(self.waiters)
        self.tell(queues)

    def close(self) -> None:
        """End all waits."""
        with self._lock:
            self.closed = True
            waiters = {waiter for queue in self.waiters.values() for waiter in queue}
        for waiter in waiters:
            waiter.wake()
        if self._listens:
            self._listener.stop()
