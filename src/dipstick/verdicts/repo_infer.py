"""Inference: the type of an expression from literals, annotations, known calls and the checkout's own code.

Not a type checker. It answers "what would be pickled here?" and says ``?`` whenever the text does not
tell; every step spends the checkout's effort, and depth is bounded.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from dipstick.verdicts.repo_resolve import DEPTH, Checkout, Ref, last_name
from dipstick.verdicts.repo_scope import FunctionNode, parameters_of
from dipstick.verdicts.repo_types import (
    ANY,
    ARRAY,
    ATTRIBUTES,
    BOOL,
    CUDA,
    GENERIC,
    INT,
    MAKERS,
    METHODS,
    NEVER,
    NONE,
    STR,
    TENSOR,
    TENSOR_MAKERS,
    Ty,
    canonical,
    element,
    item,
    union,
)

if TYPE_CHECKING:
    from dipstick.verdicts.repo_scope import Binding, Scope

LITERALS: Final = {str: "str", bytes: "bytes", bool: "bool", int: "int", float: "float", complex: "complex"}
TO_LIST: Final = {"list": "list", "sorted": "list", "tuple": "list", "set": "set", "frozenset": "set"}
PASS_ON: Final = frozenset({"copy.copy", "copy.deepcopy", "iter", "reversed", "tqdm.tqdm", "tqdm.auto.tqdm"})
WRAPPERS: Final = PASS_ON | TO_LIST.keys() | {"zip", "enumerate"}
WIDTH: Final = 20
"""Elements of a display that are looked at."""
LONGEST_ANNOTATION: Final = 200
PATIENCE: Final = 3_000
"""Effort for one question; a value that takes more to follow is unknown."""


class Inference:
    """Types of expressions in one checkout.

    Attributes:
        checkout: Where names are followed.
        contract: Types of parameters that a caller outside the checkout fills (TRL's ``completions``), or
            that a pool passes on: by function node and parameter name.
    """

    def __init__(self, checkout: Checkout) -> None:
        self.checkout = checkout
        self.contract: dict[tuple[ast.AST, str], Ty] = {}
        self._asking: set[tuple[ast.AST, Scope]] = set()
        self._known: dict[tuple[ast.AST, Scope], Ty] = {}

    def infer(self, node: ast.AST | None, scope: Scope, depth: int = DEPTH) -> Ty:
        """The type of an expression; ``?`` where the code does not tell."""
        if not isinstance(node, ast.expr):
            return ANY
        key = (node, scope)
        if key in self._known:
            return self._known[key]
        if key in self._asking:  # a = a.strip(): the other bindings decide
            self.checkout.cuts += 1
            return NEVER
        if not self._asking:  # a question of its own
            self.checkout.patience = PATIENCE
        if not self.checkout.spend(depth):
            return ANY
        cuts = self.checkout.cuts
        self._asking.add(key)
        try:
            ty = self._infer(node, scope, depth - 1)
        finally:
            self._asking.discard(key)
            if not self._asking:
                self.checkout.patience = self.checkout.effort
        if cuts == self.checkout.cuts:
            self._known[key] = ty
        return ty

    def promise(self, contract: dict[tuple[ast.AST, str], Ty]) -> None:
        """Add types of parameters that callers outside the checkout fill; what was inferred without is dropped."""
        for key, ty in contract.items():
            self.contract.setdefault(key, ty)
        self._known.clear()

    def _infer(self, node: ast.expr, scope: Scope, depth: int) -> Ty:  # noqa: PLR0911  # one a kind of expression
        """The rule for this kind of expression."""
        match node:
            case ast.Name():
                return self._name(node, scope, depth)
            case ast.Attribute():
                return self._attribute(node, scope, depth)
            case ast.Call():
                return self._call(node, scope, depth)
            case ast.Subscript():
                return self._subscript(node, scope, depth)
            case ast.IfExp(body=first, orelse=second):
                return union([self.infer(part, scope, depth) for part in (first, second)])
            case ast.BoolOp(values=values):
                return union([self.infer(part, scope, depth) for part in values])
            case ast.BinOp(left=left, right=right):
                return _arithmetic([self.infer(side, scope, depth) for side in (left, right)])
            case ast.Await(value=value) | ast.NamedExpr(value=value) | ast.Starred(value=value):
                return self.infer(value, scope, depth)
            case ast.UnaryOp(op=op, operand=operand):
                return BOOL if isinstance(op, ast.Not) else self.infer(operand, scope, depth)
        return self._literal(node, scope, depth)

    def _literal(self, node: ast.expr, scope: Scope, depth: int) -> Ty:  # noqa: PLR0911  # one a kind of expression
        """Constants, displays and comprehensions."""
        match node:
            case ast.Constant(value=value):
                return NONE if value is None else Ty(LITERALS.get(type(value), "?"))
            case ast.JoinedStr():
                return STR
            case ast.Compare():
                return BOOL
            case ast.Tuple(elts=elts):
                return Ty("tuple", tuple(self.infer(part, scope, depth) for part in elts[:WIDTH]))
            case ast.List(elts=elts) | ast.Set(elts=elts):
                parts = [self.infer(part, scope, depth) for part in elts[:WIDTH]]
                return Ty("list" if isinstance(node, ast.List) else "set", (union(parts),) if parts else ())
            case ast.Dict(keys=keys, values=values):
                names = [self.infer(key, scope, depth) for key in keys[:WIDTH] if key is not None]
                return Ty(
                    "dict", (union(names), union([self.infer(v, scope, depth) for v in values[:WIDTH]]))
                )
            case ast.ListComp(elt=elt) | ast.SetComp(elt=elt) | ast.GeneratorExp(elt=elt):
                kind = {ast.ListComp: "list", ast.SetComp: "set"}.get(type(node), "iterator")
                return Ty(kind, (self.infer(elt, scope, depth),))
            case ast.DictComp(key=key, value=value):
                return Ty("dict", (self.infer(key, scope, depth), self.infer(value, scope, depth)))
        return ANY

    # -- leaves and names --------------------------------------------------------------------------

    def _name(self, node: ast.Name, scope: Scope, depth: int) -> Ty:
        """A name: every way it is bound; an empty list is what is appended to it."""
        ty = self.of_bindings(self.checkout.bindings(node.id, scope), depth)
        if ty.name != "list" or ty.args:
            return ty
        added = [
            self.infer(call.args[0], scope, depth)
            for call in scope.calls
            if isinstance(call.func, ast.Attribute) and call.func.attr == "append" and call.args
            if last_name(call.func.value) == node.id
        ]
        return Ty("list", (union(added),)) if added else ty

    def of_bindings(self, bindings: list[Binding], depth: int) -> Ty:
        """An annotation is believed; else all assignments count."""
        if not self.checkout.spend(depth):
            return ANY
        noted = [b for b in bindings if b.how == "annotation"]
        for binding in noted:
            ty = self.annotation(binding.node, binding.scope, depth)
            if ty != ANY:
                return ty
        return union([self.bound(b, depth) for b in bindings if b.how != "annotation"] or [ANY])

    def bound(self, binding: Binding, depth: int) -> Ty:
        """The type that one binding gives its name."""
        if binding.how == "param" and isinstance(binding.node, ast.arg):
            return self._parameter(binding.node, binding.scope, depth)
        if binding.how == "def":
            return Ty("type") if isinstance(binding.node, ast.ClassDef) else Ty("function")
        if binding.how == "import":
            path, _, name = binding.text.rpartition(".")
            module = self.checkout.find(path, binding.scope.module) if path else None
            return self.of_bindings(module.scope.bindings.get(name, []), depth - 1) if module else ANY
        ty = self.infer(binding.node, binding.scope, depth)
        if binding.how == "element":
            ty = element(ty)
        return item(ty, binding.index) if binding.index >= 0 else ty

    def _parameter(self, node: ast.arg, scope: Scope, depth: int) -> Ty:
        """A parameter: its annotation, else the contract of its caller, else the calls in the checkout."""
        known = self.contract.get((scope.node, node.arg)) if scope.node is not None else None
        ty = self.annotation(node.annotation, scope.parent or scope, depth)
        if ty != ANY or known is not None:
            return ty if known is None or ty != ANY else known
        if scope.first_parameter() == node.arg and scope.parent is not None:
            return Ty(scope.parent.name, scope=scope.parent)
        return self._from_calls(node.arg, scope, depth)

    def _from_calls(self, name: str, scope: Scope, depth: int) -> Ty:
        """What the checkout's own calls pass for a parameter."""
        if isinstance(scope.node, ast.Lambda) or scope.node is None:
            return ANY
        found = []
        for call, where in self.checkout.calls_of(scope):
            passed = arguments(call, scope).get(name)
            if passed is not None:
                found.append(self.infer(passed, where, depth))
        return union(found or [ANY])

    # -- annotations -------------------------------------------------------------------------------

    def annotation(self, node: ast.AST | None, scope: Scope, depth: int = DEPTH) -> Ty:
        """The type that an annotation names; ``?`` for none, ``Any`` and ``object``."""
        if node is None or not self.checkout.spend(depth):
            return ANY
        if isinstance(node, ast.Constant):
            return self._quoted(node.value, scope, depth)
        if isinstance(node, ast.BinOp):
            return union([self.annotation(part, scope, depth - 1) for part in (node.left, node.right)])
        if isinstance(node, ast.Subscript):
            return self._generic(node, scope, depth - 1)
        return self._named(self.checkout.resolve(node, scope, depth), last_name(node))

    def _quoted(self, value: object, scope: Scope, depth: int) -> Ty:
        """``None``, or an annotation in quotes."""
        if value is None:
            return NONE
        if not isinstance(value, str) or len(value) > LONGEST_ANNOTATION:
            return ANY
        try:
            return self.annotation(ast.parse(value, mode="eval").body, scope, depth - 1)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return ANY

    def _named(self, ref: Ref | None, last: str) -> Ty:
        """The type that a resolved name stands for."""
        name = canonical(ref.name) if ref is not None else last
        if name.rpartition(".")[2] in {"Any", "object", ""}:
            return ANY
        if name.startswith(("typing.", "collections.abc.")) or name in GENERIC:
            generic = GENERIC.get(name.rpartition(".")[2])
            return Ty(generic) if generic else ANY
        return Ty(name, scope=ref.scope if ref is not None else None)

    def _generic(self, node: ast.Subscript, scope: Scope, depth: int) -> Ty:
        """``list[str]``, ``Optional[X]``, ``np.ndarray[...]``."""
        last = last_name(node.value)
        parts = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        if last in {"Optional", "Union", "Annotated", "Final", "ClassVar"}:
            return union(
                [
                    self.annotation(part, scope, depth)
                    for part in (parts[:1] if last == "Annotated" else parts)
                ]
            )
        if last in GENERIC:
            kept = [part for part in parts if not (isinstance(part, ast.Constant) and part.value is ...)]
            return Ty(GENERIC[last], tuple(self.annotation(part, scope, depth) for part in kept))
        return self.annotation(node.value, scope, depth)

    # -- compound expressions ----------------------------------------------------------------------

    def _attribute(self, node: ast.Attribute, scope: Scope, depth: int) -> Ty:
        """``value.attr``: known attributes, and fields of the checkout's classes and modules."""
        owner = self.infer(node.value, scope, depth)
        known = ATTRIBUTES.get((owner.name, node.attr))
        if known is not None:
            return known
        home = owner.scope
        if home is None:
            ref = self.checkout.resolve(node.value, scope, depth)
            home = ref.scope if ref is not None else None
        if home is None:
            return ANY
        return self.of_bindings(self.checkout.attribute_bindings(home, node.attr), depth)

    def _subscript(self, node: ast.Subscript, scope: Scope, depth: int) -> Ty:
        """``value[i]``: an element; a slice keeps the type."""
        ty = self.infer(node.value, scope, depth)
        if isinstance(node.slice, ast.Slice):
            return ty
        if ty.name == "dict":
            return ty.args[1] if len(ty.args) > 1 else ANY
        index = node.slice.value if isinstance(node.slice, ast.Constant) else None
        return item(ty, index) if isinstance(index, int) and index >= 0 else element(ty)

    # -- calls -------------------------------------------------------------------------------------

    def _call(self, node: ast.Call, scope: Scope, depth: int) -> Ty:
        """A call: a class, a known function, a known method, or a function of the checkout."""
        ref = self.checkout.resolve(node.func, scope, depth)
        if ref is not None and ref.scope is not None:
            return self._own_call(ref, depth)
        known = self._outside_call(canonical(ref.name), node, scope, depth) if ref is not None else None
        if known is not None:
            return known
        if isinstance(node.func, ast.Attribute):
            return self._method_call(node.func, node, scope, depth)
        return ANY

    def _own_call(self, ref: Ref, depth: int) -> Ty:
        """A class of the checkout makes itself; a function gives its annotation, or what it returns."""
        inner = ref.scope
        if inner is None or inner.is_class or inner.node is None:
            return Ty(ref.name, scope=inner) if inner is not None and inner.is_class else ANY
        returns = getattr(inner.node, "returns", None)
        noted = self.annotation(returns, inner.parent or inner, depth)
        if noted != ANY:
            return noted
        return union([self.infer(value, inner, depth) for value in inner.returns[:8]] or [ANY])

    def _outside_call(self, name: str, node: ast.Call, scope: Scope, depth: int) -> Ty | None:
        """A function or class outside the checkout; None if nothing is known of it."""
        if name in MAKERS:
            return MAKERS[name]
        if name in TENSOR_MAKERS:
            return CUDA if any(names_cuda(keyword.value) for keyword in node.keywords) else TENSOR
        if name in WRAPPERS and node.args:
            return self._wrapped(name, [self.infer(value, scope, depth) for value in node.args[:WIDTH]])
        if name.startswith("numpy."):
            return ARRAY
        if name.endswith(".from_pretrained"):
            return Ty(name.rpartition(".")[0])
        return Ty(name) if name.rpartition(".")[2][:1].isupper() else None

    def _wrapped(self, name: str, given: list[Ty]) -> Ty:
        """Builtins that pass their argument, or its elements, on."""
        if name == "zip":
            return Ty("iterator", (Ty("tuple", tuple(element(ty) for ty in given)),))
        if name == "enumerate":
            return Ty("iterator", (Ty("tuple", (INT, element(given[0]))),))
        if name in TO_LIST:
            return Ty(TO_LIST[name], (element(given[0]),))
        return given[0]

    def _method_call(self, func: ast.Attribute, node: ast.Call, scope: Scope, depth: int) -> Ty:
        """``value.method(...)``."""
        owner, method = self.infer(func.value, scope, depth), func.attr
        known = METHODS.get((owner.name, method))
        if known is not None:
            return known
        if owner.scope is not None:
            ref = self.checkout.member(Ref(owner.name, owner.scope), method)
            return self._own_call(ref, depth) if ref is not None else ANY
        moved = [*node.args, *(keyword.value for keyword in node.keywords)]
        if method == "cuda" or (method == "to" and any(names_cuda(value) for value in moved)):
            return replace(owner, device="cuda") if owner != ANY else CUDA
        if owner.name == "torch.Tensor":
            return owner
        if owner.name == "dict":
            return self._dict_method(owner, method)
        return {"batch_decode": Ty("list", (STR,)), "decode": STR}.get(method, ANY)

    def _dict_method(self, owner: Ty, method: str) -> Ty:
        """``d.items()`` and its like."""
        key, value = owner.args if len(owner.args) == 2 else (ANY, ANY)  # noqa: PLR2004  # key and value
        known = {"items": Ty("tuple", (key, value)), "keys": key, "values": value}
        if method in known:
            return Ty("iterator", (known[method],))
        return value if method in {"get", "pop"} else ANY


def _arithmetic(sides: list[Ty]) -> Ty:
    """``a + b``: tensors and arrays win over numbers; two lists make one."""
    for name in ("torch.Tensor", "numpy.ndarray", "list", "str", "float", "int"):
        for side in sides:
            if side.name == name:
                return union(sides) if all(other.name == name for other in sides) else side
    return ANY


def names_cuda(node: ast.AST) -> bool:
    """Whether an argument names a CUDA device: ``"cuda:0"``, ``torch.device("cuda")``, ``f"cuda:{rank}"``."""
    if isinstance(node, ast.Call) and node.args:
        return names_cuda(node.args[0])
    if isinstance(node, ast.JoinedStr) and node.values:
        return names_cuda(node.values[0])
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("cuda")


def arguments(call: ast.Call, target: Scope) -> dict[str, ast.expr]:
    """The arguments of a call by the target's parameter names; ``*args`` and ``**kwargs`` are left out."""
    if not isinstance(target.node, FunctionNode):
        return {}
    names = [argument.arg for argument in parameters_of(target.node)]
    if takes_self(target) and (isinstance(call.func, ast.Attribute) or names[:1] in (["self"], ["cls"])):
        names = names[1:]
    positional = [value for value in call.args if not isinstance(value, ast.Starred)]
    passed = dict(zip(names, positional, strict=False))
    passed.update({keyword.arg: keyword.value for keyword in call.keywords if keyword.arg})
    return passed


def takes_self(target: Scope) -> bool:
    """Whether a function is a method whose first parameter the call does not show."""
    if target.parent is None or not target.parent.is_class:
        return False
    decorators = getattr(target.node, "decorator_list", [])
    return "staticmethod" not in {last_name(decorator) for decorator in decorators}
