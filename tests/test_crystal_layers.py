"""crystal_rl is a package of its own: dipstick knows nothing of it, and it uses little of dipstick."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"
MAY_USE = ("dipstick.errors", "dipstick.cli", "dipstick.show.words")
"""Of dipstick: its errors, its way of having verbs, and the cleaning of strings for terminals. And public names."""


def modules(package: str) -> dict[str, Path]:
    """Dotted name and path of each module."""
    found = {}
    for path in sorted((SOURCE / package).rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(path: Path, *, everywhere: bool = True) -> set[str]:
    """Dotted names that a module imports; without ``everywhere`` only those at its top level."""
    tree = ast.parse(path.read_text())
    found = set()
    for node in ast.walk(tree) if everywhere else tree.body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_dipstick_does_not_know_crystal_rl() -> None:
    """It explains other people's loops; ours is one of them."""
    users = [
        name for name, path in modules("dipstick").items() if any("crystal_rl" in i for i in imports_of(path))
    ]
    assert users == []


def test_crystal_rl_uses_little_of_dipstick() -> None:
    """Errors, verbs, and what users have: span, instant, wrap."""
    public = {"dipstick", "dipstick.span", "dipstick.instant", "dipstick.wrap", "dipstick.__version__"}
    used = {name for path in modules("crystal_rl").values() for name in imports_of(path)}
    ours = {name for name in used if name.split(".")[0] == "dipstick"}
    assert {name for name in ours if not name.startswith(MAY_USE)} <= public


def test_modules_form_no_cycle() -> None:
    """Imports at the top level have an order (a cycle raises CycleError)."""
    names = modules("crystal_rl")
    graph = {}
    for name, path in names.items():
        targets = imports_of(path, everywhere=False)
        owners = {target if target in names else target.rpartition(".")[0] for target in targets}
        graph[name] = {owner for owner in owners if owner in names and owner != name}
    assert set(TopologicalSorter(graph).static_order()) == names.keys()


def test_what_is_pure_stays_pure() -> None:
    """Messages, grammar and reward import neither ASE nor torch, not even inside functions."""
    for name in ("messages", "errors", "grammar", "reward", "summary"):
        packages = {found.split(".")[0] for found in imports_of(SOURCE / "crystal_rl" / f"{name}.py")}
        assert packages & {"ase", "numpy", "torch", "scipy", "pymatgen"} == set()
