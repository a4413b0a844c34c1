"""OpenRLHF 0.9-0.11: it has no timer class, so the trainer's own stages are wrapped, in the driver.

Fixture only (signatures of openrlhf 0.11.2): it runs on Ray, DeepSpeed and CUDA. A step starts with its
rollout and ends when ``train_step`` returns.
"""

from __future__ import annotations

import functools

from .. import steps, trouble
from ..patch import Target
from ..state import STATE
from ..wrappers import Spec, timed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_count = 0


def _rollout(original: Callable[..., Any]) -> Callable[..., Any]:
    """``SamplesGenerator.generate_samples(**generate_kwargs)``: vLLM and, in its workers, the reward functions."""
    measured = timed(Spec("generate_samples", "generate"))(original)

    @functools.wraps(original)
    def generate_samples(self: Any, *args: Any, **kwargs: Any) -> Any:
        if STATE.on:
            steps.begin(_count)
        return measured(self, *args, **kwargs)

    return generate_samples


def _train_step(original: Callable[..., Any]) -> Callable[..., Any]:
    """``BasePPOTrainer.train_step(rollout_samples, global_step)``."""
    measured = timed(Spec("train_step"))(original)

    @functools.wraps(original)
    def train_step(self: Any, *args: Any, **kwargs: Any) -> Any:
        global _count  # a counter
        if STATE.on:
            steps.begin(_count)
        try:
            return measured(self, *args, **kwargs)
        finally:
            _count += 1
            try:
                steps.end()
            except Exception as error:  # fail open
                trouble.note("openrlhf.step", error)

    return train_step


TABLE = {
    "openrlhf.trainer.ppo_utils.samples_generator": (Target("SamplesGenerator.generate_samples", _rollout),),
    "openrlhf.trainer.ppo_utils.experience_maker": (
        Target(
            "RemoteExperienceMaker.make_experience_batch", timed(Spec("make_experience_batch", "logprobs"))
        ),
    ),
    "openrlhf.trainer.ppo_trainer": (
        Target("BasePPOTrainer.train_step", _train_step, ("rollout_samples", "global_step")),
        Target("BasePPOTrainer.ppo_train", timed(Spec("ppo_train", "backward"))),
        Target(
            "BasePPOTrainer.broadcast_to_vllm",
            timed(Spec("broadcast_to_vllm", "weight_sync", event="weight_sync")),
        ),
        Target(
            "BasePPOTrainer.save_logs_and_checkpoints",
            timed(Spec("save_logs_and_checkpoints", "checkpoint", event="checkpoint")),
        ),
    ),
}
