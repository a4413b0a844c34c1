"""A planted loop as a recording: spans as TRL writes them, reward jobs, events, telemetry, through the real writer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from dipstick.recording.writer import RecordingWriter
from dipstick.selftest import instruments
from dipstick.selftest.instruments import EPOCH_NS, HOST, TOTAL_B, Sampling, Scene
from dipstick.selftest.loop import AT, COLUMNS, MICRO_STEPS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dipstick.selftest.loop import Loop

Span = tuple[str, int, int]
EVENTS: Final = {"weight_sync": "weight_sync", "checkpoint": "checkpoint", "cache_clear": "cache_clear"}
"""Stretches that are also events, as the recorder and the importers write them."""


def trainer_pid(rank: int) -> int:
    """The process of a rank: trainer and engine."""
    return 1000 + 10 * rank


def worker_pid(rank: int, worker: int) -> int:
    """One of its reward workers."""
    return trainer_pid(rank) + 1 + worker


def trl_spans() -> list[Span]:
    """Name, first and last edge of every span of a step: nested as in TRL's GRPOTrainer."""
    spans: list[Span] = [
        ("step", 0, len(COLUMNS)),
        ("GRPOTrainer._prepare_inputs", AT["weight_sync"], AT["gather_wait"] + 1),
        ("GRPOTrainer.sync_weights", AT["weight_sync"], AT["weight_sync"] + 1),
        ("GRPOTrainer.vLLM.generate", AT["generate"], AT["generate"] + 1),
        ("GRPOTrainer._get_per_token_logps_and_entropies", AT["logprobs"], AT["logprobs"] + 1),
        ("GRPOTrainer._calculate_rewards", AT["parse"], AT["score"] + 1),
        ("reward.parse", AT["parse"], AT["parse"] + 1),
        ("reward.workers", AT["score"], AT["score"] + 1),
    ]
    for at in range(AT["forward"], AT["forward"] + 2 * MICRO_STEPS, 2):
        spans += [("GRPOTrainer.compute_loss", at, at + 1), ("backward", at + 1, at + 2)]
    ends = (("optimizer", "optimizer"), ("checkpoint", "checkpoint"), ("empty_cache", "cache_clear"))
    return [*spans, *((name, AT[column], AT[column] + 1) for name, column in ends)]


def plain_spans() -> list[Span]:
    """Spans named like their phase, as ``dipstick.span`` or an importer writes them; nothing tells of a barrier."""
    whole = [("step", 0, len(COLUMNS)), ("reward", AT["parse"], AT["score"] + 1)]
    names = (
        "weight_sync",
        "generate",
        "logprobs",
        "forward",
        "backward",
        "optimizer",
        "checkpoint",
        "cache_clear",
    )
    return [*whole, *((name, i, i + 1) for i, name in enumerate(COLUMNS) if name in names)]


def spans(loop: Loop, rank: int, table: list[Span]) -> pl.DataFrame:
    """All spans of one rank, in the order in which they ended; optional ones only where they happened."""
    edges, steps = loop.edges[rank], loop.plan.steps
    names, first, last = zip(*table, strict=True)
    frame = pl.DataFrame({
        "t0_ns": edges[:, list(first)].ravel() + EPOCH_NS, "t1_ns": edges[:, list(last)].ravel() + EPOCH_NS,
        "name": list(names) * steps, "step": np.repeat(np.arange(steps), len(table)),
    })  # fmt: skip
    who = {
        "host": HOST,
        "pid": trainer_pid(rank),
        "tid": trainer_pid(rank),
        "rank": rank,
        "origin": "measured",
    }
    happened = frame.filter(pl.col("t1_ns") > pl.col("t0_ns")).sort("t1_ns", maintain_order=True)
    return happened.with_columns(pl.lit(v).alias(k) for k, v in (who | {"clock": 0}).items())


