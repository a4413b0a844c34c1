"""Measures dipstick against a reference in the same run, so that a slow or busy machine cancels out.

    scripts/bench [help] [sample] [reader] [day] [probe] [peers] [sampler]

Subject and reference are child processes that take turns; the ratio is that of their medians, and the memory is
the child's own peak (``wait4``). Results go to benchmarks/results.json; docs/performance.md shows them as a table.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import peer_cost
import probe_cost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.json"
PYTHON = sys.executable
DIPSTICK = str(Path(PYTHON).with_name("dipstick"))

SCAN = """
import sys, polars as pl
for table in sys.argv[2:]:
    frame = pl.scan_parquet(f"{sys.argv[1]}/{table}/*.parquet").collect()
    value, key = ("util_pct", "gpu") if "util_pct" in frame.columns else ("clock", "host")
    frame.group_by(key).agg(pl.col(value).sum())
"""
"""What every reader must at least do: read all columns of the same Parquet files, and one group-by sum."""

LOAD = """
import sys
from dipstick.recording.reader import open_recording
recording = open_recording(sys.argv[1])
for table in sys.argv[2:]:
    recording.table(table)
"""

SLICE = """
import sys
from dipstick.recording.reader import open_recording
recording = open_recording(sys.argv[1])
for table in sys.argv[2:]:
    rows = recording.table(table, start_ns=40_000 * 10**9, end_ns=40_060 * 10**9)
    assert 0 < rows.height < 100_000, rows.height
