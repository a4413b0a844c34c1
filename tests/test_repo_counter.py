"""The counter-example: a pool that ships CUDA tensors to workers which meet at a barrier. Opposite verdicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dipstick.verdicts.repo import scan
from dipstick.verdicts.repo_facts import (
    generation_hands_over_tensors,
    pool_payload_has_tensors,
    pool_payload_is,
    reward_receives_text,
    workers_synchronise,
)

if TYPE_CHECKING:
    from pathlib import Path

FILES = {
    "train.py": """
import torch
import torch.multiprocessing as mp
from transformers import AutoModelForCausalLM
from workers import embed, start

policy = AutoModelForCausalLM.from_pretrained("gpt2").cuda()


def rollout(batch):
    ids = policy.generate(**batch)
    return ids


def rewards(ids: torch.Tensor, pool) -> torch.Tensor:
    hidden = ids.to("cuda").float()
    parts = [hidden[i] for i in range(4)]
    return torch.stack(pool.map(embed, parts))


def main():
    ctx = mp.get_context("spawn")
    barrier = ctx.Barrier(2)
    with ctx.Pool(2, initializer=start, initargs=(barrier,)) as pool:
        for batch in loader():
            rewards(rollout(batch), pool)
""",
    "workers.py": """
_barrier = None


def start(barrier):
    global _barrier
    _barrier = barrier


def embed(hidden):
    result = hidden.mean()
    _barrier.wait()
    return result
""",
}


def write(root: Path) -> Path:
    """The checkout on disk."""
    for name, text in FILES.items():
        (root / name).write_text(text)
    return root


def test_cuda_tensors_in_the_pool_are_seen(tmp_path: Path) -> None:
    """Elements of a list of slices of ``ids.to("cuda")``."""
    (work,) = scan(write(tmp_path)).of("pool_submit")

    assert (work.target, work.target_place) == ("workers.embed", "workers.py:10")
    assert (work.payload, work.tensors) == (("torch.Tensor (cuda)",), True)


def test_the_barrier_in_the_workers_is_seen(tmp_path: Path) -> None:
    """It reaches them through the initializer and a global; its name gives it away."""
    (sync,) = scan(write(tmp_path)).of("worker_sync")

    assert (sync.place, sync.detail, sync.target) == ("workers.py:12", "barrier", "_barrier.wait")
    assert sync.inside == "workers.embed"


def test_generation_passes_token_tensors_on(tmp_path: Path) -> None:
    """``model.generate`` without any decoding."""
    (made,) = scan(write(tmp_path)).of("generate")

    assert (made.place, made.detail, made.tensors) == ("train.py:11", "tensors", True)


def test_the_verdicts_are_the_opposite_of_the_examples(tmp_path: Path) -> None:
    """Yes, tensors are handed over; yes, the workers synchronise."""
    found = scan(write(tmp_path))

    assert pool_payload_has_tensors(found).verdict.word == "yes"
    assert pool_payload_has_tensors(found).receipts[0].place == "train.py:18"
    assert workers_synchronise(found).verdict.word == "yes"
    assert generation_hands_over_tensors(found).verdict.word == "yes"
    assert pool_payload_is(found, "ase.Atoms").verdict.word == "no"


def test_without_a_trainer_there_is_nothing_to_say_about_reward_functions(tmp_path: Path) -> None:
    """This loop is home-made: unconfirmed, with the way to find out."""
    fact = reward_receives_text(scan(write(tmp_path)))

    assert fact.verdict.word == "unconfirmed"
    assert "dipstick run" in fact.verdict.cheapest_experiment
