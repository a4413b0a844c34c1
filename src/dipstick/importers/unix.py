"""Moments as Unix nanoseconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def unix_ns(when: datetime) -> int:
    """Nanoseconds since 1970, exact to the microsecond; a moment without a zone is UTC.

    Example: 1970-01-01T00:00:01.5+00:00 is 1,500,000,000.
    """
    aware = when if when.tzinfo else when.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1) * 1000
