"""Post-import hooks: they run when a module has really been imported, and leave the import as it was."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from dipstick.probe.dipstick_probe.imports import PostImport
from probed import write_package

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

Waiter = tuple[PostImport, list[str]]


@pytest.fixture
def waiter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Waiter]:
    """A finder that waits for ``waited*`` modules and notes what they hold when it is told."""
    seen: list[str] = []

    def arrived(name: str, module: ModuleType) -> None:
        seen.append(f"{name} {vars(module).get('READY', '?')}")

    finder = PostImport(lambda name: name.startswith("waited"), arrived)
    monkeypatch.syspath_prepend(tmp_path)
    finder.install()
    yield finder, seen
    finder.uninstall()
    for name in [name for name in sys.modules if name.startswith(("waited", "other"))]:
        del sys.modules[name]


def test_the_hook_runs_after_the_module_and_before_its_importer(tmp_path: Path, waiter: Waiter) -> None:
    """A name bound by ``from waited import f`` is what the hook left there."""
    write_package(
        tmp_path, {"waited.py": "READY = 'yes'", "other.py": "import waited\nfrom waited import READY"}
    )
    importlib.import_module("other")
    assert waiter[1] == ["waited yes"]


@pytest.mark.usefixtures("waiter")
def test_the_module_keeps_its_loader_spec_and_source(tmp_path: Path) -> None:
    """inspect, pkgutil and reload find what they would without us."""
    write_package(tmp_path, {"waited.py": "READY = 1\ndef f():\n    return 7\n"})
    module = importlib.import_module("waited")
    assert type(module.__loader__).__name__ == "SourceFileLoader"
    assert "exec_module" not in vars(module.__loader__)
    assert inspect.getsource(module.f) == "def f():\n    return 7\n"


def test_a_submodule_that_is_imported_lazily(tmp_path: Path, waiter: Waiter) -> None:
    """As in TRL: the package is there long before the submodule; the hook waits for the latter."""
    lazy = """
        def __getattr__(name):
            from importlib import import_module
            return getattr(import_module("waited_pkg.deep"), name)
    """
    write_package(tmp_path, {"waited_pkg/deep.py": "READY = 'deep'; THING = 3"})
    write_package(tmp_path, {"waited_pkg/__init__.py": lazy})
    package = importlib.import_module("waited_pkg")
    first = list(waiter[1])
    assert (package.THING, [name.split()[0] for name in first]) == (3, ["waited_pkg"])
    assert waiter[1][len(first) :] == ["waited_pkg.deep deep"]


def test_asking_for_a_spec_imports_nothing(tmp_path: Path, waiter: Waiter) -> None:
    """``find_spec("vllm")`` is how libraries ask whether it is installed."""
    write_package(tmp_path, {"waited.py": "READY = 1"})
    assert importlib.util.find_spec("waited") is not None
    assert (importlib.util.find_spec("waited_missing"), waiter[1], "waited" in sys.modules) == (
        None,
        [],
        False,
    )


def test_a_failing_import_fails_as_it_would_and_may_be_tried_again(tmp_path: Path, waiter: Waiter) -> None:
    """The error is the module's; the hook runs when the second try succeeds."""
    write_package(
        tmp_path,
        {"waited.py": "import builtins\nif not hasattr(builtins, 'TRY'): raise OSError('first')\nREADY = 2"},
    )
    with pytest.raises(OSError, match="first"):
        importlib.import_module("waited")
    vars(sys.modules["builtins"])["TRY"] = 1
    try:
        importlib.import_module("waited")
    finally:
        del vars(sys.modules["builtins"])["TRY"]
    assert waiter[1] == ["waited 2"]


def test_a_reloaded_module_is_hooked_again(tmp_path: Path, waiter: Waiter) -> None:
    """Its new functions are not wrapped yet."""
    write_package(tmp_path, {"waited.py": "READY = 1"})
    importlib.reload(importlib.import_module("waited"))
    assert waiter[1] == ["waited 1"] * 2


def test_a_loader_that_serves_many_modules(
    tmp_path: Path, waiter: Waiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A zip's loader is shared: only the module that is waited for is hooked, and its data is still reachable."""
    with zipfile.ZipFile(tmp_path / "lib.zip", "w") as archive:
        archive.writestr("waited_zipped.py", "READY = 'zip'")
        archive.writestr("other_zipped.py", "READY = 'no'")
    monkeypatch.syspath_prepend(tmp_path / "lib.zip")
    module = importlib.import_module("waited_zipped")
    importlib.import_module("other_zipped")
    loader: Any = module.__loader__
    assert (waiter[1], loader.get_source("waited_zipped")) == (
        ["waited_zipped zip"],
        "READY = 'zip'",
    )


@pytest.mark.usefixtures("waiter")
def test_modules_that_are_imported_already_are_caught_up_with(tmp_path: Path) -> None:
    """A second finder that comes late is told at once."""
    write_package(tmp_path, {"waited.py": "READY = 1"})
    importlib.import_module("waited")
    seen: list[str] = []
    late = PostImport(lambda name: name == "waited", lambda name, _: seen.append(name))
    late.install()
    late.uninstall()
    assert (seen, late in sys.meta_path) == (["waited"], False)


@pytest.mark.usefixtures("waiter")
def test_other_finders_without_find_spec_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old packages put objects there that only have ``find_module``."""
    write_package(tmp_path, {"waited.py": "READY = 1"})
    monkeypatch.setattr(sys, "meta_path", [sys.meta_path[0], object(), *sys.meta_path[1:]])
    assert importlib.util.find_spec("waited") is not None
