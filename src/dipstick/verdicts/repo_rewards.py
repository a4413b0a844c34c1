"""Trainers and their reward functions (TRL: ``GRPOTrainer(model, reward_funcs, ...)`` and its relatives)."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from dipstick.verdicts.repo_context import argument
from dipstick.verdicts.repo_resolve import last_name
from dipstick.verdicts.repo_scope import parameters_of
from dipstick.verdicts.repo_types import ANY, INT, TEXT, Ty

if TYPE_CHECKING:
    from dipstick.verdicts.repo_context import Context
    from dipstick.verdicts.repo_follow import Target
    from dipstick.verdicts.repo_model import Finding, Sure
    from dipstick.verdicts.repo_resolve import Ref
    from dipstick.verdicts.repo_scope import Scope

TEXTS: Final = Ty("list", (TEXT,))
CONTRACT: Final[dict[str, Ty]] = {
    "prompts": TEXTS,
    "completions": TEXTS,
    "completion_ids": Ty("list", (Ty("list", (INT,)),)),
}
"""What TRL passes to a reward function, by name (docs: grpo_trainer, "Using a custom reward function")."""
POSITION: Final = 1
"""Of ``reward_funcs`` in ``GRPOTrainer.__init__``."""


def find_rewards(context: Context) -> None:
    """Add the trainers and reward functions, and note what TRL passes to each of them."""
    for call, scope in context.calls():
        trainer = _trainer(context, call, scope)
        if trainer is None:
            continue
        ref, sure = trainer
        context.add(context.at(call, scope, "trainer", ref=ref, sure=sure))
        value = argument(call, "reward_funcs", POSITION if "GRPO" in last_name(call.func) else -1)
        value, where = (value, scope) if value is not None else _hidden(context, call, scope)
        for found in context.follow.callables(value, where) if value is not None else ():
            _add_reward(context, found)


def _trainer(context: Context, call: ast.Call, scope: Scope) -> tuple[Ref | None, Sure] | None:
    """The trainer that a call builds and how sure that is; None if it builds none."""
    named = last_name(call.func)
    rewarded = argument(call, "reward_funcs") is not None
    if named == "__init__":
        owner = scope.owner()
        return (None, "resolved") if rewarded and owner is not None and _descends(context, owner) else None
    if not named[:1].isupper() or ("Trainer" not in named and not rewarded):
        return None
    ref = context.checkout.resolve(call.func, scope)
    if ref is not None and ref.scope is not None and ref.scope.is_class:
        return (ref, "resolved") if _descends(context, ref.scope) else None
    if "GRPO" in named or rewarded:
        return ref, "resolved" if ref is not None and ref.name.startswith("trl.") else "by name"
    return None


def _descends(context: Context, scope: Scope) -> bool:
    """Whether a class of the checkout is a GRPO trainer."""
    names = [
        *context.checkout.outside_bases(scope),
        *(s.name for s in context.checkout.line_of_descent(scope)),
    ]
    return any(name.rpartition(".")[2].endswith("GRPOTrainer") for name in names)


def _hidden(context: Context, call: ast.Call, scope: Scope) -> tuple[ast.expr | None, Scope]:
    """``reward_funcs`` inside ``**settings`` where the settings are a literal."""
    for keyword in call.keywords:
        if keyword.arg is not None or not isinstance(keyword.value, ast.Name):
            continue
        for binding in context.checkout.bindings(keyword.value.id, scope):
            value = _entry(binding.node, "reward_funcs")
            if value is not None:
                return value, binding.scope
    return None, scope


def _entry(node: ast.AST | None, name: str) -> ast.expr | None:
    """The value of a key in ``{...}`` or ``dict(...)``."""
    if isinstance(node, ast.Call) and last_name(node.func) == "dict":
        return argument(node, name)
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == name:
                return value
    return None


def _add_reward(context: Context, found: Target) -> None:
    """One reward function: its place, and the type of the completions it gets."""
    finding = context.at(found.node, found.scope, "reward_function", ref=found.ref, sure=found.sure)
    if isinstance(found.node, ast.Constant):
        model = replace(finding, target=found.name, payload=(str(TEXTS),), tensors=False)
        context.add(replace(model, detail="reward model: TRL tokenizes the text and runs it on the GPU"))
        return
    function = found.ref.scope if found.ref is not None else None
    if function is None or function.node is None or function.is_class:
        context.add(replace(finding, target=finding.target or found.name))
        return
    context.rewards.append(function)
    context.add(*_described(context, finding, function))


def _described(context: Context, finding: Finding, function: Scope) -> tuple[Finding, list[Ty]]:
    """The finding with the type of the completions, and where that type comes from."""
    node = function.node
    parameters: list[ast.arg] = [] if node is None or isinstance(node, ast.ClassDef) else parameters_of(node)
    noted = {
        p.arg: context.inference.annotation(p.annotation, function.parent or function) for p in parameters
    }
    for name in CONTRACT.keys() & noted.keys():
        if noted[name] == ANY and node is not None:
            context.promises[node, name] = CONTRACT[name]
    ty = noted.get("completions", ANY)
    if ty != ANY:
        return replace(finding, detail="annotated"), [ty]
    return replace(finding, detail="TRL passes text: strings, or chat messages"), [TEXTS]
