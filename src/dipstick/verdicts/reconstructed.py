"""Verdicts that rest on spans whose place was not measured say so: a log's seconds per step, laid out by an importer."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

import polars as pl

from dipstick.judgement import Check, Claim, Receipt, Verdict

if TYPE_CHECKING:
    from dipstick.model import Answer
    from dipstick.recording.reader import Recording

Judged = TypeVar("Judged", Check, Claim)

SAYS: Final = "rests on reconstructed spans"
"""Ends the sentence of every such verdict."""
ORIGIN: Final = "reconstructed"
HEADLINE: Final = "The phases rest on reconstructed spans."
"""Ends a headline that names a phase."""
RECORDED: Final = frozenset({
    "gpu", "gpu_counters", "gpu_process", "gpus", "host_process", "host_load", "jobs", "handoffs", "collectives",
})  # fmt: skip
"""Tables that were recorded as they are: what is derived from them alone rests on no span."""
_TABLE: Final = re.compile(r"(?i)\b(?:FROM|JOIN)\s+(\w+)")


def is_any(recording: Recording) -> bool:
    """Whether any span is; a day of spans is not loaded to find that none is."""
    return recording.has_values("spans", "origin", (ORIGIN,))


def share(recording: Recording) -> tuple[int, int]:
    """How many spans are reconstructed, of how many."""
    spans = recording.table("spans", columns=["origin"])
    return spans.filter(pl.col("origin").cast(pl.String) == ORIGIN).height, spans.height


def marked_answer(answer: Answer, recording: Recording) -> Answer:
    """The answer, marked where it names a phase and phases (not only steps) are reconstructed."""
    if answer.longest_phase is None or not is_any(recording):
        return answer
    rebuilt = (pl.col("origin").cast(pl.String) == ORIGIN) & (pl.col("name").cast(pl.String) != "step")
    if recording.table("spans", columns=["origin", "name"]).filter(rebuilt).is_empty():
        return answer
    return replace(answer, headline=f"{answer.headline} {HEADLINE}")


def marked(judged: Judged, counts: tuple[int, int]) -> Judged:
    """The check or claim, marked where spans are reconstructed and its verdict rests on spans."""
    if not _rests(judged, counts):
        return judged
    receipts = (*map(_receipt, judged.receipts), _count(counts))
    return replace(judged, verdict=_verdict(judged.verdict), receipts=receipts)


def _rests(judged: Check | Claim, counts: tuple[int, int]) -> bool:
    """Whether it came to a verdict, and not from telemetry or code alone; without receipts nobody can rule spans out."""
    if not counts[0] or judged.verdict.word == "unconfirmed":
        return False
    return not judged.receipts or any(map(_of_spans, judged.receipts))


def _of_spans(receipt: Receipt) -> bool:
    """Whether it was derived from spans: neither a place in the code nor a query of recorded tables alone."""
    if receipt.kind == "code":
        return False
    tables = {name.lower() for name in _TABLE.findall(receipt.query)}
    return receipt.rank is not None or not tables or not tables <= RECORDED


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
