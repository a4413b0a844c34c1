"""A plain GRPO run with TRL: LoRA on a small model, vLLM colocated on the trainer's GPU, rewards from two workers there.

    dipstick run -o RUN -- python examples/trl_grpo/train.py --model FOLDER
    dipstick run -o RUN -- torchrun --nproc-per-node 2 examples/trl_grpo/train.py --model FOLDER

Nothing in this file knows of dipstick. Each completion is read as the start of a cluster of atoms; a worker relaxes it,
and the reward is how deep its energy falls. See README.md.
"""

from __future__ import annotations

import argparse
import re
import zlib
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import worker

if TYPE_CHECKING:
    from numpy.typing import NDArray

WORKERS = 2
SMALLEST, LARGEST = 13, 55
BOX = 1.2
"""Side of the box that atoms start in, in units of the cube root of their number."""
TOPICS = (
    "gold", "salt", "ice", "quartz", "steel", "diamond", "glass", "copper", "graphite", "silicon", "rust", "brass",
    "zinc", "lead", "chalk", "ruby",
)  # fmt: skip


@cache
def pool() -> ProcessPoolExecutor:
    """This rank's relaxation workers, started once."""
    return ProcessPoolExecutor(max_workers=WORKERS, mp_context=get_context("spawn"), initializer=worker.start)


def cluster(completion: str) -> NDArray[np.float32]:
    """The start that a completion stands for, of shape [atoms, 3]: longer answers give more atoms."""
    atoms = SMALLEST + len(re.findall(r"\w+", completion)) % (LARGEST - SMALLEST + 1)
    random = np.random.default_rng(zlib.crc32(completion.encode()))
    return (random.random((atoms, 3)) * BOX * atoms ** (1 / 3)).astype(np.float32)


def energy_reward(completions: list[list[dict[str, str]]], **_: object) -> list[float]:
    """How deep the relaxed cluster lies below one bond an atom, one job a completion."""
    jobs = [pool().submit(worker.relax, cluster(messages[0]["content"])) for messages in completions]
    return [-job.result() - 1.0 for job in jobs]


def brief_reward(completions: list[list[dict[str, str]]], **_: object) -> list[float]:
    """A little for an answer that ends with a full stop."""
    return [0.1 if messages[0]["content"].rstrip().endswith(".") else 0.0 for messages in completions]


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="GRPO with TRL, small.")
    parser.add_argument("--model", required=True, help="folder or name of the policy")
    parser.add_argument("--output", default="out/trl_grpo")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batch", type=int, default=32, help="completions a rank and step")
    parser.add_argument("--tokens", type=int, default=512, help="longest completion")
    parser.add_argument("--generate", choices=("vllm", "transformers"), default="vllm")
    parser.add_argument("--backend", choices=("nccl", "gloo"), help="of the ranks; gloo lets two share a GPU")
    parser.add_argument("--cpu", action="store_true")
    return parser.parse_args()


def main() -> None:
    """Train."""
    wanted = arguments()
    for _ in pool().map(worker.relax, [cluster("warm up")] * WORKERS):
        pass
    from datasets import Dataset
    from peft import LoraConfig
    from trl import GRPOConfig, GRPOTrainer

    prompts = [[{"role": "user", "content": f"Describe {topic} in a few sentences."}] for topic in TOPICS]
    config = GRPOConfig(
        output_dir=wanted.output, max_steps=wanted.steps, seed=7, learning_rate=1e-5, logging_steps=1,
        per_device_train_batch_size=wanted.batch, num_generations=min(16, wanted.batch), gradient_accumulation_steps=1,
        max_completion_length=wanted.tokens, use_vllm=wanted.generate == "vllm", vllm_mode="colocate",
        vllm_gpu_memory_utilization=0.3, vllm_max_model_length=wanted.tokens + 128, save_steps=5, save_total_limit=2,
        torch_empty_cache_steps=7, report_to="none", ddp_backend=wanted.backend, use_cpu=wanted.cpu, bf16=not wanted.cpu,
    )  # fmt: skip
    trainer = GRPOTrainer(
        model=wanted.model,
        reward_funcs=[energy_reward, brief_reward],
        args=config,
        train_dataset=Dataset.from_dict({"prompt": prompts * 64}),
        peft_config=LoraConfig(r=16, target_modules="all-linear"),
    )
    trainer.train()
    if trainer.is_world_process_zero():
        trainer.state.save_to_json(str(Path(wanted.output, "trainer_state.json")))
    pool().shutdown()


if __name__ == "__main__":
    main()
