"""The toy on which other tools named the loader, ``pin_memory`` and ``torch.compile``: what dipstick must say of it.

60 steps on one GPU: the dips are the rewards, the deep ones are worker 1's, the copies are the weight sync's, and no
loader holds anything up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import dipstick
import toys
from dipstick.recording.reader import open_recording
from dipstick.selftest.instruments import EPOCH_NS
from dipstick.show import markdown
from records import near

if TYPE_CHECKING:
    from pathlib import Path

    from dipstick.judgement import Claim
    from dipstick.model import Report
    from dipstick.recording.reader import Recording

SLOW, OTHER = toys.TRUTH["slow_worker"], toys.TRUTH["other_worker"]
CLAIMS = (
    "data loading is the bottleneck: data_loading_is_the_bottleneck",
    "a periodic transfer stalls the GPU: transfers_force_waiting",
    "copies_belong_to phase=weight_sync",
    "copies_belong_to phase=generate",
    "dips_follow phase=reward",
    f"straggler_worker pid={SLOW}",
    f"straggler_worker pid={OTHER}",
)
WRONG = ("torch.compile", "pin_memory", "DataLoader", "num_workers", "batch size", "launch overhead")
"""What peers told the user to change, or blamed."""


@pytest.fixture(scope="module", params=[False, True], ids=["like nvidia-smi", "with counters"])
def toy(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Recording, Report, bool]:
    """The recording, its report, and whether it has counters."""
    folder = tmp_path_factory.mktemp("toys") / "toy"
    toys.write(folder, counters=request.param)
    recording = open_recording(folder)
    return recording, dipstick.explain(recording, claims=CLAIMS), request.param


def claim(report: Report, say: str) -> Claim:
    return next(claim for claim in report.claims if claim.say == say)


def facts(report: Report, check: str) -> dict[str, Any]:
    return next(found.facts for found in report.checks if found.name == check)


# The toy is what it says


def test_the_toy_is_as_described(toy: tuple[Recording, Report, bool]) -> None:
    """60 steps in about 1,245 s, sampled each second; 600 MB a step."""
    recording, report, counters = toy

    assert (report.run.steps, report.run.gpus, report.run.ranks) == (60, 1, 1)
    assert report.run.window_s[1] - report.run.window_s[0] == near(1245, rel=0.01)
    assert report.run.sampling.period_s == near(1.0)
    assert recording.has("gpu_counters") is counters
    assert recording.table("handoffs")["bytes_b"].to_list() == [600_000_000] * 60


def test_phases_take_what_was_planted(toy: tuple[Recording, Report, bool]) -> None:
    """Rollout 9 s, reward 5 s and 8 s in each fourth step, train 5 s, weight sync 1 s."""
    phases = toy[1].phases
    assert phases is not None
    seconds = {row.phase: row.seconds for row in phases.totals}

    assert seconds["generate"] / 60 == near(9.0, rel=0.02)
    assert seconds["reward"] == near(45 * 5 + 15 * 8, rel=0.03)
    assert (seconds["forward"] + seconds["backward"]) / 60 == near(5.0, rel=0.02)
    assert seconds["weight_sync"] / 60 == near(1.0, rel=0.02)


def test_utilization_reads_as_planted(toy: tuple[Recording, Report, bool]) -> None:
    """96 % in rollouts, 34 % in usual rewards and 12 % in the slow ones, 90 % in training."""
    recording = toy[0]
    loop = toys.scene().loop
    rows = recording.table("gpu")
    t, util = rows["t_ns"].to_numpy() + recording.start_unix_ns - EPOCH_NS, rows["util_pct"].to_numpy()

    def level(column: str, step: int) -> float:
        start, end = loop.start(column)[0, step] + 1_000_000_000, loop.end(column)[0, step]
        return float(np.mean(util[(t > start) & (t <= end)]))

    assert [level("score", step) for step in (4, 5, 6, 7)] == near([34, 34, 34, 12], abs=1.5)
    assert level("generate", 4) == near(96, abs=1)


# What must be said


def test_the_dips_are_the_rewards(toy: tuple[Recording, Report, bool]) -> None:
    """In the answer, by cost, and by the boundary that they follow."""
    _, report, _ = toy

    assert "the dips are reward scoring (9" in report.answer.headline.lower()
    assert report.answer.dips_are in {"queued_work", "straggler_job", "step_cycle"}
    assert claim(report, "dips_follow phase=reward").verdict.word == "yes"


def test_the_deep_ones_are_the_slow_worker_s(toy: tuple[Recording, Report, bool]) -> None:
    """Named by process, in the answer and in the check; the other worker is cleared."""
    _, report, _ = toy
    rows = {row["pid"]: row for row in facts(report, "stragglers")["slow_workers"]}

    assert f"the widest wait for worker {SLOW} of rank 0" in report.answer.headline
    assert (rows[SLOW]["verdict"], rows[OTHER]["verdict"]) == ("yes", "no")
    assert rows[SLOW]["last_in_widest_dips"] == rows[SLOW]["widest_dips"] == 14
    assert rows[SLOW]["ratio_in_widest_dips"] == near(1.6, rel=0.05)
    assert claim(report, f"straggler_worker pid={SLOW}").verdict.word == "yes"
    assert claim(report, f"straggler_worker pid={OTHER}").verdict.word == "no"


def test_the_widest_dips_are_the_planted_steps(toy: tuple[Recording, Report, bool]) -> None:
    """Every reward of the planted steps is wider than any other's."""
    recording = toy[0]
    rewards = recording.table("spans").filter(recording.table("spans")["name"].cast(str) == "reward.workers")
    length = dict(zip(rewards["step"], (rewards["t1_ns"] - rewards["t0_ns"]) / 1e9, strict=True))
    deep = set(toys.TRUTH["deep_steps"])

    assert min(length[k] for k in deep) > 1.3 * max(length[k] for k in length.keys() - deep)