"""

READ_CSV = """
import sys
from pathlib import Path
from dipstick.importers.account import Account
from dipstick.importers.base import Sink
from dipstick.importers.options import Options
from dipstick.importers.registry import choose
path, rows = Path(sys.argv[1]), []
sink = Sink(Account(path.name, "", "host0"), lambda table, frame: rows.append(frame.height))
choose(path).read(path, Options(), sink)
assert sum(rows) > 6_000_000, sum(rows)
"""

LOAD_HTA = """
import sys, logging
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="")
"""
"""Loading alone: no analysis of HolisticTraceAnalysis is asked for."""

SPINE = """
import sys
from dipstick.analysis.pipeline import analyse
from dipstick.recording.reader import open_recording
analyse(open_recording(sys.argv[1]))
"""
"""States, phases, waits, dips and stragglers, without the checks and claims that judge them."""


@dataclass(frozen=True, slots=True)
class Child:
    """What one child process cost: wall seconds, CPU seconds of all its threads, peak resident MiB."""

    seconds: float
    cpu_s: float
    peak_mib: float


@dataclass(frozen=True, slots=True)
class Result:
    """One comparison. Seconds are medians over ``rounds``; memory is the highest peak seen.

    The CPU seconds are what is left of the figure when neighbours keep the cores busy: the wall seconds of subject
    and reference then stretch unequally, because a scan uses all cores and the analyses mostly one.
    """

    what: str
    seconds: float
    cpu_s: float
    peak_mib: float
    reference: str
    reference_seconds: float
    reference_cpu_s: float
    ratio: float
    ratio_limit: float | None
    peak_limit_mib: float | None
    rounds: int

    @property
    def is_within(self) -> bool:
        """Whether both limits hold."""
        slow = self.ratio_limit is not None and self.ratio > self.ratio_limit
        big = self.peak_limit_mib is not None and self.peak_mib > self.peak_limit_mib
        return not (slow or big)


@dataclass(frozen=True, slots=True)
class Cost:
    """What recording costs where it happens: CPU time of one call, or a share of a core.

    The reference (an empty call in the same process, in turns; one core) is what makes it comparable on a busy machine.
    """

    what: str
    cost: str
    reference: str
    ratio: float
    ratio_limit: float | None = None

    @property
    def is_within(self) -> bool:
        """Whether the limit holds."""
        return self.ratio_limit is None or self.ratio <= self.ratio_limit


def measure(command: list[str]) -> Child:
    """Run one child process (its peak memory is at least this process's own, some 20 MiB).

    Raises:
        SystemExit: The child failed; what it said is on stderr.
    """
    with tempfile.TemporaryFile() as sink:
        start = time.perf_counter()
        pid = os.posix_spawn(
            command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, sink.fileno(), 1)]
        )
        _, status, usage = os.wait4(pid, 0)
        seconds = time.perf_counter() - start
    if status:
        raise SystemExit(f"failed ({os.waitstatus_to_exitcode(status)}): {' '.join(command)}")
    return Child(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def compare(
    what: str,
    command: list[str],
    reference: str,
    reference_command: list[str],
    *,
    rounds: int,
    ratio_limit: float | None = None,
    peak_limit_mib: float | None = None,
) -> Result:
    """Run subject and reference in turns (one unmeasured round first, so that both find warm files)."""
    measure(reference_command)
    measure(command)
    pairs = [(measure(reference_command), measure(command)) for _ in range(rounds)]
    seconds, reference_seconds = (statistics.median(pair[i].seconds for pair in pairs) for i in (1, 0))
    cpu_s, reference_cpu_s = (statistics.median(pair[i].cpu_s for pair in pairs) for i in (1, 0))
    return Result(
        what=what,
        seconds=seconds,
        cpu_s=cpu_s,
        peak_mib=max(subject.peak_mib for _, subject in pairs),
        reference=reference,
        reference_seconds=reference_seconds,
        reference_cpu_s=reference_cpu_s,
        ratio=seconds / reference_seconds,
        ratio_limit=ratio_limit,
        peak_limit_mib=peak_limit_mib,
        rounds=rounds,
    )


def synthetic(*options: str) -> str:
    """A synthetic recording, made once and kept in the temporary folder for the next run.

    It is made by a child: this process must stay small, since a child's peak memory includes what its parent held.
    """
    key = hashlib.sha256((HERE / "synthetic.py").read_bytes() + repr(options).encode()).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / f"dipstick-bench-{key}"
    if not folder.with_name(f"{folder.name}.truth.json").exists():  # written last
        print(f"making {folder}: {' '.join(options)}", file=sys.stderr)
        measure([PYTHON, str(HERE / "synthetic.py"), str(folder), *options])
    return str(folder)


def bench_help() -> Iterable[Result]:
    """`dipstick --help` must feel instant."""
    bare = [PYTHON, "-c", "pass"]
    yield compare(
        "`dipstick --help`", [DIPSTICK, "--help"], "`python -c pass`", bare, rounds=15, ratio_limit=5
    )


def bench_sample() -> Iterable[Result]:
    """The shipped sample, all the way to the terminal."""
    folder = str(HERE.parent / "src" / "dipstick" / "samples" / "h200x2-grpo")
    scan = [PYTHON, "-c", SCAN, folder, "gpu", "spans", "jobs", "gpu_counters"]
    command = [DIPSTICK, "explain", "--quiet", "sample:h200x2-grpo"]
    yield compare(
        "`dipstick explain sample:h200x2-grpo`", command, "Polars scan of its Parquet", scan, rounds=7
    )


def bench_reader() -> Iterable[Result]:
    """10 million telemetry rows and 1 million spans: load all, and one minute of it."""
    hours = 10_000_000 / (8 * 10 * 3600)
    folder = synthetic("--gpus", "8", "--hz", "10", "--hours", f"{hours:.6f}", "--spans", "1000000")
    scan = [PYTHON, "-c", SCAN, folder, "gpu", "spans"]
    for what, code in (("load 10 M telemetry rows and 1 M spans", LOAD), ("load one minute of them", SLICE)):
        command = [PYTHON, "-c", code, folder, "gpu", "spans"]
        yield compare(what, command, "Polars scan of all", scan, rounds=5)


def bench_day() -> Iterable[Result]:
    """Eight GPUs for a day at 10 Hz, with 5 million spans: the analyses alone, and the whole with its verdicts."""
    folder = synthetic("--gpus", "8", "--hz", "10", "--hours", "24", "--spans", "5000000")
    scan = [PYTHON, "-c", SCAN, folder, "gpu", "spans", "jobs"]
    spine, whole = [PYTHON, "-c", SPINE, folder], [DIPSTICK, "explain", "--quiet", folder]
    day = "8 GPUs, 24 h, 10 Hz, 5 M spans"
    yield compare(
        f"the analyses alone (the spine): {day}", spine, "Polars scan of its Parquet", scan,
        rounds=3, ratio_limit=15, peak_limit_mib=4096,
    )  # fmt: skip
    yield compare(
        f"`dipstick explain`: {day}", whole, "the spine alone", spine,
        rounds=3, ratio_limit=2, peak_limit_mib=4096,
    )  # fmt: skip


def bench_probe() -> Iterable[Cost]:
    """What the hot path of the probe takes, in empty calls."""
    found = probe_cost.results(rounds=100)
    empty = f"an empty call: {found['empty_call_ns']:.0f} ns"
    for name, what in probe_cost.WHAT.items():
        limit = probe_cost.LIMIT_SPAN if name in {"user_span", "wrapped"} else None
        yield Cost(what, f"{found['us'][name]:.2f} µs", empty, found["ratio"][name], limit)
    start = found["start_ms"]
    yield Cost(
        "starting Python", f"{start['probed']:.1f} ms", f"without: {start['bare']:.1f} ms", start["ratio"]
    )


def bench_import() -> Iterable[Result]:
    """A telemetry CSV of half a gigabyte: into tables, and all the way to a recording."""
    key = hashlib.sha256((HERE / "telemetry_csv.py").read_bytes()).hexdigest()[:12]
    path = Path(tempfile.gettempdir()) / f"dipstick-bench-{key}.csv"
    if not path.exists():
        measure([PYTHON, str(HERE / "telemetry_csv.py"), str(path), "800000"])
    plain = [PYTHON, "-c", "import sys, polars as pl; pl.read_csv(sys.argv[1])", str(path)]
    size = f"{path.stat().st_size / 1e6:.0f} MB of nvidia-smi CSV, 6.4 M rows"
    reading = [PYTHON, "-c", READ_CSV, str(path)]
    yield compare(
        f"read {size}", reading, "plain Polars read of it", plain, rounds=5, ratio_limit=2, peak_limit_mib=512
    )
    out = str(path.with_suffix(".run"))
    whole = [PYTHON, "-m", "dipstick", "import", str(path), "-o", out, "--force", "--quiet"]
    yield compare(
        f"`dipstick import` of {size}", whole, "plain Polars read of it", plain, rounds=3, peak_limit_mib=512
    )


def bench_kineto() -> Iterable[Result]:
    """A Kineto trace of half a gigabyte, beside HolisticTraceAnalysis's loading it (DIPSTICK_BENCH_HTA: a Python that has it)."""
    hta = os.environ.get("DIPSTICK_BENCH_HTA")
    if hta is None:
        raise SystemExit(
            "kineto: DIPSTICK_BENCH_HTA=PYTHON, with HolisticTraceAnalysis and pandas<3 installed"
        )
    for steps in (55, 275):
        key = hashlib.sha256((HERE / "kineto_trace.py").read_bytes()).hexdigest()[:12]
        path = Path(tempfile.gettempdir()) / f"dipstick-bench-{key}-{steps}.pt.trace.json"
        if not path.exists():
            measure([PYTHON, str(HERE / "kineto_trace.py"), str(path), str(steps)])
        what = f"`dipstick import` of a Kineto trace of {path.stat().st_size / 1e6:.0f} MB, {steps * 6202 / 1e6:.2f} M events"
        out = str(path.with_suffix(".run"))
        command = [PYTHON, "-m", "dipstick", "import", str(path), "-o", out, "--force", "--quiet"]
        theirs = [hta, "-c", LOAD_HTA, str(path)]
        yield compare(
            what, command, "HolisticTraceAnalysis 0.5.0 loads it", theirs,
            rounds=2, ratio_limit=0.2, peak_limit_mib=512,
        )  # fmt: skip


def bench_peers() -> Iterable[Cost]:
    """A span of ours beside those of others; needs an interpreter that has them (DIPSTICK_BENCH_PEERS)."""
    found = peer_cost.measure(os.environ.get("DIPSTICK_BENCH_PEERS", PYTHON), rounds=100)
    ns = found["ns"]
    for name, what in peer_cost.WHAT.items():
        if name in ns:
            yield Cost(
                what,
                f"{ns[name] / 1e3:.2f} µs",
                f"an empty call: {ns['empty']:.0f} ns",
                ns[name] / ns["empty"],
            )


def bench_sampler() -> Iterable[Cost]:
    """Eight GPUs at 10 Hz, with a stand-in for NVML whose own time is taken off."""
    done = subprocess.run([PYTHON, str(HERE / "sampler_cost.py")], capture_output=True, text=True, check=True)
    share = json.loads(done.stdout)["expected_share_of_one_core"]
    yield Cost(
        "the sampler, 8 GPUs at 10 Hz (NVML's part estimated)", f"{100 * share:.1f} %", "one core", share, 0.1
    )


BENCHES: dict[str, Callable[[], Iterable[Result | Cost]]] = {
    "help": bench_help,
    "sample": bench_sample,
    "reader": bench_reader,
    "import": bench_import,
    "kineto": bench_kineto,
    "day": bench_day,
    "probe": bench_probe,
    "peers": bench_peers,
    "sampler": bench_sampler,
}


def machine() -> dict[str, Any]:
    """What the seconds were seen on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory),
        "python": platform.python_version(),
        "date": datetime.now(UTC).date().isoformat(),
        "load": round(os.getloadavg()[0], 1),
    }


def _line(result: Result | Cost) -> str:
    """One line of talk."""
    if isinstance(result, Cost):
        return f"{result.what}: {result.cost} = {result.ratio:.3g} x {result.reference}"
    return (
        f"{result.what}: {result.seconds:.3g} s, {result.peak_mib:.0f} MiB = {result.ratio:.3g} x "
        f"{result.reference} ({result.reference_seconds:.3g} s)"
    )


def main() -> int:
    """Run the named benches, keep the others' last results; status 1 if a limit does not hold."""
    parser = argparse.ArgumentParser(description="Measure dipstick against a reference in the same run.")
    parser.add_argument("names", nargs="*", metavar="name", help=f"default: all of {', '.join(BENCHES)}")
    parser.add_argument("--list", action="store_true", help="print the names")
    options = parser.parse_args()
    unknown = set(options.names) - BENCHES.keys()
    if options.list or unknown:
        print(*BENCHES, sep="\n", file=sys.stderr if unknown else sys.stdout)
        return 2 if unknown else 0
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"benches": {}}
    within = True
    for name in options.names or BENCHES:
        seen = machine()  # the load before it adds its own
        results = list(BENCHES[name]())
        kinds = {"results": Result, "costs": Cost}
        rows = {key: [asdict(one) for one in results if isinstance(one, kind)] for key, kind in kinds.items()}
        kept["benches"][name] = seen | {key: found for key, found in rows.items() if found}
        for result in results:
            within &= result.is_within
            print(_line(result), "" if result.is_within else "  OVER THE LIMIT", file=sys.stderr)
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
