"""Whole checkouts as people write them: the scan from end to end, and the facts that come out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dipstick.verdicts import repo_facts as facts
from dipstick.verdicts.repo import scan

if TYPE_CHECKING:
    from pathlib import Path

    from dipstick.verdicts.repo_model import RepoFindings


def write(root: Path, files: dict[str, str]) -> RepoFindings:
    """Write a checkout and scan it."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return scan(root)


def words(found: RepoFindings) -> dict[str, str]:
    """The facts' verdicts."""
    return {
        "text": facts.reward_receives_text(found).verdict.word,
        "generation_tensors": facts.generation_hands_over_tensors(found).verdict.word,
        "pool_tensors": facts.pool_payload_has_tensors(found).verdict.word,
        "synchronise": facts.workers_synchronise(found).verdict.word,
        "gather": facts.ranks_gather(found).verdict.word,
    }


REGISTRY = {
    "src/exp/grpo.py": """
from trl import GRPOTrainer, TrlParser
from exp.rewards import get_reward_funcs

def main(script_args, training_args, model_args):
    trainer = GRPOTrainer(
        model=model_args.model_name_or_path,
        reward_funcs=get_reward_funcs(script_args),
        args=training_args,
    )
    trainer.train()
""",
    "src/exp/rewards.py": """
import re
from functools import partial, update_wrapper

def accuracy_reward(completions, solution, **kwargs):
    return [float(c == s) for c, s in zip(completions, solution)]

def code_reward(completions, workers=2, **kwargs):
    from exp.sandbox import run_many
    return run_many([re.search("a", c).group() for c in completions], workers)

def get_cosine_reward(scale):
    def cosine_reward(completions, **kwargs):
        return [scale * len(c) for c in completions]
    return cosine_reward

def get_reward_funcs(script_args):
    registry = {
        "accuracy": accuracy_reward,
        "code": update_wrapper(partial(code_reward, workers=script_args.workers), code_reward),
        "cosine": get_cosine_reward(script_args.scale),
    }
    reward_funcs = [registry[name] for name in script_args.reward_funcs]
    return reward_funcs
""",
    "src/exp/sandbox.py": """
from concurrent.futures import ProcessPoolExecutor

def execute(code: str) -> float:
    return 1.0

def run_many(programs: list[str], workers: int) -> list[float]:
    with ProcessPoolExecutor(max_workers=workers) as executor:
        futures = [executor.submit(execute, p) for p in programs]
        return [f.result() for f in futures]
""",
    "recipes/config.yaml": "save_steps: 50\nvllm_mode: colocate\n",
    "scripts/prepare.py": """
import torch
from multiprocessing import Pool

def embed(x): ...

with Pool(8) as pool:
    pool.map(embed, [torch.zeros(3)])
""",
}


def test_rewards_from_a_registry(tmp_path: Path) -> None:
    """The open-r1 style: a dictionary of functions, partials and factories, chosen by the configuration."""
    found = write(tmp_path, REGISTRY)

    assert [(r.target, r.sure) for r in found.of("reward_function")] == [
        ("src.exp.rewards.get_cosine_reward.cosine_reward", "by name"),
        ("src.exp.rewards.accuracy_reward", "by name"),
        ("src.exp.rewards.code_reward", "by name"),
    ]
    assert words(found) == {
        "text": "yes",
        "generation_tensors": "no",
        "pool_tensors": "no",
        "synchronise": "no",
        "gather": "yes",
    }


def test_a_preprocessing_pool_does_not_speak_for_the_reward(tmp_path: Path) -> None:
    """Both submissions are found; only the one that a reward function leads to decides."""
    found = write(tmp_path, REGISTRY)

    assert [(w.file, w.tensors, w.from_reward) for w in found.of("pool_submit")] == [
        ("scripts/prepare.py", True, False),
        ("src/exp/sandbox.py", False, True),
    ]
    assert facts.pool_payload_has_tensors(found).receipts[0].payload == ("str",)


CLASSES = {
    "train.py": """
from trl import GRPOConfig, GRPOTrainer
from pipeline import MaterialsReward

CLEAR_EVERY = 7

def main():
    config = GRPOConfig(save_steps=20, torch_empty_cache_steps=CLEAR_EVERY)
    reward = MaterialsReward("checkpoints/gnn.pt", workers=2)
    GRPOTrainer("model", reward_funcs=[reward], args=config).train()
""",
    "pipeline.py": """
from dataclasses import dataclass
from pebble import ProcessPool
from ase.io import read
import torch

@dataclass
class Task:
    structure: "Atoms"
    target: float

class MaterialsReward:
    __name__ = "materials"

    def __init__(self, weights, workers):
        self.model = torch.load(weights)
        self.pool = ProcessPool(max_workers=workers, initializer=warm_up)

    def __call__(self, prompts, completions, **kwargs):
        tasks = [self.parse(c) for c in completions]
        futures = [self.pool.schedule(relax, args=[task], timeout=30) for task in tasks]
        return [f.result() for f in futures]

    def parse(self, text: str) -> Task:
        return Task(read(text), 1.0)

from ase import Atoms

def warm_up(): ...

def relax(task: Task) -> float:
    return task.structure.get_potential_energy()
""",
}


