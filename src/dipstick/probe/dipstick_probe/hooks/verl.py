"""verl 0.5-0.9: the driver's timers, and the workers' own states on every rank.

``marked_timer`` and ``simple_timer`` both end in ``_timer``; the driver's times include Ray and the slowest worker.
``RLInsightLogger.trace_state`` is entered around every worker phase whether RL-Insight is on or not (0.9).
Fixture only (signatures of verl 0.9.1): verl needs Ray and a GPU to run; see docs/probe.md.
"""

from __future__ import annotations

import contextlib
import functools
import sys

from .. import spans
from ..patch import Target
from ..state import STATE
from ..timers import Timers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

SKIP = ("verl/utils/profiler/performance.py", "verl/utils/profiler/nvtx_profile.py", "verl/utils/profiler/mstx_profile.py",
        "verl/utils/profiler/profile.py", "verl/utils/tracking.py")  # fmt: skip
DRIVER = Timers(
    {
        "gen": "generate", "gen_max": "generate", "reward": "reward", "old_log_prob": "logprobs", "ref": "logprobs",
        "values": "logprobs", "adv": "other", "update_critic": "backward", "update_actor": "backward",
        "update_weights": "weight_sync", "save_checkpoint": "checkpoint", "testing": "eval",
        "dump_rollout_generations": "other", "start_profile": "other", "stop_profile": "other",
    },
    step_label="step", skip=SKIP, events={"save_checkpoint": "checkpoint", "update_weights": "weight_sync", "testing": "eval"},
)  # fmt: skip
WORKER = {
    "actor_update": "backward", "train_batch": "backward", "actor_compute_log_prob": "logprobs",
    "ref_compute_log_prob": "logprobs", "vllm_generate": "generate", "sglang_generate": "generate",
}  # fmt: skip
LANE = "rank_"


def _timer(original: Callable[..., Any]) -> Callable[..., Any]:
    """``_timer(name, timing_raw)``: a generator that yields once, around the timed code."""

    @functools.wraps(original)
    def timer(name: str, timing_raw: dict[str, float]) -> Any:
        if not STATE.on:
            return (yield from original(name, timing_raw))
        key = object()
        DRIVER.start(key, name, sys._getframe(1))  # cheap
        try:
            return (yield from original(name, timing_raw))
        finally:
            DRIVER.stop(key, name)

    return timer


def _trace_state(original: Callable[..., Any]) -> Callable[..., Any]:
    """``RLInsightLogger.trace_state(state_name, *, state_lane_id, **labels)``: a context manager."""

    @functools.wraps(original)
    def trace_state(cls: Any, state_name: str, *args: Any, **kwargs: Any) -> Any:
        inner = original(cls, state_name, *args, **kwargs)
        return _measured(inner, state_name, kwargs.get("state_lane_id")) if STATE.on else inner

    return trace_state


@contextlib.contextmanager
def _measured(inner: Any, name: str, lane: Any) -> Iterator[Any]:
    if type(lane) is str and lane.startswith(LANE) and lane[len(LANE) :].isdigit() and STATE.rank is None:
        STATE.rank, STATE.dirty = int(lane[len(LANE) :]), True
    phase = WORKER.get(name)
    STATE.add_role("engine" if phase == "generate" else "trainer")
    file, line = spans.caller(sys._getframe(2), SKIP)  # cheap
    with spans.Span(str(name), phase, file, line), inner as value:
        yield value


TABLE = {
    "verl.utils.profiler.performance": (Target("_timer", _timer, ("name", "timing_raw")),),
    "verl.utils.tracking": (Target("RLInsightLogger.trace_state", _trace_state, ("cls", "state_name")),),
}
forget = DRIVER.forget
