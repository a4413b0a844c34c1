"""When does the dip end: with the longest job, the median job, or generation (methods, 4.4, timing check).

The right anchor is the one that the end of the dip keeps the steadiest distance to. Dispersion is
median |lag - median lag| over steps; a winner needs the smallest one in 95 % of bootstrap draws of the steps.

Worked example: dips end 0.2 +- 0.05 s after the longest job's end and 4 +- 2 s after the median job's: the
longest wins. On the H200 trace the dip ends 0.002 s after the *last* job, but 0.9 +- 0.8 s after the longest:
the jobs queue.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dipstick.analysis.stats import step_draws
from dipstick.analysis.straggler_tests import LONGEST, StragglerTest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dipstick.model import FloatArray

_FEWEST = 2


@dataclass(frozen=True, slots=True)
class Timing:
    """Which instant the end of the dip keeps a constant lag to.

    Attributes:
        winner: The anchor with bootstrap probability >= 0.95 of the smallest dispersion; None if none.
        share: Bootstrap probability of each.
        dispersion_s: median |lag - median lag| of each.
        lag_s: Median lag of each (dip's end minus anchor).
        steps: Steps with all anchors.
    """

    winner: str | None
    share: Mapping[str, float]
    dispersion_s: Mapping[str, float]
    lag_s: Mapping[str, float]
    steps: int


def timing_contest(
    dip_end_s: FloatArray,
    anchors: Mapping[str, FloatArray],
    seed: int = 0,
    boot: int = 500,
    level: float = 0.95,
) -> Timing:
    """Race "end of longest job", "end of median job", "end of generation" for the end of the dip.

    Args:
        dip_end_s: When the dip of each step ends (N,), NaN if none.
        anchors: Candidate instants by step (N,), NaN if missing.
        seed: Seed of the bootstrap over steps.
        boot: Draws.
        level: Probability needed to win.
    """
    names = list(anchors)
    lag = dip_end_s[:, None] - np.column_stack([anchors[n] for n in names])
    lag = lag[np.isfinite(lag).all(axis=1)]
    if lag.shape[0] < _FEWEST:
        nothing = dict.fromkeys(names, float("nan"))
        return Timing(None, nothing, nothing, nothing, int(lag.shape[0]))
    index = step_draws(np.random.default_rng(seed), lag.shape[0], boot)
    drawn = np.stack([dispersion(lag[:, i][index], axis=1) for i in range(len(names))], axis=1)
    best = drawn <= drawn.min(axis=1, keepdims=True)
    share = (best / best.sum(axis=1, keepdims=True)).mean(axis=0)
    top = int(np.argmax(share))
    return Timing(
        names[top] if share[top] >= level else None,
        dict(zip(names, share.tolist(), strict=True)),
        dict(zip(names, dispersion(lag, axis=0).tolist(), strict=True)),
        dict(zip(names, np.median(lag, axis=0).tolist(), strict=True)),
        int(lag.shape[0]),
    )


def dispersion(lag: FloatArray, axis: int) -> FloatArray:
    """Median |lag - median lag|."""
    return np.asarray(np.median(np.abs(lag - np.median(lag, axis=axis, keepdims=True)), axis=axis))


def confirm_timing(test: StragglerTest, timing: Timing) -> StragglerTest:
    """A "yes" must also be right in time: another anchor that wins turns it into "partially".

    An unresolved race changes nothing (methods, 4.5: correct order and a stable lag raise the support,
    dose-response alone already carries the verdict).
    """
    if test.verdict == "yes" and timing.winner not in {None, LONGEST}:
        return replace(test, verdict="partially", codes=())
    return test
