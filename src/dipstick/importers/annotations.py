"""Names that people give to ranges of a trace (record_function, NVTX), as spans of our phases."""

from __future__ import annotations

import re
from typing import Final

from dipstick import phases

_STEP: Final = re.compile(
    r"(?:ProfilerStep\s*#|(?:train(?:ing)?[ _])?(?:step|iter(?:ation)?)[ _#:]*)(\d{1,15})", re.IGNORECASE
)

KNOWN: Final[dict[str, str]] = {
    "gen": "generate", "generate_sequences": "generate", "rollout": "generate", "generation": "generate",
    "compute_rewards": "reward", "compute_reward": "reward", "rewards": "reward", "rm": "reward",
    "old_log_prob": "logprobs", "old_log_probs": "logprobs", "compute_log_prob": "logprobs", "ref": "logprobs",
    "ref_log_prob": "logprobs", "compute_ref_log_prob": "logprobs", "log_probs": "logprobs",
    "update_weights": "weight_sync", "sync_weights": "weight_sync", "weight_update": "weight_sync",
    "save_checkpoint": "checkpoint", "testing": "eval", "validate": "eval", "evaluate": "eval",
    "forward_pass": "forward", "backward_pass": "backward", "optimizer_step": "optimizer",
    "distributeddataparallel.forward": "forward", "fullyshardeddataparallel.forward": "forward",
}  # fmt: skip
"""Names that frameworks and people use, in lower case without decoration; each is one phase wherever it stands."""


def step_of(name: str) -> int | None:
    """The number of a range that is one step: ``ProfilerStep#551``, ``step 12``, ``iteration_3``."""
    found = _STEP.fullmatch(name.strip())
    return int(found[1]) if found else None


def plain(name: str) -> str:
    """The name without decoration: ``## forward ##`` is ``forward``."""
    return name.strip().strip("#=*-<>[] \t")


def phase_of(name: str) -> str | None:
    """The phase that a range of this name is for certain, None if its name does not say.

    Example: ``## backward ##`` is backward, ``Optimizer.step#AdamW.step`` is optimizer, ``nccl:all_reduce`` (which only
    launches the kernel) and ``my helper`` are None: they belong to the range around them.
    """
    bare = plain(name).lower()
    if bare.startswith("optimizer.step#"):
        return "optimizer"
    return bare if bare in phases.PHASES and bare != "unattributed" else KNOWN.get(bare)
