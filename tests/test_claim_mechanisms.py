"""Claims about mechanisms: what crosses to the workers, who waits for whom, what copies and memory cost."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from dipstick.judgement import Reason
from dipstick.verdicts.claim_mechanisms import (
    HOW_TO_TELL,
    high_utilization_means_work,
    large_moves_force_waiting,
    memory_is_under_pressure,
    synchronizing_workers_cause_dips,
    transfers_force_waiting,
    workers_get_tensors,
)
from dipstick.verdicts.repo import scan
from records import HOST, Row, counters, memory, near, ns, process, utilization, without
from worlds import BUSY, World, evidence_of, healthy

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dipstick.verdicts.evidence import Evidence
    from dipstick.verdicts.repo_model import RepoFindings

GIB = 2**30


@cache
def eight() -> World:
    """Twenty steps of two ranks."""
    return healthy(20)


def checkout(folder: Path, reward: str) -> RepoFindings:
    """A checkout whose reward function is this."""
    (folder / "train.py").write_text(
        "from trl import GRPOTrainer\nfrom concurrent.futures import ProcessPoolExecutor\nimport torch\n"
        "pool = ProcessPoolExecutor()\ndef work(text: str) -> float:\n    return len(text) / 2\n"
        f"{reward}\n"
        "GRPOTrainer(model='m', reward_funcs=[reward]).train()\n"
    )
    return scan(folder)


TEXT = "def reward(completions: list[str], **_) -> list[float]:\n    return list(pool.map(work, completions))"
TENSORS = (
    "def reward(completions: list[str], **_) -> list[float]:\n"
    "    batch = torch.zeros(4)\n    return [pool.submit(work, batch).result() for _ in completions]"
)


# What crosses to the workers


@pytest.mark.parametrize(
    ("types", "word"),
    [
        (["list[str]"], "no"),
        (["ase.Atoms", "dict"], "no"),
        (["torch.Tensor"], "yes"),
        (["list[str]", "dict[str, torch.cuda.FloatTensor]"], "yes"),
    ],
)
def test_recorded_payload_types_settle_what_crosses(types: list[str], word: str) -> None:
    """Whatever the code says; the bytes are on the receipt."""
    jobs = [
        r | {"payload_types": types[i % len(types)], "payload_b": 100}
        for i, r in enumerate(eight().reward_jobs())
    ]
    evidence = evidence_of(memory(**eight().rows() | {"jobs": jobs}))

    verdict, receipts = workers_get_tensors(evidence)

    assert (verdict.word, verdict.because) == (word, f"payload types seen: {', '.join(sorted(types))}")
    assert [(r.kind, r.value, r.unit) for r in receipts] == [("bytes", 100.0 * len(jobs), "B")]


def test_without_types_and_code_nobody_knows_what_crosses() -> None:
    """The bytes that the pool pickled are said; the way to know is said."""
    spans = [r | ({"pickled_b": 40_000} if "rewards" in r["name"] else {}) for r in eight().spans()]
    verdict, receipts = workers_get_tensors(evidence_of(memory(**eight().rows() | {"spans": spans})))

    assert (verdict.word, verdict.reason) == ("unconfirmed", Reason.MISSING_SIGNAL)
    assert (
        verdict.because == "payload types were not recorded; the pool pickled 40000 bytes a step on average"
    )
    assert verdict.cheapest_experiment == HOW_TO_TELL
    assert [(r.value, r.query) for r in receipts] == [(40 * 40_000.0, "SELECT SUM(pickled_b) FROM spans")]


@pytest.mark.parametrize(("reward", "word"), [(TEXT, "no"), (TENSORS, "partially")])
def test_the_code_settles_what_crosses(tmp_path: Path, reward: str, word: str) -> None:
    """Text from the engine; strings, or a tensor, to the pool. Receipts are places in the code, labelled static."""
    verdict, receipts = workers_get_tensors(eight().evidence(checkout(tmp_path, reward)))

    code = [r for r in receipts if r.kind == "code"]
    assert verdict.word == word
    assert code
    assert {(r.file, r.origin) for r in code} == {("train.py", "static")}
    assert all(r.line is not None and r.query == "" for r in code)


def test_a_checkout_that_tells_nothing_leaves_it_open(tmp_path: Path) -> None:
    """An empty file: no trainer, no pool."""
    (tmp_path / "nothing.py").write_text("x = 1\n")

    verdict, _ = workers_get_tensors(eight().evidence(scan(tmp_path)))

    assert (verdict.word, verdict.reason) == ("unconfirmed", Reason.MISSING_SIGNAL)


# Who waits for whom


def test_ranks_wait_and_whether_workers_do_is_in_the_code(tmp_path: Path) -> None:
    """Without the code open; with it the one yes, the other no: partially."""
    without_code, receipts = synchronizing_workers_cause_dips(eight().evidence())
    with_code, _ = synchronizing_workers_cause_dips(eight().evidence(checkout(tmp_path, TEXT)))

    assert (without_code.word, without_code.because) == (
        "unconfirmed",
        "whether workers wait for each other is in their code",
    )
    assert [part.word for part in without_code.parts] == ["yes", "unconfirmed"]
    assert (with_code.word, [part.word for part in with_code.parts]) == ("partially", ["yes", "no"])
    assert {r.rank for r in receipts} == {0, 1}
    assert all(r.text.startswith(f"rank {r.rank} waited ") for r in receipts)


def test_waits_are_counted_in_gpu_seconds() -> None:
    """Rank 1 waits 2 s in each of three steps of 9 s, on two GPUs: 12 of 81."""
    world = World(generate=[4.0] * 3, reward=[[4.0, 2.0]] * 3, jobs=0, profiled=False)
    gpus = [*world.gpu(), *(r | {"gpu": 2} for r in world.gpu() if r["gpu"] == 1)]
    owners = [process(900, rank=0, gpu=0), process(901, rank=1, gpu=1), process(901, rank=1, gpu=2)]
    verdict, _ = synchronizing_workers_cause_dips(
        evidence_of(memory(**world.rows() | {"gpu": gpus, "processes": owners}))
    )

    assert verdict.parts[0].because == "ranks wait 12 of 81 GPU-seconds for each other at collectives"


@pytest.mark.parametrize(("by", "word"), [(0.3, "no"), (1.0, "yes")])
def test_waits_below_a_fiftieth_are_none_to_speak_of(by: float, word: str) -> None:
    """0.3 s of a rank in 2 x 8.3 s are 1.8 %."""
    world = World(generate=[5.0] * 4, reward=[[2.0, 2.0 + by]] * 4, jobs=0, profiled=False)

    assert synchronizing_workers_cause_dips(world.evidence())[0].parts[0].word == word


def test_a_single_rank_shares_no_barrier() -> None:
    """Nothing to count."""
    verdict, _ = synchronizing_workers_cause_dips(
        World(generate=[5.0] * 4, reward=[[2.0]] * 4, jobs=0).evidence()
    )

    assert verdict.parts[0].because == "no barrier that all ranks share was recorded"


# Bus copies


def copying(steps: int, seconds: float, *, rate: float = 9000.0, **changes: Any) -> Evidence:
    """One rank that copies over the bus for so long in each step, instead of the first part of its rewards."""
    world = World(
        generate=[4.0] * steps,
        reward=[[3.0]] * steps,
        jobs=0,
        levels=BUSY | {"reward": 0.0, "wait": 0.0},
        **changes,
    )
    util, sm = (
        world.mixed(0, world.levels),
        world.mixed(0, {"generate": 70.0, "reward": 0.0, "wait": 0.0, "train": 40.0}),
    )
    rx = [0.0] * len(util)
    for start in world.starts[:-1]:
        for i in range(round((start + 4) / 0.2), round((start + 4 + seconds) / 0.2)):
            util[i], sm[i], rx[i] = 100.0, 0.0, rate
    profile = counters(sm, gr_active_pct=util, dram_active_pct=[s / 2 for s in sm], pcie_rx_mib_s=rx)
    return evidence_of(memory(**world.rows() | {"gpu": utilization(util), "gpu_counters": profile}))


@pytest.mark.parametrize(
    ("seconds", "word", "share"),
    [(3.0, "yes", 1.0), (2.0, "yes", 2 / 3), (1.0, "partially", 1 / 3), (0.4, "no", 0.4 / 3)],
)
def test_copies_take_the_time_without_work_or_a_part_of_it(seconds: float, word: str, share: float) -> None:
    """Of the 3 s in which no step works; training at 60 % leaves 0.4 s more idle."""
    verdict, receipts = transfers_force_waiting(copying(20, seconds))
    lost = 3 + 0.4 + 4 * 0.01

    assert verdict.word == word
    assert verdict.effect == near(seconds / lost, rel=0.02)
    assert share == near(seconds / 3)
    assert [r.value for r in receipts] == [near(18 * seconds, rel=0.01), near(9000)]
    assert "the busiest window took 9000 MiB/s over PCIe" in verdict.because


def test_no_copy_in_sixteen_steps_is_a_plain_no_and_in_five_it_is_open() -> None:
    """Zero of five could be a third (methods 0.8)."""
    many, few = (transfers_force_waiting(copying(steps, 0.0))[0] for steps in (20, 5))

    assert (many.word, many.effect) == ("no", 0.0)
    assert (few.word, few.reason) == ("unconfirmed", Reason.LOW_N)
    assert few.min_detectable is not None


def test_copies_in_two_steps_prove_nothing() -> None:
    """Both are full of them; a bootstrap of two is no interval."""
    verdict, _ = transfers_force_waiting(copying(2, 3.0))

    assert (verdict.word, verdict.reason) == ("unconfirmed", Reason.LOW_N)


def test_without_counters_a_copy_reads_like_work() -> None:
    """So nothing is said, but how to know."""
    verdict, _ = transfers_force_waiting(healthy(12, profiled=False).evidence())

    assert (verdict.word, verdict.reason) == ("unconfirmed", Reason.MISSING_SIGNAL)
    assert "GPM (Hopper or newer) or DCGM" in verdict.cheapest_experiment


def test_copies_need_steps_to_be_counted_in() -> None:
    """Counters alone."""
    rows = without(copying(4, 1.0).recording, "spans", "processes")

    assert transfers_force_waiting(evidence_of(rows))[0].because == "no steps were recorded"


# Memory


def held(used: Sequence[float], total: Sequence[float | None], tenants: int = 0) -> Evidence:
    """GPUs with so many GiB used at most and in all, and so many processes seen on each."""
    gpu = [
        r
        for g, top in enumerate(used)
        for r in utilization([50.0] * 20, gpu=g, mem_used_b=[int(top * GIB / 2)] * 19 + [int(top * GIB)])
    ]
    boards = [
        {"host": HOST, "gpu": g, "mem_total_b": None if size is None else int(size * GIB)}
        for g, size in enumerate(total)
    ]
    seen = [
        {"host": HOST, "gpu": g, "t_ns": ns(1), "window_ns": ns(1), "pid": p, "sm_pct": 1.0}
        for g in range(len(used))
        for p in range(tenants)
    ]
    return evidence_of(memory(gpu=gpu, gpus=boards, **({"gpu_process": seen} if seen else {})))


@pytest.mark.parametrize(
    ("used", "total", "tenants", "word", "because"),
    [
        ([73.0], [100.0], 3, "yes", "73 % of the memory is allocated, 3 processes on a GPU"),
        ([40.0], [100.0], 3, "no", "40 % of the memory is allocated, 3 processes on a GPU"),
        ([73.0], [100.0], 0, "yes", "73 % of the memory is allocated"),
        ([73.0], [100.0], 1, "no", "73 % of the memory is allocated, by one process"),
        ([20.0, 30.0], [80.0, 40.0], 2, "yes", "75 % of the memory is allocated, 2 processes on a GPU"),
    ],
    ids=["shared", "roomy", "tenants unknown", "alone", "two boards"],
)  # fmt: skip
def test_memory_is_under_pressure_where_tenants_share_a_full_gpu(
    used: list[float], total: list[float | None], tenants: int, word: str, because: str
) -> None:
    """Each GPU against its own size; one process alone shares with nobody."""
    verdict, receipts = memory_is_under_pressure(held(used, total, tenants))

    assert (verdict.word, verdict.because) == (word, because)
    assert receipts[0].value == near(verdict.effect)
    assert receipts[0].unit == "%"


@pytest.mark.parametrize(
    "evidence", [lambda: held([70.0], [None]), lambda: held([70.0], [0.0]), lambda: eight().evidence()]
)
def test_pressure_needs_both_numbers(evidence: Any) -> None:
    """What is used, and of how much; a size of 0 is none."""
    verdict, _ = memory_is_under_pressure(evidence())

    assert (verdict.word, verdict.reason) == ("unconfirmed", Reason.MISSING_SIGNAL)


def test_a_full_memory_without_copies_is_half_of_the_story() -> None:
    """Pressure yes, moved by transfers no: partially, with both sentences."""
    world = World(generate=[4.0] * 20, reward=[[3.0]] * 20, jobs=0)
    gpu = [r | {"mem_used_b": 80 * GIB} for r in world.gpu()]
    rows = world.rows() | {"gpu": gpu, "gpus": [{"host": HOST, "gpu": 0, "mem_total_b": 100 * GIB}]}
    verdict, receipts = large_moves_force_waiting(evidence_of(memory(**rows)))

    assert verdict.word == "partially"
    assert verdict.because.startswith("yes: 80 % of the memory is allocated; no: 0.0 of ")
    assert {r.unit for r in receipts} == {"%", "GPU-s", "MiB/s"}


# Is busy work?


@pytest.mark.parametrize(("hollow_below", "word"), [(10.0, "partially"), (15.0, "yes"), (5.0, "partially")])
def test_busy_is_work_if_little_of_it_is_hollow(hollow_below: float, word: str) -> None:
    """One of two ranks waits 2 s in each step: 2 of 14.5 busy GPU-seconds, 14 %."""
    world = World(generate=[4.0] * 10, reward=[[3.0, 1.0]] * 10, jobs=0, levels=BUSY | {"reward": 60.0})
    verdict, receipts = high_utilization_means_work(world.evidence(), hollow_below=hollow_below)

    busy = 2 * 4 * 0.99 + 4 * 0.6 + 2 * 1.0 + 2 * 0.6
    assert verdict.word == word
    assert verdict.effect == near(100 * 2 / busy, rel=0.03)
    assert [(r.gpu, r.value) for r in receipts] == [(0, near(0, abs=0.01)), (1, near(20, rel=0.03))]


def test_a_fifth_of_hollow_time_is_no_work() -> None:
    """The wait is half of the step."""
    world = World(generate=[2.0] * 10, reward=[[7.0, 1.0]] * 10, jobs=0)

    assert high_utilization_means_work(world.evidence())[0].word == "no"


def test_without_power_or_counters_busy_may_be_anything() -> None:
    """A rank that waits reads 100 %."""
    verdict, _ = high_utilization_means_work(healthy(4, profiled=False).evidence())

    assert (verdict.word, verdict.reason) == ("unconfirmed", Reason.SPINNING)


def test_receipts_of_two_hosts_name_the_host() -> None:
    """GPU 0 of each."""
    world = World(generate=[2.0] * 4, reward=[[3.0, 1.0]] * 4, jobs=0)
    rows: dict[str, list[Row]] = {
        name: [r | ({"host": "node2", "gpu": 0} if r.get("gpu") == 1 else {}) for r in part]
        for name, part in world.rows().items()
    }
    _, receipts = high_utilization_means_work(evidence_of(memory(**rows)))

    assert [r.gpu for r in receipts] == [0, 0]
    assert [r.query.split("host = ")[1].split()[0] for r in receipts] == ["'node1'", "'node2'"]
