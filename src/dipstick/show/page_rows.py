"""What can be clicked on the page: phases with the code they were in, reward jobs, events, dips and spikes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from dipstick.analysis.spans import of_nobody, of_ranks
from dipstick.show import words
from dipstick.show.page_tracks import MOST_CODES, packed
from dipstick.show.thin import Cells, inside, thin_codes

if TYPE_CHECKING:
    from dipstick.model import FloatArray, IntArray, RankTrack, Report
    from dipstick.show.pack import Pack
    from dipstick.show.page_tracks import Budget
    from dipstick.show.recorded import Recorded

MOST_JOBS: Final = 30_000
MOST_EVENTS: Final = 10_000
MOST_DIPS: Final = 5_000
MOST_SITES: Final = 300
_MOST_TEXT: Final = 120
_BACK: Final = 64
"""A phase's span is looked for among so many spans before it."""


def phase_tracks(
    report: Report, recording: Recorded | None, pack: Pack, budget: Budget, sites: pl.DataFrame | None = None
) -> dict[str, Any]:
    """``ranks`` (phases, and the code that each was in) and ``sites`` (that code, with its numbers).

    ``sites`` are those of the whole recording; they are looked for if None.
    """
    ranks = report.tracks.ranks
    most = budget.each(MOST_CODES, len(ranks))
    sites = code_sites(recording) if sites is None else sites
    spans = None if recording is None or sites.is_empty() else _numbered(_spans(recording), sites)
    return {
        "ranks": [_rank(track, spans, pack, budget, most) for track in ranks],
        "sites": [_site(row) for row in sites.iter_rows(named=True)],
    }


def code_sites(recording: Recorded | None) -> pl.DataFrame:
    """Places in the code with the spans' numbers; those that took longest, 300 at most."""
    return pl.DataFrame() if recording is None else _sites(_spans(recording)).head(MOST_SITES)


def _spans(recording: Recorded) -> pl.DataFrame:
    return of_ranks(recording.table("spans"), recording.table("processes"))


def _rank(
    track: RankTrack, spans: pl.DataFrame | None, pack: Pack, budget: Budget, most: int
) -> dict[str, Any]:
    cells = thin_codes(track.edge_s[:-1], track.edge_s[1:], track.code, budget.windows, most)
    out = {"rank": track.rank, **packed(cells, pack, 1)}
    return out if spans is None else {**out, "site": pack.numbers(_innermost(track.rank, spans, cells))}


_SITE: Final = ("name", "file", "line")


def _sites(spans: pl.DataFrame) -> pl.DataFrame:
    """Spans by name and place in the code, the most seconds first."""
    length = (pl.col("t1_ns") - pl.col("t0_ns")) / 1e9
    return (
        spans.group_by(*_SITE)
        .agg(
            pl.len().alias("count"),
            length.sum().alias("total_s"),
            length.median().alias("median_s"),
            length.quantile(0.9).alias("p90_s"),
            pl.col("pickled_b").sum().alias("pickled_b"),
            pl.col("jobs").sum().alias("jobs"),
            pl.col("origin").first().alias("origin"),
        )
        .with_columns(pl.col("name", "file", "origin").cast(pl.String))
        .sort("total_s", "name", "file", "line", descending=[True, False, False, False], nulls_last=True)
    )


def _numbered(spans: pl.DataFrame, sites: pl.DataFrame) -> pl.DataFrame:
    """Rank, start, end and site of each span that has one of the page's sites."""
    shown = sites.select(*_SITE).with_row_index("site")
    named = spans.select("rank", "t0_ns", "t1_ns", pl.col("name", "file").cast(pl.String), "line")
    joined = named.join(shown, on=list(_SITE), how="left", nulls_equal=True, maintain_order="left")
    return joined.select("rank", "t0_ns", "t1_ns", pl.col("site").cast(pl.Int64).fill_null(-1))


def _innermost(rank: int, spans: pl.DataFrame, cells: Cells) -> FloatArray:
    """For the middle of each cell the site of the span that started last before it and has not ended."""
    mine = spans.filter(pl.col("rank") == rank).sort("t0_ns")
    start, end = mine["t0_ns"].to_numpy() / 1e9, mine["t1_ns"].to_numpy() / 1e9
    middle = (cells.t0_s + cells.t1_s) / 2
    at: IntArray = np.searchsorted(start, middle, "right") - 1
    for _ in range(_BACK):
        over = (at >= 0) & (end[at] <= middle) if len(end) else np.zeros(len(at), bool)
        if not over.any():
            break
        at = at - over
    found = (at >= 0) & (end[at] > middle) if len(end) else np.zeros(len(at), bool)
    return np.where(found, mine["site"].to_numpy()[at] if len(end) else 0, -1).astype(float)


