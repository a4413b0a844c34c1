"""Decision rules of methods 4.2: phase shares, what-ifs, ranks; which steps count; the noise band.

Verdict words are those of ``dipstick.model``; reasons are the codes of methods section 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dipstick.analysis.replay_paid import GAP_LIMIT
from dipstick.analysis.stats import block_length
from dipstick.analysis.whatif_boot import DRAWS, min_detectable, steps_needed

if TYPE_CHECKING:
    import numpy.typing as npt

    from dipstick.analysis.replay import Gate
    from dipstick.analysis.replay_path import CriticalPath, PathRow
    from dipstick.analysis.replay_waits import LastArriver
    from dipstick.analysis.stats import Estimate
    from dipstick.analysis.whatif import WhatIf
    from dipstick.model import FloatArray, IntArray, Verdict

MIN_STEPS: Final = 20
WARM_UP: Final = 2
ALPHA: Final = 0.05
DOMINATES: Final = 0.5
LEAD: Final = 0.1
MINOR: Final = 0.2
STRONG: Final = 0.5
WEAK: Final = 0.2


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict of this module and what stands behind it.

    Attributes:
        verdict: One of the four words.
        effect: What was judged (a share, a speed-up, an excess), with its interval.
        reason: Reason code; set whenever the verdict is ``unconfirmed``.
        threshold: What the effect was held against.
        min_detectable: Distance from the threshold visible with power 0.8 at this N; None for "yes".
        steps_needed: N at which the seen distance would be visible; None for "yes", "no" or if it is 0.
        p: Adjusted p-value where the rule has one.
    """

    verdict: Verdict
    effect: Estimate
    reason: str = ""
    threshold: float = 0.0
    min_detectable: float | None = None
    steps_needed: int | None = None
    p: float | None = None


def _decide(
    verdict: Verdict,
    effect: Estimate,
    steps: int,
    threshold: float,
    *,
    reason: str = "",
    p: float | None = None,
) -> Decision:
    """Add the minimum detectable effect and the N needed; an "unconfirmed" gets a reason."""
    if verdict == "yes":
        return Decision(verdict, effect, threshold=threshold, p=p)
    if verdict == "unconfirmed":
        reason = reason or "LOW_N"
    needed = None if verdict == "no" else steps_needed(effect, steps, abs(effect.value - threshold))
    return Decision(verdict, effect, reason, threshold, min_detectable(effect), needed, p)


def clean_steps(
    steps: int, events: tuple[npt.NDArray[np.bool_], ...] = (), warm_up: int = WARM_UP
) -> IntArray:
    """Steps that count: without the warm-up and without those in which an event fired.

    Args:
        steps: K.
        events: Masks of shape (K,): checkpoint, evaluation, restart; those steps are analysed apart.
        warm_up: Steps dropped at the start (compilation, allocator).

    Example:
        8 steps, checkpoints in steps 3 and 6: steps 2, 4, 5 and 7 count.
    """
    keep = np.arange(steps) >= warm_up
    for mask in events:
        keep &= ~mask
    return np.flatnonzero(keep)


def _blocked(gap_share: float, gate: Gate | None, steps: int) -> str:
    """The reason that forbids any firm answer, or empty."""
    if abs(gap_share) > GAP_LIMIT:
        return "GAP"
    if gate is not None and not gate.passed:
        return gate.reason
    return "LOW_N" if steps < MIN_STEPS else ""


def phase_dominates(path: CriticalPath, phase: str, gate: Gate | None = None) -> Decision:
    """Does one phase dominate the critical path?

    yes: the share's lower bound is above 0.5, or its lead over every other phase is at least 0.1 (lower
    bound). partially: it is the longest, less clearly. no: the share's upper bound is below 0.2, or
    another phase leads it by at least 0.1 (upper bound of the lead; the mirror of the yes rule, which
    methods 4.2 leaves open). unconfirmed: otherwise, or gap above 5 %, replay refused, under 20 steps.

    Example:
        Reward 0.62 [0.58, 0.66] is "yes"; 0.41 [0.36, 0.46] with a lead of 0.13 [0.08, 0.18] over
        generate is "partially".
    """
    row = path.row(phase)
    reason = _blocked(path.gap_share, gate, path.steps)
    verdict: Verdict = "unconfirmed" if reason else _dominance(row, phase == path.longest)
    return _decide(verdict, row.share, path.steps, DOMINATES, reason=reason)


