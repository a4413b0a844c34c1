"""NeMo-RL: ``Timer.start``/``stop`` in the driver. Fixture only: it is not on PyPI and runs on Ray and CUDA."""

from __future__ import annotations

from ..patch import Target
from ..timers import Timers, labelled

TIMERS = Timers(
    {
        "data_processing": "other", "prepare_for_generation/total": "weight_sync", "prepare_for_generation": "weight_sync",
        "prepare_for_generation/transfer_and_update_weights": "weight_sync", "weight_sync": "weight_sync",
        "generation": "generate", "exposed_generation": "generate", "dynamic_sampling": "other",
        "reward_calculation": "reward", "logprob_inference_prep": "logprobs", "policy_and_reference_logprobs": "logprobs",
        "advantage_calculation": "other", "training_prep": "other", "policy_training": "backward",
        "checkpointing": "checkpoint", "idle/validation": "eval", "idle/buffer_starvation": "collective_wait",
        "idle/refit_bubble": "weight_sync",
    },
    step_label="total_step_time", skip=("nemo_rl/utils/timer.py",),
    events={"checkpointing": "checkpoint", "prepare_for_generation/transfer_and_update_weights": "weight_sync"},
)  # fmt: skip

TABLE = {
    "nemo_rl.utils.timer": (
        Target("Timer.start", labelled(TIMERS, starts=True), ("label",)),
        Target("Timer.stop", labelled(TIMERS, starts=False), ("label",)),
    )
}
forget = TIMERS.forget
