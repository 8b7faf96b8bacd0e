"""An archive on an S3 server: read, verified and erased from without Spark.

Spark writes there by a jar that PyPI lacks. So these tests upload a frozen archive, or write one by
Arrow.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from sqlalchemy import URL
from werkzeug.serving import make_server

from history_pipeline import (
    checksums,
    erase_archived,
    export_delta,
    find_archived,
    rolled_audit,
    verify_archive,
)
from history_pipeline.archives import bundles
from history_pipeline.archives.archive_log import ArchiveLog
from history_pipeline.archives.arrow_storage import ArrowStorage
from history_pipeline.errors import (
    ArchiveConflictError,
    ArchiveDamagedError,
    ArchiveNotFoundError,
    ArchiveTargetError,
)
from history_pipeline.upkeep.files_lock import files_lock
from history_pipeline.upkeep.leftovers import remove_leftovers
from sql.database import Database
from stickybus.cli import main
from tests import requirements as needs
from tests.pipeline.arrow_archive import write_archive
from tests.pipeline.sample import START, ended, sample_history

FROZEN = Path(__file__).parent / "frozen" / "format-4"
TARGET = "s3a://bucket/of/archives"
WRITTEN = "s3a://bucket/written"


class Requests:
    """The requests that the server gets: how many, and which of them come together."""

    def __init__(self) -> None:
        self.count = 0
        self.met = True
        self._changed = threading.Condition()
        self._come, self._expected = set[str](), 0

    def expect_together(self, number: int) -> None:
        """From now on, none of this many reads of manifests is answered before all have come."""
        self._come, self._expected, self.met = set(), number, True

    def counted(self, app: Any) -> Any:
        """The same application, whose requests are counted."""

        def counting(environ: dict[str, Any], start_response: Any) -> Any:
            with self._changed:
                self.count += 1
                if environ["REQUEST_METHOD"] == "GET" and "/manifests/" in environ["PATH_INFO"]:
                    # By path: a client that waits for long asks once more.
                    self._come.add(environ["PATH_INFO"])
                    self._changed.notify_all()
                    together = self._changed.wait_for(lambda: len(self._come) >= self._expected, 20)
                    self.met = self.met and together
            return app(environ, start_response)

        return counting


@pytest.fixture(scope="module")
def requests() -> Requests:
    return Requests()


@pytest.fixture(scope="module")
def endpoint(requests: Requests) -> Iterator[str]:
    app = requests.counted(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=MotoRequestHandler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()


@pytest.fixture
def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A bucket with an archive; where it is and who may read it is told by the environment."""
    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "reader",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    made = boto3.resource("s3").create_bucket(Bucket="bucket")
    made.objects.all().delete()
    for path in FROZEN.rglob("*"):
        if path.is_file():
            made.upload_file(str(path), f"of/archives/{path.relative_to(FROZEN)}")
    return made


def keys(bucket: Any, part: str) -> list[str]:
    return [one.key for one in bucket.objects.all() if part in one.key]


def test_entries_are_found_as_in_a_directory(bucket: Any) -> None:
    del bucket
    assert find_archived(TARGET) == find_archived(str(FROZEN)) != []


def test_manifests_are_read_at_once(bucket: Any, requests: Requests) -> None:
    requests.expect_together(len(keys(bucket, "/manifests/")))
    try:
        assert find_archived(TARGET) == find_archived(str(FROZEN))
        assert requests.met
    finally:
        requests.expect_together(0)


@needs.any_database
def test_a_lookup_takes_fewer_requests_once_manifests_are_bundled(
    bucket: Any, database_url: URL, requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundles, "SIZE", 4)
    write_archive(database_url, WRITTEN, [[ended(number)] for number in range(1, 10)])
    taken, found = list[int](), list[Any]()
    for _ in range(2):
        before = requests.count
        found.append(find_archived(WRITTEN, record_ids=[1]))
        taken.append(requests.count - before)
        erase_archived(WRITTEN, database=database_url, record_ids=[9])

    assert found[0] == found[1] != []
    assert len(keys(bucket, ".bundle")) == 2
    # Two bundles and two manifests, where nine manifests were.
    assert taken[0] - taken[1] >= 9 - 4


def test_slashes_at_the_end_of_a_target_say_nothing(bucket: Any) -> None:
    del bucket
    assert find_archived(f"{TARGET}/") == find_archived(TARGET)
    # The log of the database has this name from Spark.
    assert verify_archive(f"{TARGET}//").target == f"{TARGET}/bus_events"


