"""Python modules as scopes: which names are bound to what, which calls are made where.

One iterative pass over the syntax tree (no recursion: nesting depth is the checkout's to choose).
"""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
DefNode = FunctionNode | ast.ClassDef


@dataclass(slots=True, eq=False)
class Module:
    """One parsed file.

    Attributes:
        name: Dotted name from the checkout's root (``seed_pipeline.reward``).
        file: Path inside the checkout.
        lines: Source lines.
        scope: The module's own scope.
        scopes: All scopes, the module's first.
        by_node: Scope of each function and class node.
    """

    name: str
    file: str
    lines: list[str]
    scope: Scope = field(init=False)
    scopes: list[Scope] = field(default_factory=list)
    by_node: dict[ast.AST, Scope] = field(default_factory=dict)

    @property
    def package(self) -> str:
        """What a relative import of one dot is relative to."""
        return self.name if self.file.endswith("__init__.py") else self.name.rpartition(".")[0]


How = Literal["import", "def", "value", "element", "item", "enter", "param", "annotation"]


@dataclass(frozen=True, slots=True, eq=False)
class Binding:
    """One way a name gets its value.

    Attributes:
        how: ``import`` (``text`` is the dotted target), ``def`` (``node`` is the function or class),
            ``value`` (assigned ``node``), ``element`` (loops over ``node``), ``item`` (one of an unpacked
            ``node``), ``enter`` (``with node as name``), ``param`` (``node`` is the ``ast.arg``),
            ``annotation`` (``name: node``).
        scope: Where ``node`` is to be read.
        index: Position inside an unpacked tuple, -1 for the whole.
    """

    how: How
    scope: Scope
    node: ast.AST | None = None
    text: str = ""
    index: int = -1


@dataclass(slots=True, eq=False)
class Scope:
    """A module, class or function body.

    Attributes:
        node: Its node; None for the module.
        parent: The scope around it; None for the module.
        module: Its module.
        name: Qualified name (``seed_pipeline.reward.Reward.__call__``).
        bindings: Names bound here.
        attributes: For a class: ``self.x`` assignments in its methods and fields of its body.
        calls: Calls made here (comprehensions included, nested functions not).
        withs: Context expressions of ``with`` statements.
        returns: Returned expressions.
        nested: Functions and classes defined here.
    """

    node: DefNode | None
    parent: Scope | None
    module: Module = field(repr=False)
    name: str
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    attributes: dict[str, list[Binding]] = field(default_factory=dict)
    calls: list[ast.Call] = field(default_factory=list)
    withs: list[ast.expr] = field(default_factory=list)
    returns: list[ast.expr] = field(default_factory=list)
    nested: list[Scope] = field(default_factory=list)
    global_names: set[str] = field(default_factory=set)

    @property
    def is_class(self) -> bool:
        """Whether names here are attributes and not seen by nested functions."""
        return isinstance(self.node, ast.ClassDef)

    def owner(self) -> Scope | None:
        """The class whose method this function is (or lies in); None elsewhere."""
        scope: Scope | None = self
        while scope is not None and not scope.is_class:
            scope = scope.parent
        return scope

    def first_parameter(self) -> str:
        """Name of a method's ``self``; empty outside methods."""
        if isinstance(self.node, FunctionNode) and self.parent is not None and self.parent.is_class:
            arguments = self.node.args.posonlyargs + self.node.args.args
            return arguments[0].arg if arguments else ""
        return ""


