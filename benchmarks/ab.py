"""Does recording slow training down? Recorded and unrecorded runs of one seed, alternating; the ratio with its interval.

    python benchmarks/ab.py [--python PY] [--pairs 6] [-- CMD…]

CMD is a short training run with a fixed seed; by default tests/live/grpo_tiny.py (TRL's GRPO on a CPU) with PY, which
needs torch and trl. Each pair is one run under ``dipstick run`` and one without, in an order that alternates from pair
to pair (first recorded, then not; next time the other way round), so that a machine that warms up favours neither.
What counts is CMD's own wall and CPU time, without dipstick's start and end. The ratio is the geometric mean over pairs,
the interval Student's t on the logarithms: on a shared machine it is wide, and is printed as it is.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TIMED = (
    "import json,os,resource,subprocess,sys,time\n"
    "began=time.monotonic()\n"
    "status=subprocess.run(sys.argv[2:],stdout=subprocess.DEVNULL,stderr=subprocess.DEVNULL).returncode\n"
    "used=resource.getrusage(resource.RUSAGE_CHILDREN)\n"
    "json.dump([time.monotonic()-began,used.ru_utime+used.ru_stime,status],open(sys.argv[1],'w'))\n"
)
"""Times CMD from inside, so that starting and closing dipstick do not count; itself kept out of the recording (-I)."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """Recorded over unrecorded, with a 95 % interval; the interval is infinite for a single pair."""

    mean: float
    low: float
    high: float


def ratio(pairs: list[tuple[float, float]]) -> Ratio:
    """The geometric mean of recorded/unrecorded.

    Pairs (11, 10), (10, 10), (11, 10): logarithms 0.0953, 0, 0.0953; mean 1.066, interval 0.930 to 1.222.
    """
    from scipy.stats import t  # noqa: PLC0415 - half a second that --help need not take

    logs = [math.log(recorded / bare) for recorded, bare in pairs]
    centre = statistics.fmean(logs)
    if len(logs) == 1:
        return Ratio(math.exp(centre), 0.0, math.inf)
    half = float(t.ppf(0.975, len(logs) - 1)) * statistics.stdev(logs) / math.sqrt(len(logs))
    return Ratio(math.exp(centre), math.exp(centre - half), math.exp(centre + half))


def timed(command: list[str], *, recorded: bool) -> tuple[float, float]:
    """Wall and CPU seconds of one run.

    Raises:
        SystemExit: It failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "seconds.json")
        inner = [
            sys.executable,
            "-I",
            "-c",
            TIMED,
            str(result),
            *(word.replace("{}", folder) for word in command),
        ]
        outer = (
            [sys.executable, "-m", "dipstick", "run", "--quiet", "-o", f"{folder}/R", "--"]
            if recorded
            else []
        )
        path = {"PYTHONPATH": str(ROOT / "src")} if recorded else {}
        environment = {**os.environ, **path}
        pid = os.posix_spawn(sys.executable, [*outer, *inner], environment)
        os.waitpid(pid, 0)
        wall, cpu, status = json.loads(result.read_text())
    if status:
        raise SystemExit(f"failed with status {status}: {' '.join(command)}")
    return wall, cpu


def main() -> int:
    """Run the pairs and print each, then the ratios."""
    parser = argparse.ArgumentParser(description="Seed-paired A/B of recorded and unrecorded training.")
    parser.add_argument("--python", default=sys.executable, help="has torch and trl")
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("cmd", nargs=argparse.REMAINDER, metavar="CMD", help="{} in it is a fresh folder")
    options = parser.parse_args()
    given = options.cmd[1:] if options.cmd[:1] == ["--"] else options.cmd
    command = given or [options.python, str(ROOT / "tests/live/grpo_tiny.py"), "{}/out"]
    timed(command, recorded=False)  # unmeasured: warms the files
    walls, cpus = [], []
    for i in range(options.pairs):
        order = (True, False) if i % 2 == 0 else (False, True)
        found = {recorded: timed(command, recorded=recorded) for recorded in order}
        walls.append((found[True][0], found[False][0]))
        cpus.append((found[True][1], found[False][1]))
        print(
            f"pair {i + 1}: recorded {found[True][0]:.2f} s (CPU {found[True][1]:.2f}), not {found[False][0]:.2f} s (CPU {found[False][1]:.2f})"
        )
    for name, pairs in (("wall", walls), ("CPU", cpus)):
        r = ratio(pairs)
        print(
            f"{name}: recorded / not = {r.mean:.3f}, 95 % interval {r.low:.3f} to {r.high:.3f} ({len(pairs)} pairs)"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