def test_memory_spikes_and_copies_are_the_weight_sync_s(toy: tuple[Recording, Report, bool]) -> None:
    """Every sync has a spike that belongs to it, every copy lies in one, and nothing is left to chase."""
    _, report, _ = toy
    spikes = facts(report, "memory_spikes")
    owners = [spike["explained_by"] for spike in spikes["spikes"]]

    assert owners.count("weight_sync") == 60
    assert spikes["unexplained"] == 0
    assert claim(report, "copies_belong_to phase=weight_sync").verdict.word == "yes"
    assert claim(report, "copies_belong_to phase=generate").verdict.word == "no"


def test_data_loading_is_not_the_bottleneck(toy: tuple[Recording, Report, bool]) -> None:
    """No, with the numbers: what a loader could take at most, and what the copies could."""
    _, report, counters = toy
    verdict = claim(report, "data loading is the bottleneck").verdict

    assert verdict.word == "no"
    assert "a loader could take 0.6 of 1242 s" in verdict.because
    if counters:
        assert "0.0 of 319 GPU-seconds without work are bus copies" in verdict.because
    else:
        assert (
            "60 copies to the GPU (36.0 GB) lie in weight_sync, which take 60 of 1242 s as a whole (4.8 %"
            in verdict.because
        )


def test_a_periodic_transfer_is_ruled_out_with_counters_and_open_without(
    toy: tuple[Recording, Report, bool],
) -> None:
    """636 MiB/s at most over PCIe; a copy and a wait look alike to nvidia-smi."""
    _, report, counters = toy
    verdict = claim(report, "a periodic transfer stalls the GPU").verdict

    assert verdict.word == ("no" if counters else "unconfirmed")
    assert ("MiB/s over PCIe" in verdict.because) is counters


def test_nothing_tells_the_user_what_the_peers_told_him(toy: tuple[Recording, Report, bool]) -> None:
    """Neither the page nor any check, claim, receipt or experiment."""
    _, report, _ = toy
    page = markdown.render(report)
    text = f"{page}{report.checks}{report.claims}"

    assert [word for word in WRONG[:4] if word.lower() in text.lower()] == []


def test_the_copy_is_too_short_to_be_a_stall() -> None:
    """600 MB take 12 ms at 50 GiB/s: 0.06 % of a step."""
    share = toys.COPY_B / (50 * 2**30) / 20

    assert share == near(0.00056, abs=0.0001)


def test_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``python benchmarks/toys.py OUT`` writes a recording that opens."""
    out = tmp_path / "toy"
    monkeypatch.setattr("sys.argv", ["toys.py", str(out), "--counters"])

    assert toys.main() == 0
    assert open_recording(out).has("gpu_counters")
    assert "60 steps, trainer 1000" in capsys.readouterr().err
