"""torch: saving, cache clears, collectives, tensors that cross, and standing down where code is compiled or captured.

On a stand-in that has the names and nothing of CUDA; real torch on a CPU runs in tests/live.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dipstick.recording.probe_segments import convert, segment_files
from probed import Probed, run_probed, write_package

if TYPE_CHECKING:
    from pathlib import Path

TORCH = {
    "torch/__init__.py": """
        __version__ = '2.13.0'
        class Tensor:
            def __init__(self, is_cuda=False): self.is_cuda = is_cuda
        from . import compiler, serialization, cuda, distributed, multiprocessing
        from .serialization import save
    """,
    "torch/compiler/__init__.py": "TRACING = False\ndef is_compiling(): return TRACING\n",
    "torch/serialization.py": "def save(obj, f, pickle_protocol=2): return ('saved', f)\n",
    "torch/cuda/__init__.py": """
        from types import SimpleNamespace
        from .memory import empty_cache, memory_reserved
        now = SimpleNamespace(ms=0.0, ready=0.0, is_initialized=False, capturing=False, recorded=0)
        def is_initialized(): return now.is_initialized
        def is_current_stream_capturing():
            return now.capturing
        class Event:
            def __init__(self, enable_timing=False): assert enable_timing
            def record(self):
                assert not now.capturing
                now.recorded += 1
                self.at = now.ms
            def query(self): return self.at <= now.ready
            def elapsed_time(self, other): return other.at - self.at
    """,
    "torch/cuda/memory.py": """
        HELD = [3000, 1000]
        def empty_cache(): return 'cleared'
        def memory_reserved(): return HELD.pop(0)
    """,
    "torch/distributed/__init__.py": "from .distributed_c10d import *\n",
    "torch/distributed/distributed_c10d.py": """
        import torch
        def all_reduce(tensor, op=None, group=None, async_op=False):
            torch.cuda.now.ms += 7
            return 'work' if async_op else None
        def all_gather_into_tensor(output_tensor, input_tensor, group=None, async_op=False):
            torch.cuda.now.ms += 5
        def all_gather(tensor_list, tensor, group=None, async_op=False): return all_gather_into_tensor(tensor_list, tensor)
        def all_gather_object(object_list, obj, group=None): return all_gather(object_list, obj)
        def barrier(group=None, async_op=False, device_ids=None): raise RuntimeError('peer died')
    """,
    "torch/multiprocessing/__init__.py": "from .reductions import init_reductions\ninit_reductions()\n",
    "torch/multiprocessing/reductions.py": """
        import torch
        from multiprocessing.reduction import ForkingPickler
        def rebuild(is_cuda): return torch.Tensor(is_cuda)
        def reduce_tensor(tensor): return rebuild, (tensor.is_cuda,)
        def init_reductions(): ForkingPickler.register(torch.Tensor, reduce_tensor)
    """,
}
SAFETENSORS = {"safetensors/torch.py": "def save_file(tensors, filename, metadata=None): return filename\n"}


def run_torch(tmp_path: Path, code: str) -> Probed:
    """Run a script with the stand-in; no error, no trouble."""
    write_package(tmp_path, TORCH)
    write_package(tmp_path, SAFETENSORS)
    done = run_probed(tmp_path, code)
    assert (done.status, done.err, done.troubles()) == (0, "", [])
    return done


def test_saving_is_a_checkpoint_phase_and_an_event(tmp_path: Path) -> None:
    """Results are the functions' own; the call site is the user's line."""
    code = """
        import torch
        from safetensors.torch import save_file
        print(torch.save({}, "a.pt"), save_file({}, "b.safetensors"))
    """
    done = run_torch(tmp_path, code)
    assert done.out == "('saved', 'a.pt') b.safetensors\n"
    assert [(row["n"], row["ph"], row["l"]) for row in done.main.of("span")] == [
        ("torch.save", "checkpoint", 4), ("safetensors.save_file", "checkpoint", 4),
    ]  # fmt: skip
    assert done.main.events() == ["save", "save"]


def test_a_cache_clear_says_what_the_allocator_held(tmp_path: Path) -> None:
    """Before and after, with a CUDA context; without one the numbers are missing, not zero."""
    code = """
        import torch
        print(torch.cuda.empty_cache())
        torch.cuda.now.is_initialized = True
        torch.cuda.empty_cache()
    """
    done = run_torch(tmp_path, code)
    rows = done.main.of("span")
    assert [(row["n"], row["ph"], row.get("x")) for row in rows] == [
        ("empty_cache", "cache_clear", None),
        ("empty_cache", "cache_clear", {"reserved_before_b": 3000, "reserved_after_b": 1000}),
    ]
    details = [row.get("detail") for row in done.main.of("event") if row["n"] == "cache_clear"]
    assert (done.out, details) == ("cleared\n", [None, '{"reserved_before_b":3000,"reserved_after_b":1000}'])


def test_host_collectives(tmp_path: Path) -> None:
    """Entered and left; one row for an object gather that is made of two others; an exception passes and is recorded."""
    code = """
        import torch.distributed as dist, torch
        x = torch.Tensor()
        print(dist.all_reduce(x), dist.all_reduce(x, async_op=True), dist.all_gather_object([], x))
        try: dist.barrier()
        except RuntimeError as error: print(error)
    """
    done = run_torch(tmp_path, code)
    rows = done.main.of("coll")
    assert done.out == "None work None\npeer died\n"
    assert [row["n"] for row in rows] == ["all_reduce", "all_reduce", "all_gather_object", "barrier"]
    assert all(row["a"] <= row["b"] and "device_ms" not in row for row in rows)


def test_device_time_is_read_at_the_end_of_the_step(tmp_path: Path) -> None:
    """7 and 5 ms by the events around the calls; never before the device is there; events are used again."""
    code = """
        import torch, torch.distributed as dist
        from dipstick_probe import steps
        from dipstick_probe.hooks import torch_distributed as hook
        x = torch.Tensor(is_cuda=True)
        torch.cuda.now.is_initialized = True
        for number in range(2):
            steps.begin(number)
            dist.all_reduce(x); dist.all_gather([x], x)
            print(len(hook._pending))
            torch.cuda.now.ready = torch.cuda.now.ms if number else 0.0
            steps.end()
            print(len(hook._pending))
        print(len(hook._free))
    """
    done = run_torch(tmp_path, code)
    assert done.out.split() == ["2", "2", "4", "0", "8"]
    assert [(row["n"], row["device_ms"], row["step"]) for row in done.main.collectives()] == [
        ("all_reduce", 7, 0), ("all_gather", 5, 0), ("all_reduce", 7, 1), ("all_gather", 5, 1),
    ]  # fmt: skip


def test_what_the_host_saw_survives_a_kill(tmp_path: Path) -> None:
    """A kill -9 in the middle of a long step: the collective is there, its device time is not known."""
    code = """
        import os, signal, torch, torch.distributed as dist
        from dipstick_probe.state import STATE
        torch.cuda.now.is_initialized = True
        dist.all_reduce(torch.Tensor(is_cuda=True))
        STATE.sync()  # what the writer does twice a second
        os.kill(os.getpid(), signal.SIGKILL)
    """
    write_package(tmp_path, TORCH)
    done = run_probed(tmp_path, code)
    assert (done.status, [row["n"] for row in done.main.of("coll")]) == (-9, ["all_reduce"])
    data_rows: list[dict[str, object]] = []
    convert(
        segment_files(tmp_path / "run" / "probe"),
        lambda table, rows: data_rows.extend(rows) if table == "collectives" else None,
    )
    assert [(row["name"], row["device_ms"]) for row in data_rows] == [("all_reduce", None)]


def test_many_device_times_take_several_rows(tmp_path: Path) -> None:
    """A container of a row holds 256 items at most: none is cut off."""
    code = """
        import torch, torch.distributed as dist
        from dipstick_probe.hooks import torch_distributed as hook
        torch.cuda.now.is_initialized = True
        for _ in range(300): dist.all_reduce(torch.Tensor(is_cuda=True))
        torch.cuda.now.ready = torch.cuda.now.ms
        hook.read_events()
    """
    done = run_torch(tmp_path, code)
    numbers = [pair[0] for row in done.main.of("device") for pair in row["coll"]]
    assert numbers == [row["i"] for row in done.main.of("coll")] == list(range(1, 301))


def test_device_time_that_nobody_came_back_for_is_missing(tmp_path: Path) -> None:
    """A run that ends in the middle of a step: the host's times are there, the device's are absent, not 0."""
    code = """
        import torch, torch.distributed as dist
        torch.cuda.now.is_initialized = True
        dist.all_reduce(torch.Tensor(is_cuda=True))
    """
    (row,) = run_torch(tmp_path, code).main.of("coll")
    assert (row["n"], row["a"] <= row["b"], "device_ms" in row) == ("all_reduce", True, False)


def test_no_event_where_the_stream_does_not_wait_or_is_captured(tmp_path: Path) -> None:
    """An asynchronous call, a tensor on the host, a CUDA graph capture: only the host's times."""
    code = """
        import torch, torch.distributed as dist
        torch.cuda.now.is_initialized = True
        dist.all_reduce(torch.Tensor(is_cuda=True), async_op=True)
        dist.all_reduce(torch.Tensor(is_cuda=False))
        torch.cuda.now.capturing = True
        dist.all_reduce(torch.Tensor(is_cuda=True))
        print(torch.cuda.now.recorded)
    """
    done = run_torch(tmp_path, code)
    assert (done.out, len(done.main.of("coll"))) == ("0\n", 3)