def _site(row: dict[str, Any]) -> dict[str, Any]:
    file, line = row["file"], row["line"]
    place = "" if not file else words.clean(file, 200) + ("" if line is None else f":{line}")
    facts = {
        "times": words.number(row["count"], 0),
        "median": words.seconds(row["median_s"]),
        "p90": words.seconds(row["p90_s"]),
    }
    facts |= {"pickled": f"{row['pickled_b']:,} bytes in all"} if row["pickled_b"] else {}
    facts |= {"jobs": f"{row['jobs']:,} in all"} if row["jobs"] else {}
    return {
        "name": words.clean(row["name"] or "", _MOST_TEXT),
        "place": place,
        "origin": row["origin"] or "",
        "facts": facts,
    }


def job_tracks(recording: Recorded | None, pack: Pack, budget: Budget) -> dict[str, Any] | None:
    """Reward jobs by worker; None where there are none. Beyond 30,000 the longest and those near receipts."""
    jobs = None if recording is None else recording.table("jobs")
    if jobs is None or jobs.is_empty():
        return None
    shown = _most_telling(jobs, budget)
    workers = (
        shown.select(pl.col("host").cast(pl.String), "rank", "pid")
        .unique()
        .sort("host", "rank", "pid", nulls_last=True)
    )
    order = {key: i for i, key in enumerate(workers.iter_rows())}
    t0, t1 = shown["t0_ns"].to_numpy() / 1e9, shown["t1_ns"].to_numpy() / 1e9
    queued = (shown["t0_ns"] - shown["submitted_ns"]).cast(pl.Float64).to_numpy() / 1e6
    lanes = [order[key] for key in shown.select(pl.col("host").cast(pl.String), "rank", "pid").iter_rows()]
    return {
        "workers": [{"rank": rank, "pid": pid} for _, rank, pid in workers.iter_rows()],
        "all": jobs.height,
        "t0": pack.times(t0), "len": pack.times(t1 - t0), "lane": pack.numbers(lanes), "queued_ms": pack.numbers(np.round(queued)),
        "step": pack.numbers(shown["step"].cast(pl.Float64).to_numpy()), "bytes": pack.numbers(shown["payload_b"].cast(pl.Float64).to_numpy()),
        "result": pack.numbers(shown["result_b"].cast(pl.Float64).to_numpy()),
        "job": _strings(shown["job"]), "types": _strings(shown["payload_types"]), "detail": _strings(shown["detail"]),
    }  # fmt: skip


def _most_telling(jobs: pl.DataFrame, budget: Budget) -> pl.DataFrame:
    if jobs.height <= MOST_JOBS:
        return jobs
    near = inside(jobs["t0_ns"].to_numpy() / 1e9, jobs["t1_ns"].to_numpy() / 1e9, budget.windows)
    order = jobs.with_columns(near=pl.Series(near), seconds=pl.col("t1_ns") - pl.col("t0_ns"))
    chosen = order.sort("near", "seconds", descending=True).head(MOST_JOBS)
    return chosen.sort("t0_ns").drop("near", "seconds")


def _strings(column: pl.Series) -> dict[str, Any] | None:
    """Distinct texts and which of them each row has; None where the column is empty."""
    texts = column.cast(pl.String)
    if texts.null_count() == len(texts):
        return None
    distinct = texts.drop_nulls().unique().sort().to_list()
    number = {text: i for i, text in enumerate(distinct)}
    return {
        "texts": [words.clean(text, _MOST_TEXT) for text in distinct],
        "at": [-1 if text is None else number[text] for text in texts],
    }


def event_tracks(recording: Recorded | None, pack: Pack) -> dict[str, Any] | None:
    """Named events; None where there are none. Beyond 10,000 one of each name in each stretch of time."""
    events = None if recording is None else recording.table("events")
    if events is None or events.is_empty():
        return None
    assert recording is not None  # noqa: S101 - it has events
    named = events.with_columns(pl.col("name").cast(pl.String).fill_null(""))
    shown = _spread(of_nobody(named, recording.table("processes")))
    names = shown["name"].unique().sort().to_list()
    t0 = shown["t0_ns"].to_numpy() / 1e9
    t1 = shown["t1_ns"].fill_null(shown["t0_ns"]).to_numpy() / 1e9
    return {
        "names": [words.clean(name, 40) for name in names],
        "all": events.height,
        "t0": pack.times(t0), "len": pack.times(t1 - t0),
        "lane": pack.numbers([names.index(name) for name in shown["name"]]),
        "rank": pack.numbers(shown["rank"].cast(pl.Float64).to_numpy()), "step": pack.numbers(shown["step"].cast(pl.Float64).to_numpy()),
        "detail": _strings(shown["detail"]),
    }  # fmt: skip


