"""The step loop drawn from the recording: right for loops of any shape, and honest about what was not recorded."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from builders import HOSTILE, empty_report, gpus_only_report, hostile_report, many_report, tiny_report
from dipstick.model import Tenant
from dipstick.show import PICTURES, format_of, loop_picture
from dipstick.show.drawing import Box
from dipstick.show.loop_model import Band, Callout, Loop, loop_of, size_words
from dipstick.verdicts.report import explain
from records import Row, cycle, job, memory, near, process, span, utilization

if TYPE_CHECKING:
    from dipstick.recording.reader import Recording


def loop(recording: Recording) -> Loop:
    return loop_of(explain(recording), recording)


def told(band: Band) -> dict[str, tuple[float, float]]:
    """Seconds and share of each stage, in order."""
    return {stage.ink.key: (round(stage.seconds, 6), round(stage.share, 6)) for stage in band.stages}


def remarks(band: Band, key: str) -> tuple[Callout, ...]:
    return next(stage.callouts for stage in band.stages if stage.ink.key == key)


def lines(band: Band, key: str) -> list[str]:
    return [line for callout in remarks(band, key) for line in callout.lines]


def handoff(source: str, target: str, **more: Any) -> Row:
    """What crossed on rank 0 at 5 s."""
    return {"host": "node1", "rank": 0, "t_ns": 5_000_000_000, "from": source, "to": target} | more


def colocated(**more: Any) -> Recording:
    """Two ranks, two steps of 10 s; rank 1's reward takes 1 s longer, so rank 0 waits for it."""
    spans = [
        row
        for step in (0, 1)
        for rank, lengths in ((0, (4, 3, 2, 1)), (1, (4, 5, 0, 1)))
        for row in cycle(rank, step, 10.0 * step, lengths)
    ]
    processes = [process(900 + r, rank=r, gpu=r, role="trainer+engine") for r in (0, 1)]
    return memory(spans=spans, processes=processes, **more)


def test_phases_in_order_with_seconds_and_share() -> None:
    """Of 10 s: 4 generate, 4 reward (3 and 5), 1 waiting (2 and 0), 1 backward."""
    found = loop(colocated())
    assert found.title == "One step: 10.0 s on average over 2 steps and 2 ranks"
    assert [b.title for b in found.bands] == ["ranks 0–1 · trainer+engine"]
    assert told(found.bands[0]) == {
        "generate": (4, 0.4),
        "reward": (4, 0.4),
        "gather_wait": (1, 0.1),
        "backward": (1, 0.1),
    }
    assert list(told(found.bands[0])) == ["generate", "reward", "gather_wait", "backward"]


def test_who_waits_for_whom() -> None:
    """Under the wait, with the seconds of the whole run."""
    found = loop(colocated())
    assert remarks(found.bands[0], "gather_wait") == (
        Callout("wait", ("rank 0 waited 4.0 s in all for rank 1 (reward)",)),
    )


def test_what_crosses_is_what_was_recorded() -> None:
    """Text to the rewards; 64 pickled structures, 212 kB, to the workers, and floats back."""
    rows = [
        handoff("generate", "reward", types="list[str]", count=64, transport="reference", device="host"),
        handoff(
            "reward", "workers", types="Atoms", count=128, bytes_b=848_000, transport="pickle", device="host"
        ),
        handoff("workers", "reward", types="float", count=128, bytes_b=4_000, transport="pickle"),
    ]
    jobs = [job(f"{rank}{i}", 4.5, 5, rank=rank, pid=1000 + rank) for rank in (0, 1) for i in range(4)]
    band = loop(colocated(handoffs=rows, jobs=jobs)).bands[0]
    assert lines(band, "generate") == ["to reward:", "16 × list[str], size not recorded (reference, host)"]
    assert lines(band, "reward") == [
        "2 reward workers, 2 jobs a step and rank", "a job: median 0.50 s, longest 0.50 s",
        "0.2 of 1 slots a rank busy", "there: 32 × Atoms, 212 kB a step and rank (pickle, host)", "back: 32 × float, 1 kB a step and rank (pickle)",
    ]  # fmt: skip


def test_what_was_not_recorded_says_so() -> None:
    """Never "nothing crosses"."""
    band = loop(colocated(jobs=[job("a", 4, 5)])).bands[0]
    assert lines(band, "generate") == ["to reward:", "what crosses was not recorded"]
    assert lines(band, "reward")[-1] == "there: what crosses was not recorded"


