"""What recording cost the run, from the accounts that the probes and the sampler keep of themselves.

The probe times one span in its process, counts the rows that it writes, and books what its hooks and its writer
thread take. Self time = rows x one span + hooks + writer; a step's share is that over the time of all steps. It
counts everything that a rank's process recorded, from its start to its end, so it is not too low.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dipstick.model import Overhead, ProbeCost, SamplerCost
from dipstick.recording.probe_lines import count, real, small
from dipstick.recording.probe_process import WORKERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dipstick.recording.manifest import Manifest

    Account = Mapping[str, Any]

RUN_KEY, SAMPLER_KEY = "run@", "sampler@"
_IMPORTED: Final = "imported data hold no account of it"


def account_of(manifest: Manifest, left: Sequence[Account] = ()) -> Overhead:
    """The overhead of a recording.

    Args:
        manifest: Merged over writers.
        left: Accounts in probe segments that no supervisor has turned into tables.
    """
    if manifest.origin == "imported":
        return Overhead(because=_IMPORTED)
    runs, samplers = _facts(manifest, RUN_KEY), _facts(manifest, SAMPLER_KEY)
    listed = (run.get("probes") for run in runs)
    probes = [p for accounts in listed if isinstance(accounts, list) for p in accounts if isinstance(p, dict)]
    seconds = [s for run in runs if (s := real(run.get("seconds"))) is not None]
    return overhead([*probes, *left], samplers, max(seconds, default=None))


def overhead(probes: Sequence[Account], samplers: Sequence[Account], seconds: float | None) -> Overhead:
    """The overhead from plain accounts.

    Args:
        probes: One a process: ``rank, role, rows, span_ns, hook_ns, writer_ns, steps, step_ns``.
        samplers: One a host: ``cpu_s, start_cpu_s, wall_s``.
        seconds: How long the command ran.
    """
    probe, sampler = _probe(probes, seconds), _sampler(samplers)
    reasons = [] if probe else ["no probe left an account (none was loaded, or it was killed at once)"]
    reasons += [] if sampler else ["no sampler left an account (it was killed, or still runs)"]
    return Overhead(probe, sampler, "; ".join(reasons))


def _facts(manifest: Manifest, prefix: str) -> list[dict[str, Any]]:
    """Facts of every host; what is no object is left out."""
    return [
        value for key, value in manifest.info.items() if key.startswith(prefix) and isinstance(value, dict)
    ]


def self_ns(account: Account) -> int | None:
    """Nanoseconds that a probe took in its process; None before it has timed a span, which the first row makes it do.

    Worked example: 60 rows at 3 us, 1 ms of hooks and 0.4 ms of the writer are 1.58 ms.
    """
    span, rows = count(account.get("span_ns")), count(account.get("rows"))
    if rows is None or (not span and (rows or account.get("ended") is not True)):
        return None
    return rows * (span or 0) + (count(account.get("hook_ns")) or 0) + (count(account.get("writer_ns")) or 0)


def _probe(accounts: Sequence[Account], seconds: float | None) -> ProbeCost | None:
    known = [(ns, account) for account in accounts if (ns := self_ns(account)) is not None]
    if not known:
        return None
    costs = [_cost_of(account, ns, seconds) for ns, account in _of_ranks(known)]
    worst = max(costs, key=lambda cost: cost.share_pct or 0.0)
    total = sum(ns for ns, _ in known) / 1e9
    return ProbeCost(len(known), total, *worst)


def _of_ranks(known: list[tuple[int, Account]]) -> list[tuple[int, Account]]:
    """The processes that a step waits for: those with steps, else those with a rank, else all; never workers."""
    own = [(ns, a) for ns, a in known if a.get("role") not in WORKERS] or known
    stepped = [(ns, a) for ns, a in own if count(a.get("steps"))]
    return stepped or [(ns, a) for ns, a in own if small(a.get("rank")) is not None] or own


class _Share(NamedTuple):
    rank: int | None
    steps: int
    events_per_step: float | None
    self_ms_per_step: float | None
    step_s: float | None
    share_pct: float | None


def _cost_of(account: Account, ns: int, seconds: float | None) -> _Share:
    steps, step_ns, rank = (
        count(account.get("steps")) or 0,
        count(account.get("step_ns")) or 0,
        small(account.get("rank")),
    )
    if not steps or not step_ns:
        return _Share(rank, 0, None, None, None, 100 * ns / 1e9 / seconds if seconds else None)
    rows = count(account.get("rows")) or 0
    return _Share(rank, steps, rows / steps, ns / 1e6 / steps, step_ns / 1e9 / steps, 100 * ns / step_ns)


def _sampler(accounts: Iterable[Account]) -> SamplerCost | None:
    found = []
    for account in accounts:
        cpu, wall, start = (real(account.get(name)) for name in ("cpu_s", "wall_s", "start_cpu_s"))
        if cpu is not None and wall:
            found.append(SamplerCost(100 * max(0.0, cpu - (start or 0.0)) / wall, start or 0.0))
    return max(found, key=lambda cost: cost.core_pct, default=None)


def in_words(cost: Overhead, *, with_start: bool = False) -> str:
    """``probe 1.6 ms a step of 8.2 s on rank 0 (0.02 %; 60 events a step); sampler 1.0 % of one core``.

    What is not known is said, with the reason.

    Args:
        cost: What recording cost.
        with_start: Also what starting the sampler took, which is over before it matters.
    """
    told = [_probe_words(cost.probe)] if cost.probe else []
    if cost.sampler:
        start = cost.sampler.start_cpu_s if with_start else 0.0
        more = f" (and {start:z.1f} s of CPU to start it)" if start else ""
        told.append(f"sampler {share(cost.sampler.core_pct)} of one core{more}")
    if cost.because:
        missing = [name for name, known in (("probe", cost.probe), ("sampler", cost.sampler)) if not known]
        who = "" if len(missing) == 2 else f"{missing[0]} "  # noqa: PLR2004 - both of them
        told.append(f"{who}unknown, because {cost.because}")
    return "; ".join(told)


def _probe_words(probe: ProbeCost) -> str:
    who = "" if probe.rank is None else f" on rank {probe.rank}"
    if probe.self_ms_per_step is None or probe.step_s is None:
        part = "" if probe.share_pct is None else f" ({share(probe.share_pct)} of the run{who})"
        return f"probe {probe.cpu_s:.2g} CPU seconds in {probe.processes} process{'' if probe.processes == 1 else 'es'}{part}"
    return (
        f"probe {probe.self_ms_per_step:.2g} ms a step of {probe.step_s:.2g} s{who} "
        f"({share(probe.share_pct)}; {probe.events_per_step or 0:z,.0f} events a step)"
    )


def share(percent: float | None) -> str:
    """Two figures; what is too small for them is not nothing."""
    if percent is None:
        return "an unknown share"
    return "<0.01 %" if 0 < percent < 0.01 else f"{percent:z.2f} %" if percent < 1 else f"{percent:z.1f} %"  # noqa: PLR2004 - rounding
