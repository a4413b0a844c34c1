"""Types read from the text of the code: what each form of expression tells, and where the answer is ``?``."""

from __future__ import annotations

import ast

import pytest

from dipstick.verdicts.repo_infer import Inference, arguments, names_cuda, takes_self
from dipstick.verdicts.repo_resolve import Checkout
from dipstick.verdicts.repo_scope import parse, relative
from dipstick.verdicts.repo_types import ANY, INT, STR, Ty, canonical, element, item, union
from dipstick.verdicts.repo_walk import Limits, Texts

HEAD = """
import copy, json
import numpy as np
import torch
from dataclasses import dataclass
from typing import Any, Optional, Sequence
from ase import Atoms
from ase.io import read
from vllm import LLM
from settings import WIDTH, helper

@dataclass
class Task:
    structure: Atoms
    names: list[str]
    def cost(self) -> float: ...
    def again(self): return self

def annotated() -> dict[str, int]: ...
def plain(x): return [x.strip(), "a"]
def loop(n): return loop(n - 1)
"""
FILES = {"settings.py": "WIDTH = 3\ndef helper(): return 'text'\n"}


def type_of(expression: str, body: str = "") -> str:
    """The inferred type of an expression at the end of a module."""
    files = {**FILES, "m.py": f"{HEAD}\n{body}\nanswer = {expression}\n"}
    checkout = Checkout(Texts(files=files), Limits())
    module = checkout.module("m.py")
    assert module is not None
    node = module.scope.bindings["answer"][-1].node
    return str(Inference(checkout).infer(node, module.scope))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("1", "int"),
        ("'a'", "str"),
        ("b'a'", "bytes"),
        ("None", "None"),
        ("f'{1}'", "str"),
        ("1 < 2", "bool"),
        ("not x", "bool"),
        ("-1.5", "float"),
        ("[1, 2]", "list[int]"),
        ("[1, 'a']", "list[int | str]"),
        ("(1, 'a')", "tuple[int, str]"),
        ("{1}", "set[int]"),
        ("{'a': 1.0}", "dict[str, float]"),
        ("[]", "list"),
        ("[str(i) for i in x]", "list[str]"),
        ("(i for i in [1])", "iterator[int]"),
        ("{i: 'a' for i in [1]}", "dict[int, str]"),
        ("1 if x else 'a'", "int | str"),
        ("x or 1", "? | int"),
        ("1 + 2.0", "float"),
        ("'a' + 'b'", "str"),
        ("[1] + ['a']", "list[int] | list[str]"),
        ("[1][0]", "int"),
        ("(1, 'a')[1]", "str"),
        ("{'a': 1.0}['a']", "float"),
        ("[1, 2][:1]", "list[int]"),
        ("'a,b'.split(',')", "list[str]"),
        ("' a'.strip().upper()", "str"),
        ("json.dumps(x)", "str"),
        ("len(x)", "int"),
        ("list(range(3))", "list[int]"),
        ("sorted({'a'})", "list[str]"),
        ("list(zip([1], ['a']))", "list[tuple[int, str]]"),
        ("list(enumerate(['a']))", "list[tuple[int, str]]"),
        ("list({'a': 1}.items())", "list[tuple[str, int]]"),
        ("{'a': 1}.get('a')", "int"),
        ("Atoms('H')", "ase.Atoms"),
        ("read('x.cif')", "ase.Atoms"),
        ("Atoms('H').copy()", "ase.Atoms"),
        ("Atoms('H').positions", "numpy.ndarray"),
        ("copy.deepcopy([Atoms('H')])", "list[ase.Atoms]"),
        ("np.zeros(3)", "numpy.ndarray"),
        ("np.zeros(3) * 2", "numpy.ndarray"),
        ("np.zeros(3).tolist()", "list[float]"),
        ("torch.zeros(3)", "torch.Tensor"),
        ("torch.zeros(3).cuda()", "torch.Tensor (cuda)"),
        ("torch.zeros(3).to('cuda:0')", "torch.Tensor (cuda)"),
        ("torch.zeros(3, device=torch.device('cuda'))", "torch.Tensor (cuda)"),
        ("torch.zeros(3).to(torch.float16)", "torch.Tensor"),
        ("torch.zeros(3)[0].mean()", "torch.Tensor"),
        ("torch.zeros(3).item()", "float"),
        ("x.cuda()", "torch.Tensor (cuda)"),
        ("torch.zeros(3).cuda() * 2", "torch.Tensor (cuda)"),
        ("LLM('m').generate(p)", "list[vllm.RequestOutput]"),
        ("LLM('m').generate(p)[0].outputs[0].text", "str"),
        ("Task(1, 2)", "m.Task"),
        ("Task(1, 2).structure", "ase.Atoms"),
        ("Task(1, 2).names[0]", "str"),
        ("Task(1, 2).cost()", "float"),
        ("Task(1, 2).again().again().structure", "ase.Atoms"),
        ("annotated()", "dict[str, int]"),
        ("helper()", "str"),
        ("WIDTH", "int"),
        ("plain", "function"),
        ("Task", "type"),
        ("unknown", "?"),
        ("unknown()", "?"),
        ("x.y.z", "?"),
        ("loop(1)", "?"),
        ("lambda: 1", "?"),
        ("tok.batch_decode(ids)", "list[str]"),
        ("(y := 1)", "int"),
    ],
)
def test_expressions(expression: str, expected: str) -> None:
    """One row a form."""
    assert type_of(expression) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("v = 1", "int"),
        ("v: str = f()", "str"),
        ("v = None\nif x:\n    v = 'a'", "str"),
        ("v = 1\nv = 'a'", "int | str"),
        ("v = ' a'\nv = v.strip()", "str"),
        ("for v in ['a']:\n    pass", "str"),
        ("for i, v in enumerate(['a']):\n    pass", "str"),
        ("for k, v in {'a': 1.0}.items():\n    pass", "float"),
        ("u, v = 1, 'a'", "str"),
        ("u, *v = 1, 2", "int"),
        ("(u, w), v = f()", "?"),
        ("with Atoms('H') as v:\n    pass", "ase.Atoms"),
        ("v = []\nfor i in x:\n    v.append(str(i))", "list[str]"),
        ("v = []", "list"),
        ("v: Any = 1", "int"),
        ("def g():\n    global v\n    v = 1\n", "int"),
        ("v = v", "?"),
    ],
)
def test_names(body: str, expected: str) -> None:
    """How a name was bound."""
    assert type_of("v", body).replace("never", "?") == expected


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        ("str", "str"),
        ("list[Atoms]", "list[ase.Atoms]"),
        ("Sequence[str]", "list[str]"),
        ("'Atoms'", "ase.Atoms"),
        ("Optional[str]", "str"),
        ("str | None", "str"),
        ("int | str", "int | str"),
        ("dict[str, torch.Tensor]", "dict[str, torch.Tensor]"),
        ("tuple[int, ...]", "tuple[int]"),
        ("Any", "?"),
        ("object", "?"),
        ("list", "list"),
        ("Task", "m.Task"),
        ("np.ndarray[Any, Any]", "numpy.ndarray"),
        ("'not python ('", "?"),
        ("Unknown", "Unknown"),
    ],
)
def test_annotations_of_parameters(annotation: str, expected: str) -> None:
    """Read where the function is defined."""
    files = {**FILES, "m.py": f"{HEAD}\ndef f(p: {annotation}):\n    q = p\n"}
    checkout = Checkout(Texts(files=files), Limits())
    module = checkout.module("m.py")
    assert module is not None
    scope = module.scopes[-1]

    assert str(Inference(checkout).infer(scope.bindings["q"][0].node, scope)) == expected


