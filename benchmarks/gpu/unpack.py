"""Check and unpack one load of what the GPU machine lacks; nothing is fetched there, and a call may carry 64 MiB.

    python benchmarks/gpu/unpack.py .wheels/1 [--into /tmp/dipstick-env]

A load is a folder with ``SHA256SUMS``, archives (``*.tar.xz``, unpacked into ``INTO/site``) and pieces of files
(``NAME.piece-0-of-2``, joined in ``INTO`` once all have come, and unpacked if that is an archive). Made by ``pack.py``.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
import tarfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

PIECE = re.compile(r"(?P<name>.+)\.piece-(?P<number>\d+)-of-(?P<count>\d+)")
INTO = Path("/tmp/dipstick-env")  # noqa: S108  # a machine of one's own, thrown away afterwards


def unpack(file: Path, digest: str, into: Path) -> str:
    """Check one file against its digest and put it where it belongs.

    Raises:
        SystemExit: It is not the file that was packed.
    """
    data = file.read_bytes()
    if hashlib.sha256(data).hexdigest() != digest:
        raise SystemExit(f"{file}: not the file that was packed (SHA-256 differs): carry it again")
    site, pieces = into / "site", into / "pieces"
    for folder in (site, pieces):
        folder.mkdir(parents=True, exist_ok=True)
    if not PIECE.fullmatch(file.name):
        return extract(file, site)
    (pieces / file.name).write_bytes(data)
    return f"{file.name}: kept"


def extract(file: Path, site: Path) -> str:
    """Unpack one archive; packages of several archives share folders."""
    with tarfile.open(file) as archive:
        archive.extractall(site, filter="data")
    return f"{file.name}: unpacked"


def join(into: Path) -> list[str]:
    """Put together every file of which all pieces are there."""
    found: dict[tuple[str, int], dict[int, Path]] = {}
    for path in (into / "pieces").iterdir():
        if match := PIECE.fullmatch(path.name):
            key = match["name"], int(match["count"])
            found.setdefault(key, {})[int(match["number"])] = path
    whole = []
    for (name, count), pieces in found.items():
        if len(pieces) == count:
            (into / name).write_bytes(b"".join(pieces[i].read_bytes() for i in range(count)))
            whole.append(extract(into / name, into / "site") if name.endswith(".tar.xz") else name)
    return whole


def main() -> int:
    """Unpack, join, say what is there."""
    parser = argparse.ArgumentParser(description="Unpack one load.")
    parser.add_argument("load", type=Path)
    parser.add_argument("--into", type=Path, default=INTO)
    wanted = parser.parse_args()
    lines = (wanted.load / "SHA256SUMS").read_text().splitlines()
    files = [(wanted.load / name, digest) for digest, name in (line.split(maxsplit=1) for line in lines)]
    with ProcessPoolExecutor() as pool:
        jobs = [pool.submit(unpack, file, digest, wanted.into) for file, digest in files]
        print(*(job.result() for job in jobs), sep="\n")
    print("whole:", *join(wanted.into))
    return 0


if __name__ == "__main__":
    sys.exit(main())
