"""TRL's GRPOTrainer with our settings, reward and planted transfer. Importing this loads torch and TRL."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import PrinterCallback
from transformers.utils import logging
from trl import GRPOConfig, GRPOTrainer

import dipstick
from crystal_rl.constrain import answer_pattern
from crystal_rl.environment import keep_float32_in_vllm
from crystal_rl.prompts import chat

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from transformers import TrainerCallback

    from crystal_rl.problems import Problem
    from crystal_rl.rewards import RewardFunction
    from crystal_rl.settings import Settings

CHUNK_MIB = 256
PRIORITY = 100
"""After all of torch's own."""


def know_numbered_cpus() -> None:
    """Let torch.load take ``cpu:0`` for the CPU: transformers maps checkpoints there when several ranks have no GPU.

    Without it they cannot be resumed (transformers 5.17: "don't know how to restore data location ... cpu:0").
    """

    def tag(_: Any) -> None:
        """Nothing is saved under such a name."""

    def restore(storage: Any, location: str) -> Any:
        return storage if location.startswith("cpu:") else None

    torch.serialization.register_package(PRIORITY, tag, restore)


class CrystalTrainer(GRPOTrainer):  # type: ignore[misc] # TRL is untyped, or absent
    """GRPO, and (planted) a copy from the host to the device once the rewards are gathered."""

    transfer_mib = 0.0

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)
        if self.transfer_mib:
            transfer(self.transfer_mib, self.accelerator.device)
        return output


@functools.cache
def _buffers(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Where a planted transfer comes from (pinned if there is a GPU) and where it goes: allocating is no copying."""
    host = torch.ones(CHUNK_MIB << 20, dtype=torch.uint8, pin_memory=device.type == "cuda")
    return host, torch.zeros_like(host, device=device, pin_memory=False)


def transfer(mib: float, device: torch.device) -> None:
    """Copy so many MiB from pinned host memory to the device, and wait for it. Without a GPU: host to host.

    dipstick is told: a span of its phase ``transfer`` with the bytes, and nothing but the copy inside.
    """
    host, there = _buffers(device)
    wait(device)  # what was queued before is not the copy's
    left = int(mib * (1 << 20))
    with dipstick.span("transfer", bytes_b=left):
        while left > 0:
            size = min(left, host.numel())
            there[:size].copy_(host[:size], non_blocking=True)
            left -= size
        wait(device)


def wait(device: torch.device) -> None:
    """Until the device has done what was queued; a CPU queues nothing."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def make_trainer(
    settings: Settings,
    model: str,
    problems: Sequence[Problem],
    elements: Collection[str],
    reward: RewardFunction,
    callbacks: list[TrainerCallback],
) -> CrystalTrainer:
    """The trainer of this rank.

    Args:
        settings: With the engine decided: ``vllm`` or ``transformers``.
        model: Folder, or name on the hub.
        problems: One row of the data set each.
        elements: That answers may hold.
        reward: The reward function.
        callbacks: Of Hugging Face's Trainer.
    """
    has_gpu = torch.cuda.is_available()
    logging.disable_progress_bar()  # one per rank, for a second
    know_numbered_cpus()
    if settings.engine == "vllm" and not has_gpu:
        keep_float32_in_vllm()
    trainer = CrystalTrainer(
        model=model,
        reward_funcs=[reward],
        args=GRPOConfig(**arguments(settings, elements, has_gpu=has_gpu)),
        train_dataset=dataset(settings, problems),
        peft_config=adapter(settings),
        callbacks=callbacks,
    )
    trainer.remove_callback(PrinterCallback)  # ours says it in one line
    trainer.transfer_mib = settings.transfer
    return trainer


def dataset(settings: Settings, problems: Sequence[Problem]) -> Dataset:
    """A row a problem: the conversation, and the index that the reward function gets."""
    return Dataset.from_list(
        [
            {
                "prompt": chat(problem, examples=settings.examples, instructions=settings.instructions),
                "problem": index,
            }
            for index, problem in enumerate(problems)
        ]
    )


def adapter(settings: Settings) -> LoraConfig | None:
    """LoRA, or None to train all weights."""
    if settings.lora_rank == 0:
        return None
    names = [name.strip() for name in settings.lora_targets.split(",")]
    return LoraConfig(
        r=settings.lora_rank,
        lora_alpha=2 * settings.lora_rank,
        target_modules=names[0] if names == ["all-linear"] else names,
        task_type="CAUSAL_LM",
    )


def arguments(settings: Settings, elements: Collection[str], *, has_gpu: bool) -> dict[str, Any]:
    """What GRPOConfig is told; ``settings.trl`` wins."""
    is_float32 = settings.dtype == "float32" or (settings.dtype == "auto" and not has_gpu)
    return {
        "output_dir": settings.output,
        "max_steps": settings.steps,
        "seed": settings.seed,
        "per_device_train_batch_size": settings.per_rank,
        "gradient_accumulation_steps": 1,
        "num_generations": settings.completions,
        "max_completion_length": settings.max_tokens,
        "temperature": settings.temperature,
        "learning_rate": settings.learning_rate,
        "lr_scheduler_type": "constant",
        "use_cpu": not has_gpu,
        "bf16": not is_float32,
        "model_init_kwargs": {"dtype": "float32" if is_float32 else "bfloat16"},
        "gradient_checkpointing": False,
        "dataloader_pin_memory": has_gpu,
        "ddp_find_unused_parameters": False,
        "save_strategy": "steps" if settings.save_steps else "no",
        "save_steps": settings.save_steps or settings.steps,
        "save_total_limit": settings.keep,
        "logging_steps": 1,
        "report_to": [name.strip() for name in settings.report_to.split(",") if name.strip() != "none"],
        "disable_tqdm": True,
        **_engine(settings, elements),
        **settings.trl,
    }


def _engine(settings: Settings, elements: Collection[str]) -> dict[str, Any]:
    if settings.engine != "vllm":
        return {"use_vllm": False}
    pattern = answer_pattern(elements, settings.max_edits) if settings.constrain else None
    return {
        "use_vllm": True,
        "vllm_mode": "colocate",
        "vllm_gpu_memory_utilization": settings.vllm_memory,
        "vllm_max_model_length": settings.max_context,
        "vllm_structured_outputs_regex": pattern,
        # Constrained log-probabilities are those of the masked distribution: against the policy's own the ratio is
        # close to zero, and with the correction on the gradient vanishes without a word.
        "vllm_importance_sampling_correction": pattern is None,
    }
