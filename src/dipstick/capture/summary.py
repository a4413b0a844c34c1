"""What was captured and what was not, in words: the box at the end of ``dipstick run``."""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from dipstick.recording.overhead import in_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dipstick.capture.finish import Captured

WIDTH: Final = 100
LABEL: Final = 10
MOST_NAMED: Final = 4
NOTHING: Final = (
    "neither GPU samples nor phases: dipstick explain will have nothing to go by. "
    'Mark your phases, with dipstick.span("reward"): … (docs/python.md)'
)


def box(captured: Captured, probe_off: str | None = None) -> str:
    """The account of a run, one thing a line.

    Args:
        captured: From :func:`finish.close_recording`.
        probe_off: Why no process loaded the probe, if that was known before.
    """
    facts = list(_facts(captured, probe_off))
    lines = [line for label, text in facts for line in _wrapped(label, text)]
    head = f"╭ dipstick: {_time(captured.seconds)} recorded into {captured.run} ({_size(captured.size_b)})"
    return "\n".join([head, *(f"│ {line}" for line in lines), "╰"])


def document(captured: Captured, probe_off: str | None = None) -> dict[str, Any]:
    """The same as plain values, for ``--json``."""
    return {
        "schema_version": 1,
        "run": captured.run,
        "seconds": captured.seconds,
        "size_b": captured.size_b,
        "exit_status": captured.status,
        "sampler": {name: value for name, value in captured.sampler.items() if name != "processes"} or None,
        "probes": captured.probes,
        "hooks_bound": sum(hook.bound for hook in captured.hooks.values()),
        "hooks": [
            {"target": h.target, "bound": h.bound, "why": h.why, "version": h.version}
            for h in captured.hooks.values()
        ],
        "rows": captured.rows,
        "roles": captured.roles,
        "ranks": list(captured.ranks),
        "reward_workers": captured.workers,
        "overhead": asdict(captured.overhead),
        "probe_off": probe_off,
        "trouble": [text for text in (captured.trouble, *captured.notes) if text],
    }


def _facts(c: Captured, probe_off: str | None) -> Iterator[tuple[str, str]]:
    yield "GPU", _gpus(c.sampler, c.trouble)
    if c.sampler.get("gpus"):
        yield "processes", _processes(c)
    yield "phases", _phases(c, probe_off)
    if c.hooks:
        yield "hooks", _hooks(c)
    yield "rewards", _rewards(c)
    yield "overhead", in_words(c.overhead, with_start=True)
    for text in (c.trouble, *c.notes):
        if text:
            yield "missing", text
    if not c.is_explainable:
        yield "missing", NOTHING


def _gpus(account: dict[str, Any], trouble: str | None) -> str:
    """``NVML at 10 Hz (4,050 polls, 0 missed): 2 x NVIDIA H200; counters (GPM), the driver's samples``."""
    if not account:
        return f"no account of telemetry: {trouble or 'the sampler left none'}; what it flushed is there"
    if not account.get("gpus"):
        why = f" ({account['why_none']})" if account.get("why_none") else ""
        return (
            f"none seen{why}: CPU time of the run's processes is recorded instead; it is no GPU utilization"
        )
    names: dict[str, int] = {}
    for gpu in account["gpus"]:
        names[gpu["name"] or "GPU"] = names.get(gpu["name"] or "GPU", 0) + 1
    devices = ", ".join(f"{n} × {name}" for name, n in names.items())
    beat = f"{account['ticks']:,} polls, {account['missed_ticks']:,} missed"
    refused = {function for _, function, _ in account.get("refused", [])}
    return (
        f"{account['source']} at {1e9 / account['period_ns']:g} Hz ({beat}): {devices}; {_signals(refused)}"
    )


def _signals(refused: set[str]) -> str:
    """Which of the better signals there were."""
    parts = {
        "nvmlGpmQueryDeviceSupport": "counters (GPM)",
        "nvmlDeviceGetSamples": "the driver's own samples",
        "nvmlDeviceGetProcessUtilization": "use by process",
    }
    lost = [name for function, name in parts.items() if function in refused]
    return f"not there: {', '.join(lost)}" if lost else "every signal was there"


def _processes(c: Captured) -> str:
    told = ", ".join(f"{n} {role}" for role, n in sorted(c.roles.items()))
    if c.roles.get("unattributable"):
        told += "; the driver names PIDs of another namespace: which tenant was busy can't be told (docker: --pid=host)"
    return told or "none used a GPU"


def _phases(c: Captured, probe_off: str | None) -> str:
    if probe_off is not None:
        return f"not captured: {probe_off}"
    spans = c.rows.get("spans", 0)
    if not c.probes:
        return "not captured: no process loaded the probe (python -I or -E, another PYTHONPATH, or no Python)"
    if not spans:
        reason = (
            "no hook of a phase was reached" if c.hooks else "no framework that dipstick hooks was imported"
        )
        return f"none: the probe was in {_many(c.probes, 'process', 'processes')}, and {reason}"
    ranks = ", ".join(map(str, c.ranks)) or "unknown"
    rest = (
        f"{_many(c.rows.get('handoffs', 0), 'handoff')}, {_many(c.rows.get('collectives', 0), 'collective')}"
    )
    return f"{_many(spans, 'span')} on rank {ranks}; {rest}"


def _many(count: int, one: str, more: str = "") -> str:
    return f"{count:,} {one if count == 1 else more or one + 's'}"


def _hooks(c: Captured) -> str:
    """``23 of 25 bound; not bound: trl.x (no such attribute, trl 1.16.0)``."""
    missing = [hook for hook in c.hooks.values() if not hook.bound]
    told = f"{len(c.hooks) - len(missing)} of {len(c.hooks)} bound"
    if not missing:
        return told
    named = [f"{h.target} ({', '.join(filter(None, (h.why, h.version)))})" for h in missing[:MOST_NAMED]]
    more = f" and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else ""
    return f"{told}; not bound: {'; '.join(named)}{more}"


def _rewards(c: Captured) -> str:
    jobs = c.rows.get("jobs", 0)
    return (
        f"{_many(jobs, 'job')} by {_many(c.workers, 'worker')}"
        if jobs
        else "no job of a worker pool was seen"
    )


def _wrapped(label: str, text: str) -> list[str]:
    clean = "".join(char for char in text if char.isprintable())
    lines = textwrap.wrap(clean, WIDTH - LABEL - 3) or [""]
    return [f"{label if i == 0 else '':<{LABEL}} {line}" for i, line in enumerate(lines)]


def _time(seconds: float) -> str:
    """``6 min 45 s``, ``3.2 s``."""
    if seconds < 60:  # noqa: PLR2004 - seconds in a minute
        return f"{seconds:z.1f} s"
    hours, rest = divmod(round(seconds), 3600)
    minutes, left = divmod(rest, 60)
    return (f"{hours} h " if hours else "") + f"{minutes} min {left} s"


def _size(size: int) -> str:
    for unit in ("B", "kB", "MB"):
        if size < 1000:  # noqa: PLR2004 - decimal prefixes
            return f"{size:z.0f} {unit}" if unit == "B" else f"{size:z.1f} {unit}"
        size /= 1000  # type: ignore[assignment] # from here on a fraction
    return f"{size:z.1f} GB"
