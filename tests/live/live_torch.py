"""Real torch under the probe: compiled code, two gloo ranks, tensors through a pool. Run by `nox -s live`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from probed import run_probed


def test_a_wrapped_function_compiles_without_a_graph_break(tmp_path: Path) -> None:
    """``fullgraph=True`` fails on any break: hooks and marks vanish while Dynamo traces, and work in eager code."""
    done = run_probed(
        tmp_path,
        """
        import torch, dipstick_probe as dipstick
        marked = dipstick.wrap(lambda x: x * 2, "double")
        def f(x):
            with dipstick.span("inside"): y = marked(x) + 1
            return y
        compiled = torch.compile(marked, fullgraph=True, backend="eager")
        print(compiled(torch.ones(2)).tolist(), marked(torch.ones(2)).tolist())
        print(torch.compile(f, backend="eager")(torch.ones(2)).tolist())
        """,
    )
    assert (done.status, done.out.splitlines()) == (0, ["[2.0, 2.0] [2.0, 2.0]", "[3.0, 3.0]"]), done.err
    assert done.troubles() == []
    assert done.main.names().count("double") <= 2


def test_two_gloo_ranks(tmp_path: Path) -> None:
    """torchrun: two ranks with their numbers, collectives entered and left by both, results unchanged."""
    script = tmp_path / "script.py"
    code = """
    import torch, torch.distributed as dist, time
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    x = torch.full((2,), float(rank))
    if rank: time.sleep(0.5)
    dist.all_reduce(x)
    out = [torch.zeros(2) for _ in range(2)]
    dist.all_gather(out, x)
    names = [None, None]
    dist.all_gather_object(names, {"rank": rank})
    dist.barrier()
    print(rank, x.tolist(), out[0].tolist(), names)
    dist.destroy_process_group()
    """
    launcher = "import runpy, sys; sys.argv = ['torchrun', '--standalone', '--nproc_per_node', '2', sys.argv[1]]; runpy.run_module('torch.distributed.run', run_name='__main__')"
    target = tmp_path / "ranks.py"
    import textwrap

    target.write_text(textwrap.dedent(code))
    done = run_probed(tmp_path, launcher, str(target), OMP_NUM_THREADS="1")
    del script
    assert done.status == 0, done.err
    ranks = {s.of("meta")[0].get("rank"): s for s in done.segments if s.of("coll")}
    assert set(ranks) == {0, 1}
    for segment in ranks.values():
        names = [row["n"] for row in segment.of("coll")]
        assert [n for n in names if n in ("all_reduce", "all_gather", "all_gather_object")] == [
            "all_reduce",
            "all_gather",
            "all_gather_object",
        ]
    waits = {rank: next(r for r in s.of("coll") if r["n"] == "all_reduce") for rank, s in ranks.items()}
    assert waits[0]["b"] - waits[0]["a"] > 300_000_000 > waits[1]["b"] - waits[1]["a"]


def test_tensors_through_a_pool_of_torch(tmp_path: Path) -> None:
    """torch.multiprocessing's pool: a host tensor crosses in shared memory, the pickle is small."""
    done = run_probed(
        tmp_path,
        """
        import torch, torch.multiprocessing as mp, dipstick_probe as dipstick
        def total(x): return float(x.sum())
        if __name__ == "__main__":
            with dipstick.span("reward"), mp.get_context("spawn").Pool(1) as pool:
                print(pool.apply(total, (torch.ones(1_000_000),)))
        """,
    )
    (row,) = [row for row in done.main.of("handoff") if row["to"] == "workers"]
    assert (done.status, done.out) == (0, "1000000.0\n"), done.err
    assert (row["transport"], row["types"], row["bytes"] < 10_000) == (
        "pickle+shared_memory",
        "torch.Tensor[cpu]",
        True,
    )
    assert done.troubles() == []
