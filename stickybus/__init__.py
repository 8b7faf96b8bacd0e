"""Stickybus: a persistent event bus and notification queues on the SQL database you have.

Import from here; the packages behind it (`bus`, `notifications`, `work_queue`, `queue_core`, `sql`)
are its rooms, not its face.
"""

from pathlib import Path

import bus
import notifications
import queue_core
import sql
import work_queue
from queue_core.errors import ShadowedModuleError

for _room in (bus, notifications, work_queue, queue_core, sql):
    _path = Path(_room.__file__ or next(iter(_room.__path__), "")).resolve()
    if _path.parent.parent != Path(__file__).resolve().parent.parent:
        raise ShadowedModuleError(
            f"stickybus found the module {_room.__name__!r} at {_path}, which is not its own: another distribution or a "
            "folder of your project has the same name and comes first on sys.path. Rename or move that one.",
            module=_room.__name__,
            path=str(_path),
        )

from bus.memory import InMemoryBus  # noqa: E402 -- after the check above, which explains what would fail here
from bus.persistent import PersistentBus  # noqa: E402
from notifications.queue import NotificationQueue  # noqa: E402
from notifications.recurring_schedules import Schedule  # noqa: E402
from notifications.service import NotificationService  # noqa: E402
from queue_core.dividing import partition_history  # noqa: E402
from queue_core.errors import (  # noqa: E402
    CommitUnknownError,
    ConfigurationError,
    DatabaseUnreachableError,
    DuplicateKeyError,
    EntryNotChangeableError,
    EntryNotFoundError,
    ForkedError,
    GroupLockedError,
    GroupNotFoundError,
    GroupSealedError,
    HistoryConflictError,
    InvalidConnectionError,
    InvalidEventError,
    InvalidPostError,
    InvalidRequestError,
    KeyLockedError,
    LifecycleError,
    NaiveDateTimeError,
    NameTooLongError,
    NodeNameTakenError,
    PayloadError,
    PayloadNotDecodableError,
    PayloadNotSerialisableError,
    PayloadTooLargeError,
    QueueExistsError,
    QueueNotFoundError,
    SchemaError,
    SchemaMissingError,
    SchemaTooNewError,
    SchemaTooOldError,
    StickybusError,
    WriteLockError,
)
from queue_core.finishing.feeds import Ended, Feed  # noqa: E402
from queue_core.inspector import Inspector, inspect  # noqa: E402
from queue_core.model.answers import Done, Fail, Retry  # noqa: E402
from queue_core.model.codec import BoundCodec, Codec  # noqa: E402
from queue_core.model.compression import CompressedCodec  # noqa: E402
from queue_core.model.config import BusConfig, NotificationConfig  # noqa: E402
from queue_core.model.encryption import EncryptedCodec  # noqa: E402
from queue_core.model.entry import Entry, Located  # noqa: E402
from queue_core.model.group import GroupStatus  # noqa: E402
from queue_core.model.json_codec import JsonCodec  # noqa: E402
from queue_core.model.keyed import Answer, KeyState, KeyStatus, Posted  # noqa: E402
from queue_core.model.limit import Limit  # noqa: E402
from queue_core.model.mode import Mode  # noqa: E402
from queue_core.model.node_config import NodeConfig  # noqa: E402
from queue_core.model.pause import Pause  # noqa: E402
from queue_core.model.posting import Posting  # noqa: E402
from queue_core.model.recurrence import MissedPolicy  # noqa: E402
from queue_core.model.retry import Failure, GiveUp, RetryLater, RetryPolicy  # noqa: E402
from queue_core.model.retry_policies import (  # noqa: E402
    Circuit,
    ExponentialRetries,
    ImmediateRetries,
    ScheduledRetries,
)
from queue_core.model.states import State  # noqa: E402
from queue_core.opening import create_schema  # noqa: E402
from queue_core.reading.bulk import BulkResult, Unchanged  # noqa: E402
from queue_core.reading.depths import QueueDepth  # noqa: E402
from queue_core.reading.explanation import Explanation  # noqa: E402
from queue_core.reading.forgetting import Forgotten  # noqa: E402
from queue_core.reading.held_keys import HeldKey  # noqa: E402
from queue_core.reading.nodes import NodeStatus  # noqa: E402
from queue_core.reading.open_circuits import OpenCircuit  # noqa: E402
from queue_core.reading.overview import QueueStatus  # noqa: E402
from queue_core.reading.reason import Reason  # noqa: E402
from queue_core.reading.schedules import ScheduleStatus  # noqa: E402
from queue_core.reading.statistics import ProcessingTimeStats, QueueStats, RetryStats  # noqa: E402
from queue_core.reading.workers import WorkerStats  # noqa: E402
from queue_core.retrial import RetryOutcome  # noqa: E402
from queue_core.running.subscriber import EntryContext, ExactlyOnceContext  # noqa: E402
from queue_core.runtime.callers import AsyncCallersConnection, CallersConnection  # noqa: E402
from queue_core.runtime.clock import Clock, SystemClock  # noqa: E402
from queue_core.runtime.manual_clock import ManualClock  # noqa: E402
from queue_core.storage.search_keys import KEYLESS, Keyless  # noqa: E402
from sql.doctor.finding import Finding  # noqa: E402
from sql.partitions import Partition, Period  # noqa: E402
from sql.schema import SchemaReport  # noqa: E402
from work_queue.counts import NamespaceStats, WorkStats  # noqa: E402
from work_queue.document import Doc, DocClaim, DocSet  # noqa: E402
from work_queue.faults import DependencyError, Fault, FaultKind  # noqa: E402
from work_queue.finished_task import FinishedTask  # noqa: E402
from work_queue.limit import QueueLimit  # noqa: E402
from work_queue.modification import (  # noqa: E402
    Change,
    ChangeDoc,
    Delete,
    DeleteDoc,
    Depend,
    DependDoc,
    DependSet,
    Insert,
    InsertDoc,
    Renew,
    RenewSet,
    Replay,
)
from work_queue.modified import Modified  # noqa: E402
from work_queue.refs import DocRef, SetRef, TaskPlace, TaskRef  # noqa: E402
from work_queue.remote.tls import Tls  # noqa: E402
from work_queue.replayed import Replayed  # noqa: E402
from work_queue.rights import (  # noqa: E402
    Need,
    PermissionDeniedError,
    Right,
    UnauthenticatedError,
)
from work_queue.schedule import TaskSchedule  # noqa: E402
from work_queue.task import Task  # noqa: E402
from work_queue.values import UNREAD  # noqa: E402
from work_queue.work_queue import WorkQueue  # noqa: E402
from work_queue.workers.job import Job  # noqa: E402
from work_queue.workers.requests import FailWorker, MoveTask, StopWorker  # noqa: E402
from work_queue.workers.worker import Worker  # noqa: E402

