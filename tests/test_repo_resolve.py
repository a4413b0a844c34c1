"""Names followed to their definitions: modules, imports, classes, and the bounds on the effort."""

from __future__ import annotations

import ast

import pytest

from dipstick.verdicts.repo_resolve import CALLING_FILES, Checkout, Ref, last_name
from dipstick.verdicts.repo_walk import Limits, Texts


def checkout(files: dict[str, str], limits: Limits | None = None) -> Checkout:
    """A checkout from texts."""
    return Checkout(Texts(files=files), limits or Limits())


def resolved(expression: str, files: dict[str, str], at: str = "m.py") -> tuple[str, str] | None:
    """(qualified name, ``file:line`` or empty) of an expression at the end of a module."""
    texts = {**files, at: files.get(at, "") + f"\nanswer = {expression}\n"}
    tree = checkout(texts)
    module = tree.module(at)
    assert module is not None
    ref = tree.resolve(module.scope.bindings["answer"][-1].node, module.scope)
    return None if ref is None else (ref.name, f"{ref.file}:{ref.line}" if ref.file else "")


@pytest.mark.parametrize(
    ("expression", "text", "expected"),
    [
        ("f", "def f(): pass", ("m.f", "m.py:1")),
        ("A.f", "class A:\n    def f(self): pass", ("m.A.f", "m.py:2")),
        ("g", "def f(): pass\ng = f", ("m.f", "m.py:1")),
        ("partial(f, 1)", "from functools import partial\ndef f(): pass", ("m.f", "m.py:2")),
        ("lambda: 1", "", ("m.<lambda>", "m.py:2")),
        ("trl.GRPOTrainer", "import trl", ("trl.GRPOTrainer", "")),
        ("T", "from trl import GRPOTrainer as T", ("trl.GRPOTrainer", "")),
        ("d.barrier", "import torch.distributed as d", ("torch.distributed.barrier", "")),
        ("torch.cuda.empty_cache", "import torch", ("torch.cuda.empty_cache", "")),
        ("print", "", ("print", "")),
        ("f()", "def f(): pass", None),
        ("x", "x = 1", None),
        ("f.g", "def f(): pass", None),
    ],
)
def test_inside_one_module(expression: str, text: str, expected: tuple[str, str] | None) -> None:
    """Functions, methods, other names, partials, lambdas, names outside, builtins; values are none of these."""
    assert resolved(expression, {"m.py": text}) == expected


@pytest.mark.parametrize(
    ("text", "others", "expected"),
    [
        ("from a import f", {"a.py": "def f(): pass"}, ("a.f", "a.py:1")),
        ("import a\nf = a.f", {"a.py": "def f(): pass"}, ("a.f", "a.py:1")),
        ("from a import *", {"a.py": "def f(): pass"}, ("a.f", "a.py:1")),
        ("from a import f", {"a.py": "from b import f", "b.py": "def f(): pass"}, ("b.f", "b.py:1")),
        (
            "from p import f",
            {"p/__init__.py": "from .q import f", "p/q.py": "def f(): pass"},
            ("p.q.f", "p/q.py:1"),
        ),
        ("from p.q import f", {"p/__init__.py": "", "p/q.py": "def f(): pass"}, ("p.q.f", "p/q.py:1")),
        ("import p.q\nf = p.q.f", {"p/__init__.py": "", "p/q.py": "def f(): pass"}, ("p.q.f", "p/q.py:1")),
        ("from p import q\nf = q.f", {"p/q.py": "def f(): pass"}, ("p.q.f", "p/q.py:1")),
        ("from lib.a import f", {"src/lib/a.py": "def f(): pass"}, ("src.lib.a.f", "src/lib/a.py:1")),
        ("from lib.a import f", {"code/lib/a.py": "def f(): pass"}, ("code.lib.a.f", "code/lib/a.py:1")),
        ("from a import f", {"a.py": "f = 1"}, None),
        ("from a import f", {"a.py": ""}, None),
        ("from elsewhere import f", {}, ("elsewhere.f", "")),
    ],
)
def test_across_modules(text: str, others: dict[str, str], expected: tuple[str, str] | None) -> None:
    """Plain, starred and re-exported imports, packages, ``src`` layouts, unique endings, absent names."""
    assert resolved("f", {"m.py": text, **others}) == expected


def test_a_script_sees_its_own_folder_first() -> None:
    """Then the folders above it."""
    files = {
        "reward.py": "def f(): pass\n",
        "exp/reward.py": "\ndef f(): pass\n",
        "exp/train.py": "from reward import f",
        "exp/deep/train.py": "from reward import f",
        "train.py": "from reward import f",
    }

    assert resolved("f", files, "train.py") == ("reward.f", "reward.py:1")
    assert resolved("f", files, "exp/train.py") == ("exp.reward.f", "exp/reward.py:2")
    assert resolved("f", files, "exp/deep/train.py") == ("exp.reward.f", "exp/reward.py:2")


def test_two_modules_with_the_same_ending_are_not_guessed_between() -> None:
    """The name stays as it was written."""
    files = {"m.py": "from lib.a import f", "x/lib/a.py": "def f(): pass", "y/lib/a.py": "def f(): pass"}

    assert resolved("f", files) == ("lib.a.f", "")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("B.own", ("m.B.own", "m.py:8")),
        ("B.inherited", ("m.A.inherited", "m.py:3")),
        ("B.field", ("m.helper", "m.py:1")),
        ("B.absent", None),
        ("C.anything", None),
    ],
)
def test_classes_look_into_their_bases(expression: str, expected: tuple[str, str] | None) -> None:
    """Inside the checkout; what an outside base has is unknown."""
    text = (
        "def helper(): pass\nclass A:\n    def inherited(self): pass\n    field = helper\n"
        "import outside\n\nclass B(A):\n    def own(self): pass\nclass C(outside.Base): pass\n"
    )

    assert resolved(expression, {"m.py": text}) == expected


