"""What recording cost: the probes' and the sampler's own accounts as shares, or why they are not known."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import dipstick
from builders import tiny_report
from dipstick.model import Overhead, ProbeCost, SamplerCost
from dipstick.recording.manifest import Manifest
from dipstick.recording.overhead import account_of, in_words, overhead, self_ns, share
from dipstick.recording.reader import open_recording
from dipstick.recording.writer import RecordingWriter
from dipstick.show import html, markdown, terminal
from dipstick.show.json import document

if TYPE_CHECKING:
    from pathlib import Path

MS = 1_000_000
S = 1000 * MS
UNIX = 1_796_053_319 * S


def probe(rank: int | None = 0, **more: Any) -> dict[str, Any]:
    """60 rows at 3 us, 1 ms of hooks, 0.82 ms of the writer: 2 ms over two steps of 4 s."""
    base = {
        "pid": 900, "rank": rank, "role": "trainer", "rows": 60, "span_ns": 3000, "hook_ns": MS, "writer_ns": 820_000,
        "steps": 2, "step_ns": 8000 * MS,
    }  # fmt: skip
    return base | more


SAMPLER = {"cpu_s": 4.5, "start_cpu_s": 0.5, "wall_s": 400.0}


def test_self_time_is_rows_hooks_and_writer() -> None:
    """60 x 3 us + 1 ms + 0.82 ms; not known before a span was timed."""
    assert self_ns(probe()) == 2 * MS
    assert self_ns(probe(span_ns=0)) is None
    assert self_ns({}) is None


def test_a_process_that_recorded_nothing_cost_next_to_nothing() -> None:
    """It never timed a span, and said at its end that there was no row; one that was killed did not."""
    idle = {"rows": 0, "span_ns": 0, "hook_ns": 100, "writer_ns": 50}
    assert self_ns(idle | {"ended": True}) == 150
    assert self_ns(idle | {"ended": False}) is None


def test_the_share_is_that_of_a_step() -> None:
    """1 ms in each step of 4 s is 0.025 %; the sampler's start is not part of its share."""
    found = overhead([probe()], [SAMPLER], 400.0)
    assert found.probe == ProbeCost(1, 0.002, 0, 2, 30.0, 1.0, 4.0, 0.025)
    assert found.sampler == SamplerCost(1.0, 0.5)
    assert found.because == ""


def test_the_rank_that_pays_most_counts() -> None:
    """Rank 1 took 6 ms over its steps; workers pay with their own time, whatever it is; CPU seconds are of all."""
    worker = probe(1, role="reward_worker", hook_ns=90 * MS)
    found = overhead([probe(0), probe(1, hook_ns=5 * MS), worker], [], 10.0).probe
    assert found is not None
    assert (found.rank, found.self_ms_per_step, found.processes) == (1, 3.0, 3)
    assert found.cpu_s == pytest.approx(0.002 + 0.006 + 0.091)


def test_without_steps_it_is_the_runs_share() -> None:
    """2 ms of 8 s."""
    found = overhead([probe(None, steps=0, step_ns=0, role=None)], [], 8.0).probe
    assert found == ProbeCost(1, 0.002, None, 0, None, None, None, 0.025)


def test_a_share_of_nothing_is_not_known() -> None:
    """A supervisor that was killed did not say how long the command ran."""
    found = overhead([probe(steps=0)], [], None)
    assert found.probe is not None
    assert found.probe.share_pct is None
    assert in_words(found).startswith("probe 0.002 CPU seconds in 1 process; sampler unknown, because")


@pytest.mark.parametrize(
    ("probes", "samplers", "because"),
    [
        ([], [SAMPLER], "no probe left an account (none was loaded, or it was killed at once)"),
        ([probe()], [], "no sampler left an account (it was killed, or still runs)"),
        ([{"rows": "many", "span_ns": True}], [{"cpu_s": "x", "wall_s": 0}], "no probe left"),
    ],
)
def test_what_is_missing_is_said(probes: Any, samplers: Any, because: str) -> None:
    """Missing is never zero; damaged accounts are missing ones."""
    assert overhead(probes, samplers, 10.0).because.startswith(because)