def events(loop: Loop, rank: int) -> pl.DataFrame:
    """Weight syncs, checkpoints and cache clears of one rank."""
    frames = []
    for column, name in EVENTS.items():
        start, end = loop.start(column)[rank], loop.end(column)[rank]
        rows = {"t0_ns": start + EPOCH_NS, "t1_ns": end + EPOCH_NS, "step": np.arange(loop.plan.steps)}
        frames.append(
            pl.DataFrame(rows).filter(pl.col("t1_ns") > pl.col("t0_ns")).with_columns(name=pl.lit(name))
        )
    who = {"host": HOST, "rank": rank, "pid": trainer_pid(rank), "clock": 0}
    return pl.concat(frames).sort("t0_ns").with_columns(pl.lit(v).alias(k) for k, v in who.items())


def jobs(loop: Loop, rank: int) -> pl.DataFrame:
    """Reward jobs of one rank, submitted one after the other (1 µs each) once the completions are parsed."""
    start, end, worker = loop.job_start[rank], loop.job_end[rank], loop.job_worker[rank]
    steps, count = start.shape
    frame = pl.DataFrame({
        "job": [f"{rank}-{k}-{j}" for k in range(steps) for j in range(count)],
        "step": np.repeat(np.arange(steps), count), "pid": worker.ravel() + worker_pid(rank, 0),
        "submitted_ns": np.repeat(loop.start("score")[rank], count) + EPOCH_NS + np.tile(np.arange(count), steps) * 1000,
        "t0_ns": start.ravel() + EPOCH_NS, "t1_ns": end.ravel() + EPOCH_NS,
    })  # fmt: skip
    happened = frame.filter(pl.col("t1_ns") > pl.col("t0_ns")).sort("t1_ns")
    return happened.with_columns(host=pl.lit(HOST), rank=pl.lit(rank), clock=pl.lit(0))


def lengths(loop: Loop) -> pl.DataFrame:
    """Mean completion length of each step, in proportion to the time it took to generate."""
    seconds = (loop.end("generate") - loop.start("generate")).mean(axis=0) / 1e9
    step = np.arange(1, loop.plan.steps + 1)  # trainers log a step by its number after it
    return pl.DataFrame(
        {"step": step, "name": "completions/mean_length", "value": 45.0 * seconds, "clock": 0}
    )


def people(scene: Scene) -> list[dict[str, Any]]:
    """Who is who: a trainer with its engine and its workers on each GPU, and strangers."""
    rows = []
    for rank in range(scene.loop.plan.ranks):
        pids = {trainer_pid(rank): "trainer+engine"}
        pids |= {worker_pid(rank, w): "reward_worker" for w in range(scene.loop.plan.jobs.workers)}
        rows += [
            {"host": HOST, "pid": pid, "role": role, "rank": rank, "gpu": rank} for pid, role in pids.items()
        ]
    return [
        *rows,
        *({"host": HOST, "pid": e.pid, "role": "other"} for e in scene.extras if e.pid is not None),
    ]


def tables(
    scene: Scene, sampling: Sampling, rng: np.random.Generator, *, plain: bool = False
) -> Iterator[tuple[str, Any]]:
    """Everything that was recorded, table by table."""
    loop = scene.loop
    yield "gpu", instruments.telemetry(scene, sampling, rng)
    if sampling.counters:
        yield "gpu_counters", instruments.counters(scene, sampling, rng)
    yield "gpu_process", instruments.processes(scene, {r: trainer_pid(r) for r in range(loop.plan.ranks)})
    named = plain_spans() if plain else trl_spans()
    for rank in range(loop.plan.ranks):
        yield "spans", spans(loop, rank, named)
        yield "events", events(loop, rank)
        yield "jobs", jobs(loop, rank)
    yield "scalars", lengths(loop)
    yield "processes", people(scene)
    yield (
        "gpus",
        [
            {"host": HOST, "gpu": gpu, "name": "Synthetic H200", "mem_total_b": TOTAL_B}
            for gpu in range(loop.plan.ranks)
        ],
    )


def record(
    folder: Path, scene: Scene, sampling: Sampling, rng: np.random.Generator, *, plain: bool = False
) -> None:
    """Write the recording.

    Args:
        folder: Where; must not exist.
        scene: What happened.
        sampling: How it was watched.
        rng: Source of the instruments' noise.
        plain: Name spans like their phases instead of as TRL does.
    """
    with RecordingWriter.create(folder, origin="measured", host=HOST, source="dipstick selftest") as writer:
        for table, rows in tables(scene, sampling, rng, plain=plain):
            writer.append(table, rows)
