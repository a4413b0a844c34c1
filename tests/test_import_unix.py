"""Moments become Unix nanoseconds without a float between."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from dipstick.importers.unix import unix_ns


@pytest.mark.parametrize(
    ("when", "ns"),
    [
        (datetime(1970, 1, 1, tzinfo=UTC), 0),
        (datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC), 1_500_000_000),
        (datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), 0),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), -1_000),
        (datetime(2099, 12, 31, 23, 59, 59, 123_457, tzinfo=UTC), 4_102_444_799_123_457_000),
    ],
)
def test_a_moment_is_exact_to_the_microsecond(when: datetime, ns: int) -> None:
    """Also where a double of seconds would not be."""
    assert unix_ns(when) == ns


def test_a_moment_without_a_zone_is_utc() -> None:
    """As loggers that leave the zone out mean it."""
    assert unix_ns(datetime(2026, 11, 30, 12)) == unix_ns(datetime(2026, 11, 30, 12, tzinfo=UTC))  # noqa: DTZ001 - the point
