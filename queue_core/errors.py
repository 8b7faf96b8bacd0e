"""Every error that this library raises on purpose.

    StickybusError
    ├── ConfigurationError          a setting, a registration or a schedule that can't work
    ├── ShadowedModuleError         a foreign module took an import name of the library
    ├── SchemaError                 the tables don't fit this version
    │   ├── SchemaMissingError
    │   ├── SchemaTooOldError
    │   └── SchemaTooNewError
    ├── DatabaseUnreachableError
    │   └── CommitUnknownError      COMMIT gave no answer: its rows may be there
    ├── NodeNameTakenError          a live node holds the name
    ├── ForkedError                 used in a child process of the one that started it
    ├── LifecycleError              started already, not stopped, or a closed work queue
    ├── InvalidPostError            an argument of a post, a schedule or a read
    │   ├── InvalidEventError       `validate` says no, or raised
    │   ├── NaiveDateTimeError
    │   └── NameTooLongError
    ├── InvalidRequestError         a call of a work queue that can never be done
    ├── PayloadError
    │   ├── PayloadNotSerialisableError
    │   ├── PayloadTooLargeError
    │   └── PayloadNotDecodableError
    ├── InvalidConnectionError      closed, of another database, or of another kind
    ├── WriteLockError              SQLite: the caller's transaction read first, and can't write
    ├── DuplicateKeyError           another entry has the key
    ├── KeyLockedError              a transaction that has taken the key is still open
    ├── GroupNotFoundError
    ├── GroupSealedError            it takes no further members
    ├── GroupLockedError            a transaction that has posted into it is still open
    ├── DependencyError             something is not as a call of a work queue says (`work_queue`)
    ├── UnauthenticatedError        a service does not know who calls (`work_queue`)
    ├── PermissionDeniedError       a caller of a service lacks rights (`work_queue`)
    ├── EntryNotFoundError
    ├── EntryNotChangeableError     it runs already, or has ended
    ├── QueueExistsError
    ├── QueueNotFoundError
    └── HistoryConflictError        history holds this id with other content

A message tells the fault, its entry or queue, whether anything was written, and the cure.
The facts in it are attributes too, `None` where they don't apply. Facts are plain values, so that
errors survive pickling.
"""


class StickybusError(Exception):
    """Base of all errors of this library; `facts` become attributes of the same names."""

    queue_name: str | None = None
    class_name: str | None = None
    record_id: int | None = None
    node_name: str | None = None
    table: str | None = None

    def __init__(self, message: str, **facts: object) -> None:
        super().__init__(message)
        # BaseException.__reduce__ carries __dict__ along, but no keyword argument of __init__.
        self.__dict__.update(facts)


class ConfigurationError(StickybusError):
    """A setting or registration that can't work.

    `source` is the variable or the file that it came from.
    """

    key: str | None = None
    value: object = None
    source: str | None = None


class ShadowedModuleError(StickybusError):
    """An import name of this library belongs to a foreign module, found at `path`."""

    module: str | None = None
    path: str | None = None


class SchemaError(StickybusError):
    """The database's tables don't fit this version. `found` and `expected` are schema revisions."""

    found: str | None = None
    expected: str | None = None


class SchemaMissingError(SchemaError):
    """The tables don't exist; create them with `stickybus schema create`."""


class SchemaTooOldError(SchemaError):
    """The tables are of an older version; upgrade them with `stickybus schema upgrade`."""


class SchemaTooNewError(SchemaError):
    """The tables are of a newer version than this library knows; upgrade the library."""


class DatabaseUnreachableError(StickybusError):
    """No connection to the database. `url` hides its password."""

    url: str | None = None


class CommitUnknownError(DatabaseUnreachableError):
    """A COMMIT gave no answer. If it took effect, its entries are there, and are delivered.

    `record_ids` are the ids of the entries that it would have written, and empty if they are not
    known. Look before you write again.
    """

    record_ids: tuple[int, ...] = ()


class NodeNameTakenError(StickybusError):
    """A live node holds the name `node_name`: the process `pid` on the host `hostname`."""

    hostname: str | None = None
    pid: int | None = None


class ForkedError(StickybusError):
    """The object was started in the process `started_pid`, before a fork.

    Threads and connections don't cross a fork.
    """

    started_pid: int | None = None


class LifecycleError(StickybusError):
    """The call doesn't fit the state of its object.

    It is started already, or has to be stopped for this call; or a work queue was closed; or
    another call of this kind is at work on the table.
    """


class InvalidPostError(StickybusError):
    """An argument that can't be accepted. `key` names it, `value` is the given one."""

    key: str | None = None
    value: object = None


class InvalidEventError(InvalidPostError):
    """An event that its `validate` predicate refuses, at a post or before a run.

    Before a run, `record_id` is the entry's; it ends FAILED without a call of its handlers.
    """


class NaiveDateTimeError(InvalidPostError):
    """A datetime without a time zone."""


class NameTooLongError(InvalidPostError):
    """A name past its limit of `limit` characters."""

    limit: int | None = None


class PayloadError(StickybusError):
    """The payload of an event can't be stored or read."""

    codec: str | None = None


class PayloadNotSerialisableError(PayloadError):
    """The codec can't write this event; nothing was written."""


class PayloadTooLargeError(PayloadError):
    """The payload has `size_bytes`, the cap is `cap_bytes`; nothing was written."""

    size_bytes: int | None = None
    cap_bytes: int | None = None


class PayloadNotDecodableError(PayloadError):
    """The stored payload can't be read; its bytes are kept."""


class InvalidConnectionError(StickybusError):
    """The given connection can't be used here.

    It is closed, leads to another database, server or schema, or is asynchronous in a synchronous
    call. Or its transaction can't see a task that a call names, because it has read before.
    """


class WriteLockError(StickybusError):
    """SQLite refused the write lock to a transaction that had read first.

    Begin such a transaction with BEGIN IMMEDIATE.
    """


class DuplicateKeyError(StickybusError):
    """Another entry, `record_id`, has the key `key`; `answer` says where that stands.

    Nothing was written, and the transaction is whole.
    """

    key: str | None = None
    answer: str | None = None


class KeyLockedError(StickybusError):
    """Another transaction, which is still open, has taken the key `key`, or one of several (None).

    Nothing was written, and the transaction is whole: post again, or roll back.
    """

    key: str | None = None


class GroupNotFoundError(StickybusError):
    """The table has no group `group_id`. Maybe it was rolled back, or complete for long."""

    group_id: int | None = None


class GroupSealedError(StickybusError):
    """The group `group_id` is sealed: it takes no further members. Nothing was written."""

    group_id: int | None = None


class GroupLockedError(StickybusError):
    """Another transaction, which is still open, has posted into the group `group_id`.

    Nothing was written, and the transaction is whole: post again, or roll back.
    """

    group_id: int | None = None


class EntryNotFoundError(StickybusError):
    """No such entry, neither live nor in history. A retry looks in history only."""


class EntryNotChangeableError(StickybusError):
    """The entry is running, or has ended, or was tried again before.

    `state` is its state, None in the last case.
    """

    state: str | None = None


class QueueExistsError(StickybusError):
    """A queue of this name exists already in this service."""


class QueueNotFoundError(StickybusError):
    """No queue of this name in this service."""


class HistoryConflictError(StickybusError):
    """History already holds `record_id` with other content; the entry stays in the main table."""


class InvalidRequestError(StickybusError):
    """A call of a work queue that can never be done, because of one argument, or of two.

    `key` names the argument, `value` is the given one. Nothing was written.
    """

    key: str | None = None
    value: object = None
