"""Make the samples that are shipped with dipstick from the real traces beside the repository.

    python scripts/make_samples.py [TRACES] [SAMPLES]

TRACES is ../shared/traces unless given. The same traces give the same bytes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from dipstick.importers import import_path

ROOT = Path(__file__).resolve().parent.parent
LIMITS = {"h200x2-grpo": 1_500_000, "h200x2-grpo-135m": 1_000_000}
"""Sample name and the most bytes it may have."""

CREATED_UNIX_NS = 1_796_000_000_000_000_000
"""A fixed creation time (2026-11-30), so that the files do not change from run to run."""


def main(traces: Path, samples: Path) -> int:
    """Convert each trace; returns 1 if one is over its limit."""
    status = 0
    for name, limit in LIMITS.items():
        folder = import_path(
            traces / name, samples / name, force=True, level=19, created_unix_ns=CREATED_UNIX_NS
        )
        for path in (folder, *folder.iterdir()):
            path.chmod(0o755 if path.is_dir() else 0o644)  # a run folder is private; a shipped one is not
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        print(f"{folder}: {size:,} bytes (limit {limit:,})")
        status |= size > limit
    return status


if __name__ == "__main__":
    arguments = [Path(argument) for argument in sys.argv[1:]]
    defaults = [ROOT.parent / "shared" / "traces", ROOT / "src" / "dipstick" / "samples"]
    sys.exit(main(*(arguments + defaults[len(arguments) :])))
