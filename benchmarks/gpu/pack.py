"""Share files out over loads that the device tool can carry, with their digests; the counterpart of ``unpack.py``.

    python benchmarks/gpu/pack.py .wheels FILE…

Files go in the order given, each into the current load if it still fits; one that does not fit into any is cut.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

CARRIED = 64 << 20
"""Bytes that travel with a call: the repository and what is carried."""
SPARE = 2 << 20
"""Of these left free: the repository grows between packing and the call."""
TAR_BLOCK = 512
SMALLEST = 4 << 20
"""A piece below this is not worth a cut: the load is closed instead."""


def cut(sizes: list[int], limit: int, smallest: int) -> list[list[tuple[int, int, int]]]:
    """Loads of (file, first byte, last byte + 1).

    With limit 10 and files of 6, 7 and 3: ``[[(0, 0, 6), (1, 0, 4)], [(1, 4, 7), (2, 0, 3)]]`` with pieces of any size.
    """
    loads: list[list[tuple[int, int, int]]] = [[]]
    room = limit
    for file, size in enumerate(sizes):
        start = 0
        while start < size:
            if room < min(smallest, size - start):
                loads.append([])
                room = limit
            end = min(size, start + room)
            loads[-1].append((file, start, end))
            room -= end - start
            start = end
    return loads


def tree(root: Path) -> int:
    """Bytes of the tar of what travels with every call: files that git tracks or doesn't ignore."""
    names = subprocess.run(
        ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"],
        check=True, capture_output=True, text=True,
    ).stdout.split("\0")  # fmt: skip
    files = [root / name for name in names if name and (root / name).is_file()]
    return sum(TAR_BLOCK * (1 + -(-file.stat().st_size // TAR_BLOCK)) for file in files)


def room(repository: int) -> int:
    """Bytes a load may have beside a repository of so many.

    Raises:
        SystemExit: Less than a tenth is left: something large lies in the repository that git doesn't ignore.
    """
    left = CARRIED - SPARE - repository
    if left < CARRIED // 10:
        raise SystemExit(
            f"the repository takes {repository:,} of {CARRIED:,} bytes: ignore or move what is large"
        )
    return left


def main(folder: Path, files: list[Path], limit: int) -> None:
    """Write the loads, none larger than the limit."""
    loads = cut([file.stat().st_size for file in files], limit, SMALLEST)
    counts = [sum(f == i for load in loads for f, _, _ in load) for i in range(len(files))]
    written = [0] * len(files)
    for number, load in enumerate(loads, 1):
        into = folder / str(number)
        into.mkdir(parents=True, exist_ok=True)
        sums = []
        for i, start, end in load:
            whole = counts[i] == 1 and files[i].name.endswith(".tar.xz")
            name = files[i].name + ("" if whole else f".piece-{written[i]}-of-{counts[i]}")
            written[i] += 1
            data = files[i].read_bytes()[start:end]
            (into / name).write_bytes(data)
            sums.append(f"{hashlib.sha256(data).hexdigest()}  {name}")
        (into / "SHA256SUMS").write_text("\n".join(sums) + "\n")
        print(f"{into}: {sum(end - start for _, start, end in load):,} bytes, {len(load)} files")


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]], room(tree(Path(__file__).parents[2])))
