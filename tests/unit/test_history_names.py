"""What is public of the pipeline is imported from its package; former modules work until 1.0."""

from __future__ import annotations

import importlib
from operator import attrgetter
from typing import Any

import pytest

import history_pipeline

BEFORE = [
    "archive.read_archive",
    "archiving.archive_history",
    "audit.audit",
    "changes.archive_changes",
    "compaction.compact_archive",
    "content.verify_content",
    "erasure.erase_archived",
    "expiry.expire_archive",
    "lookup.find_archived",
    "replay.replay_archive",
    "report.write_page",
    "rolled_audit.rolled_audit",
    "sources.read_history",
    "verification.checksums",
    "verification.verify_archive",
]
"""What the reference named, each by its module, before the package had rooms."""
STILL_THERE = ["errors.PipelineError", "scale.Scale", "session.open_session"]


def read(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"history_pipeline.{module}"), name)


@pytest.mark.parametrize("path", BEFORE)
def test_a_former_path_works_and_warns_of_its_end(path: str) -> None:
    module, _, name = path.partition(".")
    told = f"^history_pipeline.{path} will be removed in 1.0: use history_pipeline.{name}$"
    with pytest.warns(DeprecationWarning, match=told) as warned:
        found = read(module, name)
    assert [warning.filename for warning in warned] == [__file__]
    assert found is getattr(history_pipeline, name)
    assert callable(found)


@pytest.mark.parametrize("path", STILL_THERE)
def test_a_path_that_is_still_there_does_not_warn(path: str) -> None:
    assert read(*path.split("."))


def test_a_former_module_is_an_attribute_of_its_package() -> None:
    with pytest.warns(DeprecationWarning, match="use history_pipeline.find_archived"):
        found = attrgetter("lookup.find_archived")(history_pipeline)
    assert found is history_pipeline.find_archived


def test_a_function_is_not_hidden_by_the_former_module_of_its_name() -> None:
    importlib.import_module("history_pipeline.audit")
    importlib.import_module("history_pipeline.rolled_audit")
    assert history_pipeline.audit.__name__ == "audit"
    assert history_pipeline.rolled_audit.__name__ == "rolled_audit"


@pytest.mark.parametrize("module", ["", ".lookup"])
def test_a_name_that_never_was_is_no_attribute(module: str) -> None:
    name = f"history_pipeline{module}"
    with pytest.raises(AttributeError, match=f"^module '{name}' has no attribute 'find'$"):
        importlib.import_module(name).find  # noqa: B018 -- reading it is the test
