"""Train: one GRPO trainer a rank, vLLM colocated on its GPU, rewards from GNN workers."""

from __future__ import annotations

import sys
from pathlib import Path

import yaml
from datasets import Dataset
from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer

from .reward import format_reward, modification_reward

MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
PROMPT = (
    "The crystal is NaCl (rocksalt). Lower its density by one edit. "
    'Answer with <modification><substitute from="Na" to="Li"/></modification> and nothing else.'
)


def main(config: Path) -> None:
    """Build the trainer from a YAML file and train."""
    settings = yaml.safe_load(config.read_text())
    trainer = GRPOTrainer(
        model=MODEL,
        reward_funcs=[modification_reward, format_reward],
        args=GRPOConfig(**settings),
        train_dataset=Dataset.from_list([{"prompt": PROMPT}] * 1_000),
        peft_config=LoraConfig(r=16, target_modules="all-linear"),
    )
    trainer.train()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
