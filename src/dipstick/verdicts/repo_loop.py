"""The loop around the rewards: generation and what becomes of it, gathers across ranks, scheduled events."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from dipstick.verdicts.repo_resolve import last_name
from dipstick.verdicts.repo_types import canonical
from dipstick.verdicts.repo_walk import printable

if TYPE_CHECKING:
    from dipstick.verdicts.repo_context import Context
    from dipstick.verdicts.repo_scope import Scope

COLLECTIVES: Final = frozenset(
    {
        "all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_to_all", "all_to_all_single",
        "barrier", "broadcast", "broadcast_object_list", "gather", "gather_object", "monitored_barrier", "reduce",
        "reduce_scatter", "reduce_scatter_tensor", "scatter", "scatter_object_list",
    }
)  # fmt: skip
"""Functions of ``torch.distributed`` at which ranks wait for each other."""
ACCELERATE: Final = frozenset(
    {"gather", "gather_object", "broadcast", "broadcast_object_list", "reduce", "wait_for_everyone"}
)
ACCELERATOR: Final = frozenset({"gather", "gather_for_metrics", "reduce", "wait_for_everyone"})
GENERATES: Final = frozenset({"generate", "chat"})
LOOKS_LIKE_A_MODEL: Final = re.compile(r"llm|model|engine|policy", re.IGNORECASE)
GIVES_TENSORS: Final = re.compile(r"model$|policy$", re.IGNORECASE)
"""Names of objects whose ``generate`` returns token tensors, as transformers' models do."""

SETTINGS: Final = frozenset(
    {
        "save_steps", "save_strategy", "save_total_limit", "save_only_model", "eval_steps", "eval_strategy",
        "torch_empty_cache_steps", "logging_steps", "steps_per_generation", "num_iterations", "num_generations",
        "gradient_accumulation_steps", "per_device_train_batch_size", "use_vllm", "vllm_mode",
        "vllm_gpu_memory_utilization", "vllm_enable_sleep_mode",
    }
)  # fmt: skip
"""Settings of TRL's GRPOConfig that decide when something happens, and who shares a GPU."""
EVENTS: Final[dict[str, str]] = {
    "torch.cuda.empty_cache": "cache_clear", "gc.collect": "gc", "torch.save": "checkpoint",
    "torch.distributed.checkpoint.save": "checkpoint", "safetensors.torch.save_file": "checkpoint",
}  # fmt: skip
EVENT_NAMES: Final = frozenset(name.rpartition(".")[2] for name in EVENTS)
EVENT_METHODS: Final = {
    "save_model": "checkpoint",
    "save_state": "checkpoint",
    "save_pretrained": "checkpoint",
}


def collective(context: Context, call: ast.Call, scope: Scope) -> tuple[str, bool] | None:
    """The collective that a call is, and whether it was resolved; None for anything else.

    ``torch.gather`` (indexing) and ``asyncio.gather`` are none; ``self.accelerator.gather`` is, by name.
    """
    last = last_name(call.func)
    if last not in COLLECTIVES | ACCELERATOR | ACCELERATE:
        return None
    ref = context.checkout.resolve(call.func, scope)
    name = canonical(ref.name) if ref is not None and ref.scope is None else ""
    if name.startswith("torch.distributed.") and last in COLLECTIVES:
        return name, True
    if name.startswith("accelerate.") and last in ACCELERATE:
        return name, True
    if not isinstance(call.func, ast.Attribute) or last not in ACCELERATOR:
        return None
    if context.inference.infer(call.func.value, scope).name == "accelerate.Accelerator":
        return f"accelerate.Accelerator.{last}", True
    looks = "accelerator" in last_name(call.func.value).lower()
    return (f"accelerate.Accelerator.{last}", False) if looks else None


def find_gathers(context: Context) -> None:
    """Add the calls at which ranks wait for each other."""
    for call, scope in context.calls():
        found = collective(context, call, scope)
        if found is not None:
            name, resolved = found
            finding = context.at(call, scope, "gather", sure="resolved" if resolved else "by name")
            context.add(replace(finding, target=printable(name), detail="ranks wait for the last one here"))


