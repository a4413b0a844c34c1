"""The live view as text: what it says, and that it fits whatever the terminal is."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import replace

import pytest
from rich.cells import cell_len

from dipstick.analysis.live import frame
from dipstick.analysis.live_frame import Beat, Frame
from dipstick.recording.window import Health, ProbeCost
from dipstick.show.json import plain
from dipstick.show.live import document, render
from dipstick.show.look import Look
from live_windows import at, going, straggling, window
from records import counters, ns, process, span, utilization

SIZES = [(80, 24), (120, 40), (200, 60), (60, 15), (40, 10), (30, 6), (80, 3)]
HOSTILE = "x\x1b[31mred\x07\n\u202e<b>" + "y" * 300


@functools.cache
def many(gpus: int) -> Frame:
    """A job of so many GPUs and ranks, rank 0 the last to arrive."""
    ranks = range(gpus)
    spans = [span("step", 0, 2, rank=r, step=0) for r in ranks] + [
        going("step", 2, rank=r, step=1) for r in ranks
    ]
    spans += [span("GRPOTrainer._calculate_rewards", 4, 6, rank=r, step=1) for r in ranks if r]
    spans += [going("GRPOTrainer._calculate_rewards", 4, rank=0, step=1)]
    return at(
        9.0,
        spans=spans,
        processes=[process(900 + r, rank=r, gpu=r) for r in ranks],
        gpu=[row for r in ranks for row in utilization([90.0] * 45, gpu=r, source="poll")],
        gpu_counters=[row for r in ranks for row in counters([50.0] * 45, gpu=r)],
    )


def lines_of(found: Frame, width: int = 80, height: int = 24, **look: object) -> list[str]:
    return render(found, Look(width, **look), height, "q quit").splitlines()  # type: ignore[arg-type] # of a look


def test_one_screen_says_all_of_it() -> None:
    """GPUs with their states, ranks with their phases, who is waited for, the last step, the recorder, the keys."""
    health = Health(
        {"node1": {"cpu_s": 2.5, "start_cpu_s": 0.5, "wall_s": 100.0}}, (ProbeCost(0, 0.1, 100.0),)
    )
    lines = lines_of(frame(window(9.0, health=health, **straggling())))  # type: ignore[arg-type] # tables by name
    text = "\n".join(lines)
    assert lines[0] == "● recording RUN  step 1  9.0 s"
    assert re.search(r"GPU 0  100 %  \d+ %    \d+ %  spinning  86/140 GiB  \S", text)
    assert re.search(r"^0     w gather wait  3\.0 s  –\s+1  7\.0 s\s+–$", text, re.MULTILINE)
    assert re.search(
        r"^1     R reward       5\.0 s  _calculate_rewards\s+1  7\.0 s\s+3/8$", text, re.MULTILINE
    )
    assert "waited for: rank 1 by rank 0 (reward of step 1, in reward): 3.0 s" in lines
    assert any(line.startswith("last step 0: 2.0 s; 0.0 of 4.0 busy GPU-s hollow") for line in lines)
    assert "recorder: 5 Hz, late 0 s, max 0 s, 0 missed; sampler 2.0 %, probe 0.10 %" in lines
    assert lines[-1] == "q quit"


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("gpus", [0, 1, 2, 8, 64])
def test_it_fits_any_terminal(width: int, height: int, gpus: int) -> None:
    """Never more lines or columns than there are; the title and the keys always stay."""
    lines = lines_of(many(gpus) if gpus else at(1.0), width, height)
    assert len(lines) <= height
    assert max(cell_len(line) for line in lines) <= width
    assert (lines[0][:11], lines[-1]) == ("● recording", "q quit")


def test_what_does_not_fit_is_counted() -> None:
    """64 GPUs on 24 lines."""
    text = "\n".join(lines_of(many(64)))
    assert re.search(r"^\d+ more GPUs$", text, re.MULTILINE)
    assert re.search(r"^\d+ more ranks$", text, re.MULTILINE)
    assert "waited for: rank 0 by 63 ranks" in text


def test_eight_gpus_and_ranks_are_all_there_on_24_lines() -> None:
    """The usual machine on the usual terminal."""
    text = "\n".join(lines_of(many(8)))
    assert [f"GPU {i} " in text for i in range(8)] == [True] * 8
    assert "more" not in text


def test_a_lane_of_phases_stands_under_each_gpu() -> None:
    """Rewards from 4 s, a wait from 6 s: the letters of the lane of rank 0."""
    (lane,) = [
        line for line in lines_of(at(9.0, **straggling())) if line.strip().startswith("rank 0: phases")
    ]
    assert re.search(r"GG+RR+ww+$", lane)


def test_without_unicode_all_of_it_is_ascii() -> None:
    """A console in latin-1 gets letters and digits."""
    text = render(at(9.0, **straggling()), Look(80, None, unicode=False), 24, "q quit")
    assert text.isascii()
    assert "?" not in text


def test_without_colour_there_is_no_escape_sequence_and_with_it_there_is() -> None:
    """NO_COLOR loses nothing: every phase has its letter."""
    found = at(9.0, **straggling())
    assert "\x1b" not in render(found, Look(80), 24)
    coloured = render(found, Look(80, "truecolor"), 24)
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured).splitlines()[0] == lines_of(found)[0]
    assert "\x1b[" in coloured


def test_recorded_strings_cannot_draw_on_the_terminal() -> None:
    """Names of spans, hosts and the folder lose escapes and are cut."""
    spans = [going("step", 0, step=0), going(HOSTILE, 1, step=0)]
    use = [{"host": HOSTILE, "pid": 9, "t_ns": ns(8.9), "window_ns": ns(0.2), "cpu_ms": 1.0}]
    found = replace(at(9.0, spans=spans, host_process=use), name=HOSTILE)
    text = render(found, Look(80), 24)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\u202e" not in text
    assert max(cell_len(line) for line in text.splitlines()) <= 80


def test_a_silent_gpu_says_so() -> None:
    """No value of now, but how old the last one is."""
    text = "\n".join(lines_of(at(20.0, **straggling(9.0))))
    assert re.search(r"GPU 0     –     –       –  silent 11", text)
    assert "no telemetry for 11.0 s: the sampler is gone, or the disk is slow" in text


def test_a_replay_that_has_no_samples_now_is_no_trouble() -> None:
    """Silence means something only while somebody should be sampling."""
    found = replace(at(20.0, **straggling(9.0)), mode="replay", last_s=30.0)
    text = "\n".join(lines_of(found))
    assert "no telemetry" not in text
    assert text.startswith("▶ replay RUN  step 1  20.0 s of 30.0 s")


def test_without_a_gpu_it_says_cpu_time() -> None:
    """It is no utilization of anything else, and the head says so."""
    use = [
        {"host": "node1", "pid": 900, "t_ns": ns(8.9), "window_ns": ns(0.2), "cpu_ms": 100.0, "rss_b": 2**29}
    ]
    lines = lines_of(at(9.0, host_process=use, spans=[going("generate", 1, step=0)]))
    assert [line.split() for line in lines if line.startswith("node1 900")] == [
        ["node1", "900", "–", "–", "50", "%", "512", "MiB"]
    ]
    assert any("no GPU seen: CPU time of one core" in line for line in lines)


def test_before_anything_is_recorded_it_says_what_is_awaited() -> None:
    """Not an empty screen."""
    text = "\n".join(lines_of(at(0.5)))
    assert "no telemetry yet" in text
    assert "no phase seen yet" in text


def test_lost_rows_and_silenced_probes_are_said() -> None:
    """In a line of their own."""
    text = "\n".join(lines_of(frame(window(9.0, health=Health(dropped=7, capped=1)))))
    assert "7 rows lost" in text
    assert "1 probe stopped writing (size cap, or disk full)" in text


def test_the_worst_host_stands_for_all() -> None:
    """Two samplers: the lateness of the later one, the missed polls of both."""
    found = at(9.0, **straggling())
    beats = (Beat("a", 10.0, 0.1, 2.0, 1, 60.0), Beat("b", 10.0, 1.0, 30.0, 2, 60.0))
    found = replace(found, recorder=replace(found.recorder, beats=beats))
    assert "recorder: 10 Hz, late 1 ms, max 30 ms, 3 missed" in lines_of(found)


def test_the_json_is_the_frame_without_what_is_for_drawing() -> None:
    """Plain values; what is not known is null."""
    found = json.loads(json.dumps(plain(document(at(9.0, **straggling()))), allow_nan=False))
    assert (found["schema_version"], found["mode"], found["step"]) == (1, "recording", 1)
    assert "tracks" not in found
    assert found["waits"] == [
        {"barrier": "reward", "waiting": [[0, 3.0]], "late": [1], "step": 1, "phase": "reward"}
    ]
    assert found["recorder"]["probe_pct"] is None


def test_a_replay_awaits_nothing() -> None:
    """No probe will write to a recording that has ended (an import of telemetry has none at all)."""
    text = "\n".join(lines_of(replace(at(0.5), mode="replay")))
    assert "no phase was recorded up to here" in text
    assert "probe" not in text