def test_self_leads_to_methods_and_fields() -> None:
    """In the class of the method, from functions inside it too; a rebound ``self`` does not."""
    text = (
        "class A:\n    def run(self):\n        x = self.work\n        def inner():\n            y = self.work\n"
        "    def work(self): pass\n"
    )
    tree = checkout({"m.py": text})
    module = tree.module("m.py")
    assert module is not None
    run, inner = module.scopes[2], module.scopes[3]

    for scope, name in ((run, "x"), (inner, "y")):
        ref = tree.resolve(scope.bindings[name][0].node, scope)
        assert ref == Ref("m.A.work", module.scopes[4])


def test_a_later_binding_wins() -> None:
    """As it does at run time."""
    assert resolved("f", {"m.py": "def f(): pass\ndef f(): return 1"}) == ("m.f", "m.py:2")


def test_an_optional_import_keeps_what_can_be_followed() -> None:
    """``except ImportError: f = None``."""
    text = "try:\n    from trl import f\nexcept ImportError:\n    f = None"

    assert resolved("f", {"m.py": text}) == ("trl.f", "")


class TestCallers:
    """Who calls a function of the checkout."""

    def test_calls_are_found_in_every_module_and_resolved(self) -> None:
        """A namesake elsewhere is not counted."""
        tree = checkout(
            {
                "a.py": "def work(x): pass\nwork(1)\n",
                "b.py": "import a\na.work(2)\n",
                "c.py": "def work(x): pass\nwork(3)\n",
            }
        )
        module = tree.module("a.py")
        assert module is not None

        found = tree.calls_of(module.scopes[1])

        assert [(scope.module.file, ast.unparse(call)) for call, scope in found] == [
            ("a.py", "work(1)"),
            ("b.py", "a.work(2)"),
        ]

    def test_a_name_that_everybody_calls_is_not_followed(self) -> None:
        """``run(`` stands in too many files."""
        files = {f"m{i}.py": "from a import run\nrun(1)\n" for i in range(CALLING_FILES + 1)}
        tree = checkout({"a.py": "def run(x): pass\n", **files})
        module = tree.module("a.py")
        assert module is not None

        assert tree.calls_of(module.scopes[1]) == []


class TestBounds:
    """Effort, patience, parsing."""

    def test_without_effort_nothing_is_followed(self) -> None:
        """And the refusals are counted."""
        tree = checkout({"m.py": "def f(): pass\nx = f\n"}, Limits(effort=1))
        module = tree.module("m.py")
        assert module is not None

        assert tree.resolve(module.scope.bindings["x"][0].node, module.scope) is None
        assert tree.cuts > 0

    def test_an_answer_is_kept(self) -> None:
        """Asking again costs nothing."""
        tree = checkout({"m.py": "def f(): pass\nx = f\n"})
        module = tree.module("m.py")
        assert module is not None
        node = module.scope.bindings["x"][0].node
        tree.resolve(node, module.scope)
        before = tree.effort

        assert tree.resolve(node, module.scope) == Ref("m.f", module.scopes[1])
        assert tree.effort == before

    def test_an_answer_that_was_cut_off_is_not_kept(self) -> None:
        """A chain longer than the depth is unknown, and stays open to a better question."""
        chain = "".join(f"x{i} = x{i + 1}\n" for i in range(60)) + "def x60(): pass\n"
        tree = checkout({"m.py": chain})
        module = tree.module("m.py")
        assert module is not None

        bindings = module.scope.bindings

        assert tree.resolve(bindings["x0"][0].node, module.scope) is None
        assert tree.resolve(bindings["x55"][0].node, module.scope) == Ref("m.x60", module.scopes[1])

    def test_one_question_does_not_spend_the_others_effort(self) -> None:
        """A web of names is given up after its share."""
        web = "".join(f"x{i} = x{i + 1}.{c}\n" for i in range(30) for c in "abcdef")
        tree = checkout({"m.py": web + "def f(): pass\ny = f\n"}, Limits(effort=5_000))
        module = tree.module("m.py")
        assert module is not None
        tree.resolve(module.scope.bindings["x0"][0].node, module.scope)

        assert tree.effort > 4_000
        assert tree.resolve(module.scope.bindings["y"][0].node, module.scope) == Ref("m.f", module.scopes[1])

    def test_a_broken_module_is_noted_once(self) -> None:
        """And its names lead nowhere."""
        tree = checkout({"m.py": "from broken import f\nx = f\n", "broken.py": "def ("})
        module = tree.module("m.py")
        assert module is not None

        assert tree.module("broken.py") is None
        assert tree.module("broken.py") is None
        assert [s.file for s in tree.texts.skipped] == ["broken.py"]


@pytest.mark.parametrize(
    ("text", "expected"), [("a.b.c", "c"), ("a", "a"), ("a()", ""), ("a[0]", ""), ("a().b", "b")]
)
def test_the_last_name_of_an_expression(text: str, expected: str) -> None:
    """Of names and attributes only."""
    assert last_name(ast.parse(text, mode="eval").body) == expected
