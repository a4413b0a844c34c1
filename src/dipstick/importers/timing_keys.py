"""The seconds that RL frameworks log each step, in the order in which the step spends them.

After ../shared/frameworks.md and formats.md, which name the keys of verl 0.4-0.9, OpenRLHF 0.9-0.11, SkyRL, NeMo-RL,
slime and prime-rl. In a real log verl's parts add up to the step but for 6 ms; that the parts follow each other in this
order was not checked against a run whose parts have times. Of slime not even the sources' order is known: its keys are
``likely``, and so are names that others may use. The phases are those that the probe gives the same
timers (a test compares them).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from dipstick.phases import CONTAINER, STEP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dipstick.importers.binding import Sure

Place = Literal["in", "before", "after", "fits"]
"""Where it lies: in the step; before or after it; or, because versions differ, in it if the step has room for it."""


@dataclass(frozen=True, slots=True)
class Timing:
    """A key that holds the seconds of one part of a step.

    Attributes:
        framework: Who logs it.
        key: As it is logged.
        name: What its span is called.
        phase: A phase of ``phases.PHASES``, ``container`` or ``step``.
        order: Its rank among the parts of its step; the step itself is 0.
        parent: Key of the part that contains it; empty: the step.
        place: Whether the step's total contains it.
        sure: ``likely`` where other programs may well use the same key, or the order within the step is not known.
        unit: Always seconds.
    """

    framework: str
    key: str
    name: str
    phase: str
    order: int
    parent: str = ""
    place: Place = "in"
    sure: Sure = "certain"
    unit: str = "s"


_Row = tuple[str, str] | tuple[str, str, Place] | tuple[str, str, Place, str]
"""Key without prefix, phase, place, parent; what is left out is ``in`` and the step."""

_VERL: Final[tuple[_Row, ...]] = (
    ("step", STEP), ("start_profile", "other", "before"), ("generate_async", "generate"), ("gen", "generate"),
    ("generate_sequences", "generate", "in", "gen"), ("reshard", "other", "in", "gen"), ("gen_max", "generate"),
    ("reward", "reward"), ("old_log_prob", "logprobs"), ("ref", "logprobs"), ("values", "logprobs"), ("adv", "other"),
    ("update_critic", "backward"), ("update_actor", "backward"), ("dump_rollout_generations", "other"),
    ("testing", "eval", "fits"), ("save_checkpoint", "checkpoint", "fits"), ("sync_rollout_weights", "weight_sync"),
    ("update_weights", "weight_sync"), ("timing_s/param_sync", "weight_sync"), ("stop_profile", "other", "after"),
)  # fmt: skip
_OPENRLHF: Final[tuple[_Row, ...]] = (
    ("step_total", STEP), ("generation", "generate"), ("make_experience", "logprobs"), ("ppo_train", "backward"),
    ("broadcast", "weight_sync"),
)  # fmt: skip
_SKYRL: Final[tuple[_Row, ...]] = (
    ("step", STEP), ("wait_for_generation_buffer", "collective_wait"), ("generate", "generate"),
    ("postprocess_generator_output", "other"), ("run_training", CONTAINER),
    ("convert_to_training_input", "other", "in", "run_training"),
    ("fwd_logprobs_values_reward", "logprobs", "in", "run_training"),
    ("apply_reward_kl_penalty", "other", "in", "run_training"),
    ("compute_advantages_and_returns", "other", "in", "run_training"),
    ("train_critic_and_policy", "backward", "in", "run_training"),
    ("critic_train", "backward", "in", "train_critic_and_policy"),
    ("policy_train", "backward", "in", "train_critic_and_policy"),
    ("save_checkpoints", "checkpoint", "fits"), ("save_hf_model", "checkpoint", "fits"),
    ("update_ref_with_policy", "other", "fits"), ("sync_weights", "weight_sync"), ("eval", "eval", "after"),
    ("eval_generate", "eval", "in", "eval"),
)  # fmt: skip
_NEMO_RL: Final[tuple[_Row, ...]] = (
    ("total_step_time", STEP), ("data_processing", "other"), ("prepare_for_generation/total", "weight_sync"),
    ("prepare_for_generation", "weight_sync"),
    ("prepare_for_generation/transfer_and_update_weights", "weight_sync", "in", "prepare_for_generation/total"),
    ("exposed_generation", "generate"), ("generation", "generate"), ("reward_calculation", "reward"),
    ("dynamic_sampling", "other"), ("logprob_inference_prep", "logprobs"),
    ("policy_and_reference_logprobs", "logprobs"), ("advantage_calculation", "other"), ("training_prep", "other"),
    ("policy_training", "backward"), ("recompute_kv_scales", "other"), ("weight_sync", "weight_sync"),
    ("idle/buffer_starvation", "collective_wait", "in", "exposed_generation"),
    ("idle/refit_bubble", "weight_sync", "in", "weight_sync"), ("idle/validation", "eval", "fits"),
    ("checkpointing", "checkpoint", "fits"),
)  # fmt: skip
_SLIME: Final[tuple[_Row, ...]] = (
    ("step_time", STEP), ("train_wait_time", CONTAINER), ("save_model_time", "checkpoint", "in", "train_wait_time"),
    ("sleep_time", "other", "in", "train_wait_time"), ("update_weights_time", "weight_sync", "in", "train_wait_time"),
    ("ref_model_update_time", "other", "in", "train_wait_time"), ("rollout_time", "generate", "in", "train_wait_time"),
    ("wake_up_time", "other", "in", "train_wait_time"), ("train_time", CONTAINER),
    ("data_preprocess_time", "other", "in", "train_time"), ("ref_log_probs_time", "logprobs", "in", "train_time"),
    ("log_probs_time", "logprobs", "in", "train_time"), ("actor_train_time", "backward", "in", "train_time"),
)  # fmt: skip
_PRIME_RL: Final[tuple[_Row, ...]] = (
    ("step", STEP), ("broadcast_weights", "weight_sync", "before"), ("save_ckpt", "checkpoint", "before"),
    ("wait_for_batch", "collective_wait"), ("load_data", "other"), ("forward_backward", "backward"),
    ("wait_for_policy", "collective_wait"), ("pack", "other"),
)  # fmt: skip


def _keys(framework: str, prefix: str, rows: tuple[_Row, ...], sure: Sure = "certain") -> Iterator[Timing]:
    for order, row in enumerate(rows):
        short, phase = row[0], row[1]
        place: Place = row[2] if len(row) > 2 else "in"  # noqa: PLR2004 - the third is the place
        parent = prefix + row[3] if len(row) > 3 else ""  # noqa: PLR2004 - the fourth is the parent
        name = "step" if phase == STEP else short.removeprefix("timing_s/")
        yield Timing(framework, prefix + short, name, phase, order, parent, place, sure)


TIMINGS: Final[dict[str, Timing]] = {
    timing.key: timing
    for timing in (
        *_keys("verl", "timing_s/", _VERL),
        *_keys("OpenRLHF", "train/timing/", _OPENRLHF),
        *_keys("OpenRLHF", "timing/", _OPENRLHF, "likely"),
        *_keys("SkyRL", "timing/", _SKYRL, "likely"),
        *_keys("NeMo-RL", "timing/train/", _NEMO_RL),
        *_keys("slime", "perf/", _SLIME, "likely"),
        *_keys("prime-rl", "time/", _PRIME_RL, "likely"),
    )
}
"""Every key that is laid out, by name."""

_LISTED: Final = (
    (r"timing_s/agent_loop/.*", "spread over the samples of a rollout, not a stretch of the step"),
    (r"timing_s/generation_timing/.*", "spread over the ranks of a rollout, not a stretch of the step"),
    (r"timing_per_token_ms/.*", "milliseconds per token, not seconds"),
    (r"perf/time_per_step", "the step's seconds once more"),
    (r"timing_s/(timing_s/)?[\w/.-]+", "seconds of a part whose place in the step is not known (a fork's own timer)"),
    (r"timing/train/[\w/.-]+", "seconds of a part whose place in the step is not known"),
    (r"(train|eval)/.+/timing/.*", "seconds per rollout, not of the step"),
    (r"perf/[\w/.-]*_time", "seconds of a part whose place in the step is not known"),
    (r"perf/wait_time_ratio", "a ratio of seconds that are laid out"),
)  # fmt: skip
_FORMS: Final = tuple((re.compile(form), why) for form, why in _LISTED)


def listed_why(key: str) -> str:
    """Why a timing key is kept as a number but not laid out as a span; empty if it is none."""
    if key in TIMINGS:
        return ""
    return next((why for form, why in _FORMS if form.fullmatch(key)), "")
