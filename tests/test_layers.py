"""One direction: capture -> recording -> analysis -> verdicts -> show. Checked on the imports in the source."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src" / "dipstick"

LEAVES = {"errors", "clock", "judgement", "model", "phases"}
# Every layer may read the recording format and the leaves; apart from that only what comes before it in the flow.
# `samples` is data with a path in front of it; `api` and `cli` sit on top of everything.
MAY_IMPORT: dict[str, set[str]] = {
    **{leaf: set() for leaf in LEAVES},
    "model": {"judgement"},  # a report holds the nouns of judging
    "probe": set(),
    "samples": LEAVES,
    "recording": LEAVES | {"samples"},
    "capture": LEAVES | {"recording"},
    "importers": LEAVES | {"recording"},
    "analysis": LEAVES | {"recording"},
    "verdicts": LEAVES | {"recording", "analysis"},
    "show": LEAVES | {"recording", "analysis", "verdicts"},
}
ON_TOP = {"", "__main__", "api", "cli", "selftest"}
HEAVY = {"jinja2", "matplotlib", "numpy", "pandas", "polars", "pyarrow", "pynvml", "rich", "scipy", "yaml"}


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def name_of(path: Path) -> str:
    """``recording.reader`` for src/dipstick/recording/reader.py; a package's name for its ``__init__``."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path, tree: ast.AST) -> list[str]:
    """Absolute dotted names of everything a module imports, also inside functions and TYPE_CHECKING.

    ``from dipstick.recording import schema`` gives ``dipstick.recording.schema``: a submodule may hide in a name.
    """
    package = ["dipstick", *path.relative_to(SOURCE).parts[:-1]]
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            head = [*base, *(node.module.split(".") if node.module else [])]
            found += [".".join([*head, alias.name]) for alias in node.names]
    return found


def layer_of(dotted: str) -> str:
    """``recording`` for ``dipstick.recording.schema``, empty for a name of the package itself."""
    parts = dotted.split(".")
    is_module = len(parts) > 1 and ((SOURCE / parts[1]).is_dir() or (SOURCE / f"{parts[1]}.py").is_file())
    return parts[1] if is_module else ""


def violations(path: Path) -> list[str]:
    layer = name_of(path).split(".")[0]
    if layer in ON_TOP:
        return []
    names = imports_of(path, ast.parse(path.read_text()))
    ours = {layer_of(name) for name in names if name.split(".")[0] == "dipstick"}
    return sorted(ours - MAY_IMPORT.get(layer, set()) - {layer})


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_a_layer_never_imports_a_later_one(path: Path) -> None:
    """Whatever a module imports of ours is its own layer, a leaf, the recording, or an earlier layer."""
    assert violations(path) == []


def test_every_layer_has_a_rule() -> None:
    """A new folder or module on the top level must be given its place in the flow first."""
    assert {name_of(path).split(".")[0] for path in modules()} - MAY_IMPORT.keys() - ON_TOP == set()


def test_the_check_sees_relative_hidden_and_submodule_imports() -> None:
    """The three ways to get round a text search are found."""
    text = "if TYPE_CHECKING:\n    from ..show import html\ndef f():\n    import dipstick.cli\nfrom dipstick import verdicts"
    found = imports_of(SOURCE / "analysis" / "states.py", ast.parse(text))
    assert sorted(found) == ["dipstick.cli", "dipstick.show.html", "dipstick.verdicts"]


def test_modules_form_no_cycle() -> None:
    """No import cycle hides inside a layer either (a cycle raises CycleError)."""
    names = {f"dipstick.{name_of(path)}".rstrip("."): path for path in modules()}
    graph: dict[str, set[str]] = {}
    for name, path in names.items():
        targets = imports_of(path, ast.parse(path.read_text()))
        owners = {n if n in names else n.rpartition(".")[0] for n in targets}
        graph[name] = {owner for owner in owners if owner in names and owner not in {name, "dipstick"}}
    assert set(TopologicalSorter(graph).static_order()) == names.keys()


def test_importing_the_cli_loads_no_heavy_package() -> None:
    """`dipstick --help` answers at once: whatever needs polars or rich imports it when it runs."""
    code = "import sys, dipstick, dipstick.cli; print(*sorted({n.split('.')[0] for n in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert HEAVY & set(done.stdout.split()) == set()