__all__ = [
    "KEYLESS",
    "UNREAD",
    "Answer",
    "AsyncCallersConnection",
    "BoundCodec",
    "BulkResult",
    "BusConfig",
    "CallersConnection",
    "Change",
    "ChangeDoc",
    "Circuit",
    "Clock",
    "Codec",
    "CommitUnknownError",
    "CompressedCodec",
    "ConfigurationError",
    "DatabaseUnreachableError",
    "Delete",
    "DeleteDoc",
    "Depend",
    "DependDoc",
    "DependSet",
    "DependencyError",
    "Doc",
    "DocClaim",
    "DocRef",
    "DocSet",
    "Done",
    "DuplicateKeyError",
    "EncryptedCodec",
    "Ended",
    "Entry",
    "EntryContext",
    "EntryNotChangeableError",
    "EntryNotFoundError",
    "ExactlyOnceContext",
    "Explanation",
    "ExponentialRetries",
    "Fail",
    "FailWorker",
    "Failure",
    "Fault",
    "FaultKind",
    "Feed",
    "Finding",
    "FinishedTask",
    "Forgotten",
    "ForkedError",
    "GiveUp",
    "GroupLockedError",
    "GroupNotFoundError",
    "GroupSealedError",
    "GroupStatus",
    "HeldKey",
    "HistoryConflictError",
    "ImmediateRetries",
    "InMemoryBus",
    "Insert",
    "InsertDoc",
    "Inspector",
    "InvalidConnectionError",
    "InvalidEventError",
    "InvalidPostError",
    "InvalidRequestError",
    "Job",
    "JsonCodec",
    "KeyLockedError",
    "KeyState",
    "KeyStatus",
    "Keyless",
    "LifecycleError",
    "Limit",
    "Located",
    "ManualClock",
    "MissedPolicy",
    "Mode",
    "Modified",
    "MoveTask",
    "NaiveDateTimeError",
    "NameTooLongError",
    "NamespaceStats",
    "Need",
    "NodeConfig",
    "NodeNameTakenError",
    "NodeStatus",
    "NotificationConfig",
    "NotificationQueue",
    "NotificationService",
    "OpenCircuit",
    "Partition",
    "Pause",
    "PayloadError",
    "PayloadNotDecodableError",
    "PayloadNotSerialisableError",
    "PayloadTooLargeError",
    "Period",
    "PermissionDeniedError",
    "PersistentBus",
    "Posted",
    "Posting",
    "ProcessingTimeStats",
    "QueueDepth",
    "QueueExistsError",
    "QueueLimit",
    "QueueNotFoundError",
    "QueueStats",
    "QueueStatus",
    "Reason",
    "Renew",
    "RenewSet",
    "Replay",
    "Replayed",
    "Retry",
    "RetryLater",
    "RetryOutcome",
    "RetryPolicy",
    "RetryStats",
    "Right",
    "Schedule",
    "ScheduleStatus",
    "ScheduledRetries",
    "SchemaError",
    "SchemaMissingError",
    "SchemaReport",
    "SchemaTooNewError",
    "SchemaTooOldError",
    "SetRef",
    "ShadowedModuleError",
    "State",
    "StickybusError",
    "StopWorker",
    "SystemClock",
    "Task",
    "TaskPlace",
    "TaskRef",
    "TaskSchedule",
    "Tls",
    "UnauthenticatedError",
    "Unchanged",
    "WorkQueue",
    "WorkStats",
    "Worker",
    "WorkerStats",
    "WriteLockError",
    "create_schema",
    "inspect",
    "partition_history",
]