def test_pickled_bytes_of_spans_count_where_no_hand_over_says_more() -> None:
    """As in the shipped samples: 39,858 bytes, types not recorded."""
    spans = [*cycle(0, 0, 0, (4, 3, 2, 1)), span("reward.workers", 5, 6) | {"pickled_b": 39_858}]
    band = loop(memory(spans=spans, jobs=[job("a", 5, 6)])).bands[0]
    assert lines(band, "reward")[-1] == "there: 40 kB pickled, types not recorded"


def test_a_loop_without_reward_workers() -> None:
    """Scored by the ranks themselves, as far as was seen."""
    band = loop(colocated()).bands[0]
    assert lines(band, "reward") == [
        "no reward jobs recorded:",
        "scored by the ranks themselves, as far as seen",
    ]


def test_a_loop_without_rewards_and_generation() -> None:
    """Plain training: two stages, no remark about what never happened."""
    spans = [
        row
        for s in (0, 1)
        for row in (
            span("step", 10 * s, 10 * s + 10, step=s),
            span("forward", 10 * s, 10 * s + 4),
            span("backward", 10 * s + 4, 10 * s + 10),
        )
    ]
    band = loop(memory(spans=spans)).bands[0]
    assert told(band) == {"forward": (4, 0.4), "backward": (6, 0.6)}
    assert [stage.callouts for stage in band.stages] == [(), ()]


def test_an_engine_in_processes_of_its_own() -> None:
    """Server mode: generation happens there, and the picture says on which GPUs."""
    found = colocated()
    tenants = tuple(Tenant("node1", gpu, 4711 + gpu, "engine", 95.0, None) for gpu in (2, 3))
    band = loop_of(replace(explain(found), tenants=tenants), found).bands[0]
    assert remarks(band, "generate")[0] == Callout(
        "processes", ("2 engine processes of their own", "on GPUs 2–3")
    )


def test_asynchronous_ranks_become_bands_side_by_side() -> None:
    """Rank 0 only generates and scores, rank 1 only trains: two loops at the same time."""
    rollout = [
        row
        for s in range(4)
        for row in (span("generate", 5 * s, 5 * s + 4), span("reward", 5 * s + 4, 5 * s + 5))
    ]
    train = [
        row
        for s in range(2)
        for row in (
            span("step", 10 * s, 10 * s + 10, rank=1, step=s),
            span("forward", 10 * s, 10 * s + 3, rank=1),
            span("backward", 10 * s + 3, 10 * s + 10, rank=1),
        )
    ]
    found = loop(
        memory(
            spans=[*rollout, *train],
            processes=[process(900, rank=0, gpu=0, role="engine"), process(901, rank=1, gpu=1)],
        )
    )
    assert [(b.title, list(told(b))) for b in found.bands] == [
        ("rank 0 · engine", ["generate", "reward"]), ("rank 1 · trainer", ["forward", "backward"]),
    ]  # fmt: skip
    assert found.note == "The bands run at the same time."


def test_micro_steps_are_counted() -> None:
    """Forward and backward take turns four times a step."""
    spans = [span("step", 0, 8, step=0)]
    spans += [
        span(name, 2 * i + k, 2 * i + k + 1)
        for i in range(4)
        for k, name in enumerate(("forward", "backward"))
    ]
    band = loop(memory(spans=spans)).bands[0]
    assert [(s.ink.key, s.seconds, s.times) for s in band.stages] == [
        ("forward", 4.0, 4),
        ("backward", 4.0, 4),
    ]


def test_small_phases_and_time_without_spans_are_one_last_stage() -> None:
    """So that the shares add up to 1."""
    spans = [
        span("step", 0, 100, step=0),
        span("generate", 0, 90),
        span("optimizer", 90, 90.5),
        span("log", 91, 91.5),
    ]
    band = loop(memory(spans=spans)).bands[0]
    assert band.stages[-1].label == "3 others"
    assert sum(stage.share for stage in band.stages) == near(1.0)


def test_gpus_alone_make_no_loop() -> None:
    """The picture says what to do instead."""
    found = loop(memory(gpu=utilization([50.0] * 20)))
    assert found.bands == ()
    assert "record the run with dipstick run" in loop_picture.render(gpus_only_report())