def test_parameters_take_the_types_of_the_calls() -> None:
    """Two callers, two types."""
    body = "def f(p):\n    return p\nf(1)\nf(p='a')"

    assert type_of("f(2)", body) == "int | str"


def test_a_method_is_called_without_its_self() -> None:
    """``obj.f(1)`` fills the second parameter; a static method's first."""
    module = parse("m", "m.py", "class A:\n    def f(self, p): ...\n    @staticmethod\n    def g(p): ...\n")
    assert module is not None
    method, static = module.scopes[2], module.scopes[3]
    call = ast.parse("a.f(1)").body[0]
    assert isinstance(call, ast.Expr)
    assert isinstance(call.value, ast.Call)

    assert (takes_self(method), takes_self(static), takes_self(module.scopes[1])) == (True, False, False)
    assert list(arguments(call.value, method)) == ["p"]
    assert list(arguments(call.value, static)) == ["p"]


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ("'cuda'", True),
        ("'cuda:1'", True),
        ("f'cuda:{r}'", True),
        ("torch.device('cuda')", True),
        ("'cpu'", False),
        ("d", False),
    ],
)
def test_cuda_is_taken_from_literals_only(device: str, expected: bool) -> None:  # noqa: FBT001  # the expected value
    """A variable may be any device."""
    node = ast.parse(device, mode="eval").body

    assert names_cuda(node) is expected


class TestLattice:
    """Unions, elements, positions, other names."""

    def test_union_leaves_none_out_beside_another_type(self) -> None:
        """``None`` alone stays."""
        none = Ty("None")

        assert (union([none, STR]), union([none]), union([])) == (STR, none, ANY)

    def test_union_is_flat_and_has_no_repeats(self) -> None:
        """Of int | (str | int) is int | str."""
        assert union([INT, Ty("union", (STR, INT))]) == Ty("union", (INT, STR))

    def test_elements(self) -> None:
        """Of lists, dicts (keys), strings, tensors, unions; unknown of anything else."""
        assert element(Ty("dict", (STR, INT))) == STR
        assert element(STR) == STR
        assert element(Ty("torch.Tensor", device="cuda")).device == "cuda"
        assert element(Ty("union", (Ty("list", (INT,)), STR))) == Ty("union", (INT, STR))
        assert element(INT) == ANY

    def test_positions_of_a_tuple(self) -> None:
        """Beyond its end any element may be meant."""
        pair = Ty("tuple", (INT, STR))

        assert (item(pair, 1), item(Ty("list", (INT,)), 5)) == (STR, INT)

    def test_other_names_of_the_same_thing(self) -> None:
        """``torch.multiprocessing`` is ``multiprocessing``."""
        assert canonical("torch.multiprocessing.Pool") == "multiprocessing.Pool"
        assert canonical("torch.multiprocessing.get_context") == "multiprocessing.Context"
        assert canonical("ase.atoms.Atoms") == "ase.Atoms"
        assert canonical("x.y") == "x.y"


@pytest.mark.parametrize(
    ("package", "level", "module", "expected"),
    [
        ("a.b", 0, "c", "c"),
        ("a.b", 1, "c", "a.b.c"),
        ("a.b", 2, "c", "a.c"),
        ("a.b", 1, "", "a.b"),
        ("", 1, "c", "c"),
        ("a", 9, "c", "c"),
    ],
)
def test_relative_imports(package: str, level: int, module: str, expected: str) -> None:
    """Dots above the root are ignored."""
    assert relative(package, level, module) == expected
