"""What the probe costs: microseconds a span and a job, each as a ratio to an empty call in the same process.

    python benchmarks/probe_cost.py [--json]

The empty call is ``f()`` with an empty body. Subjects and reference take turns in small blocks and the median of the
blocks counts, so that a busy machine cancels out. CPU time (``thread_time``) is the caller's alone; ``with the writer``
adds the writer thread's, per row, as the probe itself books it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PROBE = Path(__file__).resolve().parent.parent / "src" / "dipstick" / "probe"
LIMIT_SPAN = 80.0
"""Empty calls that a user's span may take: 4 µs where an empty call takes 50 ns."""

INSIDE = r"""
import json, os, statistics, sys, time
import dipstick_probe as dipstick
from dipstick_probe import spans, wrappers, shim, boot
from dipstick_probe.hooks import pools, pickles
from dipstick_probe.state import STATE

def empty(): pass
hooked = wrappers.timed(wrappers.Spec("hooked", "reward"))(empty)
hooked_empty = dipstick.wrap(empty, "wrapped")
class Pool:
    def submit(self, fn, *args): return None
Pool.submit = pools._hands_over("fn")(Pool.submit)
pool, payload = Pool(), ["a completion of some length"] * 8

def user_span():
    with dipstick.span("user"): pass
def hook_span(): spans.Span("hook", None, "file.py", 1).open().close()
def wrapped(): hooked()
def instant(): dipstick.instant("now")
def submit():
    with dipstick.span("reward"): pool.submit(empty, payload, 1)
job = shim.Job(empty, "key.1", is_each=False, step=1, submitted=1, source="reward")
parcel = shim.Parcel(100, None)
def run_job(): job()

def block(function, calls):
    clock, loop = time.thread_time_ns, range(calls)
    began = clock()
    for _ in loop: function()
    return (clock() - began) / calls

SUBJECTS = [empty, user_span, hook_span, wrapped, instant, submit, run_job]
times = {f.__name__: [] for f in SUBJECTS}
shim.weighed.add(__import__("_thread").get_ident())
for _ in range(int(sys.argv[1])):
    for function in SUBJECTS:
        times[function.__name__].append(block(function, 200))
        shim.ended.clear()
    time.sleep(0.02)
STATE.sync()
writer = boot.PROBE.writer
print(json.dumps({"ns": {n: statistics.median(t) for n, t in times.items()}, "rows": writer.rows, "writer_ns": writer.writer_ns}))
"""

START = "pass"
WHAT = {
    "user_span": "`with dipstick.span(name)`", "hook_span": "a hook's bare span", "wrapped": "a hooked method",
    "instant": "`dipstick.instant(name)`", "submit": "submitting a job, inside a span", "run_job": "running a job, in the worker",
}  # fmt: skip


def measure(rounds: int) -> dict[str, Any]:
    """Run the script under the probe and read what it prints."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**compiled(folder), "DIPSTICK_RUN_DIR": folder, "PYTHONPATH": str(PROBE)}
        script = Path(folder, "inside.py")
        script.write_text(INSIDE)
        done = subprocess.run(
            [sys.executable, str(script), str(rounds)],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def start_ms(rounds: int) -> tuple[float, float]:
    """CPU milliseconds of `python -c pass` under the probe and without it: medians, in turns."""
    with tempfile.TemporaryDirectory() as folder:
        bare = compiled(folder)
        probed = {**bare, "DIPSTICK_RUN_DIR": folder, "PYTHONPATH": str(PROBE)}
        pairs = [(_cpu_ms(probed), _cpu_ms(bare)) for _ in range(rounds + 1)][1:]
    return statistics.median(p for p, _ in pairs), statistics.median(b for _, b in pairs)


def compiled(folder: str) -> dict[str, str]:
    """The environment, with byte code kept as an installation does (the first, unmeasured start writes it)."""
    out = {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE"}
    kept = {name: value for name, value in os.environ.items() if name not in out}
    return {**kept, "PYTHONPYCACHEPREFIX": str(Path(folder, "bytecode"))}


def _cpu_ms(environment: dict[str, str]) -> float:
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", START], environment)
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise SystemExit("python -c pass failed")
    return (usage.ru_utime + usage.ru_stime) * 1e3


def results(rounds: int) -> dict[str, Any]:
    """Everything, as numbers."""
    found = measure(rounds)
    times = found["ns"]
    probed, bare = start_ms(max(rounds // 10, 5))
    return {
        "empty_call_ns": times["empty"],
        "us": {name: times[name] / 1e3 for name in WHAT},
        "ratio": {name: times[name] / times["empty"] for name in WHAT},
        "writer_us_a_row": found["writer_ns"] / found["rows"] / 1e3,
        "start_ms": {"probed": probed, "bare": bare, "ratio": probed / bare},
        "is_within": times["user_span"] / times["empty"] <= LIMIT_SPAN,
    }


def table(found: dict[str, Any]) -> str:
    """The results as Markdown."""
    us, ratio, start = (found[name] for name in ("us", "ratio", "start_ms"))
    lines = ["| what | CPU | × an empty call |", "| --- | --- | --- |"]
    lines += [f"| {WHAT[name]} | {us[name]:.2f} µs | {ratio[name]:.0f} × |" for name in WHAT]
    lines += [
        f"| turning a row into a line, on the writer's thread | {found['writer_us_a_row']:.2f} µs | |",
        f"| starting Python | {start['probed']:.1f} ms, without {start['bare']:.1f} ms | {start['ratio']:.2f} × of bare |",
    ]
    return "\n".join(lines)


def main() -> int:
    """Print the table; status 1 where a span takes more than its limit."""
    parser = argparse.ArgumentParser(description="Microseconds of the probe, as ratios to an empty call.")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = results(options.rounds)
    print(json.dumps(found) if options.json else table(found))
    return 0 if found["is_within"] else 1


if __name__ == "__main__":
    sys.exit(main())
