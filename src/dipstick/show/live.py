"""One instant of a run as a screen of text: whatever the terminal's size, the most telling lines that fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from rich.text import Text

from dipstick.show import words
from dipstick.show.gpu_tables import gpu_label
from dipstick.show.lanes import cut, mean_of, most_of
from dipstick.show.live_parts import (
    gpu_columns,
    process_lines,
    rank_lines,
    recorder_lines,
    step_line,
    step_table,
    table_lines,
    wait_lines,
)
from dipstick.show.palette import PHASE_BY_CODE
from dipstick.show.terminal_lanes import paint, sparkline

if TYPE_CHECKING:
    from dipstick.analysis.live_frame import Frame, GpuNow
    from dipstick.model import FloatArray, GpuTrack, RankTrack
    from dipstick.show.look import Look

SHORTEST_LANE = 8
LONGEST_LANE = 90
LANE_S = (60.0, 120.0, 180.0)
"""How much a lane shows: the shortest of these that holds two steps."""
MOST_STEP_ROWS = 9
_LABEL_ROOM = 18
_DOTS = {"recording": ("● ", "bold red"), "ended": ("■ ", "bold"), "replay": ("▶ ", "bold")}


def render(frame: Frame, look: Look, height: int = 24, foot: str = "") -> str:
    """The screen, at most ``height`` lines of at most ``look.width`` columns.

    Args:
        frame: From ``analysis.live.frame``.
        look: What the output can show.
        height: Lines.
        foot: The last line: what keys do; none if empty.
    """
    console = look.console()
    for line in screen(frame, look, height, foot):
        console.print(line, no_wrap=True, overflow="ellipsis", crop=True)
    return look.text(console)


def screen(frame: Frame, look: Look, height: int, foot: str = "") -> list[Text]:
    """The lines of the screen; what does not fit goes in this order: blank lines, lanes, the table of the last step, rows."""
    ending = [Text(foot, "dim")] if foot else []
    waits, recorder = wait_lines(frame), recorder_lines(frame, look)
    fixed = 1 + len(waits) + (1 if frame.last_step else 0) + len(recorder) + len(ending)
    rows = max(2, height - fixed - 2)
    shown, ranks = _share(len(frame.gpus) or len(frame.processes), len(frame.ranks), rows)
    left = max(0, rows - shown - ranks)
    phases = len(frame.last_step.phases) if frame.last_step else 0
    table = min(left, phases + 1, MOST_STEP_ROWS) if left > 1 else 0
    left -= table
    lanes = 0 < len(frame.gpus) == shown <= left and any(gpu.rank is not None for gpu in frame.gpus)
    left -= shown if lanes else 0
    apart = [[Text("")]] if left >= 4 else [[]]  # noqa: PLR2004 - a blank line before each of the four sections
    top = _gpu_lines(frame, look, shown, lanes=lanes) if frame.gpus else process_lines(frame, look, shown)
    middle = rank_lines(frame, look, ranks)
    last = [] if frame.last_step is None else [step_line(frame.last_step, look, short=table > 0)]
    bars = step_table(frame.last_step, look, table) if frame.last_step and table else []
    blank = apart[0]
    lines = [
        title(frame, look),
        *blank,
        *top,
        *blank,
        *middle,
        *waits,
        *blank,
        *last,
        *bars,
        *blank,
        *recorder,
    ]
    return [*lines[: height - len(ending)], *ending]


def _share(first: int, second: int, rows: int) -> tuple[int, int]:
    """How many rows each of two tables gets: all, or halves, a short one leaving its rest to the other."""
    if first + second <= rows:
        return first, second
    half = rows // 2
    if first <= half:
        return first, rows - first
    return (rows - second, second) if second <= half else (rows - half, half)


def title(frame: Frame, look: Look) -> Text:
    """What is watched, the step, the time."""
    dot = _DOTS[frame.mode] if look.unicode else ("", "")
    step = "" if frame.step is None else f"step {frame.step}"
    when = words.span(frame.t_s)
    if frame.mode == "replay":
        when += f" of {words.span(frame.last_s)}"
    name = words.clean(frame.name, max(12, look.width - 42))
    told = f"  {'  '.join(part for part in (step, when) if part)}"
    return Text.assemble((dot[0], dot[1] if look.color else ""), (f"{frame.mode} {name}", "bold"), told)


def _gpu_lines(frame: Frame, look: Look, shown: int, *, lanes: bool) -> list[Text]:
    """Numbers on the left, the last minutes on the right; under each, the phases of its rank."""
    drawn = frame.gpus[:shown]
    hosts = len({gpu.host for gpu in frame.gpus})
    labels = [gpu_label(gpu.host, gpu.gpu, hosts, _LABEL_ROOM) for gpu in drawn]
    head, cells = gpu_columns(drawn, labels, look.width)
    left = table_lines(head, cells, (0, head.index("state")))
    room = min(LONGEST_LANE, look.width - max(len(line) for line in left) - 2)
    if room < SHORTEST_LANE:
        return [Text(left[0], "dim"), *map(Text, left[1:]), *_more(len(frame.gpus) - shown, "GPU")]
    length = lane_length(frame)
    edges = np.linspace(max(0.0, frame.t_s - length), frame.t_s, room + 1)
    lines = [Text(f"{left[0]}  last {edges[-1] - edges[0]:z.0f} s", "dim")]
    for gpu, text in zip(drawn, left[1:], strict=True):
        lines.append(Text.assemble(text, "  ", _util_lane(frame, gpu, edges, look)))
        if lanes:
            label = "" if gpu.rank is None else f"rank {gpu.rank}: phases"
            lines.append(
                Text.assemble((f"{label:>{len(text)}}  ", "dim"), _phase_lane(frame, gpu, edges, look))
            )
    return [*lines, *_more(len(frame.gpus) - shown, "GPU")]


def _more(count: int, what: str) -> list[Text]:
    return [Text(f"{words.count(count, f'more {what}')}", "dim")] if count > 0 else []


def lane_length(frame: Frame) -> float:
    """Seconds that lanes show."""
    step = frame.last_step
    wanted = 0.0 if step is None else 2 * (step.median_s or step.seconds)
    return next((length for length in LANE_S if length >= wanted), LANE_S[-1])


def _util_lane(frame: Frame, gpu: GpuNow, edges: FloatArray, look: Look) -> Text:
    track = next((t for t in frame.tracks.gpus if (t.host, t.gpu) == (gpu.host, gpu.gpu)), None)
    return Text() if track is None else sparkline(*_binned(track, edges), look)


def _binned(track: GpuTrack, edges: FloatArray) -> tuple[FloatArray, np.ndarray]:
    windows = cut(track.t0_s, track.t1_s, edges)
    return mean_of(windows, track.util_pct), most_of(windows, track.state)


def _phase_lane(frame: Frame, gpu: GpuNow, edges: FloatArray, look: Look) -> Text:
    track: RankTrack | None = next((t for t in frame.tracks.ranks if t.rank == gpu.rank), None)
    if track is None:
        return Text()
    return paint(most_of(cut(track.edge_s[:-1], track.edge_s[1:], edges), track.code), PHASE_BY_CODE, look)


def document(frame: Frame) -> dict[str, object]:
    """The frame as plain values for ``--json``: everything but what is only for drawing."""
    from dataclasses import asdict, replace  # noqa: PLC0415 - only for JSON

    empty = type(frame.tracks)((), (), np.zeros(0))
    found = asdict(replace(frame, tracks=empty))
    del found["tracks"]
    return {"schema_version": 1, **found}