def test_hooks_stand_down_while_torch_compiles(tmp_path: Path) -> None:
    """A traced call is only the call: no span, no event, no collective; users' marks neither."""
    code = """
        import torch, torch.distributed as dist, dipstick_probe as dipstick
        marked = dipstick.wrap(lambda: "marked", "mark")
        def everything():
            with dipstick.span("mine"): dipstick.instant("now")
            return marked(), torch.save({}, "f"), dist.all_reduce(torch.Tensor())
        torch.compiler.TRACING = True
        print(everything())
        torch.compiler.TRACING = False
        print(everything())
    """
    done = run_torch(tmp_path, code)
    assert done.out == "('marked', ('saved', 'f'), None)\n" * 2
    assert sorted(done.main.names()) == ["mark", "mine", "torch.save"]
    assert (done.main.events(), len(done.main.of("coll"))) == (["now", "save"], 1)


def test_tensors_cross_beside_the_pickle(tmp_path: Path) -> None:
    """A CUDA tensor crosses as an IPC handle, a host tensor in shared memory: by torch's own reduction, at any depth."""
    code = """
        import torch, dipstick_probe as dipstick
        from concurrent.futures import ProcessPoolExecutor
        class Deep:
            def __init__(self, inner): self.inner = [{"a": [{"b": inner}]}]
        def look(deep): return deep.inner[0]["a"][0]["b"].is_cuda
        with dipstick.span("reward"), ProcessPoolExecutor(1) as pool:
            print(pool.submit(look, Deep(torch.Tensor(is_cuda=True))).result())
        with dipstick.span("other"), ProcessPoolExecutor(1) as pool:
            print(pool.submit(look, Deep(torch.Tensor())).result(), pool.submit(len, "no tensor").result())
    """
    done = run_torch(tmp_path, code)
    ways: dict[str, set[str]] = {}
    for row in done.main.of("handoff"):
        ways.setdefault(row["from"], set()).update(row["transport"].split("+"))
    assert done.out == "True\nFalse 9\n"
    assert ways == {"reward": {"pickle", "cuda_ipc"}, "other": {"pickle", "shared_memory"}}
