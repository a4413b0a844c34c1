"""Post-import hooks: run something right after a module has been imported, before its importer goes on.

A finder in front of ``sys.meta_path`` lets the others find the module and wraps only the ``exec_module`` of the
loader they give. Lazy packages (transformers, TRL) need nothing special: the hook runs when the submodule is
really imported. Modules that nobody waits for cost one dictionary look-up.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any


class _Loader:
    """Stands in front of a loader that takes no attributes of ours (a zip importer serves many modules)."""

    def __init__(self, loader: Any, exec_module: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self.exec_module = exec_module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As the loader behind says."""
        made: ModuleType | None = self._loader.create_module(spec)
        return made


class PostImport:
    """The finder.

    Args:
        wanted: Whether somebody waits for a module of this name.
        arrived: Called with the name and the module, after its code has run. Must not raise.
    """

    def __init__(self, wanted: Callable[[str], bool], arrived: Callable[[str, ModuleType], None]) -> None:
        self._wanted = wanted
        self._arrived = arrived

    def install(self) -> None:
        """Go in front, and catch up on what is imported already."""
        sys.meta_path.insert(0, self)
        for name, module in list(sys.modules.items()):
            if self._wanted(name):
                self._arrived(name, module)

    def uninstall(self) -> None:
        """Leave ``sys.meta_path``."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The other finders' spec, with our word after its ``exec_module``; None for all other modules."""
        if not self._wanted(name):
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if finder is self or find is None else find(name, path, target)
            if spec is not None:
                self._arm(name, spec)
                return spec
        return None

    def _arm(self, name: str, spec: ModuleSpec) -> None:
        loader: Any = spec.loader
        exec_module = getattr(loader, "exec_module", None)
        if exec_module is None:
            return

        def run(module: ModuleType) -> None:
            getattr(loader, "__dict__", {}).pop("exec_module", None)  # the module keeps its loader as it was
            exec_module(module)
            self._arrived(name, sys.modules.get(name, module))

        if getattr(loader, "name", None) == name and hasattr(loader, "__dict__"):
            loader.exec_module = run  # file loaders serve one module each
        else:
            spec.loader = _Loader(loader, run)  # type: ignore[assignment] # it quacks
