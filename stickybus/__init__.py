"""Stickybus: a persistent event bus and notification queues on the SQL database you have.

Import from here; the packages behind it (`bus`, `notifications`, `work_queue`, `queue_core`, `sql`)
are its rooms, not its face. The modules of a name are loaded when it is first read.
"""

from typing import TYPE_CHECKING

from stickybus.own_rooms import check_rooms

if TYPE_CHECKING:
    from bus.memory import InMemoryBus
    from bus.persistent import PersistentBus
    from notifications.queue import NotificationQueue
    from notifications.recurring_schedules import Schedule
    from notifications.service import NotificationService
    from queue_core.awaited_retry import RetryOutcome
    from queue_core.dividing import partition_history
    from queue_core.errors import (
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
        ShadowedModuleError,
        StickybusError,
        WriteLockError,
    )
    from queue_core.finishing.feeds import Ended, Feed
    from queue_core.inspector import Inspector, inspect
    from queue_core.model.answers import Done, Fail, Retry
    from queue_core.model.codec import BoundCodec, Codec
    from queue_core.model.compression import CompressedCodec
    from queue_core.model.config import BusConfig, NotificationConfig
    from queue_core.model.encryption import EncryptedCodec
    from queue_core.model.entry import Entry, Located
    from queue_core.model.group import GroupStatus
    from queue_core.model.json_codec import JsonCodec
    from queue_core.model.keyed import Answer, KeyState, KeyStatus, Posted
    from queue_core.model.limit import Limit
    from queue_core.model.missed_policy import MissedPolicy
    from queue_core.model.mode import Mode
    from queue_core.model.node_config import NodeConfig
    from queue_core.model.pause import Pause
    from queue_core.model.posting import Posting
    from queue_core.model.retry import Failure, GiveUp, RetryLater, RetryPolicy
    from queue_core.model.retry_policies import (
        Circuit,
        ExponentialRetries,
        ImmediateRetries,
        ScheduledRetries,
    )
    from queue_core.model.states import State
    from queue_core.opening import create_schema
    from queue_core.reading.bulk import BulkResult, Unchanged
    from queue_core.reading.depths import QueueDepth
    from queue_core.reading.explanation import Explanation
    from queue_core.reading.forgetting import Forgotten
    from queue_core.reading.held_keys import HeldKey
    from queue_core.reading.nodes import NodeStatus
    from queue_core.reading.open_circuits import OpenCircuit
    from queue_core.reading.overview import QueueStatus
    from queue_core.reading.reason import Reason
    from queue_core.reading.schedules import ScheduleStatus
    from queue_core.reading.statistics import ProcessingTimeStats, QueueStats, RetryStats
    from queue_core.reading.workers import WorkerStats
    from queue_core.running.subscriber import EntryContext, ExactlyOnceContext
    from queue_core.runtime.callers import AsyncCallersConnection, CallersConnection
    from queue_core.runtime.clock import Clock, SystemClock
    from queue_core.runtime.manual_clock import ManualClock
    from queue_core.storage.search_keys import KEYLESS, Keyless
    from sql.doctor.finding import Finding
    from sql.partitions import Partition
    from sql.period import Period
    from sql.schema import SchemaReport
    from work_queue.counts import NamespaceStats, WorkStats
    from work_queue.document import Doc, DocClaim, DocSet
    from work_queue.faults import DependencyError, Fault, FaultKind
    from work_queue.finished_task import FinishedTask
    from work_queue.limit import QueueLimit
    from work_queue.modification import (
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
    from work_queue.modified import Modified
    from work_queue.refs import DocRef, SetRef, TaskPlace, TaskRef
    from work_queue.remote.tls import Tls
    from work_queue.replayed import Replayed
    from work_queue.rights import Need, PermissionDeniedError, Right, UnauthenticatedError
    from work_queue.schedule import TaskSchedule
    from work_queue.task import Task
    from work_queue.values import UNREAD
    from work_queue.work_queue import WorkQueue
    from work_queue.workers.job import Job
    from work_queue.workers.requests import FailWorker, MoveTask, StopWorker
    from work_queue.workers.worker import Worker

check_rooms()

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


def __dir__() -> list[str]:
    return __all__


# Type checkers read the imports above: to them, a name that is not there is an error.
if not TYPE_CHECKING:
    from queue_core.runtime.lazy_names import loader
    from stickybus.public_names import MODULES

    __getattr__ = loader(__name__, MODULES)
