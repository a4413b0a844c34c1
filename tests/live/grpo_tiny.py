"""A GRPO run of two steps on the CPU: a random policy of some ten thousand parameters, rewards by a process pool.

Run by tests/live/test_trl.py in an environment that has torch and TRL, under the probe and without it; not a test itself.
Prints one JSON object: losses, rewards and the completion lengths of every step.
"""

from __future__ import annotations

import inspect
import json
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

os.environ.update(
    HF_HUB_OFFLINE="1", HF_HUB_DISABLE_TELEMETRY="1", TOKENIZERS_PARALLELISM="false", WANDB_MODE="disabled"
)
WORDS = [
    "what",
    "is",
    "the",
    "score",
    "of",
    "this",
    "answer",
    "one",
    "two",
    "three",
    "four",
    "five",
    "yes",
    "no",
    "maybe",
    "good",
    "bad",
]


def score(text: str, seed: int) -> float:
    """What a worker does with one completion."""
    return float(len(set(text.split())) + seed % 2)


POOL: list[ProcessPoolExecutor] = []


def pool_reward(completions: list[str], **_: object) -> list[float]:
    """The reward that goes through the workers."""
    if not POOL:
        POOL.append(ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")))
    jobs = [POOL[0].submit(score, text, i) for i, text in enumerate(completions)]
    return [job.result() for job in jobs]


def length_reward(completions: list[str], **_: object) -> list[float]:
    """The reward that stays in the process."""
    return [float(len(text)) for text in completions]


async def async_reward(completions: list[str], **_: object) -> list[float]:
    """The reward that TRL runs on its own event loop (0.27 and newer)."""
    return [1.0 for _ in completions]


def tiny(folder: Path) -> str:
    """Write a tokenizer and a random model; the same every time."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    vocabulary = {word: i for i, word in enumerate(["<pad>", "<eos>", "<unk>", *WORDS])}
    inner = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    inner.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        model_input_names=["input_ids", "attention_mask"],
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
    )
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(vocabulary), hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=128, pad_token_id=0, eos_token_id=1, bos_token_id=1,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def colocated() -> dict[str, object]:
    """Options of TRL's colocated vLLM; on a CPU its weights must stay plain float32 parameters to be synced."""
    import functools

    import vllm._custom_ops
    from trl.generation import vllm_generation

    vllm._custom_ops._supports_onednn = False
    vllm_generation.LLM = functools.partial(vllm_generation.LLM, dtype="float32", enforce_eager=True)
    return {
        "use_vllm": True, "vllm_mode": "colocate", "vllm_gpu_memory_utilization": 0.3, "vllm_max_model_length": 64,
        "max_completion_length": 24,
    }  # fmt: skip


def main(output: str) -> None:
    """Train."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    model = tiny(Path(output) / "policy")
    wanted = {
        "output_dir": output, "per_device_train_batch_size": 4, "num_generations": 4, "gradient_accumulation_steps": 2,
        "max_completion_length": 8, "max_prompt_length": 16, "max_steps": 2, "logging_steps": 1, "save_steps": 2,
        "report_to": [], "use_cpu": True, "bf16": False, "gradient_checkpointing": False, "dataloader_pin_memory": False,
        "seed": 7, "torch_empty_cache_steps": 1, "disable_tqdm": True, "beta": 0.04, "learning_rate": 1e-3,
    }  # fmt: skip
    if os.environ.get("LIVE_VLLM"):
        wanted |= colocated()
    known = inspect.signature(GRPOConfig.__init__).parameters
    config = GRPOConfig(**{name: value for name, value in wanted.items() if name in known})
    rewards: list[object] = [pool_reward, length_reward]
    if os.environ.get("LIVE_ASYNC_REWARD"):
        rewards.append(async_reward)
    data = Dataset.from_list([{"prompt": " ".join(WORDS[i : i + 5])} for i in range(8)])
    trainer = GRPOTrainer(model=model, reward_funcs=rewards, args=config, train_dataset=data)
    trainer.train()
    for pool in POOL:
        pool.shutdown()
    timed = ("time", "runtime", "per_second")
    history = [
        {k: v for k, v in row.items() if not any(word in k for word in timed)}
        for row in trainer.state.log_history
    ]
    print(json.dumps(history))


if __name__ == "__main__":
    main(sys.argv[1])
