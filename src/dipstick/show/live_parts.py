"""The tables of the live view as lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

from dipstick.show import words
from dipstick.show.palette import phase_ink, state_ink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dipstick.analysis.live_frame import Awaited, Frame, GpuNow, LastStep, RankNow, Recorder
    from dipstick.show.look import Look

    Cells = Sequence[Sequence[str]]

GIB, MIB = 2**30, 2**20
_GAP = "  "
_MOST_RANKS = 4
_MOST_BAR = 40
_LEAST_BAR = 10
_NAME_ROOM = 28
_QUIET_S = 5.0
_LATE_MS = 20.0


def table_lines(head: Sequence[str], rows: Cells, left: Sequence[int] = (0,)) -> list[str]:
    """Columns under their heads, numbers to the right; ``left`` are those that hold words."""
    lines = [head, *rows]
    widths = [max(cell_len(line[i]) for line in lines) for i in range(len(head))]
    return [
        _GAP.join(
            _padded(text, width, left=i in left)
            for i, (text, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    ]


def _padded(text: str, width: int, *, left: bool) -> str:
    blank = " " * (width - cell_len(text))
    return text + blank if left else blank + text


def gpu_columns(
    gpus: Sequence[GpuNow], labels: Sequence[str], width: int
) -> tuple[list[str], list[list[str]]]:
    """Heads and cells, as many as leave room for a lane in ``width`` columns."""
    columns = [
        ("GPU", 0, list(labels)),
        ("util", 0, [words.percent(gpu.util_pct) for gpu in gpus]),
        ("10 s", 60, [words.percent(gpu.busy_pct) for gpu in gpus]),
        ("hollow", 50, [words.percent(gpu.hollow_pct) for gpu in gpus]),
        ("state", 0, [_state(gpu) for gpu in gpus]),
        ("memory", 70, [_memory(gpu.mem_used_b, gpu.mem_total_b) for gpu in gpus]),
        (
            "power",
            100,
            [f"{gpu.power_w:z.0f} W" if gpu.power_w is not None else words.ABSENT for gpu in gpus],
        ),
    ]
    kept = [(head, cells) for head, least, cells in columns if width >= least]
    return [head for head, _ in kept], [list(row) for row in zip(*(cells for _, cells in kept), strict=True)]


def _state(gpu: GpuNow) -> str:
    if gpu.stale_s is not None:
        return f"silent {words.seconds(gpu.stale_s)}"
    return words.ABSENT if gpu.state is None else state_ink(gpu.state).label


def _memory(used: int | None, total: int | None) -> str:
    """``86/140 GiB``."""
    if used is None:
        return words.ABSENT
    return _bytes(used) if total is None else f"{used / GIB:z.0f}/{total / GIB:z.0f} GiB"


def _bytes(many: int) -> str:
    return f"{many / GIB:z.1f} GiB" if many >= GIB else f"{many / MIB:z.0f} MiB"


def process_lines(frame: Frame, look: Look, shown: int) -> list[Text]:
    """CPU time of processes, where there is no GPU."""
    if not frame.processes:
        return [Text("no telemetry yet", "dim")] if frame.recorder.quiet_s is None else []
    rows = [
        [
            str(p.pid) if not p.host else f"{words.clean(p.host, 20)} {p.pid}",
            words.ABSENT if p.role is None else words.clean(p.role, 20),
            words.ABSENT if p.rank is None else str(p.rank),
            f"{p.cpu_pct:z.0f} %",
            words.ABSENT if p.rss_b is None else _bytes(p.rss_b),
        ]
        for p in frame.processes[:shown]
    ]
    lines = table_lines(["process", "role", "rank", "CPU", "memory"], rows, (0, 1))
    head = f"{lines[0]}  no GPU seen: CPU time of one core"
    more = len(frame.processes) - shown
    rest = [Text(words.count(more, "more process", "more processes"), "dim")] if more > 0 else []
    return [Text(head[: look.width], "dim"), *map(Text, lines[1:]), *rest]


def rank_lines(frame: Frame, look: Look, shown: int) -> list[Text]:
    """What each rank is in."""
    if not frame.ranks:
        live = "no phase seen yet: the probe writes a span when it ends, and after 0.25 s"
        return [Text(live if frame.mode == "recording" else "no phase was recorded up to here", "dim")]
    drawn = frame.ranks[:shown]
    rows = [_rank(rank) for rank in drawn]
    head = ["rank", "phase", "for", "inside", "step", "for", "jobs"]
    if look.width < 72 or not any(row[3] != words.ABSENT for row in rows):  # noqa: PLR2004 - columns that all of it takes
        head, rows = _without(3, head), [_without(3, row) for row in rows]
    left = (0, 1, 3) if len(head) == 7 else (0, 1)  # noqa: PLR2004 - all columns
    lines = table_lines(head, rows, left)
    more = len(frame.ranks) - shown
    rest = [Text(words.count(more, "more rank"), "dim")] if more > 0 else []
    return [
        Text(lines[0], "dim"),
        *(_inked(line, rank, look) for line, rank in zip(lines[1:], drawn, strict=True)),
        *rest,
    ]


def _without(index: int, cells: Sequence[str]) -> list[str]:
    return [cell for i, cell in enumerate(cells) if i != index]


def _rank(rank: RankNow) -> list[str]:
    phase = f"after {phase_ink(rank.last).label}" if rank.phase is None and rank.last else words.ABSENT
    return [
        str(rank.rank),
        f"  {phase if rank.phase is None else phase_ink(rank.phase).label}",
        words.seconds(rank.phase_s),
        words.ABSENT if rank.inside is None else words.clean(rank.inside, _NAME_ROOM),
        words.ABSENT if rank.step is None else str(rank.step),
        words.seconds(rank.step_s),
        _jobs(rank),
    ]


def _jobs(rank: RankNow) -> str:
    if rank.jobs_sent is None:
        return words.ABSENT
    return f"{rank.jobs_done}/{rank.jobs_sent}"


def _inked(line: str, rank: RankNow, look: Look) -> Text:
    """The phase's letter, in its colour, before its name."""
    if rank.phase is None:
        return Text(line)
    ink = phase_ink(rank.phase)
    at = line.index(f"  {ink.label}")
    return Text.assemble(line[:at], (ink.letter, look.background(ink)), line[at + 1 :])


