"""Names followed to what they stand for: through imports, assignments, ``partial``, ``self`` and classes.

Only the checkout's own files are followed; anything else stays a qualified name (``trl.GRPOTrainer``).
Every step costs one unit of a shared effort, and depth is bounded, so that no checkout can make the
scan long or deep.
"""

from __future__ import annotations

import ast
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dipstick.verdicts.repo_scope import Binding, Module, Scope, parse
from dipstick.verdicts.repo_walk import PYTHON

if TYPE_CHECKING:
    from dipstick.verdicts.repo_scope import DefNode
    from dipstick.verdicts.repo_walk import Limits, Texts

DEPTH: Final = 24
BINDINGS: Final = 6
"""Bindings of one name that are tried; a name that is bound more often is not worth following."""
RESOLVE_PATIENCE: Final = 500
"""Effort for following one name."""
CALL_SITES: Final = 6
CALLING_FILES: Final = 12
"""A function whose name is called in more files than this is not followed to its callers."""
PARTIAL: Final = frozenset({"functools.partial", "functools.partialmethod", "functools.update_wrapper"})
"""Calls that stand for their first argument."""


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

    def __init__(self, texts: Texts, limits: Limits) -> None:
        self.texts = texts
        self.effort = limits.effort
        self.parse_bytes = limits.parse_bytes
        self.patience = limits.effort
        self.cuts = 0
        self._modules: dict[str, Module | None] = {}
        self._refs: dict[tuple[ast.AST | None, Scope], Ref | None] = {}
        self._calls: dict[Scope, list[tuple[ast.Call, Scope]]] = {}
        self._descent: dict[Scope, list[Scope]] = {}
        self._found: dict[tuple[str, str], Module | None] = {}
        self._names = {_dotted(file): file for file in texts.files if file.endswith(PYTHON)}
        self._by_last: dict[str, list[str]] = {}
        for name in self._names:
            self._by_last.setdefault(name.rpartition(".")[2], []).append(name)

    def spend(self, depth: int = 1) -> bool:
        """Take one unit of effort; False when none is left (in all, or for this question) or the depth is used up.

        ``cuts`` counts the refusals: an answer during which none happened is final and can be kept.
        """
        self.effort -= 1
        self.patience -= 1
        if self.effort > 0 and self.patience > 0 and depth > 0:
            return True
        self.cuts += 1
        return False

    def module(self, file: str) -> Module | None:
        """The parsed file, or None if it can't be parsed or enough has been parsed."""
        if file not in self._modules:
            text = self.texts.files[file]
            self.parse_bytes -= len(text)
            parsed = parse(_dotted(file), file, text) if self.parse_bytes >= 0 else None
            self._modules[file] = parsed
            if parsed is None:
                why = (
                    "not readable as Python" if self.parse_bytes >= 0 else "more Python than is read at once"
                )
                self.texts.skip(file, why, cut=True)
        return self._modules[file]

    def calling(self, name: str) -> list[Module]:
        """Modules that seem to call a function of that name; none if many do (``run``, ``get``)."""
        words = f"{name}("
        files = (f for f, text in self.texts.files.items() if words in text and f.endswith(PYTHON))
        few = list(itertools.islice(files, CALLING_FILES + 1))
        return [m for m in map(self.module, few) if m is not None] if len(few) <= CALLING_FILES else []

    def find(self, dotted: str, near: Module) -> Module | None:
        """The checkout's module of that name as ``near`` would import it.

        A script sees its own folder first, then the folders above it up to the root (``src`` layouts
        included); last comes the only module in the checkout whose name ends so.
        """
        folder = near.file.rpartition("/")[0]
        if (dotted, folder) not in self._found:
            file = self._file_of(dotted, folder.split("/") if folder else [])
            self._found[dotted, folder] = self.module(file) if file is not None else None
        return self._found[dotted, folder]

    def _file_of(self, dotted: str, folder: list[str]) -> str | None:
        """See :meth:`find`."""
        for depth in range(len(folder), -1, -1):
            for name in (".".join([*folder[:depth], dotted]), ".".join([*folder[:depth], "src", dotted])):
                if name in self._names:
                    return self._names[name]
        if "." not in dotted:
            return None
        ending = [n for n in self._by_last.get(dotted.rpartition(".")[2], ()) if n.endswith("." + dotted)]
        return self._names[ending[0]] if len(ending) == 1 else None

    # -- resolution --------------------------------------------------------------------------------

    def resolve(self, node: ast.AST | None, scope: Scope, depth: int = DEPTH) -> Ref | None:
        """What an expression refers to: a function, class or module, or a name outside; None if unknown."""
        key = (node, scope)
        if node is None or key in self._refs:
            return self._refs.get(key)
        outer = self.patience
        if depth == DEPTH:  # a question of its own
            self.patience = min(outer, RESOLVE_PATIENCE)
        before, cuts = self.patience, self.cuts
        ref = self._resolve(node, scope, depth) if self.spend(depth) else None
        self.patience = outer - (before - self.patience)
        if cuts == self.cuts:
            self._refs[key] = ref
        return ref

    def _resolve(self, node: ast.AST, scope: Scope, depth: int) -> Ref | None:
        """See :meth:`resolve`."""
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
        return self._starred(name, scope.module)

    def _starred(self, name: str, module: Module) -> list[Binding]:
        """What ``from other import *`` binds a name to; private names stay behind."""
        stars = module.scope.bindings.get("*", []) if not name.startswith("_") else []
        for star in stars[-BINDINGS:]:
            other = self.find(star.text.removesuffix(".*"), module)
            if other is not None and other is not module and name in other.scope.bindings:
                return other.scope.bindings[name][-BINDINGS:]
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
        if not self.spend(depth):
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
        if not self.spend(depth):
            return None
        for binding in reversed(self.attribute_bindings(base.scope, name)):
            found = self.bound_to(binding, depth - 1)
            if found is not None:
                return found
        if base.node is None and not base.scope.bindings.get(name):
            module = self.find(f"{base.name}.{name}", base.scope.module)
            return Ref(module.name, module.scope) if module is not None else None
        return None

    def attribute_bindings(self, scope: Scope, name: str) -> list[Binding]:
        """How an attribute of a module or class (or of its bases in the checkout) is bound."""
        if not scope.is_class:
            return scope.bindings.get(name, [])[-BINDINGS:]
        for owner in self.line_of_descent(scope):
            if name in owner.attributes:
                return owner.attributes[name][-BINDINGS:]
        return []

    def line_of_descent(self, scope: Scope) -> list[Scope]:
        """A class and its bases inside the checkout, nearest first."""
        if scope not in self._descent:
            self._descent[scope] = [scope]  # asked again while answering: a class that inherits from itself
            self._descent[scope] = self._ancestors(scope)
        return self._descent[scope]

    def _ancestors(self, scope: Scope) -> list[Scope]:
        """See :meth:`line_of_descent`."""
        found, todo = [scope], [scope]
        while todo and len(found) < DEPTH:
            at = todo.pop(0)
            for base in at.node.bases if isinstance(at.node, ast.ClassDef) else []:
                ref = self.resolve(base, at.parent or at)
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
        if target not in self._calls:
            self._calls[target] = []  # asked again while answering: a recursive function
            self._calls[target] = self._find_calls(target)
        return self._calls[target]

    def _find_calls(self, target: Scope) -> list[tuple[ast.Call, Scope]]:
        """See :meth:`calls_of`."""
        name = target.name.rpartition(".")[2]
        found: list[tuple[ast.Call, Scope]] = []
        for module in self.calling(name):
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
