"""What of the probe needs CUDA, checked on a GPU machine: `python tests/live/cuda_check.py` (about a minute; 1 or 2 GPUs).

Not run by nox: CI has no GPU. It prints one line a check and exits 1 if one fails. Needs torch with CUDA, nothing else.
"""

from __future__ import annotations

import sys
import tempfile
import textwrap
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from probed import Probed, Row, run_probed

SINGLE = """
import os, time, torch, torch.distributed as dist, dipstick_probe as dipstick
from dipstick_probe import steps
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
torch.cuda.set_device(0)
dist.init_process_group("nccl", rank=0, world_size=1)
x = torch.ones(1 << 20, device="cuda")
steps.begin(0)
dist.all_reduce(x); torch.cuda.synchronize()
steps.end()
big = torch.empty(1 << 28, device="cuda"); del big
before = time.monotonic_ns(); torch.cuda.empty_cache(); print("cleared", before, time.monotonic_ns())
y = torch.ones(1024, device="cuda"); stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    for _ in range(3): y.mul_(1.0)
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    with dipstick.span("inside a capture"): y.add_(1.0)
    dist.all_reduce(y)
graph.replay(); torch.cuda.synchronize()
print("captured", float(y[0]))
dist.destroy_process_group()
"""
POOL = """
import torch, torch.multiprocessing as mp, dipstick_probe as dipstick
def total(x): return float(x.sum())
if __name__ == "__main__":
    x = torch.ones(1_000_000, device="cuda")
    with dipstick.span("reward"), mp.get_context("spawn").Pool(1) as pool: print(pool.apply(total, (x,)))
"""
RANKS = """
import os, time, torch, torch.distributed as dist
from dipstick_probe import steps
rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
x = torch.ones(1024, device="cuda")
dist.all_reduce(x); torch.cuda.synchronize()
steps.begin(0)
if rank: time.sleep(1.0)
dist.all_reduce(x)
print(rank, float(x[0]))
steps.end()
dist.destroy_process_group()
"""
LAUNCH = """
import runpy, sys
sys.argv = ["torchrun", "--standalone", "--nproc_per_node", "2", sys.argv[1]]
runpy.run_module("torch.distributed.run", run_name="__main__")
"""


def own_clears(done: Probed) -> list[Row]:
    """The cache clears inside the script's own call; others are torch's (a graph capture begins with one)."""
    line = next((line for line in done.out.splitlines() if line.startswith("cleared ")), "cleared 0 0")
    first, last = map(int, line.split()[1:])
    clears = [row for row in done.main.of("event") if row["n"] == "cache_clear"]
    return [row for row in clears if first <= row["a"] <= row["b"] <= last]


def single(done: Probed) -> dict[str, bool]:
    """One process, one GPU."""
    clears = own_clears(done)
    reduced = [row for row in done.main.collectives() if row["n"] == "all_reduce"]
    return {
        "the script ran, and the capture was not disturbed": done.status == 0 and "captured 2.0" in done.out,
        "a collective has its device time": reduced[0].get("device_ms", -1) >= 0,
        "a captured collective has none": "device_ms" not in reduced[1],
        "the cache clear was seen once": len(clears) == 1,
        "a cache clear says what was held": all(
            "reserved_before_b" in row.get("detail", "") for row in clears
        ),
        "no trouble": done.troubles() == [],
    }


def pool(done: Probed) -> dict[str, bool]:
    """A CUDA tensor through a spawned pool."""
    (row,) = [row for row in done.main.of("handoff") if row["to"] == "workers"]
    return {
        "the sum is right": done.out == "1000000.0\n",
        "it crossed as a CUDA handle": "cuda_ipc" in row["transport"] and "cuda" in row["device"],
        "and is named so": row["types"] == "torch.Tensor[cuda]",
    }


def ranks(done: Probed) -> dict[str, bool]:
    """Rank 1 comes a second late: rank 0's host does not wait, its device does."""
    waits = {s.of("meta")[0].get("rank"): s.collectives()[-1] for s in done.segments if s.of("coll")}
    device = {rank: row.get("device_ms", -1.0) for rank, row in waits.items()}
    return {
        "both ranks are there": set(waits) == {0, 1},
        f"rank 0's device waited a second {device}": device.get(0, 0) > 800 > device.get(1, 1e9),
    }


def main() -> int:
    """All checks that this machine's GPUs allow."""
    import torch

    found: dict[str, bool] = {}
    for script, check in ((SINGLE, single), (POOL, pool)):
        with tempfile.TemporaryDirectory() as folder:
            done = run_probed(Path(folder), script)
            print(done.err[-2000:], file=sys.stderr)
            found |= check(done)
    if torch.cuda.device_count() > 1:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "ranks.py").write_text(textwrap.dedent(RANKS))
            done = run_probed(Path(folder), LAUNCH, str(Path(folder, "ranks.py")))
            print(done.err[-2000:], file=sys.stderr)
            found |= ranks(done)
    for what, holds in found.items():
        print("ok  " if holds else "FAIL", what)
    return 0 if all(found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