def wait_lines(frame: Frame) -> list[Text]:
    """One line: who is waited for."""
    if not frame.waits:
        return [Text("nobody waits at a barrier", "dim")] if len(frame.ranks) > 1 else []
    return [_wait(frame.waits[0])]


def _wait(wait: Awaited) -> Text:
    longest = max(seconds for _, seconds in wait.waiting)
    lost = sum(seconds for _, seconds in wait.waiting)
    step = "" if wait.step is None else f" of step {wait.step}"
    doing = "" if wait.phase is None else f", in {phase_ink(wait.phase).label}"
    late = _ranks(wait.late)
    many = f", {words.seconds(lost)} in all" if len(wait.waiting) > 1 else ""
    told = f" ({words.clean(wait.barrier, 24)}{step}{doing}): {words.seconds(longest)}{many}"
    return Text.assemble(
        (f"waited for: {late}", "bold"), f" by {_ranks(rank for rank, _ in wait.waiting)}", told
    )


def _ranks(ranks: object) -> str:
    """``rank 3``, ``ranks 1, 2 and 5``, ``6 ranks``."""
    named = [str(rank) for rank in ranks]  # type: ignore[attr-defined] # any iterable of ints
    if len(named) > _MOST_RANKS:
        return f"{len(named)} ranks"
    return f"rank{'s' if len(named) > 1 else ''} {words.listed(named)}"


def step_line(step: LastStep, look: Look, *, short: bool) -> Text:
    """``last step 40: 13.2 s (median 13.0 s), 7.5 of 18.3 busy GPU-s hollow`` and, where there is no table, its phases."""
    median = "" if step.median_s is None else f" (median {words.seconds(step.median_s)})"
    hollow = ""
    if step.hollow_gpu_s is not None and step.busy_gpu_s is not None:
        hollow = f"; {words.number(step.hollow_gpu_s)} of {words.number(step.busy_gpu_s)} busy GPU-s hollow"
    head = f"last step {step.number}: {words.seconds(step.seconds)}{median}{hollow}"
    if short:
        return Text(head, "bold")
    parts = ", ".join(f"{phase_ink(p).label} {words.share(s, _total(step))}" for p, s in step.phases[:4])
    text = f"last step {step.number}: {words.seconds(step.seconds)}{median}: {parts}"
    return Text(text if cell_len(text) <= look.width else f"{text[: look.width - 1]}…")


