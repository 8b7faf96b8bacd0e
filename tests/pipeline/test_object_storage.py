"""An archive on an S3 server, read and verified without Spark.

Spark writes there by a jar that PyPI lacks. So these tests upload a frozen archive.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from history_pipeline import checksums, find_archived, rolled_audit, verify_archive
from history_pipeline.errors import ArchiveDamagedError, ArchiveNotFoundError, ArchiveTargetError
from stickybus.cli import main

FROZEN = Path(__file__).parent / "frozen" / "format-4"
TARGET = "s3a://bucket/of/archives"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


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
