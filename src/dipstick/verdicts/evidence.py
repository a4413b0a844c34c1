"""What the checks and claims judge from: one recording's findings, and the models built on them, each once."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from dipstick import phases
from dipstick.analysis.design import Telemetry, Timeline
from dipstick.analysis.loop import Steps, build_loop
from dipstick.analysis.overlap import OverlapFit, fit_overlap
from dipstick.analysis.replay_model import take_steps
from dipstick.analysis.replay_path import CriticalPath, critical_path
from dipstick.analysis.timeline import clip
from dipstick.analysis.whatif import WhatIfs
from dipstick.judgement import Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from dipstick.analysis.pipeline import Findings
    from dipstick.analysis.replay_model import Loop
    from dipstick.model import IntArray
    from dipstick.recording.reader import Recording
    from dipstick.verdicts.repo_model import RepoFindings

Made = TypeVar("Made")

WARM_UP = 2
"""Steps dropped before any statistic: compilation and the allocator settle in them (methods 7)."""
FEWEST_LEFT = 8
"""Short runs keep their warm-up steps: dropping 2 of 9 costs more than it cleans."""
EARLY_NS = 50_000_000
"""A rank that starts its next phase this long before the last one arrives was not waiting (clocks agree to less)."""
NO_BARRIER = "no barrier that all ranks share was recorded: their loops may run apart"
MOST_STEPS = 600
"""Steps looked at sample by sample; a longer run is judged on its middle ones, and the checks say so."""
SEED = 20_261_130


class Evidence:
    """Findings and what is derived from them, computed when first asked for.

    Args:
        recording: The recording, for the raw tables.
        findings: Its analyses.
        repo: Static findings in a checkout of the training code (``--repo``), if any.
    """

    def __init__(self, recording: Recording, findings: Findings, repo: RepoFindings | None = None) -> None:
        self.recording = recording
        self.findings = findings
        self.repo = repo
        self._made: dict[str, Any] = {}

    def once(self, name: str, make: Callable[[Evidence], Made]) -> Made:
        """What ``make`` returns, computed at the first call for that name: several claims rest on one test."""
        if name not in self._made:
            self._made[name] = make(self)
        made: Made = self._made[name]
        return made

    def rng(self, salt: int = 0) -> np.random.Generator:
        """A generator with a fixed seed: the same recording gives the same verdicts."""
        return np.random.default_rng([SEED, salt])

    @cached_property
    def steps(self) -> Steps | None:
        """The loop of all steps that every rank completed."""
        gpus: dict[int, int] = {}
        for gpu in self.findings.gpus:
            if gpu.rank is not None:
                gpus[gpu.rank] = gpus.get(gpu.rank, 0) + 1
        return build_loop(self.findings.timelines, self.recording.table("jobs"), gpus)

    @property
    def no_steps(self) -> tuple[Reason, str]:
        """Why there is no loop of steps to judge: no phases at all, or too few whole steps of them."""
        breakdown = self.findings.breakdown
        some = any(len(timeline.steps) for timeline in self.findings.timelines)
        if breakdown is None or breakdown.longest is None or not some:
            return Reason.MISSING_SIGNAL, "no steps with phases were recorded"
        return Reason.LOW_N, (
            "too few whole steps: this takes two with a number in which every rank ends generation, rewards or backward"
        )

    @cached_property
    def synchronous(self) -> bool:
        """Whether the ranks wait for each other at the reward gather (a single rank has nobody to wait for).

        Plain spans tell of no barrier, and loops that run apart pass the same points without meeting: there
        somebody starts its next phase before the last rank has arrived.
        """
        if len(self.findings.timelines) < 2:  # noqa: PLR2004 - a wait takes two
            return True
        gathers = [m for m in self.findings.meetings if m.barrier.name == "reward" and len(m.release)]
        early_ns = [(m.release[:, None] - m.wait_end).max(axis=1) for m in gathers]
        return bool(early_ns) and all(np.median(early) <= EARLY_NS for early in early_ns)

    @cached_property
    def kept(self) -> IntArray:
        """Rows of ``steps`` that statistics use: without warm-up, where enough remain."""
        count = 0 if self.steps is None else self.steps.loop.steps
        first = WARM_UP if count >= WARM_UP + FEWEST_LEFT else 0
        return np.arange(first, count)

    @cached_property
    def close(self) -> IntArray:
        """Kept steps that are looked at sample by sample: all, or the middle ``MOST_STEPS`` of a long run.

        600 steps decide every test of alignment and spikes (methods S2, S6); a day has thousands.
        """
        spare = max(len(self.kept) - MOST_STEPS, 0) // 2
        return self.kept[spare : len(self.kept) - spare][: max(MOST_STEPS, 1)] if spare else self.kept

    @cached_property
    def close_ns(self) -> tuple[int, int]:
        """First and last instant of those steps; the analysis window where they are all steps."""
        if self.steps is None or len(self.close) == len(self.kept):
            return self.findings.window
        first, last = self.close[0], self.close[-1]
        return int(self.steps.start_s[first] * 1e9), int(self.steps.end_s[last] * 1e9)

    @cached_property
    def loop(self) -> Loop | None:
        """The loop of the kept steps."""
        return None if self.steps is None else take_steps(self.steps.loop, self.kept)

    @cached_property
    def path(self) -> CriticalPath | None:
        """The critical path of the kept steps, with intervals."""
        return None if self.loop is None else critical_path(self.loop, self.rng(1))

    @cached_property
    def telemetry(self) -> tuple[Telemetry, ...]:
        """Utilization samples of every GPU whose rank is known, with that rank's phases, in the window."""
        ranks = {t.rank: t for t in self.findings.timelines}
        found = []
        for gpu in self.findings.gpus:
            if gpu.rank in ranks:
                series = gpu.signals.util.clip(*self.close_ns)
                edges, code = clip(ranks[gpu.rank].edges, ranks[gpu.rank].code, self.close_ns)
                timeline = Timeline(edges / 1e9, code.astype(np.int64), phases.PHASES)
                found.append(Telemetry(series.t1 / 1e9, series.value, timeline))
        return tuple(found)

    @cached_property
    def window_s(self) -> float:
        """The utilization counter's averaging window."""
        return max((gpu.signals.window_ns for gpu in self.findings.gpus), default=0) / 1e9

    @cached_property
    def too_coarse(self) -> bool:
        """Whether a dip of half a step (or as long as the recording) could pass unseen.

        Then no dip says nothing, and those that are seen are not the step's: they are the few longest.
        """
        used = [gpu.signals for gpu in self.findings.gpus if gpu.used]
        visible_ns = 2 * max((max(s.period_ns, s.window_ns) for s in used), default=0)
        start, end = self.findings.window
        typical_s = float(np.median(self.steps.loop.measured)) if self.steps else np.inf
        return visible_ns / 1e9 > typical_s / 2 or visible_ns >= end - start

    @cached_property
    def overlap(self) -> OverlapFit | None:
        """Utilization level of each phase with step-bootstrap intervals; None without samples and steps."""
        if self.steps is None or not self.telemetry:
            return None
        starts = self.steps.start_s[self.close]
        return fit_overlap(self.telemetry, self.window_s, starts, self.rng(5))

    @cached_property
    def whatifs(self) -> WhatIfs | None:
        """The edits of the kept steps."""
        return None if self.loop is None else WhatIfs(self.loop, seed=SEED)
