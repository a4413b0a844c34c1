"""The size budget. Small modules and functions are how the codebases that people like to read look."""

from __future__ import annotations

import ast
import statistics
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("src/dipstick", "src/crystal_rl")
Function = ast.FunctionDef | ast.AsyncFunctionDef


def sources(*folders: str) -> dict[str, str]:
    """Path and text of every module that is not empty."""
    files = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return {str(path.relative_to(ROOT)): text for path in files if (text := path.read_text()).strip()}


def functions() -> dict[str, Function]:
    """Every function and method of the packages, named ``file:line name``."""
    return {
        f"{file}:{node.lineno} {node.name}": node
        for file, text in sources(*PACKAGES).items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, Function)
    }


def lines_of(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def length(function: Function) -> int:
    """Lines from ``def`` to the end without the docstring: 2 for ``def f():``, docstring, ``return 1``."""
    has_docstring = ast.get_docstring(function, clean=False) is not None
    return lines_of(function) - (lines_of(function.body[0]) if has_docstring else 0)


def over(sizes: dict[str, int], limit: int) -> dict[str, int]:
    return {name: size for name, size in sizes.items() if size > limit}


def percentile_90(sizes: list[int]) -> float:
    return statistics.quantiles(sizes, n=10, method="inclusive")[-1]


def test_modules_are_small() -> None:
    """Half of the modules have at most 150 lines, none more than 450."""
    sizes = {file: len(text.splitlines()) for file, text in sources(*PACKAGES).items()}
    assert over(sizes, 450) == {}
    assert statistics.median(sizes.values()) <= 150


def test_functions_are_small() -> None:
    """Half of the functions have at most 8 lines, nine of ten at most 30, none more than 60."""
    sizes = {name: length(function) for name, function in functions().items()}
    assert over(sizes, 60) == {}
    assert percentile_90(list(sizes.values())) <= 30
    assert statistics.median(sizes.values()) <= 8


def test_every_argument_and_return_value_is_annotated() -> None:
    """100 % of the functions name the type of each argument (but self and cls) and of what they return."""

    def is_bare(function: Function) -> bool:
        a = function.args
        named = [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]
        bare = [arg.arg for arg in named if arg.annotation is None and arg.arg not in {"self", "cls"}]
        return bool(bare) or function.returns is None

    assert [name for name, function in functions().items() if is_bare(function)] == []


def test_there_are_at_least_as_many_lines_of_tests_as_of_source() -> None:
    """Blank lines count on both sides."""
    source, tests = (
        sum(len(text.splitlines()) for text in sources(*folders).values())
        for folders in (PACKAGES, ("tests",))
    )
    assert tests >= source
