"""TRL 0.18-1.16: what its profiler names on every rank, and what it leaves untimed.

``ProfilingContext`` (0.27 and newer) or ``profiling_context`` (before) give the names, the reward functions' among
them. The methods around them are wrapped where they exist, so that time TRL does not profile has a name, too.
Ran for real: see tests/live_trl.py and docs/probe.md; the other versions by signature fixtures.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from time import monotonic_ns

from .. import patch, spans, tally, trouble
from ..kinds import Kinds
from ..patch import Target
from ..state import STATE
from ..wrappers import Spec, definition, short, timed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType
    from typing import Any

PROFILING = ("trl/extras/profiling.py",)
EVENTS = {"sync_weights": "weight_sync", "_move_model_to_vllm": "weight_sync"}
MOST_TEXTS = 4096

rewards: dict[str, tuple[str, int] | None] = {}
"""Reward functions seen, by TRL's name for them, and where they are defined."""


# --- TRL's own profiler ------------------------------------------------------------------------------------------


def _open(name: str, frame: Any) -> spans.Span | None:
    """A span for one of TRL's names, None inside a wrapper's span of the same name."""
    label = short(name)
    current = spans.CURRENT.get()
    if current is not None and short(current.name) == label:
        return None
    file, line = spans.caller(frame, PROFILING)
    if label not in rewards:
        return spans.Span(name, None, file, line).open()
    where = rewards[label] or (file, line)
    return spans.Span(name, "reward", *where, {"at": f"{file}:{line}"}).open()


def _close(span: spans.Span) -> None:
    b = monotonic_ns()
    span.close(b)
    event = EVENTS.get(short(span.name))
    if event is not None:
        spans.event(event, span.a, b, None)


