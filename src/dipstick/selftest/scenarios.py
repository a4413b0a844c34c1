"""The planted truths: what each run is, what the product must find in it, and (everything else) what it must not."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from dipstick.selftest.instruments import Extra, Sampling, Scene
from dipstick.selftest.loop import JobPlan, Plan, draw
from dipstick.selftest.write import worker_pid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dipstick.selftest.loop import Loop

STRANGER: Final = 4242
"""The process that the trainer knows nothing of."""
CRON_S, CRON_LASTS_S = 45.0, 1.5
SPIKE_LASTS_S = 1.2


FINE: Final = Sampling()


@dataclass(frozen=True, slots=True)
class Scenario:
    """One planted run.

    Attributes:
        name: As on the command line.
        about: What is planted, in a line.
        expected: Finding -> what it must say; a finding that is not named must stay silent.
        open: Findings that may say anything here, because the truth does not decide them.
        extras: What else happens on the GPUs.
        levels: Instrument levels that differ.
        plain: Spans named like phases, without a framework's barriers.
    """

    name: str
    about: str
    plan: Plan
    expected: Mapping[str, str]
    open: frozenset[str] = frozenset()
    sampling: Sampling = FINE
    extras: Callable[[Loop], tuple[Extra, ...]] = lambda _: ()
    levels: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    plain: bool = False

    def scene(self, seed: int) -> Scene:
        """Draw it."""
        loop = draw(self.plan, np.random.default_rng([seed, _number(self.name)]))
        return Scene(loop, self.extras(loop), self.levels)


def _number(name: str) -> int:
    """A seed of the name's own: adding a scenario leaves the others' draws alone."""
    return int.from_bytes(name.encode(), "big") % (1 << 32)


def _spikes_after(column: str) -> Callable[[Loop], tuple[Extra, ...]]:
    """Memory-access time jumps when the call returns: the allocator touches what it gave back."""

    def spikes(loop: Loop) -> tuple[Extra, ...]:
        fired = loop.end(column)[0][loop.end(column)[0] > loop.start(column)[0]] / 1e9
        return (
            Extra(
                fired,
                fired + SPIKE_LASTS_S,
                {"mem_util_pct": 70.0, "util_pct": 60.0, "dram_active_pct": 55.0},
            ),
        )

    return spikes


def _cron(loop: Loop) -> tuple[Extra, ...]:
    at = np.arange(17.0, loop.end_ns / 1e9 - CRON_LASTS_S, CRON_S)
    adds = {
        "mem_util_pct": 72.0,
        "util_pct": 70.0,
        "dram_active_pct": 50.0,
        "sm_active_pct": 30.0,
        "power_w": 120.0,
    }
    return (Extra(at, at + CRON_LASTS_S, adds, pid=STRANGER),)


SHORT: Final = JobPlan(count=2, seconds=0.7)
LONG: Final = JobPlan(count=8, seconds=0.12, spread=0.3, mix_spread=0.6, long_s=5.0, long_spread=0.35)
QUEUED: Final = JobPlan(count=12, seconds=0.8, spread=0.3)
UNEVEN: Final = JobPlan(count=16, seconds=0.6, spread=0.6, mix_spread=0.6)
USUAL: Final = Plan(jobs=SHORT)
BLIND: Final = Sampling(counters=False)
COARSE: Final = Sampling(period_s=15.0, window_s=15.0, counters=False, power=False)
LAUNCH_BOUND: Final = {"generate": (34.0, 8.0, 180.0, 10.0, 6.0, 1.0, 40.0)}

SCENARIOS: Final[tuple[Scenario, ...]] = (
    Scenario("healthy", "balanced ranks, short rewards", USUAL, {"dips": "step_cycle", "locked": "yes"}),
    Scenario(
        "straggler-worker", "one of four workers takes three times as long",
        replace(USUAL, jobs=replace(QUEUED, slow={(1, 1): 3.0})),
        {"dips": "straggler_rank", "locked": "yes", "rank": "rank 1", "worker": f"pid {worker_pid(1, 1)}",
         "waits": "yes", "hollow": "yes"},
    ),
    Scenario(
        "straggler-rank", "both workers of rank 1 take 1.8 times as long",
        replace(USUAL, jobs=replace(QUEUED, slow_rank={1: 1.8})),
        {"dips": "straggler_rank", "locked": "yes", "rank": "rank 1", "waits": "yes", "hollow": "yes"},
    ),
    Scenario(
        "straggler-job", "one long job a step, on any rank and worker", replace(USUAL, jobs=LONG),
        {"dips": "straggler_job", "locked": "yes", "job": "yes", "waits": "yes", "hollow": "yes"},
    ),
    Scenario(
        "transfer", "host-to-device copies at 50 GiB/s between reward and training",
        replace(USUAL, transfer_s=4.0),
        {"dips": "transfer", "copies": "yes", "hollow": "yes"}, frozenset({"locked"}),
    ),
    Scenario(
        "checkpoint-stalls", "rank 0 saves for twelve seconds every fourth step",
        replace(USUAL, checkpoint_every=4, checkpoint_s=12.0),
        {"dips": "checkpoint", "waits": "yes", "hollow": "yes"}, frozenset({"locked"}),
    ),
    Scenario(
        "cache-clears", "memory-access spikes after every fourth step's cache clear, none after checkpoints",
        replace(USUAL, steps=60, cache_clear_every=4, checkpoint_every=7),
        {"dips": "step_cycle", "locked": "yes", "spikes": "cache_clear"},
        extras=_spikes_after("cache_clear"),
    ),
    Scenario(
        "cron", "another process uses the GPUs every 45 s", replace(USUAL, steps=60, checkpoint_every=7),
        {"dips": "step_cycle", "locked": "yes", "unowned": f"pid {STRANGER}"}, extras=_cron,
    ),
    Scenario(
        "launch-bound", "decode of a small model reads 34 %", replace(USUAL, generate_s=6.0),
        {"dips": "step_cycle", "plateau": "low"}, frozenset({"locked"}), levels=LAUNCH_BOUND,
    ),
    Scenario(
        "spinning", "uneven job mix; no counters, waits show in power only", replace(USUAL, jobs=UNEVEN),
        {"dips": "queued_work", "locked": "yes", "waits": "yes", "hollow": "yes", "unsure": "copies MISSING_SIGNAL"},
        sampling=BLIND,
    ),
    Scenario(
        "coarse", "a sample every 15 s, and the mean over them",
        replace(USUAL, steps=60, generate_s=9.0, checkpoint_every=7, cache_clear_every=5),
        {"dips": "unknown", "unsure": "copies MISSING_SIGNAL, hollow SPINNING, level COARSE, spikes COARSE"}, frozenset({"locked"}),
        sampling=COARSE, extras=_spikes_after("cache_clear"),
    ),
    Scenario(
        "twins", "checkpoint and cache clear are never apart",
        replace(USUAL, steps=60, checkpoint_every=4, cache_clear_every=4),
        {"dips": "step_cycle", "locked": "yes", "spikes": "cache_clear or checkpoint", "unsure": "cache_clear COLLINEAR, checkpoint COLLINEAR"},
        extras=_spikes_after("cache_clear"),
    ),
    Scenario(
        "async", "two loops without a barrier, one 8 % slower",
        replace(USUAL, barriers=False, drift=0.08), {"dips": "step_cycle", "unsure": "stragglers MISSING_SIGNAL"},
        plain=True,
    ),
    Scenario(
        "growing", "completions grow, and steps with them",
        replace(USUAL, growth=2.0), {"dips": "step_cycle", "locked": "yes", "drift": "yes"},
    ),
)  # fmt: skip
