"""Names followed to what they stand for: through imports, assignments, ``partial``, ``self`` and classes.

Only the checkout's own files are followed; anything else stays a qualified name (``trl.GRPOTrainer``).
Every step costs one unit of a shared effort, and depth is bounded, so that no checkout can make the
scan long or deep.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dipstick.verdicts.repo_scope import Binding, Module, Scope, parse
from dipstick.verdicts.repo_walk import PYTHON

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dipstick.verdicts.repo_scope import DefNode
    from dipstick.verdicts.repo_walk import Texts

DEPTH: Final = 24
BINDINGS: Final = 6
"""Bindings of one name that are tried; a name that is bound more often is not worth following."""
CALL_SITES: Final = 6
PARTIAL: Final = frozenset({"functools.partial", "functools.partialmethod"})


@dataclass(frozen=True, slots=True)
class Ref:
    """What an expression refers to.

    Attributes:
        name: Qualified name.
        scope: Scope of the function or class, or of the module; None outside the checkout.
    """

    name: str
    scope: Scope | None = None

    @property
    def node(self) -> DefNode | None:
        """The function or class; None for modules and anything outside."""
        return self.scope.node if self.scope is not None else None

    @property
    def file(self) -> str:
        """Where it is defined; empty outside the checkout."""
        return self.scope.module.file if self.scope is not None else ""

    @property
    def line(self) -> int | None:
        """Line of the definition."""
        return self.node.lineno if self.node is not None else None


class Checkout:
    """The parsed files of a checkout; a file is parsed when something leads to it."""

    def __init__(self, texts: Texts, effort: int) -> None:
        self.texts = texts
        self.effort = effort
        self._modules: dict[str, Module | None] = {}
        self._names = {_dotted(file): file for file in texts.files if file.endswith(PYTHON)}
        self._by_last: dict[str, list[str]] = {}
        for name in self._names:
            self._by_last.setdefault(name.rpartition(".")[2], []).append(name)

    def spend(self) -> bool:
        """Take one unit of effort; False when there is none left."""
        self.effort -= 1
        return self.effort > 0

    def module(self, file: str) -> Module | None:
        """The parsed file, or None if it can't be parsed."""
        if file not in self._modules:
            self._modules[file] = parse(_dotted(file), file, self.texts.files[file])
            if self._modules[file] is None:
                self.texts.skip(file, "not readable as Python", cut=True)
        return self._modules[file]

    def parsed(self) -> Iterator[Module]:
        """Modules parsed so far."""
        return (module for module in list(self._modules.values()) if module is not None)

    def mentioning(self, word: str, most: int = 40) -> Iterator[Module]:
        """Modules whose text contains a word, the first ``most`` of them."""
        files = [f for f, text in self.texts.files.items() if f.endswith(PYTHON) and word in text]
        return (m for m in map(self.module, files[:most]) if m is not None)

    def find(self, dotted: str, near: Module) -> Module | None:
        """The checkout's module of that name as ``near`` would import it.

        A script sees its own folder first, then the folders above it up to the root (``src`` layouts
        included); last comes the only module in the checkout whose name ends so.
        """
        folder = (
            _dotted(near.file).split(".")[:-1]
            if not near.file.endswith("__init__.py")
            else near.name.split(".")
        )
        for depth in range(len(folder), -1, -1):
            name = ".".join([*folder[:depth], dotted])
            for candidate in (name, ".".join([*folder[:depth], "src", dotted])):
                if candidate in self._names:
                    return self.module(self._names[candidate])
        if "." not in dotted:
            return None
        ending = [n for n in self._by_last.get(dotted.rpartition(".")[2], ()) if n.endswith("." + dotted)]
        return self.module(self._names[ending[0]]) if len(ending) == 1 else None

    # -- resolution --------------------------------------------------------------------------------

    def resolve(self, node: ast.AST | None, scope: Scope, depth: int = DEPTH) -> Ref | None:
        """What an expression refers to: a function, class or module, or a name outside; None if unknown."""
        if depth <= 0 or node is None or not self.spend():
            return None
        if isinstance(node, ast.Name):
            return self._name(node.id, scope, depth)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, scope, depth)
        if isinstance(node, ast.Lambda):
            inner = scope.module.by_node.get(node)
            return Ref(inner.name, inner) if inner is not None else None
        if isinstance(node, ast.Call):
            called = self.resolve(node.func, scope, depth - 1)
            if called is not None and called.name in PARTIAL and node.args:
                return self.resolve(node.args[0], scope, depth - 1)
        return None

    def bindings(self, name: str, scope: Scope) -> list[Binding]:
        """How a name is bound, in the nearest scope that binds it (class bodies hide from functions)."""
        at: Scope | None = scope
        while at is not None:
            if name in at.bindings and (at is scope or not at.is_class):
                return at.bindings[name][-BINDINGS:]
            at = at.parent
        return []

    def _name(self, name: str, scope: Scope, depth: int) -> Ref | None:
        """A plain name; unbound ones are builtins."""
        bound = self.bindings(name, scope)
        if not bound:
            return Ref(name)
        for binding in reversed(bound):
            found = self.bound_to(binding, depth - 1)
            if found is not None:
                return found
        return None

    def bound_to(self, binding: Binding, depth: int) -> Ref | None:
        """What a binding makes its name refer to; None for values that are no function, class or module."""
        if binding.how == "import":
            return self.dotted(binding.text, binding.scope.module, depth)
        if binding.how == "def" and binding.node is not None:
            inner = binding.scope.module.by_node[binding.node]
            return Ref(inner.name, inner)
        if binding.how == "value":
            return self.resolve(binding.node, binding.scope, depth)
        return None

    def dotted(self, name: str, near: Module, depth: int) -> Ref | None:
        """An absolute dotted name: a module of the checkout, something in one, or a name outside."""
        if depth <= 0 or not self.spend():
            return None
        head, tail = name, ""
        while head:
            module = self.find(head, near)
            if module is not None:
                return self._inside(module, tail, depth - 1)
            head, _, last = head.rpartition(".")
            tail = f"{last}.{tail}" if tail else last
        return Ref(name)

    def _inside(self, module: Module, path: str, depth: int) -> Ref | None:
        """``path`` (dotted, maybe empty) looked up from a module's own scope."""
        ref: Ref | None = Ref(module.name, module.scope)
        for part in path.split(".") if path else ():
            if ref is None:
                return None
            ref = self.member(ref, part, depth)
        return ref

    def _attribute(self, node: ast.Attribute, scope: Scope, depth: int) -> Ref | None:
        """``value.attr`` of a module, a class, ``self``, or a name outside."""
        owner = _self_class(node.value, scope)
        if owner is not None:
            return self.member(Ref(owner.name, owner), node.attr, depth - 1)
        base = self.resolve(node.value, scope, depth - 1)
        return self.member(base, node.attr, depth - 1) if base is not None else None

    def member(self, base: Ref, name: str, depth: int = DEPTH) -> Ref | None:
        """``base.name``; classes look into their bases."""
        if base.scope is None:
            return Ref(f"{base.name}.{name}")
        if depth <= 0 or not self.spend():
            return None
        for binding in reversed(self.attribute_bindings(base.scope, name, depth)):
            found = self.bound_to(binding, depth - 1)
            if found is not None:
                return found
        if base.node is None and not base.scope.bindings.get(name):
            module = self.find(f"{base.name}.{name}", base.scope.module)
            return Ref(module.name, module.scope) if module is not None else None
        return None

    def attribute_bindings(self, scope: Scope, name: str, depth: int = DEPTH) -> list[Binding]:
        """How an attribute of a module or class (or of its bases in the checkout) is bound."""
        if not scope.is_class:
            return scope.bindings.get(name, [])[-BINDINGS:]
        for owner in self.line_of_descent(scope, depth):
            if name in owner.attributes:
                return owner.attributes[name][-BINDINGS:]
        return []

    def line_of_descent(self, scope: Scope, depth: int = DEPTH) -> list[Scope]:
        """A class and its bases inside the checkout, nearest first."""
        found, todo = [scope], [scope]
        while todo and len(found) < DEPTH:
            at = todo.pop(0)
            bases = at.node.bases if isinstance(at.node, ast.ClassDef) else []
            for base in bases:
                ref = self.resolve(base, at.parent or at, depth - 1)
                if ref is not None and ref.scope is not None and ref.scope not in found:
                    found.append(ref.scope)
                    todo.append(ref.scope)
        return found

    def outside_bases(self, scope: Scope) -> list[str]:
        """Qualified names of the bases of a class (its bases' bases included) that lie outside the checkout."""
        names = []
        for owner in self.line_of_descent(scope):
            for base in owner.node.bases if isinstance(owner.node, ast.ClassDef) else []:
                ref = self.resolve(base, owner.parent or owner)
                if ref is None or ref.scope is None:
                    names.append(ref.name if ref is not None else last_name(base))
        return names

    def calls_of(self, target: Scope) -> list[tuple[ast.Call, Scope]]:
        """Calls of a function of the checkout, found by its name and then resolved; a handful at most."""
        name = target.name.rpartition(".")[2]
        found: list[tuple[ast.Call, Scope]] = []
        for module in self.mentioning(name):
            for scope in module.scopes:
                for call in scope.calls:
                    if last_name(call.func) == name and len(found) < CALL_SITES:
                        ref = self.resolve(call.func, scope)
                        if ref is not None and ref.scope is target:
                            found.append((call, scope))
        return found


def last_name(node: ast.AST) -> str:
    """The last part of a dotted expression: ``submit`` of ``self.pool.submit``; empty for anything else."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _self_class(node: ast.AST, scope: Scope) -> Scope | None:
    """The class if ``node`` is the ``self`` (or ``cls``) of a method around ``scope``."""
    if not isinstance(node, ast.Name):
        return None
    at: Scope | None = scope
    while at is not None and not at.is_class:
        if at.first_parameter() == node.id:
            return at.parent
        if node.id in at.bindings:
            return None
        at = at.parent
    return None


def _dotted(file: str) -> str:
    """``a/b/__init__.py`` is ``a.b``; ``a/c.py`` is ``a.c``."""
    name = file.removesuffix(".py").replace("/", ".")
    return name.removesuffix(".__init__") if name.endswith(".__init__") else name
