"""Callables behind expressions, and what runs when a function runs."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

from dipstick.verdicts.repo_context import Context, argument
from dipstick.verdicts.repo_walk import Limits, Texts

if TYPE_CHECKING:
    from dipstick.verdicts.repo_scope import Module

HEAD = """
from functools import partial
import outside

def f(x, y=1): return x
def g(x): return f(x)

class Box:
    size = 1
    def __init__(self, inner=None):
        self.inner = inner
        self.default = f
    def __call__(self, x): return self.method(x)
    def method(self, x): return g(x)
    @staticmethod
    def static(x): return x

box = Box()

def factory(kind):
    def made(x): return g(x)
    return made

def choose(flag):
    return f if flag else g
"""


def context(text: str, **others: str) -> tuple[Context, Module]:
    """A scan's context and its module ``m``."""
    files = {"m.py": text, **{f"{name}.py": body for name, body in others.items()}}
    result = Context(Texts(files=files), Limits())
    module = result.checkout.module("m.py")
    assert module is not None
    return result, module


def targets(expression: str, body: str = "") -> list[tuple[str, str, int]]:
    """(name, how sure, number of values that travel along) of what an expression can stand for."""
    found, module = context(f"{HEAD}\n{body}\nanswer = {expression}\n")
    node = module.scope.bindings["answer"][-1].node
    assert isinstance(node, ast.expr)
    return [(t.name, t.sure, len(t.bound)) for t in found.follow.callables(node, module.scope)]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("f", [("m.f", "resolved", 0)]),
        ("[f, g]", [("m.f", "resolved", 0), ("m.g", "resolved", 0)]),
        ("[f] + [g]", [("m.f", "resolved", 0), ("m.g", "resolved", 0)]),
        ("f if x else g", [("m.f", "resolved", 0), ("m.g", "resolved", 0)]),
        ("partial(f, 1, y=2)", [("m.f", "resolved", 2)]),
        ("partial(partial(f, 1), y=2)", [("m.f", "resolved", 2)]),
        ("lambda x: f(x)", [("m.<lambda>", "resolved", 0)]),
        ("Box()", [("m.Box.__call__", "resolved", 1)]),
        ("box", [("m.Box.__call__", "resolved", 1)]),
        ("box.method", [("m.Box.method", "resolved", 1)]),
        ("Box.static", [("m.Box.static", "resolved", 0)]),
        ("box.default", [("m.f", "resolved", 0)]),
        ("factory('a')", [("m.factory.made", "resolved", 0)]),
        ("choose(True)", [("m.f", "resolved", 0), ("m.g", "resolved", 0)]),
        ("{'a': f, 'b': g}[name]", [("m.f", "by name", 0), ("m.g", "by name", 0)]),
        ("outside.score", [("outside.score", "resolved", 0)]),
        ("outside.make()", [("outside.make", "by name", 0)]),
        ("'org/model'", [("org/model", "resolved", 0)]),
        ("nowhere().thing", [("thing", "by name", 0)]),
    ],
)
def test_what_an_expression_can_stand_for(expression: str, expected: list[tuple[str, str, int]]) -> None:
    """And what is pickled with it: arguments of a partial, the object of a method."""
    assert targets(expression) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("funcs = [f]\nfuncs.append(g)\nv = funcs", ["m.f", "m.g"]),
        ("for v in [f, g]: pass", ["m.f", "m.g"]),
        ("from other import LIST as v", ["other.h"]),
        ("import other\nv = other.LIST", ["other.h"]),
    ],
)
def test_lists_are_followed_to_their_functions(body: str, expected: list[str]) -> None:
    """Appended to, looped over, from another module."""
    found, module = context(f"{HEAD}\n{body}\nanswer = v\n", other="def h(x): ...\nLIST = [h]\n")
    node = module.scope.bindings["answer"][-1].node
    assert isinstance(node, ast.expr)

    assert [t.name for t in found.follow.callables(node, module.scope)] == expected


def reached(text: str, start: str, **others: str) -> set[str]:
    """Names of the functions that run when a function runs."""
    found, module = context(HEAD + text, **others)
    scope = next(s for s in module.scopes if s.name == start)
    return {s.name for s in found.follow.reach([scope])} - {start}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def start(): f(1)", {"m.f"}),
        ("def start(): g(1)", {"m.f", "m.g"}),
        ("def start(): Box()", {"m.Box.__init__"}),
        ("def start(): box.method(1)", {"m.Box.method", "m.f", "m.g"}),
        ("def start(): pool.map(g, xs)", {"m.f", "m.g"}),
        ("def start():\n    def later(): f(1)\n", {"m.start.later", "m.f"}),
        ("def start(): start()", set()),
        ("def start(): outside.go()", set()),
        ("def start():\n    from other import h\n    h()", {"other.h", "other.i"}),
    ],
)
def test_what_runs_when_a_function_runs(text: str, expected: set[str]) -> None:
    """Through calls, constructors, methods, functions passed on, nested functions and other modules."""
    others = {"other": "def h(): i()\ndef i(): pass\n"}

    assert reached(text, "m.start", **others) == expected


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("f(1, 2)", "2"),
        ("f(1, name=2)", "2"),
        ("f(1)", None),
        ("f(*a, 2)", None),
        ("f(1, *a)", None),
        ("f(**k)", None),
    ],
)
def test_an_argument_by_name_or_position(call: str, expected: str | None) -> None:
    """What a star hides is not guessed."""
    node = ast.parse(call, mode="eval").body
    assert isinstance(node, ast.Call)

    found = argument(node, "name", 1)

    assert (None if found is None else ast.unparse(found)) == expected
