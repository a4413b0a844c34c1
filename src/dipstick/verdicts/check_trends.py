"""Check 5: does the run change as it goes: steps getting longer, dips thinning out, and what goes with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dipstick.analysis.stats import holm
from dipstick.judgement import Check, Reason, Verdict
from dipstick.verdicts.algebra import unconfirmed
from dipstick.verdicts.claim_trends import describe, series_of, trend_of

if TYPE_CHECKING:
    from dipstick.analysis.trends import Trend
    from dipstick.verdicts.evidence import Evidence

QUESTION = "Does the run change as it goes?"
WATCHED = ("step", "dip", "reward", "generate", "gather_wait")
ALPHA = 0.05


def check(evidence: Evidence) -> Check:
    """Judge the drifts of step time, dip width and the large phases together (Holm over them)."""
    known = series_of(evidence)
    found = {of: trend for of in WATCHED if of in known and (trend := trend_of(evidence, of)) is not None}
    if not found:
        verdict = unconfirmed(Reason.MISSING_SIGNAL, "no steps with phases were recorded")
        return Check("trends", QUESTION, verdict, facts={"trends": None})
    adjusted = holm([trend.p_value for trend in found.values()]).tolist()
    drifting = [of for (of, trend), p in zip(found.items(), adjusted, strict=True) if _drifts(trend, p)]
    facts = {"trends": [_fact(of, trend, p) for (of, trend), p in zip(found.items(), adjusted, strict=True)]}
    return Check("trends", QUESTION, _verdict(found, drifting), facts=facts)


def _drifts(trend: Trend, p: float) -> bool:
    return p <= ALPHA and trend.verdict in {"yes", "partially"}


def _verdict(found: dict[str, Trend], drifting: list[str]) -> Verdict:
    if drifting:
        first = found[drifting[0]]
        because = "; ".join(describe(of, found[of]) for of in drifting)
        return Verdict(
            first.verdict, because, first.change.value, (first.change.low, first.change.high), first.p_value
        )
    step = found.get("step") or next(iter(found.values()))
    interval = (step.change.low, step.change.high)
    if all(trend.verdict == "no" for trend in found.values()):
        return Verdict("no", describe("step", step), step.change.value, interval, step.p_value)
    because = f"no drift stands out; {describe('step', step)}"
    return Verdict(
        "unconfirmed", because, step.change.value, interval, step.p_value, Reason.LOW_N, step.detectable
    )


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
