"""The limits of database calls, whatever is configured: ordered, and never "without limit"."""

from hypothesis import given
from hypothesis import strategies as st

from sql.time_limits import TimeLimits, milliseconds, whole

LARGEST_SETTING = 2**31 - 1


@given(st.floats(min_value=0, max_value=1e9, exclude_min=True))
def test_a_lock_gives_up_before_its_statement_and_the_server_before_the_client(
    seconds: float,
) -> None:
    limits = TimeLimits(seconds)
    assert 0 <= limits.lock <= limits.statement <= seconds
    assert limits.statement < limits.answer
    assert 1 <= limits.connect <= 10


@given(st.floats(min_value=0, max_value=1e9, exclude_min=True))
def test_each_limit_is_one_that_a_server_takes_and_none_means_without_limit(seconds: float) -> None:
    limits = TimeLimits(seconds)
    for limit in (limits.lock, limits.statement):
        assert 1 <= milliseconds(limit) <= LARGEST_SETTING
        assert 1 <= whole(limit) <= LARGEST_SETTING