def test_an_archive_is_verified_by_the_sums_of_its_files(
    bucket: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify_archive(TARGET).damaged == []
    assert checksums(TARGET) == checksums(str(FROZEN))
    assert main(["history", "verify", "--in", TARGET]) == 0
    [first, *_] = keys(bucket, ".parquet")
    content = bucket.Object(first).get()["Body"].read()
    bucket.put_object(Key=first, Body=content[:-1] + bytes([content[-1] ^ 1]))
    assert [one for one in verify_archive(TARGET).damaged if first.endswith(one)]
    assert main(["history", "verify", "--in", TARGET]) == 1
    assert first.rpartition("/")[2] in capsys.readouterr().err


@pytest.mark.parametrize("part", ["manifests/", ".parquet"])
def test_a_file_that_is_gone_is_an_error_that_names_it(bucket: Any, part: str) -> None:
    gone = keys(bucket, part)[0]
    bucket.Object(gone).delete()
    with pytest.raises(ArchiveDamagedError):
        find_archived(TARGET)


def test_roll_ups_are_kept_there(bucket: Any) -> None:
    found = rolled_audit(archive=TARGET)
    kept = keys(bucket, "/rollups/")
    assert kept
    assert found.tables["statistics"].equals(rolled_audit(archive=TARGET).tables["statistics"])
    assert keys(bucket, "/rollups/") == kept


@pytest.fixture
def written(bucket: Any, database_url: URL) -> str:
    """An archive of two runs, written by Arrow, whose log is in a database."""
    del bucket
    rows = [
        *sample_history(),
        *(ended(one, search_key2=4711, user_token="ada") for one in (50, 51)),
    ]
    write_archive(database_url, WRITTEN, [rows[:20], rows[20:]])
    return WRITTEN


def all_texts(bucket: Any) -> str:
    """All that stands in any Parquet file that is there, whoever names it."""
    contents = (
        bucket.Object(key).get()["Body"].read() for key in keys(bucket, "written/bus_events/data")
    )
    return "".join(
        str(pq.read_table(pa.BufferReader(content)).to_pydict()) for content in contents if content
    )


@needs.any_database
def test_a_customer_is_erased_there(bucket: Any, written: str, database_url: URL) -> None:
    before = {one.entry.record_id for one in find_archived(written)}
    assert "ada" in all_texts(bucket)

    done = erase_archived(written, database=database_url, search_key2=4711)

    assert done.record_ids == [50, 51]
    assert "ada" not in all_texts(bucket)
    assert {one.entry.record_id for one in find_archived(written)} == before
    found = verify_archive(written, database=database_url)
    assert (found.entries, found.damaged, found.lost) == (len(before), [], [])
    assert erase_archived(written, database=database_url, record_ids=[50]).run is None


@needs.any_database
def test_leftovers_take_as_many_requests_of_few_runs_as_of_many(
    bucket: Any, database_url: URL, requests: Requests
) -> None:
    del bucket
    taken = list[int]()
    for runs in (2, 9):
        target, numbers = f"{WRITTEN}/{runs}", range(10, 10 + 2 * runs, 2)
        later = START + timedelta(days=3)
        write_archive(
            database_url,
            target,
            [[ended(one), ended(one + 1, finished_date=later)] for one in numbers],
        )
        # Each run has a file that was replaced, and one that stays.
        erase_archived(target, database=database_url, record_ids=numbers)
        log = ArchiveLog(ArrowStorage(f"{target}/bus_events"), "bus_events")
        manifests, before = log.open(), requests.count
        remove_leftovers(log, manifests, now=datetime.now(UTC), logged_runs=())
        taken.append(requests.count - before)
        assert verify_archive(target).damaged == []

    assert taken[0] == taken[1]


@needs.any_database
@pytest.mark.parametrize("step", ["new", "settle", "put", "remove"])
def test_an_erasure_that_was_killed_there_is_run_again(
    bucket: Any, written: str, database_url: URL, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_arguments: object, **_options: object) -> None:
        raise InterruptedError

    with monkeypatch.context() as changing:
        changing.setattr(ArrowStorage, step, stop)
        with pytest.raises(InterruptedError):
            erase_archived(written, database=database_url, search_key2=4711)

    erase_archived(written, database=database_url, search_key2=4711)

    assert "ada" not in all_texts(bucket)
    assert verify_archive(written, database=database_url).damaged == []


@needs.any_database
def test_an_archive_there_has_one_lock_by_either_scheme(written: str, database_url: URL) -> None:
    database = Database(database_url)
    try:
        log = ArchiveLog(ArrowStorage(f"{written}/bus_events"), "bus_events")
        with (
            files_lock(database, log),
            pytest.raises(ArchiveConflictError, match="another compaction, expiry or erasure"),
        ):
            erase_archived(written.replace("s3a:", "s3:"), database=database_url, record_ids=[1])
    finally:
        database.close()


@needs.any_database
def test_the_command_erases_there(
    bucket: Any, written: str, database_url: URL, capsys: pytest.CaptureFixture[str]
) -> None:
    url = database_url.render_as_string(hide_password=False)
    command = ("history", "erase", "--in", written, "--url", url, "--key2", "4711", "--yes")
    assert main(command) == 0, capsys.readouterr().err
    assert "ada" not in all_texts(bucket)


def test_a_directory_without_an_archive_is_said_to_be_one(bucket: Any) -> None:
    del bucket
    with pytest.raises(ArchiveNotFoundError, match="s3a://bucket/elsewhere"):
        verify_archive("s3a://bucket/elsewhere")


def test_a_bucket_that_is_not_there_holds_no_archive(bucket: Any) -> None:
    del bucket
    with pytest.raises(ArchiveNotFoundError, match="s3a://nobodys/archive"):
        verify_archive("s3a://nobodys/archive")


def test_a_storage_that_does_not_answer_is_told(
    bucket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    del bucket
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(ArchiveTargetError, match=r"s3a://bucket/of/archives\S* can't be reached"):
        verify_archive(TARGET)


@needs.any_database
def test_a_delta_table_is_made_there(
    written: str, database_url: URL, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    made = export_delta(written, "s3a://bucket/lake", database=database_url)
    assert made.target == "s3a://bucket/lake/bus_events"
    assert made.added == made.files > 0

    erase_archived(written, database=database_url, record_ids=[1])
    assert export_delta(written, "s3a://bucket/lake").version == made.version + 1
    read = DeltaTable("s3://bucket/lake/bus_events").to_pyarrow_table().to_pylist()
    assert len(read) == made.entries
    assert [row["event_json"] for row in read if row["record_id"] == 1] == [None]
