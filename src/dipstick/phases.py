"""The phase vocabulary, and the tables that map framework span names to it.

Phases are flat and exclusive: at every instant a rank is in exactly one of them.
A *container* span (TRL's ``_prepare_inputs``, the training step) only holds others;
time inside it that no real phase covers is ``unattributed``.
"""

from __future__ import annotations

from dataclasses import dataclass

PHASES: tuple[str, ...] = (
    "unattributed",
    "startup",
    "generate",
    "reward",
    "gather_wait",
    "collective_wait",
    "logprobs",
    "forward",
    "backward",
    "optimizer",
    "weight_sync",
    "checkpoint",
    "eval",
    "cache_clear",
    "transfer",
    "other",
    "teardown",
)
"""Every phase; the position in this tuple is its code in arrays (``unattributed`` is 0)."""

CODE: dict[str, int] = {name: code for code, name in enumerate(PHASES)}
UNATTRIBUTED = CODE["unattributed"]
WAIT_PHASES: tuple[str, ...] = ("gather_wait", "collective_wait")

CONTAINER = "container"
STEP = "step"


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of a framework's map: a span name, where it counts, and what it means.

    Attributes:
        name: Span name without the trainer class (``_prepare_inputs``, not ``GRPOTrainer._prepare_inputs``).
        phase: A phase of ``PHASES``, ``container`` or ``step``.
        inside: If set, the rule holds only inside a span of this name (TRL calls
            ``_get_per_token_logps_and_entropies`` both for the old log-probabilities and in ``compute_loss``).
        part: If set, the seconds are also listed as this part of the phase (``reward``: parse, queue, score).
    """

    name: str
    phase: str
    inside: str = ""
    part: str = ""


TRL_RULES: tuple[Rule, ...] = (
    Rule("step", STEP),
    Rule("training_step", CONTAINER),
    Rule("_prepare_inputs", CONTAINER),
    Rule("_generate_and_score_completions", CONTAINER),
    Rule("_generate", CONTAINER),
    Rule("_generate_single_turn", CONTAINER),
    Rule("vLLM.generate", "generate"),
    Rule("transformers.generate", "generate"),
    Rule("transformers.generate_batch", "generate"),
    Rule("sync_weights", "weight_sync"),
    Rule("_move_model_to_vllm", "weight_sync"),
    Rule("_get_per_token_logps", "forward", inside="compute_loss"),
    Rule("_get_per_token_logps_and_entropies", "forward", inside="compute_loss"),
    Rule("_get_last_hidden_state", "forward", inside="compute_loss"),
    Rule("_get_per_token_logps", "logprobs"),
    Rule("_get_per_token_logps_and_entropies", "logprobs"),
    Rule("_get_last_hidden_state", "logprobs"),
    Rule("_calculate_rewards", "reward"),
    Rule("reward.parse", "reward", part="parse"),
    Rule("reward.workers", "reward", part="score"),
    Rule("gather", "reward", inside="_calculate_rewards", part="gather_call"),
    Rule("compute_loss", "forward"),
    Rule("backward", "backward"),
    Rule("optimizer", "optimizer"),
    Rule("checkpoint", "checkpoint"),
    Rule("_save_checkpoint", "checkpoint"),
    Rule("evaluate", "eval"),
    Rule("empty_cache", "cache_clear"),
    Rule("gather", CONTAINER),
    Rule("gather_object", CONTAINER),
    Rule("log", "other"),
)
"""TRL 0.16-1.16 ``GRPOTrainer`` (trl/trainer/grpo_trainer.py, trl/extras/profiling.py, trl/generation/vllm_generation.py).

The published form of this table is docs/phases.md, generated from here.
"""

PLAIN_RULES: tuple[Rule, ...] = tuple(Rule(name, name) for name in PHASES if name != "unattributed")
"""A span that is named like a phase is that phase (``dipstick.span("reward")``, imported logs)."""


@dataclass(frozen=True, slots=True)
class Barrier:
    """A cross-rank collective that a framework runs every generation cycle.

    Attributes:
        name: The label of the wait (``reward``, ``lengths``).
        arrive_at_end_of: The span whose end is the rank's arrival (its name without the trainer class).
        wait_phase: The phase that time between arrival and release gets.
    """

    name: str
    arrive_at_end_of: str
    wait_phase: str


TRL_BARRIERS: tuple[Barrier, ...] = (
    Barrier("lengths", "vLLM.generate", "collective_wait"),
    Barrier("lengths", "transformers.generate", "collective_wait"),
    Barrier("reward", "_calculate_rewards", "gather_wait"),
)
"""Where TRL's ranks meet inside a step (grpo_trainer.py: the completion-length gather right after
generation, the reward gather at the end of ``_calculate_rewards``). NCCL returns to Python before it
waits, so the wait surfaces after the span, at the first ``.item()``."""


def short_name(name: str) -> str:
    """The span name without its trainer class: ``GRPOTrainer.vLLM.generate`` -> ``vLLM.generate``."""
    head, dot, tail = name.partition(".")
    return tail if dot and head.endswith("Trainer") else name
