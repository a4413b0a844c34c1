"""Compare the probe's hooks with a framework's real source, without importing the framework.

    python scripts/check_hooks.py SOURCE…

SOURCE is a wheel (``pip download --no-deps verl==0.9.1``) or a folder with the package in it. Every target of every hook
whose package is in there is looked up in the syntax tree: is the attribute defined where the hook expects it, and does it
take the parameters that the wrapper reads? Alternatives for several versions of a package (another module, or a name that
came and went) are listed as absent; a package of which nothing fits is an error. docs/probe.md says what was checked when.
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src" / "dipstick" / "probe"))

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

State = Literal["fits", "absent", "differs"]
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Seen:
    """What became of one target: ``differs`` has the attribute with other parameters."""

    target: str
    state: State
    why: str = ""


class Source:
    """Python files of a wheel or a folder, by their path inside it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._wheel = zipfile.ZipFile(path) if path.is_file() else None
        members = self._wheel.namelist() if self._wheel else ()
        self._members = {re.sub(r"^[^/]+\.data/(?:purelib|platlib)/", "", name): name for name in members}
        """Where pip would put it -> its name in the wheel."""

    def module(self, name: str) -> ast.Module | None:
        """Its syntax tree; None where there is no such module."""
        stem = name.replace(".", "/")
        for file in (f"{stem}.py", f"{stem}/__init__.py"):
            text = self._read(file)
            if text is not None:
                return ast.parse(text)
        return None

    def has(self, package: str) -> bool:
        """Whether the package is in it at all."""
        return self.module(package) is not None or any(self._under(f"{package}/"))

    def _under(self, folder: str) -> Iterator[str]:
        if self._wheel is not None:
            return (name for name in self._members if name.startswith(folder))
        return (str(path) for path in (self._path / folder).glob("**/*.py"))

    def _read(self, file: str) -> str | None:
        try:
            return (
                self._wheel.read(self._members[file]).decode()
                if self._wheel
                else (self._path / file).read_text()
            )
        except (KeyError, OSError):
            return None


def look(source: Source, module: str, attr: str, needs: Iterable[str] = ()) -> Seen:
    """One target in the source.

    Args:
        source: The framework.
        module: Where the hook waits.
        attr: Dotted path inside it.
        needs: Parameters that the wrapper reads.
    """
    target, tree = f"{module}:{attr}", source.module(module)
    if tree is None:
        return Seen(target, "absent", "no such module")
    found: ast.AST | None = tree
    for name in attr.split("."):
        found = _member(found, name)
        if found is None:
            return Seen(target, "absent", f"no {name}")
    if isinstance(found, ast.ImportFrom):
        return Seen(target, "fits", f"imported from {found.module}")
    if not isinstance(found, Function):
        return Seen(
            target,
            "fits" if isinstance(found, ast.ClassDef) and not tuple(needs) else "differs",
            "no function",
        )
    lacks = [name for name in needs if name not in parameters(found)]
    return Seen(target, "differs", f"lacks {', '.join(lacks)}") if lacks else Seen(target, "fits")


def _member(tree: ast.AST | None, name: str) -> ast.AST | None:
    """The last definition of a name in a module's or class's body, also under ``if`` and ``try``."""
    found = None
    for node in _body(tree):
        if (isinstance(node, Function | ast.ClassDef) and node.name == name) or (
            isinstance(node, ast.ImportFrom) and name in {alias.asname or alias.name for alias in node.names}
        ):
            found = node
    return found


def _body(tree: ast.AST | None) -> Iterator[ast.AST]:
    for node in getattr(tree, "body", ()):
        yield node
        if isinstance(node, ast.If | ast.Try):
            yield from _body(node)
            yield from (
                inner
                for part in (node.orelse, *(h.body for h in getattr(node, "handlers", ())))
                for inner in part
            )


def parameters(function: Function) -> set[str]:
    """Names that can be passed; ``**kwargs`` counts only as itself, as at run time."""
    spec = function.args
    names = {one.arg for one in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)}
    return names | {one.arg for one in (spec.vararg, spec.kwarg) if one}


def check(source: Source, table: dict[str, Iterable[Any]]) -> list[Seen]:
    """Every target of a hook's table; callbacks (no targets) are left out."""
    return [
        look(source, module, target.attr, target.needs)
        for module, targets in table.items()
        for target in targets
        if hasattr(target, "attr")
    ]


def tables() -> dict[str, dict[str, Iterable[Any]]]:
    """The tables of the probe's hooks, by package."""
    hooks = importlib.import_module("dipstick_probe.hooks")
    return {
        package: {m: t for name in names for m, t in importlib.import_module(f"dipstick_probe.hooks.{name}").TABLE.items() if m.split(".")[0] == package}
        for package, names in hooks.WAITING.items()
    }  # fmt: skip


def main(paths: list[str]) -> int:
    """Print a line a target; 1 if a package fits nowhere or a target's parameters differ."""
    status, looked = 0, 0
    for path in paths:
        source = Source(Path(path))
        for package, table in tables().items():
            if not table or not source.has(package):
                continue
            found = check(source, table)
            looked += len(found)
            print(f"{path}: {package}")
            for seen in found:
                print(f"  {seen.state:8}{seen.target}{f'  ({seen.why})' if seen.why else ''}")
            if any(s.state == "differs" for s in found) or all(s.state == "absent" for s in found):
                status = 1
    if not looked:
        print("nothing in there that a hook waits for")
    return status if looked else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