def _total(step: LastStep) -> float:
    return sum(seconds for _, seconds in step.phases)


def step_table(step: LastStep, look: Look, rows: int) -> list[Text]:
    """Heads, then a bar a phase (mean over ranks) with the seconds of each rank; at most ``rows`` lines in all."""
    total, phases = _total(step), step.phases[: rows - 1]
    ranks = step.by_rank if 1 < len(step.by_rank) <= _MOST_RANKS else ()
    cells = []
    for phase, seconds in phases:
        each = [words.short(dict(parts).get(phase, 0.0)) for _, parts in ranks]
        cells.append([phase_ink(phase).label, words.short(seconds), words.share(seconds, total), *each])
    heads = ["", "seconds", "share", *(f"rank {rank}" for rank, _ in ranks)]
    head, *lines = table_lines(heads, cells)
    room = min(_MOST_BAR, look.width - cell_len(head) - 4)
    longest = max((seconds for _, seconds in phases), default=0.0) or 1.0
    bars = [_bar(phase, seconds / longest, room, look) for phase, seconds in phases]
    inks = [phase_ink(phase) for phase, _ in phases]
    told = [
        Text.assemble((ink.letter, look.background(ink)), " ", line, bar)
        for ink, line, bar in zip(inks, lines, bars, strict=True)
    ]
    return [Text(f"  {head}", "dim"), *told]


def _bar(phase: str, share: float, room: int, look: Look) -> Text:
    ink = phase_ink(phase)
    if room < _LEAST_BAR:
        return Text()
    block = "█" if look.color and look.unicode else ink.letter
    return Text(_GAP + block * round(room * share), look.foreground(ink))


def recorder_lines(frame: Frame, look: Look) -> list[Text]:
    """Overhead and lateness of the recorder; a second line for what went wrong."""
    recorder = frame.recorder
    parts = [*_beat(recorder), *_cost(recorder)]
    troubles = _troubles(recorder, live=frame.mode == "recording")
    whole = f"recorder: {'; '.join(parts) or 'no account yet'}"
    told = [whole] if cell_len(whole) <= look.width else [f"recorder: {parts[0]}", *parts[1:]]
    lines = [Text(text, "dim") for text in told]
    return lines + [Text(text, "bold red" if look.color else "bold") for text in troubles]


def _beat(recorder: Recorder) -> list[str]:
    if not recorder.beats:
        return []
    worst = max(recorder.beats, key=lambda beat: beat.late_max_ms)
    missed = sum(beat.missed for beat in recorder.beats)
    late = f"late {words.seconds(worst.late_mean_ms / 1e3)}, max {words.seconds(worst.late_max_ms / 1e3)}"
    return [f"{worst.hz:.3g} Hz, {late}, {missed} missed"]


def _cost(recorder: Recorder) -> list[str]:
    parts = []
    if recorder.sampler_cpu_pct is not None:
        parts.append(f"sampler {words.percent(recorder.sampler_cpu_pct, 1)}")
    if recorder.probe_pct is not None:
        parts.append(f"probe {words.percent(recorder.probe_pct, 2)}")
    return [", ".join(parts)] if parts else []


def _troubles(recorder: Recorder, *, live: bool) -> list[str]:
    texts = []
    if live and recorder.quiet_s is not None and recorder.quiet_s > _QUIET_S:
        texts.append(
            f"no telemetry for {words.seconds(recorder.quiet_s)}: the sampler is gone, or the disk is slow"
        )
    if recorder.dropped:
        texts.append(f"{words.count(recorder.dropped, 'row')} lost")
    if recorder.capped:
        texts.append(f"{words.count(recorder.capped, 'probe')} stopped writing (size cap, or disk full)")
    return texts[:2]
