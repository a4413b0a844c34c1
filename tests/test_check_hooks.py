"""The probe's hooks against a framework's source, by syntax tree: what fits, what is absent, what differs."""

from __future__ import annotations

import sys
import textwrap
import zipfile
from typing import TYPE_CHECKING

import pytest

import check_hooks
from check_hooks import Seen, Source, look

if TYPE_CHECKING:
    from pathlib import Path

TIMER = """
import functools

class Timer:
    def __enter__(self): ...
    async def __aenter__(self): ...

@functools.lru_cache
def _timer(name: str, timing_raw, *, flops=None, **kwargs): ...

try:
    from fast import gather
except ImportError:
    def scatter(x): ...
"""


def folder(path: Path, text: str = TIMER, module: str = "frame/utils") -> Source:
    """A package whose one module holds this."""
    file = path / f"{module}.py"
    file.parent.mkdir(parents=True)
    file.write_text(textwrap.dedent(text))
    return Source(path)


@pytest.mark.parametrize(
    ("attr", "needs", "state", "why"),
    [
        ("_timer", ("name", "timing_raw"), "fits", ""),
        ("_timer", ("flops",), "fits", ""),
        ("_timer", ("kwargs",), "fits", ""),
        ("_timer", ("name", "message"), "differs", "lacks message"),
        ("Timer.__enter__", (), "fits", ""),
        ("Timer.__aenter__", ("self",), "fits", ""),
        ("Timer.start", (), "absent", "no start"),
        ("Clock.start", (), "absent", "no Clock"),
        ("gather", (), "fits", "imported from fast"),
        ("scatter", ("x",), "fits", ""),
        ("Timer", ("name",), "differs", "no function"),
    ],
)
def test_a_target_is_looked_up_where_the_hook_expects_it(
    attr: str, needs: tuple[str, ...], state: str, why: str, tmp_path: Path
) -> None:
    """Decorators, coroutines, ``try`` and imports included; parameters by their names."""
    assert look(folder(tmp_path), "frame.utils", attr, needs) == Seen(f"frame.utils:{attr}", state, why)  # type: ignore[arg-type]


def test_a_module_that_moved_is_absent(tmp_path: Path) -> None:
    """Not an error: hooks list the places of several versions."""
    assert look(folder(tmp_path), "frame.profiler", "_timer") == Seen(
        "frame.profiler:_timer", "absent", "no such module"
    )


def test_the_last_definition_counts(tmp_path: Path) -> None:
    """As at run time."""
    source = folder(tmp_path, "def f(a): ...\nif True:\n    def f(b): ...\n")

    assert [look(source, "frame.utils", "f", (name,)).state for name in "ab"] == ["differs", "fits"]


def test_a_package_s_own_file_is_a_module(tmp_path: Path) -> None:
    """``frame`` is ``frame/__init__.py``."""
    assert look(folder(tmp_path, module="frame/__init__"), "frame", "_timer").state == "fits"


def wheel(path: Path, *, prefix: str = "") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(
            f"{prefix}skyrl/train/utils/utils.py", TIMER + "class Timer:\n    def __enter__(self): ...\n"
        )
    return path


@pytest.mark.parametrize("prefix", ["", "skyrl-0.4.data/purelib/", "skyrl-0.4.data/platlib/"])
def test_a_wheel_is_read_as_pip_would_lay_it_out(prefix: str, tmp_path: Path) -> None:
    """OpenRLHF's keeps its packages under ``.data/purelib``."""
    source = Source(wheel(tmp_path / "a.whl", prefix=prefix))

    assert source.has("skyrl")
    assert not source.has("verl")
    assert look(source, "skyrl.train.utils.utils", "Timer.__enter__").state == "fits"


def test_the_probe_s_own_tables_are_what_is_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A SkyRL whose Timer has lost its exit and its async twins: one fits, three are told."""
    assert check_hooks.main([str(wheel(tmp_path / "a.whl"))]) == 0
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()[1:]] == [
        ["fits", "skyrl.train.utils.utils:Timer.__enter__"], ["absent", "skyrl.train.utils.utils:Timer.__exit__"],
        ["absent", "skyrl.train.utils.utils:Timer.__aenter__"], ["absent", "skyrl.train.utils.utils:Timer.__aexit__"],
    ]  # fmt: skip


def test_a_package_of_the_same_name_that_is_another_one_is_an_error(tmp_path: Path) -> None:
    """PyPI's ``slime`` 0.0.0 isn't the framework: nothing fits."""
    folder(tmp_path, "x = 1\n", "slime/__init__")

    assert check_hooks.main([str(tmp_path)]) == 1


def test_parameters_that_differ_are_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Verl renames one: the hook would stand down, and this says so first."""
    folder(tmp_path, "def _timer(label, timing): ...\n", "verl/utils/profiler/performance")

    assert check_hooks.main([str(tmp_path)]) == 1
    assert (
        "differs verl.utils.profiler.performance:_timer  (lacks name, timing_raw)" in capsys.readouterr().out
    )


def test_nothing_to_compare_is_an_error(tmp_path: Path) -> None:
    """A wrong path must not look like a check that passed."""
    assert check_hooks.main([str(tmp_path)]) == 1


def test_every_framework_has_a_table() -> None:
    """So that a hook module that is renamed is missed here."""
    named = {package for package, table in check_hooks.tables().items() if table}

    assert named >= {"verl", "openrlhf", "skyrl", "nemo_rl", "slime", "prime_rl", "trl", "vllm", "accelerate"}
    assert "dipstick_probe" in sys.modules
