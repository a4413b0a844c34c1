"""What renderers read of a recording: its tables and where t = 0 lies. A redacted recording is one, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl


class Recorded(Protocol):
    """A recording, as far as a renderer may look into it."""

    @property
    def start_unix_ns(self) -> int:
        """Where t = 0 lies."""

    @property
    def end_unix_ns(self) -> int:
        """The latest time in any row."""

    def table(
        self,
        name: str,
        *,
        start_ns: int | None = None,
        end_ns: int | None = None,
        columns: Sequence[str] | None = None,
    ) -> pl.DataFrame:
        """Rows of one table, as :meth:`dipstick.recording.reader.Recording.table` gives them."""

    def scan(self, name: str) -> pl.LazyFrame:
        """Rows of one table as stored, as :meth:`dipstick.recording.reader.Recording.scan` gives them."""
