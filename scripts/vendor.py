"""Fetch the JavaScript that reports carry, from npm: pinned, checked, with its licence.

``python scripts/vendor.py`` writes src/dipstick/show/assets/vendor; ``--check`` says whether it is what npm has.
Why uPlot: one file of 51 kB without dependencies, canvas (a million points a second), synchronized cursors, MIT,
maintained since 2019, and used by Grafana for its time series.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import sys
import tarfile
import urllib.request
from pathlib import Path
from typing import NamedTuple

VENDOR = Path(__file__).resolve().parent.parent / "src" / "dipstick" / "show" / "assets" / "vendor"


class Package(NamedTuple):
    """One npm package: where it is, what it must hash to, and which of its files go where."""

    url: str
    sha512: str
    files: dict[str, str]


PACKAGES = (
    Package(
        "https://registry.npmjs.org/uplot/-/uplot-1.6.32.tgz",
        "KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgkMy+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw==",
        {
            "package/dist/uPlot.iife.min.js": "uPlot.js",
            "package/dist/uPlot.min.css": "uPlot.css",
            "package/LICENSE": "uPlot.LICENSE",
        },
    ),
)


def fetch(package: Package) -> dict[str, bytes]:
    """The wanted files of a package, by the name they get here; a tarball with another hash is refused."""
    with urllib.request.urlopen(package.url, timeout=60) as answer:  # noqa: S310 - https, written above
        content: bytes = answer.read()
    found = base64.b64encode(hashlib.sha512(content).digest()).decode()
    if found != package.sha512:
        raise SystemExit(f"{package.url}: sha512-{found}, expected sha512-{package.sha512}")
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        members = {ours: archive.extractfile(theirs) for theirs, ours in package.files.items()}
        return {ours: member.read() for ours, member in members.items() if member is not None}


def main(argv: list[str] | None = None) -> int:
    """Write or check; names each file that differs."""
    parser = argparse.ArgumentParser(description="Fetch the JavaScript that reports carry.")
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 if a file differs")
    options = parser.parse_args(argv)
    stale = False
    for package in PACKAGES:
        for name, content in fetch(package).items():
            path = VENDOR / name
            if path.is_file() and path.read_bytes() == content:
                continue
            stale = True
            print(f"{path}: {'differs' if options.check else 'written'}", file=sys.stderr)
            if not options.check:
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(content)
    return int(stale and options.check)


if __name__ == "__main__":
    sys.exit(main())