def parse(name: str, file: str, text: str) -> Module | None:
    """Parse one file; None if it is not Python that this interpreter reads.

    Never raises: syntax errors, null bytes, nesting beyond the parser's or the interpreter's limit all
    give None.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes and the like are not our business
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    module = Module(name, file, text.splitlines())
    module.scope = Scope(None, None, module, name)
    module.scopes.append(module.scope)
    _Builder(module).run(tree)
    return module


class _Builder:
    """The pass; ``todo`` holds (node, scope) in source order, last first."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.todo: list[tuple[ast.AST, Scope]] = []

    def run(self, tree: ast.Module) -> None:
        """Visit every node once."""
        self.push(tree.body, self.module.scope)
        while self.todo:
            node, scope = self.todo.pop()
            visit = getattr(self, f"visit_{type(node).__name__}", None)
            if visit is not None:
                visit(node, scope)
            else:
                self.push(ast.iter_child_nodes(node), scope)

    def push(self, nodes: Iterable[ast.AST], scope: Scope) -> None:
        """Visit nodes next, in their order."""
        self.todo.extend((node, scope) for node in reversed(list(nodes)))

    def bind(self, target: ast.AST, how: How, node: ast.AST, scope: Scope, index: int = -1) -> None:
        """Bind a name, ``self.x``, or the names of a tuple."""
        if isinstance(target, ast.Starred):
            target = target.value
        if isinstance(target, ast.Name):
            home = self.module.scope if target.id in scope.global_names else scope
            home.bindings.setdefault(target.id, []).append(Binding(how, scope, node, index=index))
            if home.is_class:
                home.attributes.setdefault(target.id, []).append(Binding(how, scope, node, index=index))
        elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            owner = scope.owner()
            if owner is not None and target.value.id == _self_name(scope):
                owner.attributes.setdefault(target.attr, []).append(Binding(how, scope, node, index=index))
        elif isinstance(target, ast.Tuple | ast.List) and index < 0:
            inner: How = "item" if how == "value" else how
            for i, part in enumerate(target.elts):
                if not isinstance(part, ast.Tuple | ast.List):
                    self.bind(part, inner, node, scope, i)

    # -- definitions -------------------------------------------------------------------------------

    def define(self, node: DefNode, scope: Scope, name: str) -> Scope:
        """A new scope for a function or class."""
        inner = Scope(node, scope, self.module, f"{scope.name}.{name}" if scope.name else name)
        self.module.scopes.append(inner)
        self.module.by_node[node] = inner
        scope.nested.append(inner)
        return inner

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> None:  # noqa: N802  # name of the node
        """A function: its name here, its parameters and body in a scope of their own."""
        scope.bindings.setdefault(node.name, []).append(Binding("def", scope, node))
        if scope.is_class:
            scope.attributes.setdefault(node.name, []).append(Binding("def", scope, node))
        inner = self.define(node, scope, node.name)
        self.parameters(node, inner)
        self.push(node.body, inner)
        self.push([*node.decorator_list, *_defaults(node.args)], scope)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815  # name of the node

    def visit_Lambda(self, node: ast.Lambda, scope: Scope) -> None:  # noqa: N802  # name of the node
        """A function without a name whose body is what it returns."""
        inner = self.define(node, scope, "<lambda>")
        self.parameters(node, inner)
        inner.returns.append(node.body)
        self.push([node.body], inner)
        self.push(_defaults(node.args), scope)

    def visit_ClassDef(self, node: ast.ClassDef, scope: Scope) -> None:  # noqa: N802  # name of the node
        """A class: its body binds attributes."""
        scope.bindings.setdefault(node.name, []).append(Binding("def", scope, node))
        self.push(node.body, self.define(node, scope, node.name))
        self.push([*node.decorator_list, *node.bases, *node.keywords], scope)

    def parameters(self, node: FunctionNode, inner: Scope) -> None:
        """Bind the parameters."""
        for argument in parameters_of(node):
            inner.bindings[argument.arg] = [Binding("param", inner, argument)]

    # -- statements that bind ----------------------------------------------------------------------

    def visit_Global(self, node: ast.Global, scope: Scope) -> None:  # noqa: N802  # name of the node
        """Names that assignments below bind in the module."""
        scope.global_names.update(node.names)

    def visit_Import(self, node: ast.Import, scope: Scope) -> None:  # noqa: N802  # name of the node
        """``import a.b`` binds ``a``; ``import a.b as c`` binds ``c`` to ``a.b``."""
        for alias in node.names:
            target = alias.name if alias.asname else alias.name.partition(".")[0]
            name = alias.asname or target
            scope.bindings.setdefault(name, []).append(Binding("import", scope, text=target))

    def visit_ImportFrom(self, node: ast.ImportFrom, scope: Scope) -> None:  # noqa: N802  # name of the node
        """``from .a import b`` binds ``b`` to ``package.a.b``."""
        base = relative(self.module.package, node.level, node.module or "")
        for alias in node.names:
            name, text = alias.asname or alias.name, f"{base}.{alias.name}" if base else alias.name
            scope.bindings.setdefault(name, []).append(Binding("import", scope, text=text))

    def visit_Assign(self, node: ast.Assign, scope: Scope) -> None:  # noqa: N802  # name of the node
        """``a = b = value``."""
        for target in node.targets:
            self.bind(target, "value", node.value, scope)
        self.push([*node.targets, node.value], scope)

    def visit_AnnAssign(self, node: ast.AnnAssign, scope: Scope) -> None:  # noqa: N802  # name of the node
        """``a: T = value``: the annotation is believed first."""
        self.bind(node.target, "annotation", node.annotation, scope)
        if node.value is not None:
            self.bind(node.target, "value", node.value, scope)
            self.push([node.value], scope)

    def visit_NamedExpr(self, node: ast.NamedExpr, scope: Scope) -> None:  # noqa: N802  # name of the node
        """``(a := value)``."""
        self.bind(node.target, "value", node.value, scope)
        self.push([node.value], scope)

    def visit_For(self, node: ast.For | ast.AsyncFor, scope: Scope) -> None:  # noqa: N802  # name of the node
        """``for a in items``."""
        self.bind(node.target, "element", node.iter, scope)
        self.push([node.iter, *node.body, *node.orelse], scope)

    visit_AsyncFor = visit_For  # noqa: N815  # name of the node

    def visit_comprehension(self, node: ast.comprehension, scope: Scope) -> None:
        """A comprehension's names are kept with the function around it: close enough for reading."""
        self.bind(node.target, "element", node.iter, scope)
        self.push([node.iter, *node.ifs], scope)

    def visit_withitem(self, node: ast.withitem, scope: Scope) -> None:
        """``with value as a``."""
        scope.withs.append(node.context_expr)
        if node.optional_vars is not None:
            self.bind(node.optional_vars, "enter", node.context_expr, scope)
        self.push([node.context_expr], scope)

    def visit_Return(self, node: ast.Return, scope: Scope) -> None:  # noqa: N802  # name of the node
        """What a function returns."""
        if node.value is not None:
            scope.returns.append(node.value)
            self.push([node.value], scope)

    def visit_Call(self, node: ast.Call, scope: Scope) -> None:  # noqa: N802  # name of the node
        """A call."""
        scope.calls.append(node)
        self.push(ast.iter_child_nodes(node), scope)


def parameters_of(node: FunctionNode) -> list[ast.arg]:
    """All parameters in order, ``*args`` and ``**kwargs`` last."""
    args = node.args
    rest = [extra for extra in (args.vararg, args.kwarg) if extra is not None]
    return [*args.posonlyargs, *args.args, *args.kwonlyargs, *rest]


def relative(package: str, level: int, module: str) -> str:
    """Absolute dotted name of ``from ..module import``; ``level`` counts the dots.

    Example:
        In package ``a.b``, ``from ..c import d``: level 2, module ``c``: ``a.c``.
    """
    if level == 0:
        return module
    parts = package.split(".") if package else []
    kept = parts[: max(0, len(parts) - level + 1)]
    return ".".join([*kept, module] if module else kept)


def _defaults(args: ast.arguments) -> list[ast.expr]:
    """Default values, which are read in the scope around the function."""
    return [value for value in (*args.defaults, *args.kw_defaults) if value is not None]


def _self_name(scope: Scope) -> str:
    """``self`` of the method that a scope is or lies in; empty elsewhere."""
    inner: Scope | None = scope
    while inner is not None and not inner.is_class:
        name = inner.first_parameter()
        if name:
            return name
        inner = inner.parent
    return ""