def test_a_reward_object_with_its_own_pool(tmp_path: Path) -> None:
    """``__call__``, a pebble pool in ``self``, a dataclass of the checkout as payload."""
    found = write(tmp_path, CLASSES)
    (work,) = found.of("pool_submit")

    assert [r.target for r in found.of("reward_function")] == ["pipeline.MaterialsReward.__call__"]
    assert (work.payload, work.tensors, work.target, work.from_reward) == (
        ("pipeline.Task",),
        False,
        "pipeline.relax",
        True,
    )
    assert {name: places[0].detail for name, places in facts.settings(found).items()} == {
        "save_steps": "20",
        "torch_empty_cache_steps": "7",
    }
    assert words(found)["synchronise"] == "no"


def test_shipping_the_object_itself_ships_its_model(tmp_path: Path) -> None:
    """One changed line: ``self.relax`` instead of ``relax`` pickles the whole reward object."""
    changed = CLASSES["pipeline.py"].replace("schedule(relax,", "schedule(self.relax,")
    changed = changed.replace("    def parse(", "    def relax(self, task): ...\n\n    def parse(")
    found = write(tmp_path, {**CLASSES, "pipeline.py": changed})
    (work,) = found.of("pool_submit")

    assert work.payload == ("pipeline.MaterialsReward", "pipeline.Task")
    assert work.tensors is None
    assert words(found)["pool_tensors"] == "unconfirmed"


OWN_LOOP = {
    "loop.py": """
import torch.distributed as dist
from accelerate import Accelerator
from vllm import LLM, SamplingParams
from workers import score_all

accelerator = Accelerator()
llm = LLM("model", gpu_memory_utilization=0.3)

def step(prompts):
    outputs = llm.generate(prompts, SamplingParams(n=32))
    texts = [completion.text for output in outputs for completion in output.outputs]
    rewards = score_all(texts)
    everyone = accelerator.gather(rewards)
    dist.barrier()
    return everyone
""",
    "workers.py": """
import multiprocessing as mp

def score(text: str) -> float:
    with LOCK:
        return float(len(text))

LOCK = mp.Lock()

def score_all(texts):
    with mp.Pool(4) as pool:
        return pool.map(score, texts)
""",
}


def test_a_loop_of_ones_own(tmp_path: Path) -> None:
    """Without a trainer: generation, gathers, payload and the shared lock come from the code itself."""
    found = write(tmp_path, OWN_LOOP)

    assert [(g.target, g.sure) for g in found.of("gather")] == [
        ("accelerate.Accelerator.gather", "resolved"),
        ("torch.distributed.barrier", "resolved"),
    ]
    assert [(g.target, g.detail) for g in found.of("generate")] == [("vllm.LLM.generate", "text")]
    assert [w.payload for w in found.of("pool_submit")] == [("str",)]
    assert words(found) == {
        "text": "unconfirmed",
        "generation_tensors": "no",
        "pool_tensors": "no",
        "synchronise": "partially",
        "gather": "yes",
    }


def test_an_empty_checkout_settles_nothing(tmp_path: Path) -> None:
    """Every fact is open, none is "no"."""
    found = write(tmp_path, {"README.md": "# nothing here"})

    assert (found.files_read, found.findings, found.complete) == (0, (), True)
    assert set(words(found).values()) == {"unconfirmed"}


def test_the_same_checkout_gives_the_same_findings(tmp_path: Path) -> None:
    """In the same order: reports can be compared."""
    assert write(tmp_path, REGISTRY) == scan(tmp_path)


def test_findings_come_by_kind_file_and_line(tmp_path: Path) -> None:
    """Each place once."""
    found = write(tmp_path, {**REGISTRY, **OWN_LOOP})
    order = [
        "trainer", "reward_function", "pool", "pool_submit", "gather", "generate", "schedule", "worker_sync",
    ]  # fmt: skip
    keys = [(order.index(f.kind), f.file, f.line, f.target) for f in found.findings]

    assert keys == sorted(set(keys))