def _spread(events: pl.DataFrame) -> pl.DataFrame:
    if events.height <= MOST_EVENTS:
        return events
    names = events["name"].n_unique()
    width = max(1, int((events["t0_ns"][-1] - events["t0_ns"][0]) * names / MOST_EVENTS))
    placed = events.with_columns(place=pl.col("t0_ns") // width)
    return placed.unique(subset=["name", "place"], keep="first", maintain_order=True)


def mark_tracks(report: Report, pack: Pack) -> dict[str, Any]:
    """Dips of each series and spikes of memory access; the deepest and highest where there are too many."""
    gpus: dict[tuple[str, Any], int] = {(t.host, t.gpu): i for i, t in enumerate(report.tracks.gpus)}
    dips = sorted(report.dips, key=lambda d: -d.deficit_gpu_s)[:MOST_DIPS]
    rows = [
        (
            d.start_s,
            d.end_s,
            gpus.get((d.host, d.gpu or 0), -1),
            d.depth_pct,
            d.series == "work",
            d.phase or "",
        )
        for d in sorted(dips, key=lambda d: d.start_s)
    ]
    facts = next((check.facts for check in report.checks if check.name == "memory_spikes"), {})
    spikes = list(facts.get("spikes") or ())[:MOST_DIPS]
    return {
        "dips": _dips(rows, pack),
        "dips_in_all": len(report.dips),
        "spikes": [placed_spike(s, gpus) for s in spikes],
    }


def _dips(rows: list[tuple[float, float, int, float, bool, str]], pack: Pack) -> dict[str, Any]:
    t0, t1, gpu, depth, work, phase = zip(*rows, strict=True) if rows else ((),) * 6
    phases = sorted(set(phase))
    return {
        "t0": pack.times(np.array(t0, float)), "len": pack.times(np.array(t1, float) - np.array(t0, float)),
        "gpu": pack.numbers(np.array(gpu, float)), "depth": pack.values(np.array(depth, float), 0.1), "work": pack.numbers(np.array(work, float)),
        "phase": pack.numbers(np.array([phases.index(p) for p in phase], float)), "phases": [words.clean(p, 40) for p in phases],
    }  # fmt: skip


def placed_spike(spike: dict[str, Any], gpus: dict[tuple[str, Any], int]) -> dict[str, Any]:
    """``gpu`` is a place in the page's GPUs (-1: none); ``by`` is empty where nothing explains it."""
    return {
        "gpu": gpus.get((str(spike.get("host") or ""), spike.get("gpu")), -1), "t0": _finite(spike.get("start_s")), "t1": _finite(spike.get("end_s")), "peak": _finite(spike.get("peak_pct")),
        "phase": words.clean(str(spike.get("phase") or ""), 40), "by": words.clean(str(spike.get("explained_by") or ""), 40),
    }  # fmt: skip


def _finite(value: object) -> float | None:
    return round(float(value), 4) if isinstance(value, int | float) and np.isfinite(value) else None


def handoffs(recording: Recorded | None) -> list[dict[str, Any]]:
    """What crossed from one process to another, by kind; the most bytes first."""
    rows = None if recording is None else recording.table("handoffs")
    if rows is None or rows.is_empty():
        return []
    keys = ("from", "to", "types", "device", "transport", "file", "line")
    grouped = (
        rows.with_columns(pl.col(*(k for k in keys if k != "line")).cast(pl.String))
        .group_by(*keys)
        .agg(
            pl.len().alias("times"),
            pl.col("count").sum().alias("items"),
            pl.col("bytes_b").sum().alias("bytes"),
        )
        .sort("bytes", *keys, descending=[True, *(False for _ in keys)], nulls_last=True)
    )
    return [
        {k: words.clean(v, _MOST_TEXT) if isinstance(v, str) else v for k, v in row.items()}
        for row in grouped.head(100).iter_rows(named=True)
    ]