WORDS = [
    (overhead([probe()], [SAMPLER], 9.0), "probe 1 ms a step of 4 s on rank 0 (0.03 %; 30 events a step); sampler 1.0 % of one core"),
    (overhead([], [], 9.0), ("unknown, because no probe left an account (none was loaded, or it was killed at once); "
     "no sampler left an account (it was killed, or still runs)")),
    (overhead([probe(steps=0), probe(1, steps=0)], [SAMPLER], 8.0),
     "probe 0.004 CPU seconds in 2 processes (0.03 % of the run on rank 0); sampler 1.0 % of one core"),
    (Overhead(because="it was imported"), "unknown, because it was imported"),
]  # fmt: skip


@pytest.mark.parametrize(("cost", "text"), WORDS)
def test_in_words(cost: Overhead, text: str) -> None:
    """One line."""
    assert in_words(cost) == text


@pytest.mark.parametrize(
    ("percent", "text"),
    [(0.0, "0.00 %"), (0.004, "<0.01 %"), (0.25, "0.25 %"), (12.34, "12.3 %"), (None, "an unknown share")],
)
def test_something_is_never_shown_as_nothing(percent: float | None, text: str) -> None:
    """Two decimals below one percent."""
    assert share(percent) == text


def manifest(origin: Any = "measured", **info: Any) -> Manifest:
    return Manifest(1, "", 0, origin, "", info=info)


def test_it_is_read_from_the_manifest() -> None:
    """Every host's; of several samplers the busiest; left segments count, too."""
    busy = SAMPLER | {"cpu_s": 8.5}
    found = account_of(
        manifest(
            **{"run@a": {"probes": [probe(0)], "seconds": 9.0}, "sampler@a": SAMPLER, "sampler@b": busy}
        ),
        [probe(1, hook_ns=9 * MS)],
    )
    assert found.probe is not None
    assert (found.probe.processes, found.probe.rank) == (2, 1)
    assert found.sampler == SamplerCost(2.0, 0.5)


def test_hostile_facts_are_no_accounts() -> None:
    """Whatever the manifest holds, there is an answer."""
    found = account_of(manifest(**{"run@a": {"probes": 7, "seconds": "x"}, "run@b": [], "sampler@a": "no"}))
    assert (found.probe, found.sampler) == (None, None)


def test_an_imported_recording_has_none() -> None:
    """And says so."""
    assert account_of(manifest("imported")).because.startswith("imported data")
    report = dipstick.explain("sample:h200x2-grpo")
    assert report.run.overhead is not None
    whole = " ".join(terminal.render(report, full=True).split())
    assert "overhead: unknown, because imported data hold no account of it" in whole
    assert "overhead" not in terminal.render(
        report
    )  # one screen: what is not known of every import is left to --full


def test_segments_left_behind_have_accounts(tmp_path: Path) -> None:
    """A supervisor that was killed: the probe's last anchor says what it had cost by then."""
    RecordingWriter.create(tmp_path / "R", origin="measured", host="node1").close()
    folder = tmp_path / "R" / "probe"
    folder.mkdir()
    lines = [
        {"k": "meta", "pid": 9, "rank": 0},
        {"k": "anchor", "m": S, "u": UNIX, "rows": 0, "span_ns": 0, "hook_ns": 0, "writer_ns": 0},
        {"k": "span", "n": "step", "a": S, "b": 2 * S, "tid": 9, "step": 0},
        {
            "k": "anchor",
            "m": 10**9,
            "u": 10**18 + 10**9,
            "rows": 5,
            "span_ns": 2000,
            "hook_ns": 0,
            "writer_ns": 90_000,
        },
    ]
    (folder / "node1.9.1000.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found = open_recording(tmp_path / "R").overhead
    assert found.probe == ProbeCost(1, 0.0001, 0, 1, 5.0, 0.1, 1.0, 0.01)
    assert found.because == "no sampler left an account (it was killed, or still runs)"


def test_every_format_shows_it() -> None:
    """Terminal (short and full), Markdown, page and JSON."""
    report = tiny_report()
    words = "probe 1 ms a step of 4 s on rank 0"
    object.__setattr__(report.run, "origin", "measured")
    object.__setattr__(report.run, "overhead", overhead([probe()], [SAMPLER], 9.0))
    for text in (
        terminal.render(report),
        terminal.render(report, full=True),
        markdown.render(report),
        html.render(report),
    ):
        assert words in " ".join(text.split())
    shown = document(report)["run"]["overhead"]
    assert shown["probe"]["share_pct"] == 0.025
    assert shown["sampler"] == {"core_pct": 1.0, "start_cpu_s": 0.5}
