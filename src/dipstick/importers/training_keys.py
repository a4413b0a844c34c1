"""Names that HF Trainer, TRL and PEFT give to the numbers they log, and what those are."""

from __future__ import annotations

import re
from typing import Final

from dipstick.importers.binding import Binding

PROFILING: Final = re.compile(r"profiling/Time taken:? ([A-Za-z_]\w{0,99}(?:\.[\w.]{1,200})?)")
"""``profiling/Time taken: GRPOTrainer._prepare_inputs`` (trl/extras/profiling.py): seconds of one call, rank 0."""

STEP_TIME: Final = ("step_time", "train/step_time")

_NAMES: Final = frozenset(
    [
        "loss",
        "grad_norm",
        "learning_rate",
        "epoch",
        "global_step",
        "reward",
        "reward_std",
        "kl",
        "entropy",
        "num_tokens",
        "completion_length",
        "clip_ratio",
        "frac_reward_zero_std",
        "mean_token_accuracy",
        "runtime",
        "samples_per_second",
        "steps_per_second",
        "train_runtime",
        "train_loss",
        "train_samples_per_second",
        "train_steps_per_second",
        "total_flos",
        "advantages",
        "objective",
        "step_time",
    ]
)
_PREFIXES: Final = (
    "rewards/", "completions/", "clip_ratio/", "sampling/", "tools/", "objective/", "policy/", "val/", "logps/",
    "logits/", "critic/", "actor/", "perf/", "response_length/", "prompt_length/", "global_seqlen/", "training/",
)  # fmt: skip
_SECONDS: Final = frozenset({"runtime", "train_runtime"})


def plain_name(key: str) -> str:
    """The key without ``train/``, ``eval/`` or ``eval_``: loggers put them before the trainer's own names."""
    for prefix in ("train/", "eval/", "eval_"):
        key = key.removeprefix(prefix)
    return key


def binding_of(key: str) -> Binding:
    """What a logged key is; every number is kept, also of a key that nobody knows."""
    match = PROFILING.fullmatch(key)
    if match is not None:
        return Binding(key, f"span {match[1]}", "s", why="ends when it was logged; rank 0 only")
    if key in STEP_TIME:
        return Binding(
            key, "span step", "s", why="without optimizer, logging, evaluation, saving, data loading"
        )
    name = plain_name(key)
    if name in _NAMES or name.startswith(_PREFIXES):
        return Binding(key, "scalar", "s" if name in _SECONDS else "")
    return Binding(key, sure="unrecognised", why="kept as a number")