def find_generation(context: Context) -> None:
    """Add ``.generate`` calls and what is done with the result: text, token ids or tensors."""
    for call, scope in context.calls():
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in GENERATES:
            continue
        owner = context.inference.infer(call.func.value, scope)
        known = owner.name == "vllm.LLM" or owner.name.startswith(("transformers.", "peft."))
        if not known and not LOOKS_LIKE_A_MODEL.search(last_name(call.func.value)):
            continue
        finding = context.at(call, scope, "generate", sure="resolved" if known else "by name")
        words = (
            f"{owner.name}.{call.func.attr}" if known else f"{last_name(call.func.value)}.{call.func.attr}"
        )
        of_model = GIVES_TENSORS.search(last_name(call.func.value)) or owner.name.startswith("transformers.")
        handed = handed_on(call, scope, tensors=owner.name != "vllm.LLM" and bool(of_model))
        tensors = {"tensors": True, "unknown": None}.get(handed, False)
        context.add(
            replace(finding, target=printable(words), detail=handed, payload=(handed,), tensors=tensors)
        )


def handed_on(call: ast.Call, scope: Scope, *, tensors: bool) -> str:
    """What of a generation's result the function around it reads on: ``text``, ``token ids``, ``tensors``.

    ``tensors`` says whether the call returns tensors; without decoding, those are handed on.

    Example:
        ``outputs = llm.generate(p); texts = [o.outputs[0].text for o in outputs]``: ``text``.
        ``ids = model.generate(**x); score(ids)``: ``tensors``; with ``tok.batch_decode(ids)``: ``text``.
    """
    names = _derived(call, scope)

    def comes_from(node: ast.AST) -> bool:
        return any(
            inner is call or (isinstance(inner, ast.Name) and inner.id in names) for inner in ast.walk(node)
        )

    nodes = _nodes(scope)
    attributes = {n.attr for n in nodes if isinstance(n, ast.Attribute) and comes_from(n.value)}
    decoded = any(
        isinstance(n, ast.Call)
        and last_name(n.func) in {"batch_decode", "decode"}
        and any(map(comes_from, n.args))
        for n in nodes
    )
    if decoded or "text" in attributes:
        return "text"
    if "token_ids" in attributes:
        return "token ids"
    return "tensors" if tensors and names else "unknown"


def _nodes(scope: Scope) -> list[ast.AST]:
    """All nodes of a function, or of the module's calls."""
    if scope.node is not None:
        return list(ast.walk(scope.node))
    return [inner for call in scope.calls for inner in ast.walk(call)] + [
        inner
        for bound in scope.bindings.values()
        for b in bound
        if b.node is not None
        for inner in ast.walk(b.node)
    ]


def _derived(call: ast.Call, scope: Scope) -> set[str]:
    """Names bound to the call's result, or to something made from one of those (three rounds)."""
    names: set[str] = set()
    for _ in range(3):
        for name, bindings in scope.bindings.items():
            for binding in bindings:
                inner = (
                    list(ast.walk(binding.node)) if binding.node is not None and binding.how != "def" else []
                )
                if any(n is call or (isinstance(n, ast.Name) and n.id in names) for n in inner):
                    names.add(name)
    return names


def find_schedules(context: Context) -> None:
    """Add settings of configuration calls, and explicit calls that clear caches or write checkpoints."""
    for call, scope in context.calls():
        for keyword in call.keywords:
            if keyword.arg in SETTINGS and last_name(call.func)[:1].isupper():
                _add_setting(context, keyword.arg, keyword.value, scope)
        _add_event(context, call, scope)


def _add_event(context: Context, call: ast.Call, scope: Scope) -> None:
    """``torch.cuda.empty_cache()``, ``trainer.save_model()``."""
    last = last_name(call.func)
    ref = context.checkout.resolve(call.func, scope) if last in EVENT_NAMES else None
    event = EVENTS.get(ref.name) if ref is not None and ref.scope is None else None
    if event is not None:
        finding = context.at(call, scope, "schedule", sure="resolved")
        context.add(replace(finding, target=event, detail="called"))
    elif isinstance(call.func, ast.Attribute) and last in EVENT_METHODS:
        finding = context.at(call, scope, "schedule")
        context.add(replace(finding, target=EVENT_METHODS[last], detail="called"))


def _add_setting(context: Context, name: str, value: ast.expr, scope: Scope) -> None:
    """``save_steps=20``, or a name that leads to a constant."""
    constant = _constant(context, value, scope)
    finding = context.at(value, scope, "schedule", sure="resolved" if constant is not None else "by name")
    context.add(replace(finding, target=name, detail=constant if constant is not None else "not a constant"))


def _constant(context: Context, value: ast.expr, scope: Scope) -> str | None:
    """The constant that an expression is, or that its name is bound to."""
    if isinstance(value, ast.Name):
        bound = [b.node for b in context.checkout.bindings(value.id, scope) if b.how == "value"]
        value = bound[0] if len(bound) == 1 and isinstance(bound[0], ast.expr) else value
    return printable(repr(value.value), 80) if isinstance(value, ast.Constant) else None