def _dominance(row: PathRow, longest: bool) -> Verdict:  # noqa: FBT001  # the two facts of the rule
    """The rule of :func:`phase_dominates` without its requirements."""
    if row.share.low > DOMINATES or row.lead.low >= LEAD:
        return "yes"
    if longest:
        return "partially"
    return "no" if row.share.high < MINOR or row.lead.high <= -LEAD else "unconfirmed"


def fix_gives(result: WhatIf, at_least: float, gap_share: float = 0.0) -> Decision:
    """Would a change make the steps ``at_least`` times faster?

    yes: lower bound of S >= z. no: upper bound < z. partially: S >= 1 + (z - 1) / 2 with lower bound
    above 1. unconfirmed: otherwise, or a requirement fails. An upper bound (:attr:`WhatIf.upper_bound`)
    can say "no" and never "yes".

    Example:
        z = 1.2: S = 1.25 [1.21, 1.29] yes; 1.08 [1.03, 1.13] no; 1.15 [1.05, 1.25] partially.
    """
    reason = result.reason or _blocked(gap_share, None, result.steps)
    verdict = _fix(result.speedup, at_least)
    if result.upper_bound and reason == "MISSING_SIGNAL" and verdict == "no":
        reason = _blocked(gap_share, None, result.steps)
    if reason:
        verdict = "unconfirmed"
    return _decide(verdict, result.speedup, result.steps, at_least, reason=reason)


def _fix(speedup: Estimate, at_least: float) -> Verdict:
    """The rule of :func:`fix_gives` without its requirements."""
    if speedup.low >= at_least:
        return "yes"
    if speedup.high < at_least:
        return "no"
    halfway = 1 + (at_least - 1) / 2
    return "partially" if speedup.value >= halfway and speedup.low > 1 else "unconfirmed"


def rank_is_straggler(row: LastArriver, steps: int) -> Decision:
    """Is this rank the straggler? Exact, so it may answer below 20 steps.

    yes: Holm p <= 0.05 and excess >= 0.5 (0 = chance, 1 = always last). partially: p <= 0.05 and
    excess >= 0.2. no: the excess's upper bound is below 0.2. unconfirmed: otherwise.

    Example:
        Last in 11 of 12 steps of two ranks: p 0.006, excess 0.83: yes. In 20 of 31: p 0.15, excess
        0.29 [-0.06, 0.58]: unconfirmed.
    """
    excess, significant = row.excess, row.p_holm <= ALPHA
    verdict: Verdict = "unconfirmed"
    if significant and excess.value >= STRONG:
        verdict = "yes"
    elif significant and excess.value >= WEAK:
        verdict = "partially"
    elif excess.high < WEAK:
        verdict = "no"
    return _decide(verdict, excess, steps, WEAK, p=row.p_holm)


@dataclass(frozen=True, slots=True)
class Noise:
    """How much two halves of the same run differ; smaller effects are not actionable.

    Attributes:
        halves: Mean step time of the second half over the first, minus 1 (drift included).
        shuffled: 95 % quantile of the same difference when blocks of steps are dealt to two halves.
        band: The larger of the two, as a positive share.
    """

    halves: float
    shuffled: float
    band: float

    def actionable(self, speedup: Estimate) -> bool:
        """Whether a speed-up stands out of the run's own noise."""
        return speedup.value - 1 > self.band


def split_half_noise(step_s: FloatArray, rng: np.random.Generator, draws: int = DRAWS) -> Noise:
    """The noise band of a run, from its own steps (K >= 2).

    One public pair of runs with the same settings differed by 6.3 %: the band inside one run is the
    least that two runs differ by. One split is a single draw, so many random ones are made as well.

    Example:
        Steps 10, 10, 11, 11: the halves differ by 10 %; dealt at random they differ by 0, +10 or -9 %.
    """
    half = step_s.size // 2
    halves = float(step_s[half:].mean() / step_s[:half].mean() - 1)
    length = block_length(step_s.size)
    blocks = step_s[: step_s.size // length * length].reshape(-1, length).mean(axis=1)
    if blocks.size < 2:  # noqa: PLR2004  # one block can't be dealt to two halves
        return Noise(halves, float("nan"), abs(halves))
    dealt = rng.permuted(np.tile(blocks, (draws, 1)), axis=1)
    cut = blocks.size // 2
    apart = np.abs(dealt[:, cut:].mean(axis=1) / dealt[:, :cut].mean(axis=1) - 1)
    shuffled = float(np.quantile(apart, 0.95))
    return Noise(halves, shuffled, max(abs(halves), shuffled))
