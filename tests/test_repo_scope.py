"""Modules as scopes: how each statement binds names, and what is noted beside the bindings."""

from __future__ import annotations

import pytest

from dipstick.verdicts.repo_scope import Module, Scope, parameters_of, parse


def module(text: str, name: str = "pkg.mod", file: str = "pkg/mod.py") -> Module:
    """A parsed module."""
    result = parse(name, file, text)
    assert result is not None
    return result


def how(scope: Scope, name: str) -> list[tuple[str, str, int]]:
    """(how, import target, position) of each binding of a name."""
    return [(b.how, b.text, b.index) for b in scope.bindings.get(name, [])]


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("import a", "a", [("import", "a", -1)]),
        ("import a.b", "a", [("import", "a", -1)]),
        ("import a.b as c", "c", [("import", "a.b", -1)]),
        ("from a import b", "b", [("import", "a.b", -1)]),
        ("from a import b as c", "c", [("import", "a.b", -1)]),
        ("from . import b", "b", [("import", "pkg.b", -1)]),
        ("from .a import b", "b", [("import", "pkg.a.b", -1)]),
        ("from a import *", "*", [("import", "a.*", -1)]),
        ("x = 1", "x", [("value", "", -1)]),
        ("x = y = 1", "y", [("value", "", -1)]),
        ("x: int", "x", [("annotation", "", -1)]),
        ("x: int = 1", "x", [("annotation", "", -1), ("value", "", -1)]),
        ("(x := 1)", "x", [("value", "", -1)]),
        ("x, y = f()", "y", [("item", "", 1)]),
        ("[x, y] = f()", "y", [("item", "", 1)]),
        ("x, *y = f()", "y", [("item", "", 1)]),
        ("for x in y: pass", "x", [("element", "", -1)]),
        ("for x, y in z: pass", "y", [("element", "", 1)]),
        ("[x for x in y]", "x", [("element", "", -1)]),
        ("with f() as x: pass", "x", [("enter", "", -1)]),
        ("with f() as x, g() as y: pass", "y", [("enter", "", -1)]),
        ("async def f():\n  pass", "f", [("def", "", -1)]),
        ("class A: pass", "A", [("def", "", -1)]),
        ("if x:\n  a = 1\nelse:\n  a = 2", "a", [("value", "", -1), ("value", "", -1)]),
        ("try:\n  import a\nexcept ImportError:\n  a = None", "a", [("import", "a", -1), ("value", "", -1)]),
        ("x[0] = 1", "x", []),
        ("x.y = 1", "x", []),
    ],
)
def test_how_a_name_is_bound(text: str, name: str, expected: list[tuple[str, str, int]]) -> None:
    """At module level, in source order."""
    assert how(module(text).scope, name) == expected


def test_a_relative_import_in_a_package_is_relative_to_it() -> None:
    """``pkg/__init__.py`` is ``pkg`` itself."""
    inside = module("from .a import b", "pkg", "pkg/__init__.py")

    assert how(inside.scope, "b") == [("import", "pkg.a.b", -1)]


def test_functions_have_scopes_of_their_own() -> None:
    """Parameters are bound inside, the name outside; nested ones are qualified."""
    found = module("def f(a, /, b, *c, d=1, **e):\n    def g(): pass\n    x = 1\n")

    assert [s.name for s in found.scopes] == ["pkg.mod", "pkg.mod.f", "pkg.mod.f.g"]
    assert [how(found.scopes[1], n)[0][0] for n in "abcde"] == ["param"] * 5
    assert how(found.scopes[1], "x") == [("value", "", -1)]
    assert how(found.scope, "x") == []
    assert found.scopes[1].nested == [found.scopes[2]]


def test_parameters_come_in_the_order_in_which_calls_fill_them() -> None:
    """``*args`` and ``**kwargs`` last."""
    node = module("def f(a, /, b, *c, d=1, **e): pass").scopes[1].node
    assert node is not None

    assert [p.arg for p in parameters_of(node)] == ["a", "b", "d", "c", "e"]  # type: ignore[arg-type]  # a function


def test_a_global_statement_binds_in_the_module() -> None:
    """The usual way to keep a pool."""
    found = module("_pool = None\ndef init():\n    global _pool\n    _pool = Pool(2)\n")

    assert how(found.scope, "_pool") == [("value", "", -1), ("value", "", -1)]
    assert how(found.scopes[1], "_pool") == []


def test_attributes_of_a_class() -> None:
    """Fields, methods, ``self.x`` in any method, also in functions inside one; not through another name."""
    found = module(
        "class A:\n    size: int = 1\n    def __init__(self, other):\n        self.pool = Pool()\n"
        "        other.x = 1\n        def later():\n            self.late = 1\n    def run(me):\n        me.z, me.w = f()\n"
    )
    attributes = found.scopes[1].attributes

    assert sorted(attributes) == ["__init__", "late", "pool", "run", "size", "w", "z"]
    assert [b.how for b in attributes["size"]] == ["annotation", "value"]
    assert [b.how for b in attributes["run"]] == ["def"]
    assert [(b.how, b.index) for b in attributes["w"]] == [("item", 1)]


def test_owner_and_self() -> None:
    """A method knows its class and the name of its ``self``; a function has neither."""
    found = module("class A:\n    def f(me): pass\ndef g(x): pass\n")
    _, owner, method, function = found.scopes

    assert (method.owner(), method.first_parameter()) == (owner, "me")
    assert (function.owner(), function.first_parameter()) == (None, "")
    assert (owner.is_class, method.is_class) == (True, False)


def test_calls_belong_to_the_function_that_makes_them() -> None:
    """Comprehensions to the function around, decorators and defaults to the scope outside."""
    found = module("@deco()\ndef f(a=default()):\n    [inner() for _ in more()]\n    outer(nested())\n")

    def names(scope: Scope) -> list[str]:
        return sorted(call.func.id for call in scope.calls)  # type: ignore[attr-defined]  # all are names

    assert names(found.scopes[0]) == ["deco", "default"]
    assert names(found.scopes[1]) == ["inner", "more", "nested", "outer"]


def test_with_statements_and_returns_are_kept() -> None:
    """For locks, and for what a function gives back."""
    found = module("def f():\n    with lock, open(p) as q:\n        return 1\n    return\n")

    assert (len(found.scopes[1].withs), len(found.scopes[1].returns)) == (2, 1)


def test_a_lambda_returns_its_body() -> None:
    """It is a function without a name."""
    found = module("f = lambda a: g(a)")

    assert [s.name for s in found.scopes] == ["pkg.mod", "pkg.mod.<lambda>"]
    assert (len(found.scopes[1].returns), len(found.scopes[1].calls)) == (1, 1)


@pytest.mark.parametrize("text", ["def", "x = (", "\x00", "(" * 500, "x = 1\n  y = 2"])
def test_what_is_no_python_is_none(text: str) -> None:
    """Never an exception."""
    assert parse("m", "m.py", text) is None


def test_warnings_of_the_parser_stay_inside() -> None:
    """An invalid escape is no error of ours, even where warnings are errors (as in this test run)."""
    assert parse("m", "m.py", "x = '\\d'\nassert (1, 'always true')\n") is not None
