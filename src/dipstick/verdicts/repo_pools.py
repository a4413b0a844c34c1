"""Worker pools: where they are made, what is submitted to them, and what is pickled on the way.

Known: ``concurrent.futures``, ``multiprocessing`` (and ``torch.multiprocessing``), pebble, joblib, loky.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from dipstick.verdicts.repo_context import argument
from dipstick.verdicts.repo_infer import arguments
from dipstick.verdicts.repo_resolve import last_name
from dipstick.verdicts.repo_types import ANY, Ty, element

if TYPE_CHECKING:
    from dipstick.verdicts.repo_context import Context
    from dipstick.verdicts.repo_follow import Target
    from dipstick.verdicts.repo_model import Sure
    from dipstick.verdicts.repo_scope import Scope

PROCESSES: Final = "processes: pickled"
STARTED: Final = "process: pickled when spawned, inherited when forked"
THREADS: Final = "threads: same memory, nothing is pickled"
UNSURE: Final = "pool of unknown kind: pickled if its workers are processes"
PROCESS_POOLS: Final = frozenset(
    {
        "concurrent.futures.ProcessPoolExecutor", "multiprocessing.Pool",
        "pebble.ProcessPool", "loky.ProcessPoolExecutor", "joblib.Parallel",
    }
)  # fmt: skip
THREAD_POOLS: Final = frozenset(
    {"concurrent.futures.ThreadPoolExecutor", "multiprocessing.pool.ThreadPool", "pebble.ThreadPool"}
)
METHODS: Final[dict[str, str]] = {
    "submit": "rest", "map": "each", "imap": "each", "imap_unordered": "each", "map_async": "each",
    "starmap": "each_star", "starmap_async": "each_star", "apply": "args", "apply_async": "args", "schedule": "args",
}  # fmt: skip
"""Submitting methods and where their payload is: the other arguments, each element of them, each element
spread over parameters, or one tuple ``args`` (and a dict ``kwds``/``kwargs``)."""
LOOKS_LIKE_A_POOL: Final = re.compile(r"pool|executor|worker", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Submission:
    """A call that hands work to a pool: the function's expression, payload types, transport, how sure."""

    call: ast.Call
    scope: Scope
    function: ast.expr | None
    payload: list[Ty]
    transport: str
    sure: bool
    named: dict[str, Ty]


def find_pools(context: Context) -> None:
    """Add pools and submissions, and note the workers' functions and what their parameters get."""
    for call, scope in context.calls():
        made = _made(context, call, scope)
        if made is not None:
            _add_pool(context, call, scope, made)
        submission = _submission(context, call, scope, made)
        if submission is not None:
            _add_submission(context, submission)


def _made(context: Context, call: ast.Call, scope: Scope) -> str | None:
    """The pool (or process) that a call makes."""
    last = last_name(call.func)
    if not LOOKS_LIKE_A_POOL.search(last) and last not in {"Process", "Parallel"}:
        return None
    name = context.inference.infer(call, scope).name
    return name if name in PROCESS_POOLS | THREAD_POOLS | {"multiprocessing.Process"} else None


def _add_pool(context: Context, call: ast.Call, scope: Scope, name: str) -> None:
    """A pool: its size and the initializer that runs in each worker."""
    if name in {"multiprocessing.Process", "joblib.Parallel"} or _returns_pool(context, call, scope):
        return
    size = next(
        (v for k in ("max_workers", "processes", "n_jobs") if (v := argument(call, k)) is not None), None
    )
    size = size if size is not None else (call.args[0] if call.args else None)
    said = [] if size is None else [f"workers: {_source(scope, size)}"]
    initializer = argument(call, "initializer", 1 if name == "multiprocessing.Pool" else -1)
    if initializer is not None:
        for found in context.follow.callables(initializer, scope):
            said.append(f"initializer: {found.name}")
            _note_worker(context, found, name in THREAD_POOLS)
    finding = context.at(call, scope, "pool", sure="resolved")
    context.add(replace(finding, target=name, detail="; ".join(said)))


def _returns_pool(context: Context, call: ast.Call, scope: Scope) -> bool:
    """Whether a call is to a function of the checkout that makes the pool elsewhere."""
    ref = context.checkout.resolve(call.func, scope)
    return ref is not None and ref.scope is not None


def _submission(context: Context, call: ast.Call, scope: Scope, made: str | None) -> _Submission | None:
    """What a call submits, if it submits anything."""
    if made == "multiprocessing.Process":
        return _process(context, call, scope)
    if isinstance(call.func, ast.Call):
        return _joblib(context, call, scope)
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in METHODS:
        if (
            isinstance(call.func, ast.Name)
            and context.inference.infer(call.func, scope).name == "joblib.Parallel"
        ):
            return _joblib(context, call, scope)
        return None
    receiver = context.inference.infer(call.func.value, scope).name
    known = receiver in PROCESS_POOLS | THREAD_POOLS
    if not known and (receiver != ANY.name or not LOOKS_LIKE_A_POOL.search(last_name(call.func.value))):
        return None
    function = _function_argument(call)
    payload, named = _payload(context, call, scope)
    transport = THREADS if receiver in THREAD_POOLS else PROCESSES if known else UNSURE
    return _Submission(call, scope, function, payload, transport, known, named)


def _function_argument(call: ast.Call) -> ast.expr | None:
    """The submitted function: first argument, or ``func=``, ``fn=``, ``function=``."""
    if call.args:
        return call.args[0]
    return next((k.value for k in call.keywords if k.arg in {"func", "fn", "function"}), None)


