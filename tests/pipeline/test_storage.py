"""Both kinds of storage keep the same promises.

A file has its newest content, and folders are listed and removed alike.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from history_pipeline.archives.storage import HadoopStorage, LocalStorage, Storage, storage_of
from history_pipeline.rows.fingerprint import Fingerprint
from history_pipeline.rows.hashes import aggregates, row_hash
from history_pipeline.rows.schema import HISTORY_SCHEMA


@pytest.fixture(params=["local", "hadoop"])
def storage(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Storage:
    """A directory that does not exist yet, by each of the two.

    Hadoop's as it would be on another file system.
    """
    root = tmp_path / "a directory with ü and spaces"
    if request.param == "local":
        return LocalStorage(root)
    jvm: Any = spark.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path(root.as_uri().replace("%20", " ").replace("%C3%BC", "ü"))
    system = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    return HadoopStorage(jvm, system, system.makeQualified(path))


def test_a_file_has_the_content_that_was_put_last(storage: Storage) -> None:
    storage.put("manifests/1.json", b"first")

    storage.put("manifests/1.json", b"second")

    assert storage.read("manifests/1.json") == b"second"
    assert [name for name in storage.names("manifests") if not name.startswith(".")] == ["1.json"]


def test_many_files_are_read_in_the_order_in_which_they_are_named(storage: Storage) -> None:
    names = [f"manifests/{number}.json" for number in range(30, 0, -1)]
    for name in names:
        storage.put(name, name.encode())

    assert storage.read_all(names) == [name.encode() for name in names]
    with pytest.raises(Exception, match=r"31\.json"):
        storage.read_all([*names, "manifests/31.json"])


def test_files_are_listed_with_their_sizes_and_hidden_ones_are_not(storage: Storage) -> None:
    for path in (
        "data/run/day=1/a.parquet",
        "data/run/day=2/b.parquet",
        "data/run/_temporary/c.parquet",
    ):
        storage.put(path, b"12345")
    storage.put("data/run/_SUCCESS", b"")
    storage.settle(["data/run/day=1/a.parquet"])
    assert storage.names("data/run/day=1/a.parquet") in ([], ["a.parquet"])

    assert storage.sizes("data/run") == {
        "data/run/day=1/a.parquet": 5,
        "data/run/day=2/b.parquet": 5,
    }
    assert storage.sizes("data") == storage.sizes("data/run")
    assert storage.names("data") == ["run"]


def test_files_and_folders_are_their_owners_alone(storage: Storage) -> None:
    """Also those that Spark has made, with whatever mode it gave them."""
    storage.make("manifests")
    storage.put("manifests/1.json", b"1")
    root = Path(storage.root.removeprefix("file:"))
    data = root / "data/run/day=1/a.parquet"
    data.parent.mkdir(parents=True)
    data.write_bytes(b"1")
    data.with_name(".a.parquet.crc").write_bytes(b"1")

    storage.settle(["data/run/day=1/a.parquet"])

    modes = {
        path: root.joinpath(path).stat().st_mode & 0o777
        for path in ("", "manifests", "manifests/1.json", "data/run", "data/run/day=1")
    }
    assert modes == {
        "": 0o700,
        "manifests": 0o700,
        "manifests/1.json": 0o600,
        "data/run": 0o700,
        "data/run/day=1": 0o700,
    }
    assert data.stat().st_mode & 0o777 == 0o600


def test_what_is_not_there_is_empty_and_can_be_removed(storage: Storage) -> None:
    assert (storage.names("data"), storage.sizes("data")) == ([], {})
    storage.remove("data")
    storage.make("manifests")
    storage.make("manifests")
    assert storage.names("") == ["manifests"]
    storage.put("data/a", b"1")
    storage.put("data/b", b"1")
    storage.remove("data/b")
    assert storage.names("data") == ["a"]
    storage.remove("data")
    assert storage.names("") == ["manifests"]


def test_a_path_without_a_scheme_is_a_local_directory(spark: SparkSession, tmp_path: Path) -> None:
    for target in (str(tmp_path), tmp_path.as_uri()):
        storage = storage_of(spark, target)
        assert isinstance(storage, LocalStorage)
        assert storage.root == str(tmp_path)


def rows_with(spark: SparkSession, *changes: dict[str, Any]) -> Fingerprint:
    """The fingerprint of rows that are NULL but for `changes`."""
    empty = dict.fromkeys(HISTORY_SCHEMA.names)
    rows = [tuple({**empty, **change}.values()) for change in changes]
    found = (
        spark.createDataFrame(rows, HISTORY_SCHEMA)
        .agg(*aggregates(row_hash(HISTORY_SCHEMA.names)))
        .first()
    )
    assert found is not None
    return Fingerprint.of(found)


def test_a_fingerprint_tells_sets_of_rows_apart_but_not_their_order(spark: SparkSession) -> None:
    one, two = {"record_id": 1, "event_json": "a"}, {"record_id": 2, "event_json": "b"}
    both = rows_with(spark, one, two)

    assert rows_with(spark, two, one) == both == rows_with(spark, one) + rows_with(spark, two)
    assert both.rows == 2
    for other in (
        [one],
        [one, one],
        [one, {**two, "event_json": "c"}],
        [one, {**two, "event_json": None}],
        # The same value, a column further on.
        [one, {"record_id": 2, "codec": "b"}],
        [one, two, two],
    ):
        assert rows_with(spark, *other) != both
    assert rows_with(spark, {"search_key1": 1}) != rows_with(spark, {"search_key2": 1})


def test_a_sum_of_hashes_does_not_overflow(spark: SparkSession) -> None:
    many = rows_with(spark, *({"record_id": number} for number in range(300)))
    assert many.rows == 300
    assert 0 <= many.total < 2**64
    assert Fingerprint(1, 5, 5, 2**64 - 1) + Fingerprint(1, 3, 3, 2) == Fingerprint(2, 3, 5, 1)
    assert Fingerprint() + many == many
