"""The tables of hooks, and which of them wait for which package.

Every module here has a ``TABLE``: module to wait for -> targets (a function instead of a target is called with the
module). One that gathers rows between flushes has a ``gather``, one that keeps state a ``forget`` for fork's children. It is imported when the first module of its
package is, so a process without TRL never reads the TRL table.
"""

from __future__ import annotations

from importlib import import_module

from .. import imports, opened, trouble
from ..state import STATE
from . import gc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from .. import patch

    Entry = patch.Target | Callable[[ModuleType], None]

WAITING = {
    "accelerate": ("accelerate",),
    "concurrent": ("pools",),
    "joblib": ("pools", "pickles"),
    "loky": ("pools", "pickles"),
    "multiprocessing": ("pools", "pickles", "children"),
    "nemo_rl": ("nemo_rl",),
    "openrlhf": ("openrlhf",),
    "pebble": ("pools",),
    "prime_rl": ("prime_rl",),
    "safetensors": ("torch",),
    "skyrl": ("skyrl",),
    "skyrl_train": ("skyrl",),
    "slime": ("slime",),
    "torch": ("torch", "torch_distributed", "pickles"),
    "transformers": ("transformers",),
    "trl": ("trl",),
    "verl": ("verl",),
    "vllm": ("vllm",),
}
"""Top-level package -> modules of this folder."""

_tables: dict[str, list[Entry]] = {}
_read: set[str] = set()
_finders: list[imports.PostImport] = []
_gatherers: list[Callable[..., None]] = [opened.gather]
_forgetters: list[Callable[[], None]] = [opened.forget]


def install() -> None:
    """Wait for the frameworks."""
    gc.install()
    finder = imports.PostImport(_is_wanted, _arrived)
    _finders.append(finder)
    finder.install()


def uninstall() -> None:
    """Everything off again, in the reverse order."""
    while _finders:
        _finders.pop().uninstall()
    from .. import patch  # noqa: PLC0415 - inspect and functools, only where a framework is

    patch.uninstall()
    gc.uninstall()


def gather(*, final: bool) -> None:
    """Called by the writer's thread: add what is gathered between flushes."""
    for each in _gatherers:
        each(final=final)


def forget() -> None:
    """In a fork's child: drop what the parent was gathering."""
    for each in _forgetters:
        each()


def _is_wanted(name: str) -> bool:
    """Whether a hook waits for this module. Called at every import: two look-ups for nearly all of them."""
    package = name.partition(".")[0]
    if package not in WAITING:
        return False
    if package not in _read:
        _read.add(package)
        _read_tables(package)
    return name in _tables


def _read_tables(package: str) -> None:
    for hook in WAITING[package]:
        try:
            module = import_module(f".{hook}", __package__)
        except Exception as error:  # fail open: this framework goes unhooked
            trouble.note(f"hooks.{hook}", error)
            continue
        for name, targets in module.TABLE.items():
            if name.partition(".")[0] == package:
                _tables.setdefault(name, []).extend(targets)
        if hasattr(module, "gather") and module.gather not in _gatherers:
            _gatherers.append(module.gather)
        if hasattr(module, "forget") and module.forget not in _forgetters:
            _forgetters.append(module.forget)


def _arrived(name: str, module: ModuleType) -> None:
    """A module that is waited for has been imported."""
    try:
        from .. import patch  # noqa: PLC0415 - as above

        if STATE.on:
            entries = _tables[name]
            patch.install(module, [entry for entry in entries if isinstance(entry, patch.Target)])
            for entry in entries:
                if not isinstance(entry, patch.Target):
                    entry(module)
    except Exception as error:  # fail open: the import itself went well
        trouble.note(name, error)