def _payload(context: Context, call: ast.Call, scope: Scope) -> tuple[list[Ty], dict[str, Ty]]:
    """Types of what travels with the function: positional, and by keyword."""
    infer = context.inference.infer
    rest = call.args[1:]
    layout = METHODS[call.func.attr] if isinstance(call.func, ast.Attribute) else "rest"
    if layout == "rest":
        named = {k.arg or "**": infer(k.value, scope) for k in call.keywords if k.arg not in {"fn", "func"}}
        return [infer(value, scope) for value in rest], named
    if layout == "args":
        return _packed(context, call, scope)
    iterables = rest or [k.value for k in call.keywords if k.arg in {"iterable", "iterables"}]
    if layout == "each_star":
        inner = element(infer(iterables[0], scope)) if iterables else ANY
        return (list(inner.args), {}) if inner.name == "tuple" else ([inner], {})
    many = len(iterables) if call.func.attr == "map" else 1  # type: ignore[attr-defined]  # an Attribute, see layout
    return [element(infer(value, scope)) for value in iterables[:many]], {}


def _packed(context: Context, call: ast.Call, scope: Scope) -> tuple[list[Ty], dict[str, Ty]]:
    """``apply_async(f, (a, b), {"c": c})`` and ``schedule(f, args=[a, b])``."""
    values = argument(call, "args", 1)
    extra = argument(call, "kwds") or argument(call, "kwargs", 2)
    packed = [context.inference.infer(values, scope)] if values is not None else []
    if isinstance(values, ast.Tuple | ast.List):
        packed = [context.inference.infer(value, scope) for value in values.elts]
    named: dict[str, Ty] = {}
    if isinstance(extra, ast.Dict):
        for key, value in zip(extra.keys, extra.values, strict=True):
            name = key.value if isinstance(key, ast.Constant) else "**"
            named[str(name)] = context.inference.infer(value, scope)
    elif extra is not None:
        named["**"] = context.inference.infer(extra, scope)
    return packed, named


def _process(context: Context, call: ast.Call, scope: Scope) -> _Submission:
    """``Process(target=f, args=(a,))``."""
    payload, named = _packed(context, call, scope)
    return _Submission(call, scope, argument(call, "target"), payload, STARTED, sure=True, named=named)


def _joblib(context: Context, call: ast.Call, scope: Scope) -> _Submission | None:
    """``Parallel(n_jobs=2)(delayed(f)(x) for x in xs)``."""
    if context.inference.infer(call.func, scope).name != "joblib.Parallel" or not call.args:
        return None
    work = call.args[0]
    if isinstance(work, ast.GeneratorExp | ast.ListComp):
        work = work.elt
    if not isinstance(work, ast.Call) or not isinstance(work.func, ast.Call) or not work.func.args:
        return None
    made = call.func if isinstance(call.func, ast.Call) else None
    hints = [k.value for k in made.keywords if k.arg in {"prefer", "backend", "require"}] if made else []
    threads = any(
        isinstance(h, ast.Constant) and h.value in {"threads", "threading", "sharedmem"} for h in hints
    )
    payload = [context.inference.infer(value, scope) for value in work.args]
    named = {k.arg or "**": context.inference.infer(k.value, scope) for k in work.keywords}
    return _Submission(
        call, scope, work.func.args[0], payload, THREADS if threads else PROCESSES, sure=True, named=named
    )


def _add_submission(context: Context, work: _Submission) -> None:
    """One finding a function that can be meant."""
    found = context.follow.callables(work.function, work.scope) if work.function is not None else []
    types = [*work.payload, *work.named.values()]
    sure: Sure = "resolved" if work.sure else "by name"
    base = replace(context.at(work.call, work.scope, "pool_submit"), detail=work.transport, sure=sure)
    if not found:
        context.add(base, types)
    for one in found:
        bound = [context.inference.infer(value, one.scope) for value in one.bound]
        where = context.at(work.call, work.scope, "pool_submit", ref=one.ref)
        target = where.target or one.name
        how: Sure = base.sure if one.sure == "resolved" else "by name"
        context.add(replace(where, target=target, detail=work.transport, sure=how), [*bound, *types])
        _note_worker(context, one, work.transport == THREADS)
        _note_parameters(context, one, work)


def _note_worker(context: Context, found: Target, threads: bool) -> None:  # noqa: FBT001  # which kind of worker
    """Remember a function that runs in a worker process."""
    if not threads and found.ref is not None and found.ref.scope is not None and not found.ref.scope.is_class:
        context.workers.append(found.ref.scope)


def _note_parameters(context: Context, found: Target, work: _Submission) -> None:
    """What the submitted function's parameters get, for what is read inside it later."""
    target = found.ref.scope if found.ref is not None else None
    if target is None or target.node is None:
        return
    names = list(
        arguments(
            ast.Call(func=ast.Name("f"), args=[ast.Constant(0)] * len(work.payload), keywords=[]), target
        )
    )
    given = dict(zip(names, work.payload, strict=False)) | work.named
    for name, ty in given.items():
        context.promises.setdefault((target.node, name), ty)


def _source(scope: Scope, node: ast.expr) -> str:
    """A short expression as written."""
    lines = scope.module.lines
    if node.lineno != node.end_lineno or node.lineno > len(lines):
        return "?"
    raw = lines[node.lineno - 1].encode()[node.col_offset : node.end_col_offset]
    return raw.decode(errors="replace")[:40]
