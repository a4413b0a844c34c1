"""Small GRPO runs with everything known, for the tests of checks and claims.

``World(generate=[4, 5], reward=[[3, 2], [3, 4]])`` is two steps of two ranks: both generate for 4 s (then 5 s), score
for 3 s (rank 0) and for 2 and 4 s (rank 1), meet at the reward gather, train together for ``train`` seconds.
A GPU reads ``levels`` in each phase; where counters are asked for, the wait of a rank is hollow.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dipstick.analysis.pipeline import analyse
from dipstick.verdicts.evidence import Evidence
from records import HOST, Row, counters, job, memory, ns, process, span, utilization

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dipstick.recording.reader import Recording
    from dipstick.verdicts.repo_model import RepoFindings

PERIOD = 0.2
BUSY = {"generate": 99.0, "reward": 15.0, "wait": 100.0, "train": 60.0}
"""What our H200s read in each phase, about."""


@dataclass(frozen=True)
class Part:
    """A stretch of one rank: ``wait`` is inside no span."""

    phase: str
    start: float
    end: float


@dataclass(frozen=True)
class World:
    """A run.

    Attributes:
        generate: Seconds of each step.
        reward: Seconds of each step and rank.
        train: Seconds after the gather.
        workers: Worker processes a rank; each step's reward is cut into ``jobs`` jobs over them.
        jobs: Jobs of each step and rank, all equally long; 0 records none.
        levels: Utilization by phase; ``wait`` is the time at the gather.
        profiled: Also SM and DRAM counters, which tell a wait from work.
        tables: More tables, or others in place of these.
    """

    generate: Sequence[float]
    reward: Sequence[Sequence[float]]
    train: float = 1.0
    workers: int = 2
    jobs: int = 4
    levels: dict[str, float] = field(default_factory=lambda: dict(BUSY))
    profiled: bool = True
    tables: dict[str, list[Row]] = field(default_factory=dict)

    @property
    def ranks(self) -> int:
        """How many."""
        return len(self.reward[0])

    @cached_property
    def starts(self) -> list[float]:
        """When each step starts, and the end of the last."""
        lengths = [g + max(r) + self.train for g, r in zip(self.generate, self.reward, strict=True)]
        return [float(t) for t in np.concatenate([[0.0], np.cumsum(lengths)])]

    def parts(self, rank: int) -> list[list[Part]]:
        """The stretches of each step of one rank."""
        found = []
        for start, g, r in zip(self.starts, self.generate, self.reward, strict=False):
            scored, meet = start + g + r[rank], start + g + max(r)
            cuts = itertools.pairwise([start, start + g, scored, meet, meet + self.train])
            names = ("generate", "reward", "wait", "train")
            found.append([Part(n, a, b) for n, (a, b) in zip(names, cuts, strict=True)])
        return found

    def spans(self) -> list[Row]:
        """As TRL nests them."""
        rows = []
        for rank in range(self.ranks):
            for step, (generate, reward, wait, train) in enumerate(self.parts(rank)):
                who = {"rank": rank, "step": step}
                rows += [
                    span("step", generate.start, train.end, **who),
                    span("GRPOTrainer._prepare_inputs", generate.start, wait.end, **who),
                    span("GRPOTrainer.vLLM.generate", generate.start, generate.end, **who),
                    span("GRPOTrainer._calculate_rewards", reward.start, reward.end, **who),
                    span("backward", train.start, train.end, **who),
                ]
        return rows

    def reward_jobs(self) -> list[Row]:
        """Jobs that fill the rewards: ``workers`` at a time, submitted together when the rewards start."""
        rows = []
        for rank in range(self.ranks):
            for step, (_, reward, _, _) in enumerate(self.parts(rank)):
                long = (reward.end - reward.start) * self.workers / max(self.jobs, 1)
                for j in range(self.jobs):
                    begin = reward.start + (j // self.workers) * long
                    pid = 1000 + 10 * rank + j % self.workers
                    row = job(f"{step}.{rank}.{j}", begin, begin + long, rank=rank, pid=pid, step=step)
                    rows.append(row | {"submitted_ns": ns(reward.start)})
        return rows

    def share_of(self, rank: int) -> dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]]:
        """Of each window, the share that lies in each phase."""
        edges = np.arange(0.0, self.starts[-1] + PERIOD / 2, PERIOD)
        found = {name: np.zeros(len(edges) - 1) for name in BUSY}
        for part in (p for step in self.parts(rank) for p in step):
            inside = np.minimum(edges[1:], part.end) - np.maximum(edges[:-1], part.start)
            found[part.phase] += np.clip(inside, 0, None) / PERIOD
        return found

    def mixed(self, rank: int, levels: dict[str, float]) -> list[float]:
        """What a counter reads in each window, from its level in each phase."""
        share = self.share_of(rank)
        return [float(x) for x in np.sum([share[name] * level for name, level in levels.items()], axis=0)]

    def gpu(self) -> list[Row]:
        """Utilization at 5 Hz."""
        return [r for rank in range(self.ranks) for r in utilization(self.mixed(rank, self.levels), gpu=rank)]

    def profile(self) -> list[Row]:
        """SM and DRAM activity over the same windows: a wait has none."""
        rows = []
        for rank in range(self.ranks):
            sm = self.mixed(rank, {n: 0.0 if n == "wait" else 0.7 * v for n, v in self.levels.items()})
            active = self.mixed(rank, self.levels)
            rows += counters(sm, gpu=rank, gr_active_pct=active, dram_active_pct=[s / 2 for s in sm])
        return rows

    def rows(self) -> dict[str, list[Row]]:
        """All tables."""
        found: dict[str, list[Row]] = {
            "spans": self.spans(),
            "gpu": self.gpu(),
            "processes": [process(900 + r, rank=r, gpu=r) for r in range(self.ranks)],
        }
        found |= {"jobs": self.reward_jobs()} if self.jobs else {}
        found |= {"gpu_counters": self.profile()} if self.profiled else {}
        return {name: part for name, part in (found | self.tables).items() if part}

    def recording(self) -> Recording:
        """In memory."""
        return memory(**self.rows())

    def evidence(self, repo: RepoFindings | None = None) -> Evidence:
        """What checks and claims judge from."""
        return evidence_of(self.recording(), repo)


def evidence_of(recording: Recording, repo: RepoFindings | None = None) -> Evidence:
    """The analyses of a recording, ready to be judged."""
    return Evidence(recording, analyse(recording), repo)


def varied(
    steps: int, ranks: int = 2, *, seed: int = 0, low: float = 1.0, high: float = 5.0
) -> list[list[float]]:
    """Rewards of ``steps`` x ``ranks`` seconds between two bounds, in tenths, the same at each call."""
    drawn = np.random.default_rng(seed).uniform(low, high, (steps, ranks))
    return [[float(x) for x in row] for row in np.round(drawn, 1)]


def healthy(steps: int = 30, **changes: Any) -> World:
    """Generation dominates, rewards vary by chance over two ranks, the workers are always busy."""
    generate = [float(6 + 0.4 * (k * 7 % 5)) for k in range(steps)]
    given: dict[str, Any] = {"generate": generate, "reward": varied(steps)} | changes
    return World(**given)


def event(name: str, start: float, end: float | None = None, *, rank: int = 0) -> Row:
    """A row of the events table."""
    stop = None if end is None else ns(end)
    return {"host": HOST, "rank": rank, "name": name, "t0_ns": ns(start), "t1_ns": stop}


def shipped(name: str, root: Path) -> bool:
    """Whether a sample is there."""
    return (root / "src" / "dipstick" / "samples" / name).is_dir()
