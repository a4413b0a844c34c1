"""The built-in scorecard: the six claims of the story that fitted every pixel and was wrong, and one more.

Each row is compiled before any result is read. The first six are the rows of the origin post's table; the last
is the belief that most charts rest on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dipstick.verdicts import (
    claim_alignment,
    claim_loading,
    claim_mechanisms,
    claim_phases,
    claim_trends,
    claims,
    slow_workers,
)

if TYPE_CHECKING:
    from dipstick.judgement import Claim
    from dipstick.verdicts.claims import Said
    from dipstick.verdicts.evidence import Evidence

REGISTERED = (claim_alignment, claim_loading, claim_mechanisms, claim_phases, claim_trends, slow_workers)
"""Modules whose import registers the tests."""


def scorecard() -> tuple[Said, ...]:
    """The seven claims, compiled."""
    return (
        claims.compiled("the bottleneck is periodic and tied to the step cycle", "locked_to_steps", {}),
        claims.compiled(
            "the GPU reads about 90 % during generation",
            "phase_utilization",
            {"phase": "generate", "at_least": 85},
        ),
        claims.compiled("utilization dips when generation ends", "drops_after", {"phase": "generate"}),
        claims.compiled("generation hands tensors to the reward workers", "workers_get_tensors", {}),
        claims.compiled("workers that synchronize cause the dips", "synchronizing_workers_cause_dips", {}),
        claims.compiled("large memory moves force compute to wait", "large_moves_force_waiting", {}),
        claims.compiled("high utilization means work", "high_utilization_means_work", {}),
    )


def judge(evidence: Evidence, said: tuple[Said, ...] = ()) -> tuple[Claim, ...]:
    """The scorecard, then the user's own claims."""
    return claims.judge(evidence, (*scorecard(), *said))
