"""Check 5: does the run change as it goes: steps getting longer, dips thinning out, and what goes with it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dipstick.analysis.stats import holm
from dipstick.judgement import Check, Reason, Verdict
from dipstick.verdicts.algebra import unconfirmed
from dipstick.verdicts.bill import step_receipts
from dipstick.verdicts.claim_trends import as_verdict, describe, series_of, thinning, trend_of

if TYPE_CHECKING:
    from dipstick.analysis.trends import Trend
    from dipstick.verdicts.evidence import Evidence

QUESTION = "Does the run change as it goes?"
WATCHED = ("step", "dip", "dips_per_minute", "reward", "generate", "gather_wait")
ALPHA = 0.05


def check(evidence: Evidence) -> Check:
    """Judge the drifts of step time, dip width and the large phases together (Holm over them)."""
    known = series_of(evidence)
    found = {of: trend for of in WATCHED if of in known and (trend := trend_of(evidence, of)) is not None}
    if not found:
        verdict = unconfirmed(*evidence.no_steps)
        return Check("trends", QUESTION, verdict, facts={"trends": None, "dips_thin_out_because": None})
    adjusted = holm([trend.p_value for trend in found.values()]).tolist()
    p_of = dict(zip(found, adjusted, strict=True))
    rate = (
        thinning(evidence)
        if "dips_per_minute" in found and found["dips_per_minute"].shape != "flat"
        else None
    )
    facts = {
        "trends": [_fact(of, trend, p_of[of]) for of, trend in found.items()],
        "dips_thin_out_because": rate.because if rate else None,
    }
    return Check("trends", QUESTION, _verdict(found, p_of), step_receipts(evidence), facts)


def _drifts(trend: Trend, p: float) -> bool:
    return p <= ALPHA and trend.verdict in {"yes", "partially"}


def _verdict(found: dict[str, Trend], p_of: dict[str, float]) -> Verdict:
    """The strongest of what drifts; "no" only if every series was seen not to; else open, with step time's numbers."""
    drifting = sorted(
        (of for of, trend in found.items() if _drifts(trend, p_of[of])),
        key=lambda of: found[of].verdict != "yes",
    )
    if drifting:
        because = "; ".join(describe(of, found[of]) for of in drifting)
        return as_verdict(found[drifting[0]], p_of[drifting[0]], because)
    step = found["step"]
    verdict = as_verdict(step, p_of["step"], describe("step", step))
    if all(trend.verdict == "no" for trend in found.values()):
        return verdict
    open_one = next((of for of, trend in found.items() if trend.verdict != "no"), "step")
    told = [describe(of, found[of]) for of in dict.fromkeys(("step", open_one))]
    because = "; ".join(("no drift stands out", *told))
    return replace(verdict, word="unconfirmed", because=because, reason=verdict.reason or Reason.LOW_N,
                   min_detectable=step.detectable)  # fmt: skip


def _fact(of: str, trend: Trend, p: float) -> dict[str, Any]:
    return {
        "series": of,
        "verdict": trend.verdict,
        "change": trend.change.value,
        "interval": [trend.change.low, trend.change.high],
        "p_adjusted": p,
        "shape": trend.shape,
        "change_points": [
            {"step": c.step, "before": c.before, "after": c.after} for c in trend.change_points
        ],
        "because": list(trend.because),
    }
