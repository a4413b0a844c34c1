"""What the finders share: the checkout, inference, and how a finding is made."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dipstick.verdicts.repo_follow import Follow
from dipstick.verdicts.repo_infer import Inference
from dipstick.verdicts.repo_model import Finding
from dipstick.verdicts.repo_resolve import Checkout, Ref
from dipstick.verdicts.repo_tensors import any_of, holds_tensors
from dipstick.verdicts.repo_walk import Limits, Texts, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dipstick.verdicts.repo_model import Kind, Sure
    from dipstick.verdicts.repo_scope import Module, Scope
    from dipstick.verdicts.repo_types import Ty


@dataclass(slots=True)
class Context:
    """One scan.

    Attributes:
        texts: The checkout's texts.
        limits: Bounds.
        modules: The modules that are searched.
        rewards: Reward functions of the checkout.
        workers: Functions that run in worker processes.
        reachable: Functions that run when a reward function runs.
        promises: Types of parameters learnt by the finder at work, for the finders after it.
    """

    texts: Texts
    limits: Limits
    checkout: Checkout = field(init=False)
    inference: Inference = field(init=False)
    follow: Follow = field(init=False)
    modules: list[Module] = field(default_factory=list)
    rewards: list[Scope] = field(default_factory=list)
    workers: list[Scope] = field(default_factory=list)
    reachable: set[Scope] = field(default_factory=set)
    promises: dict[tuple[ast.AST, str], Ty] = field(default_factory=dict)
    findings: dict[Kind, list[Finding]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Build the readers on top of the texts."""
        self.checkout = Checkout(self.texts, self.limits)
        self.inference = Inference(self.checkout)
        self.follow = Follow(self.inference)

    def calls(self) -> Iterator[tuple[ast.Call, Scope]]:
        """All calls of the searched modules, in source order within a scope."""
        for module in self.modules:
            for scope in module.scopes:
                for call in scope.calls:
                    yield call, scope

    def add(self, finding: Finding, types: list[Ty] | None = None) -> None:
        """Keep a finding, with the payload's types if there is one."""
        found = self.findings.setdefault(finding.kind, [])
        if len(found) >= self.limits.findings:
            self.texts.complete = False
            return
        if types is not None:
            held = any_of(holds_tensors(self.inference, ty) for ty in types)
            finding = replace(finding, payload=tuple(printable(str(ty)) for ty in types), tensors=held)
        found.append(finding)

    def at(
        self, node: ast.expr, scope: Scope, kind: Kind, *, ref: Ref | None = None, sure: Sure = "by name"
    ) -> Finding:
        """A finding at an expression; ``ref`` is its target."""
        lines = scope.module.lines
        line = lines[node.lineno - 1] if node.lineno <= len(lines) else ""
        return Finding(
            kind=kind,
            file=printable(scope.module.file),
            line=node.lineno,
            code=printable(line),
            target=printable(ref.name) if ref is not None else "",
            target_file=printable(ref.file) if ref is not None else "",
            target_line=ref.line if ref is not None else None,
            inside="" if scope.node is None else printable(scope.name),
            from_reward=self.leads_from_reward(scope),
            sure=sure,
        )

    def leads_from_reward(self, scope: Scope) -> bool:
        """Whether a scope, or a function around it, runs when a reward function runs."""
        at: Scope | None = scope
        while at is not None:
            if at in self.reachable:
                return True
            at = at.parent
        return False


def argument(call: ast.Call, name: str, position: int = -1) -> ast.expr | None:
    """An argument by keyword or position; None if it is not there (or hidden in ``**kwargs``)."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    if 0 <= position < len(call.args) and not any(
        isinstance(a, ast.Starred) for a in call.args[: position + 1]
    ):
        return call.args[position]
    return None