def _enter(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def __enter__(self: Any) -> Any:  # noqa: N807 - it stands for one
        if STATE.on and not STATE.compiling():
            try:
                self._dipstick_span = _open(str(self.name), sys._getframe(1))  # ours; and cheap
            except Exception as error:  # fail open
                trouble.note("trl.profiling", error)
        return original(self)

    return __enter__


def _exit(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def __exit__(self: Any, *args: Any) -> Any:  # noqa: N807 - it stands for one
        span = self.__dict__.pop("_dipstick_span", None)
        if span is not None:
            _close(span)  # first: what TRL sends to a logger is not the phase's
        return original(self, *args)

    return __exit__


def _factory(original: Callable[..., Any]) -> Callable[..., Any]:
    """``profiling_context(trainer, name)`` before 0.27: a generator context manager."""

    @functools.wraps(original)
    def profiling_context(trainer: Any, name: str) -> Any:
        made = original(trainer, name)
        return _measured(made, f"{type(trainer).__name__}.{name}") if STATE.on else made

    return profiling_context


@contextlib.contextmanager
def _measured(inner: Any, name: str) -> Iterator[Any]:
    span = _open(name, sys._getframe(2)) if STATE.on and not STATE.compiling() else None  # cheap
    with inner as value:
        try:
            yield value
        finally:
            if span is not None:
                _close(span)


def _profiling(module: ModuleType) -> None:
    """Bind to the class where there is one, to the function where there is none."""
    if hasattr(module, "ProfilingContext"):
        targets = [
            Target("ProfilingContext.__enter__", _enter, ("self",)),
            Target("ProfilingContext.__exit__", _exit, ("self",)),
        ]
    else:
        targets = [Target("profiling_context", _factory, ("trainer", "name"))]
    patch.install(module, targets)


# --- rewards -----------------------------------------------------------------------------------------------------


def _before_rewards(
    span: spans.Span, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any = None
) -> None:
    """``_calculate_rewards(self, inputs, prompts, completions, completion_ids_list)``: who scores what."""
    del result
    trainer = args[0]
    _learn(trainer)
    given = dict(zip(("inputs", "prompts", "completions", "completion_ids_list"), args[1:]), **kwargs)
    texts, size = given.get("completions"), 0
    kinds = Kinds()
    kinds.text = ", ".join(
        kinds.of(given[name]) for name in ("prompts", "completions", "completion_ids_list") if name in given
    )
    for texts_of in (given.get("prompts"), given.get("completions")):
        size += _text_bytes(texts_of)
    where = next((found for found in rewards.values() if found is not None), (span.file, span.line))
    count = len(texts) if isinstance(texts, list) else 0
    tally.add(("generate", "reward", STATE.step, *where), count, size, kinds, ("reference",))


def _learn(trainer: Any) -> None:
    """Names and places of the reward functions."""
    names = getattr(trainer, "reward_func_names", None) or ()
    for name, function in zip(names, getattr(trainer, "reward_funcs", None) or ()):
        if isinstance(name, str) and name not in rewards:
            rewards[name] = definition(function)


def _text_bytes(value: Any, depth: int = 4) -> int:
    """UTF-8 bytes of all text in plain containers (completions are strings or lists of messages)."""
    if type(value) is str:
        return len(value) if value.isascii() else len(value.encode("utf-8", "replace"))
    if depth and type(value) is list:
        return sum(_text_bytes(item, depth - 1) for item in value[:MOST_TEXTS])
    if depth and type(value) is dict:
        return sum(_text_bytes(item, depth - 1) for item in list(value.values())[:MOST_TEXTS])
    return 0


def _constructed(original: Callable[..., Any]) -> Callable[..., Any]:
    """``__init__``: the reward functions are known from here on, before the first profiled one."""

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - it stands for one
        original(self, *args, **kwargs)
        if STATE.on:
            try:
                STATE.add_role("trainer")
                _learn(self)
            except Exception as error:  # fail open
                trouble.note("trl.rewards", error)

    return __init__


# --- tables ------------------------------------------------------------------------------------------------------


def _spec(
    name: str, phase: str | None = None, **more: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return timed(Spec(name, phase, skip=PROFILING, **more))


def _trainer(name: str) -> tuple[Target, ...]:
    """The methods of one online trainer; what a version does not have is reported as absent."""
    logps = (
        "_get_per_token_logps",
        "_get_per_token_logps_and_entropies",
    )  # the phase depends on the span around them
    containers = (
        "training_step", "_prepare_inputs", "_generate_and_score_completions", "_generate", "_generate_single_turn",
        "_tool_call_loop", *logps,
    )  # fmt: skip
    return (
        Target(f"{name}.__init__", _constructed),
        *(Target(f"{name}.{method}", _spec(method)) for method in containers),
        Target(
            f"{name}._calculate_rewards",
            _spec("_calculate_rewards", "reward", before=_before_rewards),
            ("completions",),
        ),
        Target(f"{name}.compute_loss", _spec("compute_loss", "forward")),
        Target(
            f"{name}._move_model_to_vllm", _spec("_move_model_to_vllm", "weight_sync", event="weight_sync")
        ),
        Target(f"{name}.log", _spec("log", "other")),
        Target(f"{name}._save_checkpoint", _spec("_save_checkpoint", "checkpoint", event="checkpoint")),
    )


def _gathers() -> tuple[Target, ...]:
    """Module-level names bound by ``from accelerate.utils import ...``; wrapped at the source as a rule."""
    return Target("gather", timed(Spec("gather"))), Target("gather_object", timed(Spec("gather_object")))


gather, forget = tally.gather, tally.forget
TABLE: dict[str, tuple[Any, ...]] = {
    "trl.extras.profiling": (_profiling,),
    "trl.trainer.grpo_trainer": (*_trainer("GRPOTrainer"), *_gathers()),
    "trl.trainer.rloo_trainer": (*_trainer("RLOOTrainer"), *_gathers()),
    "trl.trainer.online_dpo_trainer": (*_trainer("OnlineDPOTrainer"),),
    "trl.generation.vllm_generation": (
        Target("VLLMGeneration.sync_weights", _spec("sync_weights", "weight_sync", event="weight_sync")),
        Target("VLLMGeneration.generate", _spec("VLLMGeneration.generate")),
        Target("VLLMGeneration.sleep", _spec("sleep", "other", event="sleep")),
    ),
}
