"""Following callables: which functions an expression can stand for, and what calls lead where."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dipstick.verdicts.repo_infer import arguments, takes_self
from dipstick.verdicts.repo_resolve import DEPTH, PARTIAL, Ref, last_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dipstick.verdicts.repo_infer import Inference
    from dipstick.verdicts.repo_model import Sure
    from dipstick.verdicts.repo_scope import Binding, Scope

REACH: Final = 400
"""Functions that a search through calls visits at most."""


@dataclass(frozen=True, slots=True)
class Target:
    """One function that an expression can stand for.

    Attributes:
        name: Qualified name; the source's own words if nothing was resolved.
        ref: The definition; None if it was not found.
        node: The expression that named it.
        scope: Where that expression stands.
        sure: ``resolved``, or ``by name`` where the choice is made at run time.
        bound: Values that travel with it: arguments of a ``partial``, the object of a bound method.
    """

    name: str
    ref: Ref | None
    node: ast.expr
    scope: Scope
    sure: Sure
    bound: tuple[ast.expr, ...] = ()


class Follow:
    """Callables and calls of one checkout."""

    def __init__(self, inference: Inference) -> None:
        self.inference = inference
        self.checkout = inference.checkout

    def callables(  # noqa: PLR0911  # one a kind of expression
        self, node: ast.expr, scope: Scope, depth: int = DEPTH // 2
    ) -> list[Target]:
        """The functions that an expression can stand for, lists and conditions flattened.

        Example:
            ``[score, partial(xml_ok, strict=True)]``: ``score`` and ``xml_ok`` (bound: ``True``).
        """
        if not self.checkout.spend(depth):
            return []
        match node:
            case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
                return [found for part in parts for found in self.callables(part, scope, depth - 1)]
            case ast.BinOp(left=left, right=right) | ast.IfExp(body=left, orelse=right):
                return self.callables(left, scope, depth - 1) + self.callables(right, scope, depth - 1)
            case ast.Starred(value=value) | ast.NamedExpr(value=value):
                return self.callables(value, scope, depth - 1)
            case ast.ListComp(elt=elt) | ast.GeneratorExp(elt=elt):
                return self.callables(elt, scope, depth - 1)
            case ast.Subscript(value=value):
                return self._chosen(value, scope, depth - 1)
            case ast.Constant(value=str(name)):
                return [Target(name, None, node, scope, "resolved")]
            case ast.Call():
                return self._called(node, scope, depth - 1)
        return self._named(node, scope, depth - 1)

    def _named(self, node: ast.expr, scope: Scope, depth: int) -> list[Target]:
        """A name, an attribute or a lambda."""
        ref = self.checkout.resolve(node, scope)
        if (
            ref is not None
            and (ref.node is not None or ref.scope is None)
            and not self._is_value(node, scope)
        ):
            return [Target(ref.name, ref, node, scope, "resolved", self._object(node, ref))]
        bindings: list[Binding] = []
        if isinstance(node, ast.Name):
            bindings = self.checkout.bindings(node.id, scope)
        elif isinstance(node, ast.Attribute):
            method = self._method(node, scope)
            if method is not None:
                return [Target(method.name, method, node, scope, "resolved", self._object(node, method))]
            home = self._home(node, scope)
            bindings = self.checkout.attribute_bindings(home, node.attr) if home is not None else []
        found = [c for binding in bindings for c in self._bound(binding, depth)]
        found += self._appended(node, scope, depth)
        return found or [Target(_words(node), None, node, scope, "by name")]

    def _is_value(self, node: ast.expr, scope: Scope) -> bool:
        """Whether a name is bound to a list or call here, so that a function found behind it is a part only."""
        if not isinstance(node, ast.Name):
            return False
        bound = self.checkout.bindings(node.id, scope)
        return any(b.how == "value" and isinstance(b.node, ast.Call | ast.List | ast.Tuple) for b in bound)

    def _object(self, node: ast.expr, ref: Ref) -> tuple[ast.expr, ...]:
        """``self`` of a bound method: it is pickled with the method."""
        is_method = ref.scope is not None and takes_self(ref.scope)
        return (node.value,) if is_method and isinstance(node, ast.Attribute) else ()

    def _method(self, node: ast.Attribute, scope: Scope) -> Ref | None:
        """``thing.method`` where the thing is an object of the checkout."""
        owner = self.inference.infer(node.value, scope)
        if owner.scope is None:
            return None
        ref = self.checkout.member(Ref(owner.name, owner.scope), node.attr)
        return ref if ref is not None and ref.node is not None else None

    def _home(self, node: ast.Attribute, scope: Scope) -> Scope | None:
        """The class or module whose attribute this is."""
        owner = self.inference.infer(node.value, scope)
        if owner.scope is not None:
            return owner.scope
        ref = self.checkout.resolve(node.value, scope)
        return ref.scope if ref is not None else None

    def _bound(self, binding: Binding, depth: int) -> list[Target]:
        """What one binding of a name stands for; parameters are followed to the calls."""
        if binding.how in {"value", "element", "enter"} and isinstance(binding.node, ast.expr):
            return self.callables(binding.node, binding.scope, depth)
        if binding.how == "import":
            path, _, name = binding.text.rpartition(".")
            module = self.checkout.find(path, binding.scope.module) if path else None
            behind = module.scope.bindings.get(name, []) if module is not None else []
            return [c for other in behind[-2:] if other.how == "value" for c in self._bound(other, depth)]
        if binding.how == "param" and isinstance(binding.node, ast.arg):
            return self._passed(binding.node.arg, binding.scope, depth)
        return []

    def _passed(self, name: str, scope: Scope, depth: int) -> list[Target]:
        """What the checkout's calls pass for a parameter."""
        found = []
        for call, where in self.checkout.calls_of(scope):
            value = arguments(call, scope).get(name)
            found += self.callables(value, where, depth) if value is not None else []
        return found

    def _appended(self, node: ast.expr, scope: Scope, depth: int) -> list[Target]:
        """What ``name.append(f)`` adds to a list."""
        if not isinstance(node, ast.Name):
            return []
        added = [
            call.args[0]
            for call in scope.calls
            if isinstance(call.func, ast.Attribute) and call.func.attr == "append" and call.args
            if last_name(call.func.value) == node.id
        ]
        return [found for value in added for found in self.callables(value, scope, depth)]

    def _called(self, node: ast.Call, scope: Scope, depth: int) -> list[Target]:
        """``partial(f, x)``, an object with ``__call__``, or what a factory returns."""
        ref = self.checkout.resolve(node.func, scope)
        if ref is not None and ref.name in PARTIAL and node.args:
            extra = (
                (*node.args[1:], *(keyword.value for keyword in node.keywords))
                if "partial" in ref.name
                else ()
            )
            inner = self.callables(node.args[0], scope, depth)
            return [Target(c.name, c.ref, c.node, c.scope, c.sure, (*c.bound, *extra)) for c in inner]
        if ref is None or ref.scope is None:
            return [Target(ref.name if ref else _words(node.func), ref, node, scope, "by name")]
        if ref.scope.is_class:
            method = self.checkout.member(ref, "__call__")
            target = method if method is not None and method.node is not None else ref
            return [Target(target.name, target, node, scope, "resolved", (node,))]
        inside = ref.scope
        return [c for value in inside.returns for c in self.callables(value, inside, depth)]

    def _chosen(self, node: ast.expr, scope: Scope, depth: int) -> list[Target]:
        """``REGISTRY[name]``: every entry may be meant, so none is sure."""
        bindings = self.checkout.bindings(node.id, scope) if isinstance(node, ast.Name) else []
        tables = [(b.node, b.scope) for b in bindings if isinstance(b.node, ast.Dict)]
        tables += [(node, scope)] if isinstance(node, ast.Dict) else []
        found = [
            c
            for table, where in tables
            for value in table.values
            for c in self.callables(value, where, depth)
        ]
        return [Target(c.name, c.ref, c.node, c.scope, "by name", c.bound) for c in found]

    # -- calls -------------------------------------------------------------------------------------

    def callee(self, call: ast.Call, scope: Scope) -> Scope | None:
        """The function of the checkout that a call runs (a class's ``__init__``); None if unknown or outside."""
        ref = self.checkout.resolve(call.func, scope)
        if ref is not None and ref.scope is not None and ref.scope.is_class:
            ref = self.checkout.member(ref, "__init__")
        if (ref is None or ref.scope is None) and isinstance(call.func, ast.Attribute):
            ref = self._method(call.func, scope)
        return ref.scope if ref is not None and ref.node is not None else None

    def reach(self, starts: Iterable[Scope]) -> set[Scope]:
        """Functions that run when these run, as far as calls (and functions passed on) can be followed."""
        todo = list(starts)
        seen: set[Scope] = set()
        while todo and len(seen) < REACH:
            scope = todo.pop()
            if scope in seen:
                continue
            seen.add(scope)
            todo += [inner for inner in scope.nested if not inner.is_class]
            for call in scope.calls:
                if not self.checkout.spend():
                    return seen
                callee = self.callee(call, scope)
                passed = [
                    self.checkout.resolve(a, scope)
                    for a in call.args
                    if isinstance(a, ast.Name | ast.Attribute)
                ]
                todo += [inner for inner in (callee, *map(_function, passed)) if inner is not None]
        return seen


def _function(ref: Ref | None) -> Scope | None:
    """The function of the checkout that a reference is; None for anything else."""
    if ref is None or ref.scope is None or ref.node is None or ref.scope.is_class:
        return None
    return ref.scope


def _words(node: ast.AST) -> str:
    """A dotted expression as it stands in the source: ``self.pool.score``; empty for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.append(node.id)
    return ".".join(reversed(parts))
