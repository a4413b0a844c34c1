"""What one span costs in dipstick and in its peers, in one process, in turns, as ratios to an empty call.

    python benchmarks/peer_cost.py --python PY [--rounds N] [--json]

PY is an interpreter that has some of: trl (its own ``ProfilingContext``, without a logger, and with our hook on it),
viztracer (``log_event``, the nearest to a span, and a traced function) and with-line-profiler (``phase``). What it
does not have is left out and named. A span is entering and leaving a ``with`` block with nothing in it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from probe_cost import PROBE, compiled

INSIDE = r"""
import json, statistics, sys, tempfile, time
import dipstick_probe as dipstick
from dipstick_probe.state import STATE

def empty(): pass
def dipstick_span():
    with dipstick.span("user"): pass
subjects, missing, versions = {"empty": empty, "dipstick_span": dipstick_span}, [], {}

def add_trl():
    from trl.extras import profiling
    hooked = profiling.ProfilingContext
    bare = type("Bare", (hooked,), {n: getattr(hooked, n).__wrapped__ for n in ("__enter__", "__exit__")})
    def trl_bare():
        with bare("Trainer.name", []): pass
    def trl_hooked():
        with hooked("Trainer.name", []): pass
    subjects.update(trl_bare=trl_bare, trl_hooked=trl_hooked)

def add_viztracer():
    from viztracer import VizTracer
    tracer = VizTracer(verbose=0, tracer_entries=100_000)
    def viztracer_event():
        with tracer.log_event("user"): pass
    subjects.update(viztracer_event=viztracer_event)
    around["viztracer_event"] = around["viztracer_call"] = (tracer.start, lambda: (tracer.stop(), tracer.clear()))
    subjects.update(viztracer_call=lambda: empty())

def add_wlp():
    from lineprofiler.accounting import Profiler
    profiler = Profiler(run_dir=tempfile.mkdtemp(), role="trainer", trace=True)
    profiler.__enter__()
    def wlp_phase():
        with profiler.phase("user"): pass
    subjects.update(wlp_phase=wlp_phase)

around = {}
for name, add, package in (("trl", add_trl, "trl"), ("viztracer", add_viztracer, "viztracer"), ("wlp", add_wlp, "with-line-profiler")):
    try:
        add()
        from importlib.metadata import version
        versions[package] = version(package)
    except ImportError as error:
        missing.append(f"{package}: {error}")

def block(name, calls):
    function, (start, stop) = subjects[name], around.get(name, (empty, empty))
    clock, loop = time.thread_time_ns, range(calls)
    start()
    began = clock()
    for _ in loop: function()
    spent = clock() - began
    stop()
    return spent / calls

times = {name: [] for name in subjects}
for _ in range(int(sys.argv[1])):
    for name in subjects: times[name].append(block(name, 200))
    time.sleep(0.02)
result = {"ns": {n: statistics.median(t) for n, t in times.items()}, "missing": missing, "versions": versions}
sys.stdout.write("\n" + json.dumps(result) + "\n")
"""

WHAT = {
    "dipstick_span": "`with dipstick.span(name)`, recorded", "trl_bare": "TRL's `ProfilingContext`, no logger",
    "trl_hooked": "the same with our hook on it, recorded", "viztracer_event": "viztracer: `with tracer.log_event(name)`",
    "viztracer_call": "viztracer: one traced call", "wlp_phase": "with-line-profiler: `with profiler.phase(name)`",
}  # fmt: skip


def measure(python: str, rounds: int) -> dict[str, Any]:
    """Run the script under the probe with that interpreter and read its last line."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**compiled(folder), "DIPSTICK_RUN_DIR": folder, "PYTHONPATH": str(PROBE)}
        script = Path(folder, "inside.py")
        script.write_text(INSIDE)
        done = subprocess.run(
            [python, str(script), str(rounds)], capture_output=True, text=True, check=False, env=environment
        )
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def table(found: dict[str, Any]) -> str:
    """The results as Markdown."""
    ns, empty = found["ns"], found["ns"]["empty"]
    lines = ["| a span in | CPU | × an empty call |", "| --- | --- | --- |"]
    lines += [
        f"| {text} | {ns[name] / 1e3:.2f} µs | {ns[name] / empty:.0f} × |"
        for name, text in WHAT.items()
        if name in ns
    ]
    return "\n".join([*lines, *(f"not measured: {why}" for why in found["missing"])])


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description="A span of dipstick and of its peers, in turns.")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measure(options.python, options.rounds)
    print(json.dumps(found) if options.json else table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