def test_weights_that_go_to_the_engine() -> None:
    """Types and bytes where they were recorded."""
    spans = [*cycle(0, 0, 0, (4, 3, 2, 1)), span("sync_weights", 9, 10)]
    plain = loop(memory(spans=spans)).bands[0]
    assert lines(plain, "weight_sync") == ["weights to the engine:", "size not recorded"]
    crossed = handoff(
        "weight_sync", "engine", types="Tensor", count=300, bytes_b=24_900_000_000, device="cuda"
    )
    assert (
        lines(loop(memory(spans=spans, handoffs=[crossed])).bands[0], "weight_sync")[1]
        == "300 × Tensor, 24.9 GB a step and rank (cuda)"
    )


@pytest.mark.parametrize(
    ("size", "text"),
    [(950, "950 B"), (39_858, "40 kB"), (1_200_000, "1.2 MB"), (24.9e9, "24.9 GB"), (0, "0 B")],
)
def test_sizes(size: float, text: str) -> None:
    """In powers of 1000."""
    assert size_words(size) == text


# --- the picture ---


def test_widths_follow_seconds_and_nothing_is_too_narrow() -> None:
    """The docstring's example; they and the gaps fill the room."""
    assert loop_picture.widths_of([1, 1, 8], 432) == [72, 72, 256]
    assert loop_picture.widths_of([5, 5], 416) == [200, 200]
    assert loop_picture.widths_of([], 100) == []
    assert sum(loop_picture.widths_of([0.0, 0.0, 0.0], 432)) == near(400)


@pytest.mark.parametrize("make", [tiny_report, many_report, hostile_report, empty_report, gpus_only_report])
def test_the_svg_is_xml_without_anything_active(make: Any) -> None:
    """No script, no handler, no link; hostile names are text in it."""
    text = loop_picture.render(make())
    assert isinstance(text, str)
    tree = ET.fromstring(re.sub(r"[\ud800-\udfff]", "?", text))  # noqa: S314 - our own file
    tags = {element.tag.rpartition("}")[2] for element in tree.iter()}
    assert tags <= {"svg", "title", "style", "rect", "path", "text"}
    assert not any(
        name.startswith("on") or name.endswith("href") for element in tree.iter() for name in element.attrib
    )


def test_the_picture_says_itself_in_words() -> None:
    """For those who can't see it."""
    label = loop_picture.draw(explain(colocated()), colocated()).label
    assert label.startswith(
        "One step: 10.0 s on average over 2 steps and 2 ranks. ranks 0–1 · trainer+engine: generate 4.0 s, 40 %, then reward"
    )


def test_no_shape_leaves_the_canvas() -> None:
    """Sixteen ranks, long remarks: everything is inside."""
    crossed = handoff("generate", "reward", types=HOSTILE.replace("\ud800", "") * 9, count=1, bytes_b=1)
    found = colocated(handoffs=[crossed])
    drawing = loop_picture.draw(explain(found), found)
    boxes = [shape for shape in drawing.shapes if isinstance(shape, Box)]
    assert min(box.x for box in boxes) >= 0
    assert max(box.x + box.width for box in boxes) <= drawing.width
    assert max(box.y + box.height for box in boxes) <= drawing.height


# --- which picture ---


@pytest.mark.parametrize(
    ("name", "picture", "module"),
    [
        ("loop.svg", None, "loop_picture"), ("my-Loop.PNG", None, "loop_picture"), ("trace.png", None, "trace_picture"),
        ("fig1.svg", None, "trace_picture"), ("fig1.svg", "loop", "loop_picture"), ("loop.svg", "trace", "trace_picture"),
    ],
)  # fmt: skip
def test_the_name_picks_the_picture(name: str, picture: str | None, module: str) -> None:
    """--picture beats the name."""
    kind = format_of(name, picture)
    assert (kind.module, kind.suffix, kind.shared) == (
        f"dipstick.show.{module}",
        f".{name.lower()[-3:]}",
        True,
    )


def test_pictures_hold_no_names() -> None:
    """They are shared, so they are redacted."""
    assert all(kind.shared for kind in PICTURES.values())
    found = colocated()
    crossed = handoff("generate", "reward", types="/home/ann/x.Thing", count=1)
    with_name = colocated(handoffs=[crossed])
    assert b"ann" not in PICTURES["loop"].render(explain(found), with_name)
