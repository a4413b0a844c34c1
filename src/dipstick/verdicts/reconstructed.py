"""Verdicts that rest on spans whose place was not measured say so: a log's seconds per step, laid out by an importer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import polars as pl

from dipstick.judgement import Check, Claim, Receipt, Verdict

if TYPE_CHECKING:
    from dipstick.recording.reader import Recording

SAYS: Final = "rests on reconstructed spans"
"""Ends the sentence of every such verdict."""
ORIGIN: Final = "reconstructed"


def share(recording: Recording) -> tuple[int, int]:
    """How many spans are reconstructed, of how many."""
    spans = recording.table("spans")
    return spans.filter(pl.col("origin").cast(pl.String) == ORIGIN).height, spans.height


def marked_check(check: Check, counts: tuple[int, int]) -> Check:
    """The check, marked where spans are reconstructed and it came to a verdict."""
    if not _rests(check.verdict, counts):
        return check
    receipts = (*map(_receipt, check.receipts), _count(counts))
    return replace(check, verdict=_verdict(check.verdict), receipts=receipts)


def marked_claim(claim: Claim, counts: tuple[int, int]) -> Claim:
    """The claim, marked likewise."""
    if not _rests(claim.verdict, counts):
        return claim
    receipts = (*map(_receipt, claim.receipts), _count(counts))
    return replace(claim, verdict=_verdict(claim.verdict), receipts=receipts)


def _rests(verdict: Verdict, counts: tuple[int, int]) -> bool:
    return counts[0] > 0 and verdict.word != "unconfirmed"


def _verdict(verdict: Verdict) -> Verdict:
    return replace(verdict, because=f"{verdict.because}; {SAYS}")


def _receipt(receipt: Receipt) -> Receipt:
    """What was counted on a rank came from its spans."""
    is_span = receipt.rank is not None and receipt.gpu is None and receipt.origin == "recorded"
    return replace(receipt, origin=ORIGIN) if is_span else receipt


def _count(counts: tuple[int, int]) -> Receipt:
    query = "SELECT COUNT(*) FROM spans WHERE origin = 'reconstructed'"
    text = f"{counts[0]:,} of {counts[1]:,} spans are reconstructed from seconds per step: their lengths were logged, their places were not"
    return Receipt("count", text, value=float(counts[0]), origin=ORIGIN, query=query)
