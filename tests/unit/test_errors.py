"""The error tree: facts as attributes, one base, documented."""

import inspect
import pickle
from pathlib import Path

import pytest

from queue_core import errors
from queue_core.errors import PayloadTooLargeError, StickybusError

ERRORS = [
    error
    for _, error in inspect.getmembers(errors, inspect.isclass)
    if issubclass(error, StickybusError) and error.__module__ == errors.__name__
]
REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "errors.md"


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_survives_pickling_with_its_facts(error: type[StickybusError]) -> None:
    original = error("Nothing was written.", record_id=7, queue_name="o'clock", extra=(1, 2))
    copy = pickle.loads(pickle.dumps(original))  # noqa: S301 -- our own bytes
    assert type(copy) is error
    assert str(copy) == "Nothing was written."
    assert vars(copy) == {"record_id": 7, "queue_name": "o'clock", "extra": (1, 2)}


def test_a_fact_that_was_not_given_is_none() -> None:
    error = PayloadTooLargeError("too large", size_bytes=5)
    assert (error.size_bytes, error.cap_bytes, error.record_id) == (5, None, None)


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_is_drawn_in_the_tree_and_explained_in_the_reference(
    error: type[StickybusError],
) -> None:
    assert errors.__doc__ is not None
    assert f" {error.__name__}" in errors.__doc__
    assert f"`{error.__name__}`" in REFERENCE.read_text(encoding="utf-8")


def test_the_tree_is_drawn_with_the_depth_that_the_classes_have() -> None:
    assert errors.__doc__ is not None
    for line in errors.__doc__.splitlines():
        name = line.strip("│├└─ ").split(" ")[0]
        if name.endswith("Error") and hasattr(errors, name):
            depth = (len(line) - len(line.lstrip("│├└─ ")) - 4) // 4
            error: type[StickybusError] = getattr(errors, name)
            assert error.__mro__.index(StickybusError) == depth, line
