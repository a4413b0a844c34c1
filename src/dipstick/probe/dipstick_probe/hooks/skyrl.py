"""SkyRL: ``Timer`` in the driver, sync and async. Fixture only (signatures of skyrl 0.4.0); it needs Ray to run."""

from __future__ import annotations

import functools
import sys

from .. import trouble
from ..patch import Target
from ..state import STATE
from ..timers import Timers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

TIMERS = Timers(
    {
        "generate": "generate", "eval_generate": "eval", "eval": "eval", "postprocess_generator_output": "other",
        "convert_to_training_input": "other", "fwd_logprobs_values_reward": "logprobs",
        "apply_reward_kl_penalty": "other", "compute_advantages_and_returns": "other",
        "train_critic_and_policy": "backward", "critic_train": "backward", "policy_train": "backward",
        "save_checkpoints": "checkpoint", "save_hf_model": "checkpoint", "sync_weights": "weight_sync",
        "sync_weights_to_inference_engines": "weight_sync", "update_ref_with_policy": "other",
        "wait_for_generation_buffer": "collective_wait", "log_train_results": "other",
    },
    step_label="step", skip=("utils/utils.py",),
    events={"save_checkpoints": "checkpoint", "sync_weights": "weight_sync", "eval": "eval"},
)  # fmt: skip


def _edge(*, starts: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A maker for ``Timer.__enter__``, ``__exit__`` and their async twins; ``self.message`` is the label."""

    def note(timer: Any) -> None:
        try:
            if not STATE.on:
                return
            if starts:
                TIMERS.start(id(timer), str(timer.message), sys._getframe(2))  # cheap
            else:
                TIMERS.stop(id(timer), str(timer.message))
        except Exception as error:  # fail open
            trouble.note("skyrl.timer", error)

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def edge(self: Any, *args: Any) -> Any:
            note(self)
            return original(self, *args)

        return edge  # of an async twin it returns the coroutine, which is all that `async with` needs

    return make


_EDGES = tuple(
    Target(f"Timer.{name}", _edge(starts="enter" in name))
    for name in ("__enter__", "__exit__", "__aenter__", "__aexit__")
)
TABLE = {"skyrl.train.utils.utils": _EDGES, "skyrl_train.utils.utils": _EDGES}
forget = TIMERS.forget
