"""What a reward worker does: relax a Lennard-Jones cluster on the GPU of its rank (on the CPU where there is none)."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

STEPS = 600
FORCE = 0.2
"""Relaxed once no atom feels more [epsilon / sigma]: after 120 to 420 steps, rarely more."""
FARTHEST = 0.2
"""How far an atom may go in one step [sigma]."""


@cache
def device() -> torch.device:
    """Where this worker computes."""
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    return torch.device("cuda", rank) if torch.cuda.is_available() else torch.device("cpu")


def start() -> None:
    """Runs once in each new worker: one thread, so that workers and trainer do not fight for cores; CUDA opened."""
    torch.set_num_threads(1)
    torch.zeros(1, device=device())


def energy(positions: torch.Tensor) -> torch.Tensor:
    """Lennard-Jones energy of one cluster [epsilon], softened so that atoms may start on top of each other."""
    i, j = torch.triu_indices(len(positions), len(positions), 1, device=positions.device)
    inverse = 1.0 / ((positions[i] - positions[j]).square().sum(1) + 0.05) ** 3
    return 4.0 * (inverse * inverse - inverse).sum()


def relax(start_at: NDArray[np.float32]) -> float:
    """Relax a cluster with FIRE (Bitzek and others, PRL 97, 170201): momentum, stopped whenever it runs uphill.

    Args:
        start_at: Positions [sigma], shape [atoms, 3].

    Returns:
        Energy an atom [epsilon] where it came to rest, or after ``STEPS`` steps.
    """
    positions = torch.tensor(start_at, device=device(), requires_grad=True)
    speed, step, mix, downhill = torch.zeros_like(positions), 0.05, 0.1, 0
    for _ in range(STEPS):
        force = -torch.autograd.grad(energy(positions), positions)[0]
        if force.norm(dim=1).max().item() < FORCE:
            break
        if (force * speed).sum().item() > 0:
            speed = (1 - mix) * speed + mix * speed.norm() * force / force.norm()
            downhill += 1
            step, mix = (min(1.1 * step, 0.15), 0.99 * mix) if downhill > 5 else (step, mix)
        else:
            speed, step, mix, downhill = torch.zeros_like(speed), 0.5 * step, 0.1, 0
        speed = speed + step * force
        move = step * speed
        far = move.norm(dim=1, keepdim=True).clamp(min=FARTHEST)
        positions = (positions + move * FARTHEST / far).detach().requires_grad_(True)
    return energy(positions).item() / len(start_at)
